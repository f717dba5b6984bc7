"""Small random DFlash drafters in both file formats, for tests.

As `checkpoints` for targets: `random_drafter` draws the tensors once, `write_drafter_hf` and
`write_drafter_gguf` store the same drafter. Its norms are plain in both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import LAYER_NAMES, write_safetensors
from file_formats import Array, encode, gguf_bytes, round_to


@dataclass(frozen=True, kw_only=True)
class DrafterGeometry:
    """The shapes of a drafter; `layers` is one letter a layer: f = full, s = sliding attention.

    The defaults fit the defaults of `checkpoints.Geometry`. `taps` are layers of the target,
    counted from 0; `causal` is for all layers, None for the usual rule: sliding ones are, full
    ones not.
    """

    hidden: int = 64
    intermediate: int = 96
    vocab: int = 288
    layers: str = "sf"
    window: int = 12
    causal: bool | None = None
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    taps: tuple[int, ...] = (0, 1)
    target_layers: int = 2
    block_size: int = 8
    mask_id: int = 287
    rope_theta: float = 1e6
    eps: float = 1e-6
    embedding_scale: float = 1.0

    def is_causal(self, layer: int) -> bool:
        """Whether block rows of a layer see no row behind themselves."""
        return self.layers[layer] == "s" if self.causal is None else self.causal

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor, as Hugging Face spells them."""
        out: dict[str, tuple[int, ...]] = {
            "fc.weight": (self.hidden, len(self.taps) * self.hidden),
            "hidden_norm.weight": (self.hidden,),
            "norm.weight": (self.hidden,),
        }
        heads, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = {
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
            "self_attn.q_proj.weight": (heads, self.hidden),
            "self_attn.k_proj.weight": (kv, self.hidden),
            "self_attn.v_proj.weight": (kv, self.hidden),
            "self_attn.o_proj.weight": (self.hidden, heads),
            "self_attn.q_norm.weight": (self.head_dim,),
            "self_attn.k_norm.weight": (self.head_dim,),
            "mlp.gate_proj.weight": (self.intermediate, self.hidden),
            "mlp.up_proj.weight": (self.intermediate, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.intermediate),
        }
        for i in range(len(self.layers)):
            out |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
        return out


@dataclass(frozen=True)
class Drafter:
    """A geometry with tensors."""

    geometry: DrafterGeometry
    tensors: dict[str, Array] = field(repr=False)


def random_drafter(geometry: DrafterGeometry, seed: int = 0) -> Drafter:
    """Draw a drafter whose activations stay of order one."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in geometry.tensor_shapes().items():
        is_norm = len(shape) == 1
        value = rng.standard_normal(shape) * (0.1 if is_norm else shape[-1] ** -0.5) + is_norm
        tensors[name] = round_to(value.astype(np.float32), "BF16")
    return Drafter(geometry, tensors)


def drafter_hf_config(geometry: DrafterGeometry, *, legacy: bool = False) -> dict[str, Any]:
    """Return config.json as it is today, or as it was with fields at the top."""
    kinds = {"f": "full_attention", "s": "sliding_attention"}
    own: dict[str, Any] = {
        "target_layer_ids": list(geometry.taps),
        "mask_token_id": geometry.mask_id,
        "input_embedding_scale": geometry.embedding_scale,
    }
    out: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": geometry.hidden,
        "intermediate_size": geometry.intermediate,
        "vocab_size": geometry.vocab,
        "num_hidden_layers": len(geometry.layers),
        "layer_types": [kinds[kind] for kind in geometry.layers],
        "sliding_window": geometry.window if "s" in geometry.layers else None,
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "rms_norm_eps": geometry.eps,
        "max_position_embeddings": 4096,
        "num_target_layers": geometry.target_layers,
    }
    if legacy:
        out |= {"block_size": geometry.block_size, "rope_theta": geometry.rope_theta}
        out |= {"rope_scaling": None}
    else:
        own["block_size"] = geometry.block_size
        out["rope_parameters"] = {"rope_theta": geometry.rope_theta, "rope_type": "default"}
    if geometry.causal is not None:
        out["is_causal"] = geometry.causal
    return out | {"dflash_config": own}


def write_drafter_hf(
    directory: Path,
    drafter: Drafter,
    *,
    dtype: str = "BF16",
    legacy: bool = False,
    shards: int = 1,
) -> Path:
    """Write a checkpoint directory of a drafter."""
    directory.mkdir(parents=True, exist_ok=True)
    config = json.dumps(drafter_hf_config(drafter.geometry, legacy=legacy), indent=1)
    (directory / "config.json").write_text(config, encoding="utf-8")
    tensors = {
        name: (dtype, value.shape, encode(value, dtype)) for name, value in drafter.tensors.items()
    }
    return write_safetensors(directory, tensors, shards)


def drafter_gguf_metadata(geometry: DrafterGeometry) -> dict[str, object]:
    """Return the metadata that llama.cpp's converter writes for such a drafter."""
    own: dict[str, object] = {
        "block_count": len(geometry.layers),
        "context_length": 4096,
        "embedding_length": geometry.hidden,
        "feed_forward_length": geometry.intermediate,
        "vocab_size": geometry.vocab,
        "attention.head_count": geometry.heads,
        "attention.head_count_kv": geometry.kv_heads,
        "attention.key_length": geometry.head_dim,
        "attention.value_length": geometry.head_dim,
        "attention.layer_norm_rms_epsilon": geometry.eps,
        "rope.dimension_count": geometry.head_dim,
        "rope.freq_base": geometry.rope_theta,
        "block_size": geometry.block_size,
        "target_layers": [tap + 1 for tap in geometry.taps],
    }
    if "s" in geometry.layers:
        own["attention.sliding_window"] = geometry.window
        own["attention.sliding_window_pattern"] = [kind == "s" for kind in geometry.layers]
    if geometry.causal is not None:
        own["attention.causal"] = geometry.causal
    if geometry.embedding_scale != 1.0:
        own["embedding_scale"] = geometry.embedding_scale
    out: dict[str, object] = {"general.architecture": "dflash"}
    out |= {f"dflash.{key}": value for key, value in own.items()}
    return out | {"tokenizer.ggml.mask_token_id": geometry.mask_id}


def drafter_gguf_name(name: str) -> str:
    """Return llama.cpp's name of a tensor."""
    if not name.startswith("layers."):
        spelled = {
            "hidden_norm.weight": "enc.output_norm.weight",
            "norm.weight": "output_norm.weight",
        }
        return spelled.get(name, name)
    _, layer, rest = name.removesuffix(".weight").split(".", 2)
    short = "ffn_norm" if rest == "post_attention_layernorm" else LAYER_NAMES[rest]
    return f"blk.{layer}.{short}.weight"


def write_drafter_gguf(
    path: Path,
    drafter: Drafter,
    *,
    matrices: str = "Q8_0",
    changes: Mapping[str, object] | None = None,
) -> Path:
    """Write a GGUF file; matrices in the named format, vectors float32.

    `changes` replaces metadata; None takes a key away.
    """
    tensors = {}
    for name, value in drafter.tensors.items():
        format_name = "F32" if value.ndim == 1 else matrices
        tensors[drafter_gguf_name(name)] = (format_name, value.shape, encode(value, format_name))
    metadata = drafter_gguf_metadata(drafter.geometry) | dict(changes or {})
    kept = {key: value for key, value in metadata.items() if value is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes(kept, tensors))
    return path
