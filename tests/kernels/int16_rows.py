"""Int16 rows (metal/int16.h): made as kernels make them, compared with what they stand for."""

from __future__ import annotations

import numpy as np
from harness import UNIT, Buffer, Float64, check
from numpy.typing import NDArray

QBLOCK, QBLOCK_BYTES = 32, 76  # elements that share a scale; their quants, scale and two sums
MOST = np.float32(32767)  # the largest quant
LEAST = np.float32(2.0**-100)  # a qblock with nothing larger is all zero

Floats = NDArray[np.float32]


def empty_rows(rows: int, k: int) -> Buffer:
    """Int16 rows of k elements that nobody has written yet."""
    return np.full((rows, k // QBLOCK * QBLOCK_BYTES), 0xA5, np.uint8)


def split_rows(stored: Buffer, k: int) -> tuple[NDArray[np.int16], Floats]:
    """Quants (rows, k / 32, 32) and scales (rows, k / 32) of int16 rows."""
    rows = stored.reshape(-1, k // QBLOCK * QBLOCK_BYTES)
    quants = np.ascontiguousarray(rows[:, : 2 * k]).view(np.int16).reshape(-1, k // QBLOCK, QBLOCK)
    floats = np.ascontiguousarray(rows[:, 2 * k :]).view(np.float32)
    scales, sums = np.split(floats, [k // QBLOCK], axis=1)
    assert sums.tobytes() == sums_of(quants, scales).tobytes()
    return quants, scales


def sums_of(quants: NDArray[np.int16], scales: Floats) -> Floats:
    """Of each 16 elements, times their scale: (rows, k / 16)."""
    rows = len(scales)
    sums = quants.reshape(rows, -1, 2, QBLOCK // 2).sum(axis=-1, dtype=np.int32)
    result: Floats = (sums.astype(np.float32) * scales.reshape(rows, -1, 1)).reshape(rows, -1)
    return result


def join_rows(quants: NDArray[np.int16], scales: Floats) -> Buffer:
    """Int16 rows of any quants (rows, k / 32, 32) and scales."""
    parts = (quants, scales, sums_of(quants, scales))
    return np.concatenate([part.reshape(len(part), -1).view(np.uint8) for part in parts], axis=1)


def quantise(x: Floats) -> Buffer:
    """Int16 rows of x (rows, k), byte for byte."""
    rows, k = x.shape
    blocks = x.reshape(rows, k // QBLOCK, QBLOCK)
    most = np.abs(blocks).max(axis=-1, keepdims=True)
    is_finite = np.isfinite(blocks).all(axis=-1, keepdims=True)
    fits = is_finite & (most >= LEAST)
    inverse = MOST / np.where(fits, most, np.float32(1))
    quants = np.rint(np.where(fits, blocks, np.float32(0)) * inverse).astype(np.int16)
    scales = np.where(fits, most / MOST, np.float32(0))
    scales = np.where(is_finite, scales, np.float32(np.nan)).astype(np.float32)
    return join_rows(quants, scales)


def check_int16(stored: Buffer, expected: Float64, bound: Float64) -> None:
    """Fail unless the rows are those of values within `bound` of `expected` (rows, k)."""
    rows, k = expected.shape
    quants, scales = split_rows(stored, k)
    blocks = expected.reshape(rows, -1, QBLOCK)
    bounds = bound.reshape(blocks.shape)
    # The largest of values that are off by up to `bound` is off by the largest of those.
    check(
        scales * np.float64(MOST),
        np.abs(blocks).max(axis=-1),
        bounds.max(axis=-1) + 2 * UNIT * np.abs(blocks).max(axis=-1),
    )
    # To the nearest quant; MOST / most, its product and the scale round once each.
    step = scales.astype(np.float64)[..., None] * (0.5 + MOST * 4 * UNIT)
    check(quants * scales.astype(np.float64)[..., None], blocks, bounds + step)
