"""What tests/hash_kernels must give: a function of one request alone, token by token.

There are no slots, rows, blocks, banks or passes here. Arrays are uint32, which wrap around.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from checkpoints import CONV_TAPS, Model

Words = npt.NDArray[np.uint32]
WORD = 0xFFFFFFFF


def words(*values: int) -> Words:
    return np.array([value & WORD for value in values], np.uint32)


def index(n: int) -> Words:
    return np.arange(n, dtype=np.uint32)


def mix(a: Words, b: Words) -> Words:
    """The hash of hash.h."""
    h = ((a + words(0x9E3779B9)) * words(0x85EBCA77)) ^ b
    h = (h ^ (h >> words(15))) * words(0xC2B2AE3D)
    return np.asarray(h ^ (h >> words(13)))


def odd(x: Words) -> Words:
    return x | words(1)


def total(x: Words, axis: int | None = None) -> Words:
    return np.atleast_1d(np.sum(x, axis=axis, dtype=np.uint32))


def digest(x: Words) -> Words:
    return total(x * odd(mix(index(x.size), words(x.size))))


class Part:
    """The matrices of one part of a model, by the end of their names."""

    def __init__(self, model: Model, prefix: str) -> None:
        self.g = model.geometry
        self._matrices = {
            name.removeprefix(prefix): (value.shape[0], value.reshape(-1)[:1].view(np.uint32))
            for name, value in model.tensors.items()
            if name.startswith(prefix)
        }

    def linear(self, x: Words, name: str) -> Words:
        n, first = self._matrices[name + ".weight"]
        return mix(mix(digest(x), first), index(n))


class Attention(Part):
    """One attention layer with the sums over all positions so far."""

    def __init__(self, model: Model, prefix: str) -> None:
        super().__init__(model, prefix + "self_attn.")
        self.sums: Words = np.zeros((self.g.kv_heads, self.g.head_dim), np.uint32)

    def __call__(self, x: Words, position: int) -> Words:
        g = self.g
        place = words(position)
        qg = self.linear(x, "q_proj").reshape(g.heads, 2, g.head_dim)
        key = mix(self.linear(x, "k_proj"), place) >> words(16)
        value = mix(self.linear(x, "v_proj"), place) >> words(16)
        both = ((key << words(16)) | value).reshape(self.sums.shape)
        self.sums = np.add(self.sums, both * odd(mix(place, index(g.head_dim))), dtype=np.uint32)
        group = g.heads // g.kv_heads
        seen = np.repeat(self.sums, group, axis=0) * odd(mix(qg[:, 0], place))
        attended = mix(seen + words(position + 1), qg[:, 1]).reshape(-1)
        return self.linear(attended, "o_proj")


class Gdn(Part):
    """One GDN layer with its recurrent and convolution state; value heads grouped by key head."""

    def __init__(self, model: Model, prefix: str) -> None:
        super().__init__(model, prefix + "linear_attn.")
        g = self.g
        self.k_head = np.arange(g.gdn_v_heads) // (g.gdn_v_heads // g.gdn_k_heads)
        self.state = np.zeros((g.gdn_v_heads, g.gdn_head_dim, g.gdn_head_dim), np.uint32)
        self.rows = np.zeros((CONV_TAPS, g.key_channels + g.value_channels), np.uint32)

    def __call__(self, x: Words, position: int) -> Words:
        g = self.g
        self.rows = np.concatenate([self.rows[1:], self.linear(x, "in_proj_qkv")[None]])
        act = index(self.rows.shape[1])
        for row in self.rows:
            act = mix(act, row)
        heads = act.reshape(-1, g.gdn_head_dim)
        q = heads[self.k_head]
        k = heads[g.gdn_k_heads + self.k_head]
        v = heads[2 * g.gdn_k_heads :]
        a, b = (
            mix(self.linear(x, name), index(g.gdn_v_heads))[:, None, None]
            for name in ("in_proj_a", "in_proj_b")
        )
        delta = mix(v[:, :, None], b)
        self.state = self.state * odd(a) + k[:, None, :] * odd(delta)
        out = np.sum(self.state * odd(q)[:, None, :], axis=2, dtype=np.uint32)
        return self.linear(mix(out.reshape(-1), self.linear(x, "in_proj_z")), "out_proj")


class Mlp(Part):
    """One MLP."""

    def __init__(self, model: Model, prefix: str) -> None:
        super().__init__(model, prefix + "mlp.")

    def __call__(self, x: Words) -> Words:
        return self.linear(mix(self.linear(x, "gate_proj"), self.linear(x, "up_proj")), "down_proj")


class Oracle:
    """One sequence of one model with tied embeddings."""

    def __init__(self, model: Model) -> None:
        self.table = model.tensors["embed_tokens.weight"].view(np.uint32)
        self.head = Part(model, "")
        self.layers = []
        for i, kind in enumerate(model.geometry.layers):
            prefix = f"layers.{i}."
            layer = Attention(model, prefix) if kind == "a" else Gdn(model, prefix)
            self.layers.append((layer, Mlp(model, prefix)))
        self.position = 0
        self.logits = words(0)  # behind the last token

    def fork(self) -> Oracle:
        """The same sequence once more, to go on otherwise; a layer replaces its arrays whole."""
        other = copy.copy(self)
        other.layers = [(copy.copy(layer), mlp) for layer, mlp in self.layers]
        return other

    def feed(self, token: int) -> None:
        """Take the next token."""
        places = index(self.table.shape[1])
        hidden = mix(self.table[token], places)
        for layer, mlp in self.layers:
            hidden = mix(hidden, layer(mix(hidden, places), self.position))
            hidden = mix(hidden, mlp(mix(hidden, places)))
        self.position += 1
        self.logits = self.head.linear(mix(hidden, places), "embed_tokens")

    def sample(self, seed: int) -> int:
        chunk = mix(mix(digest(self.logits), words(seed)), words(self.position))
        return int(mix(words(0), chunk)[0]) % self.logits.size


class Continuations:
    """What follows prompts of one model; those that begin alike are computed once up to there."""

    KEPT_EVERY = 16  # tokens

    def __init__(self, model: Model) -> None:
        self._first = Oracle(model)
        self._kept: dict[tuple[int, ...], Oracle] = {}

    def __call__(self, prompt: Sequence[int], seed: int) -> Iterator[int]:
        """The tokens behind a prompt, without end."""
        oracle = self._behind(prompt)
        while True:
            token = oracle.sample(seed)
            yield token
            oracle.feed(token)

    def _behind(self, prompt: Sequence[int]) -> Oracle:
        whole = len(prompt) // self.KEPT_EVERY * self.KEPT_EVERY
        starts = range(whole, 0, -self.KEPT_EVERY)
        start = next((n for n in starts if tuple(prompt[:n]) in self._kept), 0)
        oracle = (self._kept[tuple(prompt[:start])] if start else self._first).fork()
        for n in range(start, len(prompt)):
            oracle.feed(prompt[n])
            if (n + 1) % self.KEPT_EVERY == 0:
                self._kept[tuple(prompt[: n + 1])] = oracle.fork()
        return oracle


def continuation(model: Model, prompt: Sequence[int], seed: int) -> Iterator[int]:
    """The tokens behind one prompt, without end."""
    return Continuations(model)(prompt, seed)
