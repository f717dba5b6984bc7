"""Int8 rows (metal/int8.h): made as kernels make them, compared with what they stand for."""

from __future__ import annotations

import numpy as np
from harness import UNIT, Buffer, Float64, check
from numpy.typing import NDArray

QBLOCK, QBLOCK_BYTES = 32, 40  # elements that share a scale; their int8, scale and sum
LEAST = np.float32(2.0**-100)  # a qblock with nothing larger is all zero

Floats = NDArray[np.float32]


def empty_rows(rows: int, k: int) -> Buffer:
    """Int8 rows of k elements that nobody has written yet."""
    return np.full((rows, k // QBLOCK * QBLOCK_BYTES), 0xA5, np.uint8)


def split_rows(stored: Buffer, k: int) -> tuple[NDArray[np.int8], Floats, NDArray[np.int32]]:
    """Quants (rows, k / 32, 32), scales and sums (rows, k / 32) of int8 rows."""
    rows = stored.reshape(-1, k // QBLOCK * QBLOCK_BYTES)
    quants = rows[:, :k].view(np.int8).reshape(-1, k // QBLOCK, QBLOCK)
    scales = np.ascontiguousarray(rows[:, k : k + k // 8]).view(np.float32)
    sums = np.ascontiguousarray(rows[:, k + k // 8 :]).view(np.int32)
    return quants, scales, sums


def quantise(x: Floats) -> Buffer:
    """Int8 rows of x (rows, k), byte for byte."""
    rows, k = x.shape
    blocks = x.reshape(rows, k // QBLOCK, QBLOCK)
    most = np.abs(blocks).max(axis=-1, keepdims=True)
    is_finite = np.isfinite(blocks).all(axis=-1, keepdims=True)
    fits = is_finite & (most >= LEAST)
    inverse = np.float32(127) / np.where(fits, most, np.float32(1))
    quants = np.rint(np.where(fits, blocks, np.float32(0)) * inverse).astype(np.int8)
    scales = np.where(fits, most / np.float32(127), np.float32(0))
    scales = np.where(is_finite, scales, np.float32(np.nan)).astype(np.float32)
    parts = (quants, scales, quants.sum(axis=-1, dtype=np.int32))
    return np.concatenate([part.reshape(rows, -1).view(np.uint8) for part in parts], axis=1)


def check_int8(stored: Buffer, expected: Float64, bound: Float64) -> None:
    """Fail unless the rows are those of values within `bound` of `expected` (rows, k)."""
    rows, k = expected.shape
    quants, scales, sums = split_rows(stored, k)
    assert np.array_equal(sums, quants.sum(axis=-1, dtype=np.int32)), "a sum is not of its quants"
    blocks = expected.reshape(rows, -1, QBLOCK)
    bounds = bound.reshape(blocks.shape)
    # The largest of values that are off by up to `bound` is off by the largest of those.
    check(
        scales * np.float64(127),
        np.abs(blocks).max(axis=-1),
        bounds.max(axis=-1) + 2 * UNIT * np.abs(blocks).max(axis=-1),
    )
    # To the nearest quant; 127 / most, its product and the scale round once each.
    step = scales.astype(np.float64)[..., None] * (0.5 + 127 * 4 * UNIT)
    check(quants * scales.astype(np.float64)[..., None], blocks, bounds + step)
