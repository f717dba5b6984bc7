"""The shapes of a model as its config.json says them, checked.

Knows the keys of Hugging Face; what they mean in GGUF stands elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtlqwen.errors import ModelError

_TYPES = ("qwen3_5", "qwen3_5_text")
_KINDS = {"linear_attention": False, "full_attention": True}
_INTERVAL = 4  # every fourth layer is attention, where nothing else is said
_ROTARY_FACTOR = 0.25
_MOST = 1 << 24  # of any count
_MOST_LAYERS = 1024
CONV_TAPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes of a model.

    Attributes:
        attention: of each layer, whether it is attention, not GDN.
        tied: whether the embedding is the output head, too; None: not said.
        rope_sections: how rotary dimensions are shared among the axes of images.
    """

    hidden: int
    intermediate: int
    vocab: int
    context: int
    attention: tuple[bool, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rope_sections: tuple[int, ...]
    eps: float
    k_heads: int
    v_heads: int
    gdn_head_dim: int
    mtp_layers: int
    tied: bool | None


class _Reader:
    """Values of config.json: of its text part first, then of the whole."""

    def __init__(self, config: Mapping[str, Any], subject: str) -> None:
        inner = config.get("text_config")
        said = {key: value for key, value in (inner or {}).items() if value is not None}
        self._whole = config
        self._values = {**config, **said}
        rope = self._values.get("rope_parameters") or self._values.get("rope_scaling") or {}
        self.rope: Mapping[str, Any] = rope
        self._subject = subject

    def get(self, key: str, default: object = None) -> Any:
        value = self._values.get(key)
        return default if value is None else value

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.get(key, default)
        if type(value) is not int or not least <= value <= _MOST:
            self.fail(key, value, f"a whole number of {least} to {_MOST}")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.rope.get(key, self.get(key, default))
        if type(value) not in (int, float) or not 0 < value < 1e30:
            self.fail(key, value, "a positive number")
        return float(value)

    def want(self, key: str, default: object, *wanted: object) -> None:
        if self.get(key, default) not in wanted:
            self.fail(key, self.get(key), " or ".join(map(str, wanted)))

    def tied(self) -> bool | None:
        said = self._whole.get("tie_word_embeddings", self.get("tie_word_embeddings"))
        return said if isinstance(said, bool) else None

    def fail(self, key: str, got: object, want: str) -> None:
        raise ModelError(
            f"[convert] {self._subject}: {key} is not one that runs (got {got!r}, want {want})"
        )


def read_config(config: Mapping[str, Any], subject: str) -> Config:
    """Return the shapes.

    Args:
        config: config.json.
        subject: the file, for messages.

    Raises:
        ModelError: a value is missing, or it is of a model that does not run.
    """
    try:
        said = _Reader(config, subject)
        return _checked(said)
    except (AttributeError, TypeError) as error:  # an object is something else
        raise ModelError(f"[convert] {subject}: not a model's config ({error})") from error


def _checked(said: _Reader) -> Config:
    said.want("model_type", None, *_TYPES)
    said.want("hidden_act", "silu", "silu", "swish")
    said.want("output_gate_type", "silu", "silu", "swish")
    said.want("attn_output_gate", True, True)
    said.want("attention_bias", False, False)
    said.want("quantization", None, None)  # of MLX
    said.want("linear_conv_kernel_dim", CONV_TAPS, CONV_TAPS)
    said.want("mtp_num_hidden_layers", 0, 0, 1)
    kind = said.rope.get("rope_type", said.rope.get("type", "default"))
    if kind != "default":
        said.fail("rope_type", kind, "default")
    gdn_head_dim = said.count("linear_value_head_dim")
    said.want("linear_key_head_dim", None, gdn_head_dim)
    k_heads, v_heads = said.count("linear_num_key_heads"), said.count("linear_num_value_heads")
    if v_heads % k_heads:
        said.fail("linear_num_value_heads", v_heads, f"a multiple of {k_heads}")
    head_dim = said.count("head_dim")
    return Config(
        hidden=said.count("hidden_size"),
        intermediate=said.count("intermediate_size"),
        vocab=said.count("vocab_size"),
        context=said.count("max_position_embeddings"),
        attention=_layers(said),
        heads=said.count("num_attention_heads"),
        kv_heads=said.count("num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=int(head_dim * said.number("partial_rotary_factor", _ROTARY_FACTOR)),
        rope_theta=said.number("rope_theta"),
        rope_sections=_sections(said),
        eps=said.number("rms_norm_eps"),
        k_heads=k_heads,
        v_heads=v_heads,
        gdn_head_dim=gdn_head_dim,
        mtp_layers=said.count("mtp_num_hidden_layers", 0, least=0),
        tied=said.tied(),
    )


def _layers(said: _Reader) -> tuple[bool, ...]:
    count = said.count("num_hidden_layers")
    if count > _MOST_LAYERS:
        said.fail("num_hidden_layers", count, f"at most {_MOST_LAYERS}")
    kinds = said.get("layer_types")
    if kinds is None:
        interval = said.count("full_attention_interval", _INTERVAL)
        return tuple(i % interval == 0 for i in range(1, count + 1))
    if not isinstance(kinds, list) or len(kinds) != count or not {*map(str, kinds)} <= {*_KINDS}:
        said.fail("layer_types", kinds, f"{count} of {', '.join(_KINDS)}")
    return tuple(_KINDS[kind] for kind in kinds)


def _sections(said: _Reader) -> tuple[int, ...]:
    sections = said.rope.get("mrope_section", [])
    if not isinstance(sections, list) or not all(type(n) is int for n in sections):
        said.fail("mrope_section", sections, "a list of numbers")
    return tuple(sections)
