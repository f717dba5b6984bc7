"""The whole model in NumPy, in Hugging Face conventions: what the engine's logits must be.

Follows the equations of transformers' Qwen 3.5 text model (modeling_qwen3_5.py), one sequence,
all tokens at once but for the recurrence. Values of weights are those that the file stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from checkpoints import CONV_TAPS, Model
from file_formats import Array

Float64 = npt.NDArray[np.float64]  # or float32, where the noise of float32 is looked for
L2_EPS = 1e-6


def sigmoid(x: Float64) -> Float64:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


def silu(x: Float64) -> Float64:
    return x * sigmoid(x)


def rms_norm(x: Float64, weight: Float64, eps: float) -> Float64:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight)


def l2_norm(x: Float64) -> Float64:
    return np.asarray(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + L2_EPS))


def rotate(x: Float64, rotary_dim: int, theta: float, first: int = 0) -> Float64:
    """Rotary embedding of x (tokens, heads, head_dim), half-split pairs of the leading dims.

    `first` is the position of the first token.
    """
    half = rotary_dim // 2
    frequency = theta ** (-np.arange(half) / half)
    angle = (first + np.arange(len(x)))[:, None, None] * frequency
    a, b = x[..., :half], x[..., half : 2 * half]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate([*turned, x[..., 2 * half :]], axis=-1).astype(x.dtype)


def attend(q: Float64, k: Float64, v: Float64, seen: npt.NDArray[np.bool_]) -> Float64:
    """Attention of q (rows, heads, dim) over k and v (keys, kv_heads, dim), seen (rows, keys)."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q * q.shape[-1] ** -0.5, k)
    scores[:, ~seen] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.einsum("hqk,khd->qhd", weights, v))


