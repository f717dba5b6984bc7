"""The noise that tokens are drawn by, in NumPy: Philox4x32-10, uniforms of ids, Gumbel scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PHILOX_M = (0xD2511F53, 0xCD9E8D57)
PHILOX_W = (0x9E3779B9, 0xBB67AE85)


def philox(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Philox4x32-10 of counters (..., 4)."""
    x0, x1, x2, x3 = (counter[..., i].astype(np.uint64) for i in range(4))
    mask = np.uint64(0xFFFFFFFF)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = x0 * np.uint64(PHILOX_M[0]), x2 * np.uint64(PHILOX_M[1])
        shift = np.uint64(32)
        x0, x1, x2, x3 = (
            (p1 >> shift) ^ x1 ^ np.uint64(k0),
            p1 & mask,
            (p0 >> shift) ^ x3 ^ np.uint64(k1),
            p0 & mask,
        )
        k0, k1 = (k0 + PHILOX_W[0]) & 0xFFFFFFFF, (k1 + PHILOX_W[1]) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def uniforms(n_ids: int, seed: int, position: int, sample_index: int) -> Array:
    """The uniform of each token id."""
    quads = (n_ids + 3) // 4
    counter = np.zeros((quads, 4), np.uint32)
    counter[:, 0] = np.arange(quads)
    counter[:, 1] = position
    counter[:, 2] = sample_index
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32)).reshape(-1)[:n_ids]
    u: Array = ((words >> np.uint32(9)).astype(np.float64) + 0.5) * 2.0**-23
    return u


def sample_scores(
    logits: Array, temperature: float, seed: int, position: int, sample_index: int
) -> Array:
    """Logit / temperature + gumbel, times min(temperature, 1); NaN becomes -infinity."""
    gumbel = -np.log(-np.log(uniforms(logits.size, seed, position, sample_index)))
    scores = logits / max(temperature, 1.0) + min(temperature, 1.0) * gumbel
    return np.where(np.isnan(scores), -np.inf, scores)
