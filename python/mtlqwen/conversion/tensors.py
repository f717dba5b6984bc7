"""What tensors a model has, what GGUF calls them, and how their values change on the way.

In GGUF norms are stored as they act (one more than in transformers), decays as -exp(A_log), and
value heads are tiled: head ``i`` belongs to key head ``i % k_heads``, where transformers has it
belong to ``i // (v_heads // k_heads)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mtlqwen.conversion.config import CONV_TAPS, Config

Change: TypeAlias = Literal["none", "one more", "decay"]


@dataclass(frozen=True, slots=True)
class Tiling:
    """Value heads to be tiled: ``size`` rows or columns each, behind ``start`` others."""

    start: int
    size: int
    columns: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """One tensor.

    Attributes:
        source: its name in transformers' text model.
        name: its name in GGUF.
        shape: in the source, row-major.
        matrix: whether it may be quantised.
        change: of each value.
        tiling: of value heads.
    """

    source: str
    name: str
    shape: tuple[int, ...]
    matrix: bool = False
    change: Change = "none"
    tiling: Tiling | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in GGUF: convolutions lose their middle dimension."""
        return tuple(size for at, size in enumerate(self.shape) if len(self.shape) < 3 or at != 1)


def specs(config: Config, *, head: bool, mtp: bool) -> Iterator[Spec]:
    """Yield the tensors in the order of the file.

    Args:
        config: the model's.
        head: whether the output head is a matrix of its own.
        mtp: whether there is a prediction head; it becomes the block behind the last layer.
    """
    table = (config.vocab, config.hidden)
    yield _matrix("embed_tokens", "token_embd", *table)
    yield _norm("norm", "output_norm", config.hidden)
    if head:
        yield _matrix("lm_head", "output", *table)
    for i, attention in enumerate(config.attention):
        yield from _layer(config, f"layers.{i}", f"blk.{i}", attention=attention)
    if mtp:
        block = f"blk.{len(config.attention)}"
        yield from _layer(config, "mtp.layers.0", block, attention=True)
        yield _matrix("mtp.fc", f"{block}.nextn.eh_proj", config.hidden, 2 * config.hidden)
        yield _norm("mtp.pre_fc_norm_embedding", f"{block}.nextn.enorm", config.hidden)
        yield _norm("mtp.pre_fc_norm_hidden", f"{block}.nextn.hnorm", config.hidden)
        yield _norm("mtp.norm", f"{block}.nextn.shared_head_norm", config.hidden)


def _matrix(source: str, name: str, rows: int, columns: int, tiling: Tiling | None = None) -> Spec:
    return Spec(f"{source}.weight", f"{name}.weight", (rows, columns), True, tiling=tiling)


def _norm(source: str, name: str, size: int) -> Spec:
    return Spec(f"{source}.weight", f"{name}.weight", (size,), change="one more")


def _layer(config: Config, source: str, block: str, *, attention: bool) -> Iterator[Spec]:
    hidden, wide = config.hidden, config.intermediate
    yield _norm(f"{source}.input_layernorm", f"{block}.attn_norm", hidden)
    yield from (_attention if attention else _gdn)(config, source, block)
    yield _norm(f"{source}.post_attention_layernorm", f"{block}.post_attention_norm", hidden)
    yield _matrix(f"{source}.mlp.gate_proj", f"{block}.ffn_gate", wide, hidden)
    yield _matrix(f"{source}.mlp.up_proj", f"{block}.ffn_up", wide, hidden)
    yield _matrix(f"{source}.mlp.down_proj", f"{block}.ffn_down", hidden, wide)


def _attention(config: Config, source: str, block: str) -> Iterator[Spec]:
    """Rows of q_proj are, per head, query, then gate, in both."""
    hidden, inner = config.hidden, config.heads * config.head_dim
    keys = config.kv_heads * config.head_dim
    part = f"{source}.self_attn"
    yield _matrix(f"{part}.q_proj", f"{block}.attn_q", 2 * inner, hidden)
    yield _matrix(f"{part}.k_proj", f"{block}.attn_k", keys, hidden)
    yield _matrix(f"{part}.v_proj", f"{block}.attn_v", keys, hidden)
    yield _norm(f"{part}.q_norm", f"{block}.attn_q_norm", config.head_dim)
    yield _norm(f"{part}.k_norm", f"{block}.attn_k_norm", config.head_dim)
    yield _matrix(f"{part}.o_proj", f"{block}.attn_output", hidden, inner)


def _gdn(config: Config, source: str, block: str) -> Iterator[Spec]:
    """The two smallest projections, one row a head, are no matrices to quantise."""
    hidden, heads, size = config.hidden, config.v_heads, config.gdn_head_dim
    keys, values = 2 * config.k_heads * size, heads * size
    part = f"{source}.linear_attn"
    mixed, whole, single = Tiling(keys, size), Tiling(0, size), Tiling(0, 1)
    yield _matrix(f"{part}.in_proj_qkv", f"{block}.attn_qkv", keys + values, hidden, mixed)
    yield _matrix(f"{part}.in_proj_z", f"{block}.attn_gate", values, hidden, whole)
    for letter, name in (("a", "ssm_alpha"), ("b", "ssm_beta")):
        shape = (heads, hidden)
        yield Spec(
            f"{part}.in_proj_{letter}.weight", f"{block}.{name}.weight", shape, tiling=single
        )
    taps = (keys + values, 1, CONV_TAPS)
    yield Spec(f"{part}.conv1d.weight", f"{block}.ssm_conv1d.weight", taps, tiling=mixed)
    yield Spec(f"{part}.A_log", f"{block}.ssm_a", (heads,), change="decay", tiling=single)
    yield Spec(f"{part}.dt_bias", f"{block}.ssm_dt.bias", (heads,), tiling=single)
    yield Spec(f"{part}.norm.weight", f"{block}.ssm_norm.weight", (size,))
    across = Tiling(0, size, columns=True)
    yield _matrix(f"{part}.out_proj", f"{block}.ssm_out", hidden, values, across)