class ReferenceModel:
    """Logits of every position of one sequence."""

    def __init__(
        self,
        model: Model,
        stored: Callable[[Array], Array],
        *,
        dtype: npt.DTypeLike = np.float64,
        half_cache: bool = True,
        int16_rows: bool = False,
    ) -> None:
        """`stored` gives what is left of a matrix in the file.

        half_cache: keys and values are halves. int16_rows: linears see theirs as int16 rows.
        """
        self.g, self.dtype, self.half_cache = model.geometry, dtype, half_cache
        self.int16_rows = int16_rows
        self.w: dict[str, Float64] = {
            name: (stored(value) if value.ndim == 2 else value).astype(dtype)
            for name, value in model.tensors.items()
        }

    def logits(self, token_ids: Sequence[int]) -> Float64:
        """Logits (tokens, vocab)."""
        return self.head(self.norm(self.hidden_states(token_ids)[-1], "norm"))

    def hidden_states(self, token_ids: Sequence[int]) -> list[Float64]:
        """What each layer leaves, (tokens, hidden)."""
        hidden, states = self.embed(token_ids), []
        for i, kind in enumerate(self.g.layers):
            prefix = f"layers.{i}."
            mixer = self.attention if kind == "a" else self.gdn
            hidden = self.layer(hidden, prefix, mixer)
            states.append(hidden)
        return states

    def embed(self, token_ids: Sequence[int]) -> Float64:
        return np.asarray(self.w["embed_tokens.weight"][np.asarray(token_ids)])

    def layer(
        self, hidden: Float64, prefix: str, mixer: Callable[[Float64, str], Float64]
    ) -> Float64:
        hidden = hidden + mixer(self.norm(hidden, prefix + "input_layernorm"), prefix)
        normed = self.norm(hidden, prefix + "post_attention_layernorm")
        return hidden + self.mlp(normed, prefix + "mlp.")

    def head(self, normed: Float64) -> Float64:
        name = "embed_tokens.weight" if self.g.tied else "lm_head.weight"
        return np.asarray(self.rows(normed) @ self.w[name].T)

    def rows(self, x: Float64) -> Float64:
        """What a linear sees of x (tokens, k): of each 32 elements the largest is 32767 steps."""
        if not self.int16_rows:
            return x
        qblocks = x.reshape(len(x), -1, 32)
        step = np.maximum(np.abs(qblocks).max(axis=-1, keepdims=True), 1e-30) / 32767
        return np.asarray((np.rint(qblocks / step) * step).reshape(x.shape))

    def cached(self, x: Float64) -> Float64:
        return x.astype(np.float16).astype(self.dtype) if self.half_cache else x

    def norm(self, x: Float64, name: str) -> Float64:
        return rms_norm(x, 1 + self.w[name + ".weight"], self.g.eps)

    def linear(self, x: Float64, name: str) -> Float64:
        return np.asarray(self.rows(x) @ self.w[name + ".weight"].T)

    def mlp(self, x: Float64, prefix: str) -> Float64:
        gated = silu(self.linear(x, prefix + "gate_proj")) * self.linear(x, prefix + "up_proj")
        return self.linear(gated, prefix + "down_proj")

    def attention(self, x: Float64, prefix: str, first: int = 0) -> Float64:
        g, prefix = self.g, prefix + "self_attn."
        n = len(x)
        qg = self.linear(x, prefix + "q_proj").reshape(n, g.heads, 2, g.head_dim)
        k = self.linear(x, prefix + "k_proj").reshape(n, g.kv_heads, g.head_dim)
        v = self.linear(x, prefix + "v_proj").reshape(n, g.kv_heads, g.head_dim)
        q = rotate(self.norm(qg[:, :, 0], prefix + "q_norm"), g.rotary_dim, g.rope_theta, first)
        k = rotate(self.norm(k, prefix + "k_norm"), g.rotary_dim, g.rope_theta, first)
        seen = np.tril(np.ones((n, n), bool))
        attended = attend(q, self.cached(k), self.cached(v), seen) * sigmoid(qg[:, :, 1])
        return self.linear(attended.reshape(n, -1), prefix + "o_proj")

    def gdn(self, x: Float64, prefix: str) -> Float64:
        g, prefix = self.g, prefix + "linear_attn."
        n, dim = len(x), g.gdn_head_dim
        qkv = self.linear(x, prefix + "in_proj_qkv")
        history = np.concatenate([np.zeros((CONV_TAPS - 1, qkv.shape[1]), self.dtype), qkv])
        taps = self.w[prefix + "conv1d.weight"].reshape(-1, CONV_TAPS)
        windows = np.stack([history[j : j + n] * taps[:, j] for j in range(CONV_TAPS)])
        convolved = silu(windows.sum(axis=0))
        heads = convolved.reshape(n, -1, dim)
        per_key = g.gdn_v_heads // g.gdn_k_heads
        q = np.repeat(l2_norm(heads[:, : g.gdn_k_heads]) * dim**-0.5, per_key, axis=1)
        k = np.repeat(l2_norm(heads[:, g.gdn_k_heads : 2 * g.gdn_k_heads]), per_key, axis=1)
        v = heads[:, 2 * g.gdn_k_heads :]
        beta = sigmoid(self.linear(x, prefix + "in_proj_b"))
        step = np.logaddexp(0, self.linear(x, prefix + "in_proj_a") + self.w[prefix + "dt_bias"])
        decay = np.exp(-np.exp(self.w[prefix + "A_log"]) * step)
        state = np.zeros((g.gdn_v_heads, dim, dim), self.dtype)  # (head, value, key)
        out = np.empty_like(v)
        for t in range(n):
            state *= decay[t, :, None, None]
            delta = beta[t, :, None] * (v[t] - np.einsum("hvk,hk->hv", state, k[t]))
            state += np.einsum("hv,hk->hvk", delta, k[t])
            out[t] = np.einsum("hvk,hk->hv", state, q[t])
        z = self.linear(x, prefix + "in_proj_z").reshape(v.shape)
        gated = rms_norm(out, self.w[prefix + "norm.weight"], g.eps) * silu(z)
        return self.linear(gated.reshape(n, -1), prefix + "out_proj")
