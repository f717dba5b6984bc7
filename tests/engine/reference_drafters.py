"""Both drafters in NumPy: what the logits behind their proposals must be.

`context` gives what a drafter knows of each token of a text; `logits` those behind the anchor, the
last of the tokens, and behind all proposals but the last. Only the tokens before the anchor have
been seen by the target, so only their rows of the context count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from drafters import Drafter
from engine.reference_model import Float64, ReferenceModel, attend, rms_norm, rotate, silu
from file_formats import Array


class ReferenceDrafter(Protocol):
    """One drafter with its target."""

    def context(self, token_ids: Sequence[int]) -> Float64:
        """What is known of each token, (tokens, hidden)."""

    def logits(
        self, context: Float64, token_ids: Sequence[int], proposals: Sequence[int]
    ) -> Float64:
        """Logits (len(proposals), vocab) that each proposal is the largest of."""


class ReferenceMtp:
    """The multi-token prediction head that stands in a model's own file.

    Entry p of its cache is made of the final hidden state behind token p - 1 and of token p. Each
    step adds the entry of the proposal before it, with its own output for the hidden state.
    """

    def __init__(self, target: ReferenceModel) -> None:
        self.target = target

    def context(self, token_ids: Sequence[int]) -> Float64:
        return self.target.norm(self.target.hidden_states(token_ids)[-1], "norm")

    def logits(
        self, context: Float64, token_ids: Sequence[int], proposals: Sequence[int]
    ) -> Float64:
        tokens, hidden, out = list(token_ids[1:]), context[: len(token_ids) - 1], []
        for proposal in proposals:
            last = self.outputs(tokens, hidden)[-1:]
            out.append(self.target.head(last)[0])
            tokens.append(proposal)
            hidden = np.concatenate([hidden, last])
        return np.asarray(out)

    def outputs(self, token_ids: Sequence[int], hidden: Float64) -> Float64:
        """Normed outputs of entries 1, 2, ...: of these tokens behind these hidden states."""
        target = self.target
        embedded = target.norm(target.embed(token_ids), "mtp.pre_fc_norm_embedding")
        before = target.norm(hidden, "mtp.pre_fc_norm_hidden")
        entries = target.linear(np.concatenate([embedded, before], axis=-1), "mtp.fc")

        def attention(x: Float64, prefix: str) -> Float64:
            return target.attention(x, prefix, first=1)

        return target.norm(target.layer(entries, "mtp.layers.0.", attention), "mtp.norm")


class ReferenceDFlash:
    """A block drafter: its keys and values of a text come from the target's hidden states alone.

    All of its rows but the anchor's are of one mask token, whatever is proposed.
    """

    def __init__(
        self, target: ReferenceModel, drafter: Drafter, stored: Callable[[Array], Array]
    ) -> None:
        """`stored` gives what is left of a matrix in the drafter's own file."""
        self.target, self.g = target, drafter.geometry
        self.w: dict[str, Float64] = {
            name: (stored(value) if value.ndim == 2 else value).astype(target.dtype)
            for name, value in drafter.tensors.items()
        }

    def context(self, token_ids: Sequence[int]) -> Float64:
        states = self.target.hidden_states(token_ids)
        taps = np.concatenate([states[i] for i in self.g.taps], axis=-1)
        return self.norm(self.linear(taps, "fc"), "hidden_norm")

    def logits(
        self, context: Float64, token_ids: Sequence[int], proposals: Sequence[int]
    ) -> Float64:
        context = context[: len(token_ids) - 1]
        block = [token_ids[-1]] + [self.g.mask_id] * len(proposals)
        hidden = self.target.embed(block) * self.g.embedding_scale
        for i in range(len(self.g.layers)):
            prefix = f"layers.{i}."
            normed = self.norm(hidden, prefix + "input_layernorm")
            hidden = hidden + self.attention(context, normed, i)
            normed = self.norm(hidden, prefix + "post_attention_layernorm")
            gate, up = (self.linear(normed, f"{prefix}mlp.{name}_proj") for name in ("gate", "up"))
            hidden = hidden + self.linear(silu(gate) * up, prefix + "mlp.down_proj")
        return self.target.head(self.norm(hidden, "norm")[1:])

    def attention(self, context: Float64, block: Float64, layer: int) -> Float64:
        g, prefix = self.g, f"layers.{layer}.self_attn."
        first = len(context)
        q = self.heads(block, prefix + "q_proj", g.heads)
        q = rotate(self.norm(q, prefix + "q_norm"), g.head_dim, g.rope_theta, first)
        # Of the context a layer makes keys and values without its own norm, of the block with it.
        rows = np.concatenate([context, block])
        k = self.heads(rows, prefix + "k_proj", g.kv_heads)
        k = rotate(self.norm(k, prefix + "k_norm"), g.head_dim, g.rope_theta)
        v = self.heads(rows, prefix + "v_proj", g.kv_heads)
        row, key = first + np.arange(len(block))[:, None], np.arange(len(rows))
        seen = np.ones((len(block), len(rows)), bool)
        if g.is_causal(layer):
            seen &= key <= row
        if g.layers[layer] == "s":
            seen &= np.abs(row - key) < g.window
        attended = attend(q, self.target.cached(k), self.target.cached(v), seen)
        return self.linear(attended.reshape(len(block), -1), prefix + "o_proj")

    def heads(self, x: Float64, name: str, n_heads: int) -> Float64:
        return self.linear(x, name).reshape(len(x), n_heads, self.g.head_dim)

    def norm(self, x: Float64, name: str) -> Float64:
        return rms_norm(x, self.w[name + ".weight"], self.g.eps)

    def linear(self, x: Float64, name: str) -> Float64:
        return np.asarray(self.target.rows(x) @ self.w[name + ".weight"].T)
