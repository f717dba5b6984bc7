"""Logarithms of probability in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from reference_layers import FUNCTION, Array, U

# Of a sum of up to 248320 exponentials, relative: 64 terms at most to a running sum, then folds.
SUM_ERROR = 1e-5


def scores(row: NDArray[np.float32], n_valid: int) -> Array:
    """Logits as they count: none is NaN, none above the floats."""
    valid = row[:n_valid].astype(np.float64)
    return np.minimum(np.where(np.isnan(valid), -np.inf, valid), float(np.finfo(np.float32).max))


def log_softmax(row: NDArray[np.float32], n_valid: int) -> tuple[Array, Array]:
    """Of every id below n_valid, and how far float32 may be off; both finite or -infinity."""
    x = scores(row, n_valid)
    top = x.max()
    if top == -np.inf:
        return x, np.zeros_like(x)
    log_sum = np.log(np.exp(x - top).sum())
    y = x - top - log_sum
    error = SUM_ERROR + U * (np.abs(x - top) + (FUNCTION + 1) * log_sum + np.abs(y))
    y[
        y < np.finfo(np.float32).min
    ] = -np.inf  # two floats can be further apart than a float is large
    return y, np.where(np.isinf(y), 0.0, error)


def likeliest(row: NDArray[np.float32], n_valid: int, n: int) -> list[int]:
    """The n ids of the highest logits, -1 past the last."""
    x = scores(row, n_valid)
    order: list[int] = np.lexsort((np.arange(n_valid), -x))[:n].tolist()
    return order + [-1] * (n - len(order))
