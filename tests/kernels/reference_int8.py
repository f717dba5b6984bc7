"""What int8 rows (int8_rows.py) stand for, and how far that is from what was quantised."""

from __future__ import annotations

import numpy as np
from harness import UNIT, Buffer, Float64
from int8_rows import LEAST, QBLOCK, Floats, split_rows
from numpy.typing import NDArray
from reference import Weights


def dequantise(stored: Buffer, k: int) -> Float64:
    """The exact values (rows, k) of int8 rows."""
    quants, scales, _ = split_rows(stored, k)
    return (quants * scales.astype(np.float64)[..., None]).reshape(-1, k)


def pack(quants: NDArray[np.int8], scales: Floats) -> Buffer:
    """Int8 rows of any quants (rows, k / 32, 32) and scales."""
    parts = (quants, scales, quants.sum(axis=-1, dtype=np.int32))
    return np.concatenate([part.reshape(len(part), -1).view(np.uint8) for part in parts], axis=1)


def quantising_error(x: Buffer) -> Float64:
    """Bound of |x - quantised x|, one for each qblock: half a step, and the roundings.

    The quotient 127 / max, its products and the scale round by u relative, which moves a value by
    at most 127 u of a step each. A zero qblock errs by its largest.
    """
    most = np.abs(x.astype(np.float64)).reshape(len(x), -1, QBLOCK).max(axis=-1)
    bound: Float64 = np.where(most < LEAST, most, most / 127 * (0.5 + 127 * 4 * UNIT))
    return bound


def unquantised_bound(x: Buffer, weights: Weights) -> Float64:
    """How far the product of quantised x with the weights may lie from that of x."""
    qblocks = np.abs(weights.values).reshape(len(weights.values), -1, QBLOCK).sum(axis=-1)
    bound: Float64 = quantising_error(x) @ qblocks.T
    return bound


def silu(x: Float64) -> Float64:
    """X times its logistic function."""
    with np.errstate(over="ignore"):
        result: Float64 = x / (1 + np.exp(-x))
    return result
