"""What quantisers share: scales, codes, and codes packed to bytes.

Weights come as float32 blocks, one a row. All codes fit a byte, so that no array is wider than the
weights are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Signed = npt.NDArray[np.int8]
Codes = npt.NDArray[Any]  # of uint8 or int8


def halves(values: Array) -> Bytes:
    """One half a block."""
    return values.astype("<f2").reshape(-1, 1).view(np.uint8)


def through_half(values: Array) -> Array:
    """What halves keep of the values."""
    return values.astype(np.float16).astype(np.float32)


def signed(values: Array, low: int, high: int) -> Signed:
    """To the nearest whole number within bounds; the values are used up."""
    return _rounded(values, low, high).astype(np.int8)


def unsigned(values: Array, high: int) -> Bytes:
    """To the nearest whole number of 0 .. high; the values are used up."""
    return _rounded(values, 0, high).astype(np.uint8)


def _rounded(values: Array, low: int, high: int) -> Array:
    np.rint(values, out=values)
    return np.clip(values, low, high, out=values)


def quotient(values: Array, by: Array) -> Array:
    """Values / by, zero where `by` is."""
    divisors: Array = np.where(by == 0, np.float32(np.inf), by)
    return values / divisors


def inverse(values: Array) -> Array:
    """1 / values, zero where they are."""
    return quotient(np.ones_like(values), values)


def largest(groups: Array) -> Array:
    """The element of largest magnitude of each group, with its sign; the first of several."""
    at = np.abs(groups).argmax(axis=-1)[..., None]
    return np.take_along_axis(groups, at, axis=-1)[..., 0]


def nearest(values: Array, table: Array) -> Bytes:
    """Index of the closest number of an ascending table of at most 256; the lesser of two."""
    return below((table[1:] + table[:-1]) * np.float32(0.5), values)


def below(bounds: Array, values: Array) -> Bytes:
    """How many of at most 255 bounds each value is above.

    One pass for each of a few bounds is many times as fast as a search for each value.
    """
    count = np.zeros(values.shape, np.uint8)
    for bound in bounds:
        count += values > bound
    return count


def nibbles(codes: Codes) -> Codes:
    """Groups (.., 2 h) of codes as h bytes: the first half low, the second high."""
    half = codes.shape[-1] // 2
    packed: Codes = codes[..., :half] | codes[..., half:] << 4
    return packed


def bits(codes: Codes, width: int) -> Codes:
    """(n, 256) codes of `width` bits as bytes: 32 of the first bits, as many of the next, .."""
    parts = codes.reshape(len(codes), -1, 8 // width, 32)
    packed: Codes = parts[:, :, 0].copy()
    for i in range(1, 8 // width):
        packed |= parts[:, :, i] << np.uint8(i * width)
    return packed.reshape(len(codes), -1)


def pack(*parts: Codes) -> Bytes:
    """Blocks of parts (n, bytes) behind one another."""
    return np.concatenate([part.view(np.uint8) for part in parts], axis=1)
