"""NumPy float64 references of the kernels between the linears, each with its error bound.

Every function returns the exact result of float32 inputs and, beside it, how far a float32 kernel
may be off. A bound follows the arithmetic: U is the unit roundoff, a sum of n terms adds at most
n * U times the sum of magnitudes, and an elementary function costs FUNCTION roundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

U = 2.0**-24  # unit roundoff of float32
HALF_U = 2.0**-11  # of half
HALF_MAX = 65504.0
FUNCTION = 4.0  # roundings of exp, log, rsqrt, division: Metal's precise functions are within 4 ulp
FLUSH = 2.0**-126  # results below may become zero


def sigmoid(x: Array) -> Array:
    """Logistic function, without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def silu(x: Array) -> Array:
    """X * sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow and exact for very negative x."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


SIGMOID_ERROR = (2 * FUNCTION + 1) * U  # relative: exp, 1 + e, division


def rms_norm(x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    """RMSNorm over the last axis; weight already holds 1 + w."""
    dim = x.shape[-1]
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
    # Lanes add dim / 32 squares, then five levels of simd_sum; the root halves that error.
    terms = dim / 32 + 5
    return y, (terms / 2 + 2 * FUNCTION) * U * np.abs(y) + FLUSH


def swiglu(gate: Array, up: Array) -> tuple[Array, Array]:
    """silu(gate) * up."""
    y = silu(gate) * up
    return y, (SIGMOID_ERROR + 2 * U) * np.abs(y) + FLUSH


def rope(x: Array, turns: Array, rotary_dim: int) -> tuple[Array, Array]:
    """Rotate pairs (i, i + rotary_dim / 2) of x (heads, D) by turns (rotary_dim / 2, 2).

    The second result is the sum of the magnitudes that enter each element.
    """
    half = rotary_dim // 2
    y = x.copy()
    size = np.abs(x)
    a, b = x[..., :half], x[..., half:rotary_dim]
    cos, sin = turns[:, 0], turns[:, 1]
    y[..., :half] = a * cos - b * sin
    y[..., half:rotary_dim] = b * cos + a * sin
    size[..., :half] = np.abs(a * cos) + np.abs(b * sin)
    size[..., half:rotary_dim] = np.abs(b * cos) + np.abs(a * sin)
    return y, size


def prepare_head(
    x: Array, norm: Array, turns: Array, rotary_dim: int, eps: float
) -> tuple[Array, Array]:
    """Norm, then rope, of the heads (heads, D) of one row."""
    normed, _ = rms_norm(x, norm, eps)
    y, size = rope(normed, turns, rotary_dim)
    terms = x.shape[-1] / 32 + 5
    return y, (terms / 2 + 2 * FUNCTION + 4) * U * size + FLUSH


def to_half(x: Array, bound: Array) -> tuple[Array, Array]:
    """Round to half, saturating; a float that is off by `bound` may round the other way."""
    y = np.clip(x, -HALF_MAX, HALF_MAX)
    return y, bound + HALF_U * (np.abs(y) + bound) + 2.0**-25


def attend(q: Array, k: Array, v: Array, gate: Array | None) -> tuple[Array, Array]:
    """One row: q (H, D) already scaled, k and v (n, Hkv, D), gate (H, D) -> (H, D).

    k and v hold what the row sees; without any, it gets zeros.
    """
    n, n_kv, dim = k.shape
    if n == 0:
        return np.zeros_like(q), np.zeros_like(q)
    group = q.shape[0] // n_kv
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("hd,nhd->hn", q, k)
    # Four running sums on Apple's GPUs, sixteen on a CPU; then they are folded.
    score_error = (dim / 4 + 2) * U * np.einsum("hd,nhd->hn", np.abs(q), np.abs(k))
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    weights /= weights.sum(axis=1, keepdims=True)
    y = np.einsum("hn,nhd->hd", weights, v)
    size = np.einsum("hn,nhd->hd", weights, np.abs(v))
    # A weight is off by its score's error, the rounding of score - top, and exp; the folds add one
    # exp and two roundings a block, the running sums one rounding a key. Numerator and denominator.
    reach = np.abs(scores - top).max(axis=1)
    weight_error = 2 * score_error.max(axis=1) + (reach + FUNCTION) * U
    folds = (n // 128 + 1) * (FUNCTION + 2) * U
    relative = 2 * (weight_error + folds + n * U) + SIGMOID_ERROR + 3 * U
    opened = np.ones_like(q) if gate is None else sigmoid(gate)
    return y * opened, relative[:, None] * size * opened + FLUSH


def conv(history: Array, weight: Array, n_k_heads: int, head_dim: int) -> tuple[Array, Array]:
    """Act (rows, C) of history (3 + rows, C), three rows before the pass first; weight (C, 4)."""
    rows = history.shape[0] - 3
    terms = np.stack([history[j : j + rows] * weight[:, j] for j in range(4)])
    size = np.abs(terms).sum(axis=0)
    act = silu(terms.sum(axis=0))
    # |silu'| <= 1.1 carries the error of the four products and sums.
    error = 1.1 * 5 * U * size + (SIGMOID_ERROR + U) * np.abs(act) + FLUSH
    heads = act.reshape(rows, -1, head_dim)
    errors = error.reshape(rows, -1, head_dim)
    keys = heads[:, : 2 * n_k_heads]
    key_errors = errors[:, : 2 * n_k_heads]
    norm = np.sqrt(np.sum(keys * keys, axis=-1, keepdims=True) + 1e-6)
    scale = np.ones((2 * n_k_heads, 1))
    scale[:n_k_heads] = head_dim**-0.5
    normed = keys / norm * scale
    norm_error = np.linalg.norm(key_errors, axis=-1, keepdims=True) / norm + 6 * U
    key_bound = key_errors / norm * scale + np.abs(normed) * (norm_error + 3 * FUNCTION * U)
    heads[:, : 2 * n_k_heads] = normed
    errors[:, : 2 * n_k_heads] = key_bound
    return heads.reshape(rows, -1), errors.reshape(rows, -1)


def gates(a: Array, b: Array, rate: Array, dt_bias: Array) -> tuple[Array, Array]:
    """Decay and beta (rows, Hv, 2)."""
    x = a + dt_bias
    soft = softplus(x)
    exponent = rate * soft
    # softplus' <= 1 carries the rounding of a + dt_bias.
    soft_error = U * np.abs(x) + (2 * FUNCTION + 4) * U * soft
    decay = np.exp(exponent)
    decay_error = decay * (np.abs(rate) * soft_error + U * np.abs(exponent) + FUNCTION * U)
    beta = sigmoid(b)
    y = np.stack([decay, beta], axis=-1)
    return y, np.stack([decay_error, SIGMOID_ERROR * beta], axis=-1) + FLUSH


Bounded = list[tuple[Array, Array]]  # each with its bound


def recurrent(
    q: Array, k: Array, v: Array, gate: Array, state: Array, kept: Sequence[int]
) -> tuple[Array, Array, Bounded, Bounded]:
    """Gated delta rule: q, k (T, Hv, Dk), v (T, Hv, Dv), gate (T, Hv, 2), state (Hv, Dv, Dk).

    Returns out (T, Hv, Dv), its bound, the states after the first rows that `kept` names, and the
    delta (Hv, Dv) of each row.
    """
    state = state.copy()
    out = np.empty_like(v)
    bound = np.empty_like(v)
    # With |k| = 1, decay and beta in [0, 1], a step does not enlarge the error that the state of a
    # value row already has. It adds: delta (a dot of Dk / 4 terms, two shuffles, three roundings)
    # and the update (three roundings), each relative to the row's norm and to v.
    step = (k.shape[-1] / 16 + 5 + 6) * U
    error = np.zeros(v.shape[1:])
    states: Bounded = []
    deltas: Bounded = []
    for t in range(v.shape[0]):
        decay, beta = gate[t, :, 0, None], gate[t, :, 1, None]
        size = np.linalg.norm(state, axis=-1) + np.abs(v[t])
        error += 2 * step * size
        state *= decay[..., None]
        delta = beta * (v[t] - np.einsum("hvk,hk->hv", state, k[t]))
        deltas.append((delta, error + FLUSH))
        state += delta[..., None] * k[t][:, None, :]
        out[t] = np.einsum("hvk,hk->hv", state, q[t])
        bound[t] = np.linalg.norm(q[t], axis=-1, keepdims=True) * (error + 2 * step * size) + FLUSH
        if t + 1 in kept:
            states.append((state.copy(), np.broadcast_to(error[..., None], state.shape) + FLUSH))
    return out, bound, states, deltas


def replayed(k: Array, delta: Array, decay: Array, state: Array) -> tuple[Array, Array]:
    """State (Hv, Dv, Dk) after rows k (T, Hv, Dk), delta (T, Hv, Dv), decay (T, Hv); its bound."""
    state = state.copy()
    bound = np.zeros(state.shape)
    for t in range(k.shape[0]):
        factor = decay[t, :, None, None]
        added = delta[t, :, :, None] * k[t, :, None, :]
        bound = factor * bound + 3 * U * (factor * np.abs(state) + np.abs(added))
        state = factor * state + added
    return state, bound + FLUSH


BLOCK = 32  # rows of one block of the chunked delta rule


def blocks(kept: Sequence[int]) -> Iterator[range]:
    """The rows of each block: BLOCK, or fewer where a state is kept."""
    for start, end in pairwise((0, *kept)):
        for first in range(start, end, BLOCK):
            yield range(first, min(first + BLOCK, end))


def chunked_bounds(
    q: Array, k: Array, v: Array, gate: Array, state: Array, kept: Sequence[int]
) -> tuple[Array, list[Array]]:
    """How far gdn_chunk may be off `recurrent`: bounds of out and of the states.

    As in `recurrent`, a step carries earlier errors without enlarging them. delta of row t is a sum
    of the value, the state before the block and the earlier deltas of the block, each with its
    factors: a dot of Dk terms, up to BLOCK decays, and the additions of up to BLOCK terms.
    """
    dim = k.shape[-1]
    unit = (dim + 2 * BLOCK + 6) * U
    state = state.copy()
    out = np.empty_like(v)
    error = np.zeros(v.shape[1:])
    bounds = []
    for rows in blocks(kept):
        # Norm of what the state before the block and each delta still contribute, per value row.
        carried = [np.linalg.norm(state, axis=-1)]
        keys: list[Array] = []
        for t in rows:
            decay, beta = gate[t, :, 0, None], gate[t, :, 1, None]
            state *= decay[..., None]
            carried = [c * decay for c in carried]
            delta = beta * (v[t] - np.einsum("hvk,hk->hv", state, k[t]))
            state += delta[..., None] * k[t][:, None, :]
            reach = carried[0] + sum(
                (
                    c * np.abs(np.sum(k[t] * key, axis=-1))[:, None]
                    for c, key in zip(carried[1:], keys, strict=True)
                ),
                np.zeros_like(delta),
            )
            error += unit * (np.abs(v[t]) + reach)
            carried.append(np.abs(delta))
            keys.append(k[t])
            seen = sum(carried)
            out[t] = np.linalg.norm(q[t], axis=-1, keepdims=True) * (error + unit * seen) + FLUSH
        error += (2 * BLOCK + 2) * U * sum(carried)
        if rows.stop in kept:
            bounds.append(np.broadcast_to(error[..., None], state.shape) + FLUSH)
    return out, bounds


def gated_norm(o: Array, z: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    """RMSNorm of each head of o (rows, Hv, Dv), then the gate silu(z)."""
    normed, bound = rms_norm(o, weight, eps)
    opened = silu(z)
    return normed * opened, (bound + (SIGMOID_ERROR + 2 * U) * np.abs(normed)) * np.abs(
        opened
    ) + FLUSH
