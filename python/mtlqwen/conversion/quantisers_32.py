"""Quantisers to the formats of 32 weights a block, bit-equal to those of ggml; and NVFP4."""

from __future__ import annotations

import numpy as np

from mtlqwen.conversion.codes import (
    Array,
    Bytes,
    Codes,
    below,
    halves,
    inverse,
    largest,
    nearest,
    nibbles,
    pack,
    quotient,
    through_half,
)

# The values of E2M1, as GGUF orders its codes, and the numbers between which a magnitude changes.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_E2M1_MIDDLES = (_E2M1[1:] + _E2M1[:-1]) * np.float32(0.5)
_HALF = np.float32(0.49999997)  # the last float32 before one half: rounding by it never goes up
# Magnitudes of E4M3, by code: 3 bits of mantissa, exponents from 2^-6 on.
_E4M3 = np.array([m * 2**-9 for m in range(8)]
                 + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)][:-1],
                 np.float32)  # fmt: skip
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


def q8_0(blocks: Array) -> Bytes:
    """Q8_0; ties are rounded away from zero."""
    d = np.abs(blocks).max(axis=1) / np.float32(127)
    codes = blocks * inverse(d)[:, None]
    codes += np.copysign(_HALF, codes)
    return pack(halves(d), codes.astype(np.int8))


def q4_0(blocks: Array) -> Bytes:
    """Q4_0."""
    d, codes = _centred(blocks, 8)
    return pack(halves(d), nibbles(codes))


def q5_0(blocks: Array) -> Bytes:
    """Q5_0."""
    d, codes = _centred(blocks, 16)
    return pack(halves(d), _fifth_bits(codes), nibbles(codes & 15))


def q4_1(blocks: Array) -> Bytes:
    """Q4_1."""
    d, low, codes = _raised(blocks, 15)
    return pack(halves(d), halves(low), nibbles(codes))


def q5_1(blocks: Array) -> Bytes:
    """Q5_1."""
    d, low, codes = _raised(blocks, 31)
    return pack(halves(d), halves(low), _fifth_bits(codes), nibbles(codes & 15))


def _centred(blocks: Array, middle: int) -> tuple[Array, Bytes]:
    """Scale, and codes 0 .. 2 middle - 1, of which the largest weight has 0."""
    d = largest(blocks) / np.float32(-middle)
    codes = blocks * inverse(d)[:, None] + np.float32(middle + 0.5)
    return d, codes.astype(np.uint8).clip(0, 2 * middle - 1)


def _raised(blocks: Array, most: int) -> tuple[Array, Array, Bytes]:
    """Scale, least weight, and codes 0 .. most above it."""
    low = blocks.min(axis=1)
    d = (blocks.max(axis=1) - low) / np.float32(most)
    codes = (blocks - low[:, None]) * inverse(d)[:, None] + np.float32(0.5)
    return d, low, codes.astype(np.uint8).clip(0, most)


def _fifth_bits(codes: Bytes) -> Bytes:
    return np.packbits(codes >> 4, axis=1, bitorder="little")


def iq4_nl(blocks: Array) -> Bytes:
    """IQ4_NL."""
    d = through_half(largest(blocks) / np.float32(-127))
    return pack(halves(d), nibbles(nearest(quotient(blocks, d[:, None]), IQ4_VALUES)))


def mxfp4(blocks: Array) -> Bytes:
    """MXFP4: scales are powers of two."""
    top = np.abs(blocks).max(axis=1)
    exponents = np.where(top > 0, np.frexp(top)[1], -124).clip(-124)  # scales go down to 2^-127
    codes = _e2m1(np.ldexp(blocks, (3 - exponents)[:, None]))
    return pack((exponents + 124).astype(np.uint8)[:, None], nibbles(codes))


def nvfp4(blocks: Array) -> Bytes:
    """NVFP4, without the scale of a tensor that ModelOpt's files have."""
    groups = blocks.reshape(-1, 4, 16)
    middles = (_E4M3[1:] + _E4M3[:-1]) / 2
    scales = np.searchsorted(middles, np.abs(groups).max(axis=2) / 6, side="right").astype(np.uint8)
    codes = _e2m1(quotient(groups, _E4M3[scales][..., None]))
    return pack(scales, nibbles(codes).reshape(-1, 32))


def _e2m1(values: Array) -> Codes:
    """Nearest codes; of two as near the lesser, and zero without a sign."""
    codes = below(_E2M1_MIDDLES, np.abs(values))
    return codes | ((values < 0) & (codes > 0)).astype(np.uint8) << 3
