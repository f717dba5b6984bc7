"""Quantisers to the formats of 256 weights a block, by plain rounding.

Scales follow from the largest and least weight of each group, and codes are the nearest. Nothing is
known of how weights are used: files made with an importance matrix are better.
"""

from __future__ import annotations

import numpy as np

from mtlqwen.conversion.codes import (
    Array,
    Bytes,
    Codes,
    Signed,
    bits,
    halves,
    largest,
    nearest,
    nibbles,
    pack,
    quotient,
    signed,
    through_half,
    unsigned,
)
from mtlqwen.conversion.quantisers_32 import IQ4_VALUES


def q2_k(blocks: Array) -> Bytes:
    """Q2_K."""
    d, dmin, scale, offset, codes = _raised(blocks.reshape(-1, 16, 16), 3, 15)
    return pack(scale | offset << 4, bits(codes, 2), halves(d), halves(dmin))


def q3_k(blocks: Array) -> Bytes:
    """Q3_K."""
    groups = blocks.reshape(-1, 16, 16)
    d, scale = _signed_scales(groups, -4, 32)
    codes = _plain(signed(_scaled(groups, d, scale), -4, 3) + np.int8(4))
    raised = _plain(scale + np.int8(32))
    high = _fours(raised >> 4)
    return pack(bits(codes >> 2, 1), bits(codes & 3, 2), nibbles(raised & 15), high, halves(d))


def q4_k(blocks: Array) -> Bytes:
    """Q4_K."""
    d, dmin, scale, offset, codes = _raised(blocks.reshape(-1, 8, 32), 15, 63)
    return pack(halves(d), halves(dmin), _six_bits(scale, offset), bits(codes, 4))


def q5_k(blocks: Array) -> Bytes:
    """Q5_K."""
    d, dmin, scale, offset, codes = _raised(blocks.reshape(-1, 8, 32), 31, 63)
    heads = (halves(d), halves(dmin), _six_bits(scale, offset))
    return pack(*heads, bits(codes >> 4, 1), bits(codes & 15, 4))


def q6_k(blocks: Array) -> Bytes:
    """Q6_K."""
    groups = blocks.reshape(-1, 16, 16)
    d, scale = _signed_scales(groups, -32, 128)
    codes = _plain(signed(_scaled(groups, d, scale), -32, 31) + np.int8(32)).reshape(-1, 256)
    low = nibbles((codes & 15).reshape(-1, 2, 128)).reshape(-1, 128)
    return pack(low, bits(codes >> 4, 2), scale, halves(d))


def iq4_xs(blocks: Array) -> Bytes:
    """IQ4_XS."""
    groups = blocks.reshape(-1, 8, 32)
    d, scale = _signed_scales(groups, -127, 32)
    codes = nearest(_scaled(groups, d, scale), IQ4_VALUES)
    raised = _plain(scale + np.int8(32))
    low = (raised[:, ::2] & 15) | raised[:, 1::2] << 4
    high = _fours((raised >> 4).reshape(-1, 2, 4).swapaxes(1, 2).reshape(-1, 8))
    return pack(halves(d), high, low, nibbles(codes).reshape(-1, 128))


def _signed_scales(groups: Array, code: int, most: int) -> tuple[Array, Signed]:
    """Scales that make the largest element `code`: a half d of a block, and whole multiples of it.

    The largest multiple in magnitude is -most.
    """
    scales = largest(groups) / np.float32(code)
    d = through_half(largest(scales) / np.float32(-most))
    return d, signed(quotient(scales, d[:, None]), -most, most - 1)


def _scaled(groups: Array, d: Array, scale: Signed) -> Array:
    return quotient(groups, (d[:, None] * scale)[..., None])


def _raised(groups: Array, most: int, most_scale: int) -> tuple[Array, Array, Bytes, Bytes, Bytes]:
    """d, dmin, multiples of them, and codes 0 .. most: w = d * scale * code - dmin * offset."""
    lows = np.minimum(groups.min(axis=-1), 0)
    spans = (np.maximum(groups.max(axis=-1), 0) - lows) / np.float32(most)
    d, scale = _positive_scales(spans, most_scale)
    dmin, offset = _positive_scales(-lows, most_scale)
    raised = groups + (dmin[:, None] * offset)[..., None]
    codes = unsigned(quotient(raised, (d[:, None] * scale)[..., None]), most)
    return d, dmin, scale, offset, codes.reshape(-1, 256)


def _positive_scales(values: Array, most: int) -> tuple[Array, Bytes]:
    d = through_half(values.max(axis=-1) / np.float32(most))
    return d, unsigned(quotient(values, d[:, None]), most)


def _six_bits(scale: Bytes, offset: Bytes) -> Bytes:
    """Eight scales and eight offsets of 6 bits as 12 bytes."""
    last = (scale[:, 4:] & 15) | (offset[:, 4:] & 15) << 4
    first = [values[:, :4] | values[:, 4:] >> 4 << 6 for values in (scale, offset)]
    return pack(*first, last)


def _fours(codes: Codes) -> Codes:
    """(n, 4 m) codes of 2 bits as m bytes: byte i has codes i, i + m, i + 2 m, i + 3 m."""
    parts = codes.reshape(len(codes), 4, -1)
    packed: Codes = parts[:, 0] | parts[:, 1] << 2 | parts[:, 2] << 4 | parts[:, 3] << 6
    return packed


def _plain(codes: Signed) -> Bytes:
    """Codes that are not negative, as bytes of a block."""
    return codes.view(np.uint8).reshape(len(codes), -1)
