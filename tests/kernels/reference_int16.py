"""What int16 rows (int16_rows.py) stand for, and how far that is from what was quantised."""

from __future__ import annotations

import numpy as np
from harness import UNIT, Buffer, Float64
from int16_rows import LEAST, MOST, QBLOCK, split_rows
from reference import Weights


def dequantise(stored: Buffer, k: int) -> Float64:
    """The exact values (rows, k) of int16 rows."""
    quants, scales = split_rows(stored, k)
    return (quants * scales.astype(np.float64)[..., None]).reshape(-1, k)


def quantising_error(x: Buffer) -> Float64:
    """Bound of |x - quantised x|, one for each qblock: half a step, and the roundings.

    The quotient 32767 / max, its products and the scale round by u relative, which moves a value by
    at most 32767 u of a step each. A zero qblock errs by its largest.
    """
    most = np.abs(x.astype(np.float64)).reshape(len(x), -1, QBLOCK).max(axis=-1)
    bound: Float64 = np.where(most < LEAST, most, most / MOST * (0.5 + MOST * 4 * UNIT))
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
