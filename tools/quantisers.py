"""Quantisers to the formats of GGUF: the gguf package's where it has one, plain rounding elsewhere.

Plain rounding chooses scales by the largest weight of each group and takes the nearest code. It
knows nothing of how weights are used: files made with an importance matrix are better.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, quants

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

IQ4_VALUES = np.array(quants.IQ4_NL.kvalues, np.float32)
E2M1_VALUES = (np.array(quants.NVFP4.kvalues) / 2).astype(np.float32)


def halves(values: Array) -> Bytes:
    """One half a block."""
    return values.astype(np.float16).reshape(-1, 1).view(np.uint8)


def rounded(values: Array, low: int, high: int) -> Ints:
    """To the nearest whole number within bounds."""
    return np.rint(values).clip(low, high).astype(np.int64)


def quotient(values: Array, by: Array) -> Array:
    """Values / by, zero where `by` is."""
    zeros = np.zeros(np.broadcast(values, by).shape, np.float32)
    return np.divide(values, by, out=zeros, where=by != 0)


def largest(groups: Array) -> Array:
    """The element of largest magnitude of each group, with its sign."""
    at = np.abs(groups).argmax(axis=-1)[..., None]
    return np.take_along_axis(groups, at, axis=-1)[..., 0]


def signed_scales(groups: Array, code: int, most: int) -> tuple[Array, Ints]:
    """Scales that make the largest element `code`: a half d of a block, and whole multiples of it.

    The largest multiple in magnitude is -most.
    """
    scales = largest(groups) / np.float32(code)
    d = (largest(scales) / np.float32(-most)).astype(np.float16).astype(np.float32)
    return d, rounded(quotient(scales, d[:, None]), -most, most - 1)


def positive_scales(groups: Array, codes: int, most: int) -> tuple[Array, Array, Ints, Ints]:
    """d, dmin, and whole multiples of them: w = d * scale * code - dmin * offset."""
    lows = np.minimum(groups.min(axis=-1), 0)
    scales = (np.maximum(groups.max(axis=-1), 0) - lows) / np.float32(codes)
    halved = []
    for part in (scales, -lows):
        d = (part.max(axis=-1) / np.float32(most)).astype(np.float16).astype(np.float32)
        halved.append((d, rounded(quotient(part, d[:, None]), 0, most)))
    (d, scale), (dmin, offset) = halved
    return d, dmin, scale, offset


def codes_between(groups: Array, scaled: tuple[Array, Array, Ints, Ints], most: int) -> Ints:
    """Nearest codes 0 .. most of weights with scales and offsets."""
    d, dmin, scale, offset = scaled
    raised = groups + (dmin[:, None] * offset)[..., None]
    return rounded(quotient(raised, (d[:, None] * scale)[..., None]), 0, most)


def two_bits(codes: Ints) -> Ints:
    """(n, 256) codes of 2 bits as 64 bytes."""
    parts = (codes.reshape(-1, 2, 4, 32) & 3) << np.array([0, 2, 4, 6])[:, None]
    packed: Ints = parts.sum(axis=2).reshape(-1, 64)
    return packed


def four_bits(codes: Ints) -> Ints:
    """(n, 256) codes of 4 bits as 128 bytes: 32 low nibbles, then as many high ones."""
    parts = codes.reshape(-1, 4, 2, 32) & 15
    return (parts[:, :, 0] | parts[:, :, 1] << 4).reshape(-1, 128)


def one_bit(codes: Ints) -> Ints:
    """(n, 256) bits as 32 bytes: byte i has elements i, i + 32, .."""
    packed: Ints = ((codes.reshape(-1, 8, 32) & 1) << np.arange(8)[:, None]).sum(axis=1)
    return packed


def pack(*parts: Bytes | Ints) -> Bytes:
    """Blocks of parts (n, bytes) behind one another."""
    return np.concatenate([part.astype(np.uint8) for part in parts], axis=1)


def q2_k(blocks: Array) -> Bytes:
    """Q2_K."""
    groups = blocks.reshape(-1, 16, 16)
    scaled = positive_scales(groups, 3, 15)
    d, dmin, scale, offset = scaled
    codes = codes_between(groups, scaled, 3)
    return pack(scale | offset << 4, two_bits(codes), halves(d), halves(dmin))


def q3_k(blocks: Array) -> Bytes:
    """Q3_K."""
    groups = blocks.reshape(-1, 16, 16)
    d, scale = signed_scales(groups, -4, 32)
    codes = rounded(quotient(groups, (d[:, None] * scale)[..., None]), -4, 3) + 4
    raised = scale + 32
    low = (raised[:, :8] & 15) | (raised[:, 8:] & 15) << 4
    high = ((raised >> 4).reshape(-1, 4, 4) << np.array([0, 2, 4, 6])[:, None]).sum(axis=1)
    return pack(one_bit(codes >> 2), two_bits(codes), low, high, halves(d))


def k_scales(scale: Ints, offset: Ints) -> Ints:
    """Eight scales and eight offsets of 6 bits as 12 bytes."""
    last = (scale[:, 4:] & 15) | (offset[:, 4:] & 15) << 4
    first = [values[:, :4] | values[:, 4:] >> 4 << 6 for values in (scale, offset)]
    return np.concatenate([*first, last], axis=1)


def q4_k(blocks: Array) -> Bytes:
    """Q4_K."""
    groups = blocks.reshape(-1, 8, 32)
    scaled = positive_scales(groups, 15, 63)
    d, dmin, scale, offset = scaled
    codes = codes_between(groups, scaled, 15)
    return pack(halves(d), halves(dmin), k_scales(scale, offset), four_bits(codes))


def q5_k(blocks: Array) -> Bytes:
    """Q5_K."""
    groups = blocks.reshape(-1, 8, 32)
    scaled = positive_scales(groups, 31, 63)
    d, dmin, scale, offset = scaled
    codes = codes_between(groups, scaled, 31)
    heads = (halves(d), halves(dmin), k_scales(scale, offset))
    return pack(*heads, one_bit(codes >> 4), four_bits(codes))


def q6_k(blocks: Array) -> Bytes:
    """Q6_K."""
    groups = blocks.reshape(-1, 16, 16)
    d, scale = signed_scales(groups, -32, 128)
    codes = rounded(quotient(groups, (d[:, None] * scale)[..., None]), -32, 31) + 32
    parts = codes.reshape(-1, 2, 4, 32)
    low = ((parts[:, :, :2] & 15) | (parts[:, :, 2:] & 15) << 4).reshape(-1, 128)
    high = (parts >> 4 << np.array([0, 2, 4, 6])[:, None]).sum(axis=2).reshape(-1, 64)
    return pack(low, high, scale, halves(d))


def nearest(values: Array, table: Array) -> Ints:
    """Index of the closest number of a table."""
    order = np.argsort(table, kind="stable")
    middles = (table[order][1:] + table[order][:-1]) / 2
    return order[np.searchsorted(middles, values)].astype(np.int64)


def nibbles(codes: Ints) -> Ints:
    """Groups (.., 2 h) of codes as h bytes: the first half low, the second high."""
    half = codes.shape[-1] // 2
    return codes[..., :half] | codes[..., half:] << 4


def iq4_nl(blocks: Array) -> Bytes:
    """IQ4_NL."""
    d = (largest(blocks) / np.float32(-127)).astype(np.float16).astype(np.float32)
    return pack(halves(d), nibbles(nearest(quotient(blocks, d[:, None]), IQ4_VALUES)))


def iq4_xs(blocks: Array) -> Bytes:
    """IQ4_XS."""
    groups = blocks.reshape(-1, 8, 32)
    d, scale = signed_scales(groups, -127, 32)
    codes = nearest(quotient(groups, (d[:, None] * scale)[..., None]), IQ4_VALUES)
    raised = scale + 32
    high = ((raised >> 4) << np.arange(0, 16, 2)).sum(axis=1).astype(np.uint16)
    low = (raised[:, ::2] & 15) | (raised[:, 1::2] & 15) << 4
    return pack(halves(d), high[:, None].view(np.uint8), low, nibbles(codes).reshape(-1, 128))


def nvfp4(blocks: Array) -> Bytes:
    """NVFP4, without the scale of a tensor that ModelOpt's files have."""
    groups = blocks.reshape(-1, 4, 16)
    scales: Bytes = quants.NVFP4.fp32_to_ue4m3(np.abs(groups).max(axis=-1) / 6)
    values = quants.NVFP4.ue4m3_to_fp32(scales).astype(np.float32) * 2
    codes = nearest(quotient(groups, values[..., None]), E2M1_VALUES)
    return pack(scales, nibbles(codes).reshape(-1, 32))


PLAIN: dict[str, tuple[int, Callable[[Array], Bytes]]] = {
    "Q2_K": (256, q2_k),
    "Q3_K": (256, q3_k),
    "Q4_K": (256, q4_k),
    "Q5_K": (256, q5_k),
    "Q6_K": (256, q6_k),
    "IQ4_NL": (32, iq4_nl),
    "IQ4_XS": (256, iq4_xs),
    "NVFP4": (64, nvfp4),
}
FROM_PACKAGE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
FORMATS = (*FROM_PACKAGE, *PLAIN)


def quantise(values: Array, name: str) -> npt.NDArray[np.generic]:
    """Return rows in a format of FORMATS, as GGUF stores them."""
    rows = np.ascontiguousarray(values, np.float32)
    if name in PLAIN:
        elements, function = PLAIN[name]
        return function(rows.reshape(-1, elements)).reshape(len(rows), -1)
    stored: npt.NDArray[np.generic] = quants.quantize(rows, GGMLQuantizationType[name])
    return stored
