"""Small random models in both file formats, for tests: any head geometry, tied or not.

`random_model` draws the tensors once; `write_hf` and `write_gguf` store the same model, each in the
conventions of its format (norms less one, value heads grouped; or as they act, value heads tiled).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from file_formats import Array, Bytes, encode, gguf_bytes, round_to, safetensors_bytes

CONV_TAPS = 4
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The shapes of a model; `layers` is one letter a layer: g = GDN, a = attention.

    `mtp` adds the multi-token prediction head, one attention layer more.
    """

    hidden: int = 64
    intermediate: int = 96
    vocab: int = 288
    layers: str = "ga"
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    rotary_dim: int = 16
    gdn_k_heads: int = 1
    gdn_v_heads: int = 2
    gdn_head_dim: int = 64
    tied: bool = True
    mtp: bool = False
    context: int = 512
    eos_id: int = 258
    rope_theta: float = 1e6
    eps: float = 1e-6

    @property
    def key_channels(self) -> int:
        """Channels of queries and keys of one GDN layer."""
        return 2 * self.gdn_k_heads * self.gdn_head_dim

    @property
    def value_channels(self) -> int:
        """Channels of the values of one GDN layer."""
        return self.gdn_v_heads * self.gdn_head_dim

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor, as Hugging Face spells them without prefix."""
        out: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (self.vocab, self.hidden)}
        for i, kind in enumerate(self.layers):
            part = self._gdn() if kind == "g" else self._attention()
            out |= {f"layers.{i}.{name}": shape for name, shape in (self._mlp() | part).items()}
        out["norm.weight"] = (self.hidden,)
        if not self.tied:
            out["lm_head.weight"] = (self.vocab, self.hidden)
        return out | (self._mtp() if self.mtp else {})

    def _mtp(self) -> dict[str, tuple[int, ...]]:
        layer = self._mlp() | self._attention()
        norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
        return {
            "mtp.fc.weight": (self.hidden, 2 * self.hidden),
            **{f"mtp.{name}.weight": (self.hidden,) for name in norms},
            **{f"mtp.layers.0.{name}": shape for name, shape in layer.items()},
        }

    def _mlp(self) -> dict[str, tuple[int, ...]]:
        return {
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
            "mlp.gate_proj.weight": (self.intermediate, self.hidden),
            "mlp.up_proj.weight": (self.intermediate, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.intermediate),
        }

    def _attention(self) -> dict[str, tuple[int, ...]]:
        heads, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "self_attn.q_proj.weight": (2 * heads, self.hidden),
            "self_attn.k_proj.weight": (kv, self.hidden),
            "self_attn.v_proj.weight": (kv, self.hidden),
            "self_attn.o_proj.weight": (self.hidden, heads),
            "self_attn.q_norm.weight": (self.head_dim,),
            "self_attn.k_norm.weight": (self.head_dim,),
        }

    def _gdn(self) -> dict[str, tuple[int, ...]]:
        channels = self.key_channels + self.value_channels
        return {
            "linear_attn.in_proj_qkv.weight": (channels, self.hidden),
            "linear_attn.in_proj_z.weight": (self.value_channels, self.hidden),
            "linear_attn.in_proj_a.weight": (self.gdn_v_heads, self.hidden),
            "linear_attn.in_proj_b.weight": (self.gdn_v_heads, self.hidden),
            "linear_attn.conv1d.weight": (channels, 1, CONV_TAPS),
            "linear_attn.A_log": (self.gdn_v_heads,),
            "linear_attn.dt_bias": (self.gdn_v_heads,),
            "linear_attn.norm.weight": (self.gdn_head_dim,),
            "linear_attn.out_proj.weight": (self.hidden, self.value_channels),
        }


@dataclass(frozen=True)
class Model:
    """A geometry with tensors, in Hugging Face order and meaning."""

    geometry: Geometry
    tensors: dict[str, Array] = field(repr=False)


def random_model(geometry: Geometry, seed: int = 0) -> Model:
    """Draw a model whose activations stay of order one."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in geometry.tensor_shapes().items():
        scale = 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        value = rng.standard_normal(shape) * scale
        if name.endswith("linear_attn.norm.weight"):
            value += 1
        tensors[name] = round_to(value.astype(np.float32), "BF16")
    return Model(geometry, tensors)


def tile_value_heads(value: Array, geometry: Geometry, rows: int, axis: int = 0) -> Array:
    """Reorder value heads of `rows` rows each from grouped (Hugging Face) to tiled (GGUF)."""
    k_heads = geometry.gdn_k_heads
    moved = np.moveaxis(value, axis, 0)
    heads = moved.reshape(k_heads, -1, rows, *moved.shape[1:]).swapaxes(0, 1)
    return np.ascontiguousarray(np.moveaxis(heads.reshape(moved.shape), 0, axis))


# --- safetensors ---------------------------------------------------------------------------------


def hf_config(geometry: Geometry) -> dict[str, Any]:
    """Return config.json of a text-only checkpoint."""
    kinds = {"g": "linear_attention", "a": "full_attention"}
    return {
        "model_type": "qwen3_5_text",
        "hidden_size": geometry.hidden,
        "intermediate_size": geometry.intermediate,
        "vocab_size": geometry.vocab,
        "num_hidden_layers": len(geometry.layers),
        "layer_types": [kinds[kind] for kind in geometry.layers],
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": geometry.rope_theta,
            "partial_rotary_factor": geometry.rotary_dim / geometry.head_dim,
        },
        "linear_num_key_heads": geometry.gdn_k_heads,
        "linear_num_value_heads": geometry.gdn_v_heads,
        "linear_key_head_dim": geometry.gdn_head_dim,
        "linear_value_head_dim": geometry.gdn_head_dim,
        "linear_conv_kernel_dim": CONV_TAPS,
        "rms_norm_eps": geometry.eps,
        "max_position_embeddings": geometry.context,
        "mtp_num_hidden_layers": int(geometry.mtp),
        "tie_word_embeddings": geometry.tied,
        "eos_token_id": geometry.eos_id,
        "hidden_act": "silu",
        "attn_output_gate": True,
    }


def write_hf(
    directory: Path,
    model: Model,
    *,
    dtype: str = "BF16",
    prefix: str = "model.",
    mtp_prefix: str = "",
    shards: int = 1,
    tokenizer: bool = False,
) -> Path:
    """Write a checkpoint directory, in one file or in several with an index."""
    directory.mkdir(parents=True, exist_ok=True)
    config = json.dumps(hf_config(model.geometry), indent=1)
    (directory / "config.json").write_text(config, encoding="utf-8")
    tensors = {}
    for name, value in model.tensors.items():
        full = name if name == "lm_head.weight" else prefix + name
        full = mtp_prefix + name if name.startswith("mtp.") else full
        tensors[full] = (dtype, value.shape, encode(value, dtype))
    if tokenizer:
        text = json.dumps(byte_tokenizer(model.geometry.vocab))
        (directory / "tokenizer.json").write_text(text, encoding="utf-8")
    return write_safetensors(directory, tensors, shards)


def write_safetensors(
    directory: Path, tensors: dict[str, tuple[str, tuple[int, ...], Bytes]], shards: int = 1
) -> Path:
    """Write a directory's weights, in one file or in several with an index."""
    if shards == 1:
        (directory / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        return directory
    weight_map: dict[str, str] = {}
    for i in range(shards):
        names = list(tensors)[i::shards]
        file_name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names}
        (directory / file_name).write_bytes(safetensors_bytes(part))
        weight_map |= dict.fromkeys(names, file_name)
    index = json.dumps({"metadata": {}, "weight_map": weight_map})
    (directory / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    return directory


# --- GGUF ----------------------------------------------------------------------------------------


def gguf_metadata(geometry: Geometry, *, tokenizer: bool = False) -> dict[str, object]:
    """Return the metadata that llama.cpp's converter writes for such a model."""
    own: dict[str, object] = {
        "block_count": len(geometry.layers) + geometry.mtp,
        "context_length": geometry.context,
        "embedding_length": geometry.hidden,
        "feed_forward_length": geometry.intermediate,
        "attention.head_count": geometry.heads,
        "attention.head_count_kv": geometry.kv_heads,
        "attention.key_length": geometry.head_dim,
        "attention.value_length": geometry.head_dim,
        "attention.layer_norm_rms_epsilon": geometry.eps,
        "attention.recurrent_layers": [kind == "g" for kind in geometry.layers]
        + [False] * geometry.mtp,
        "rope.dimension_count": geometry.rotary_dim,
        "rope.freq_base": geometry.rope_theta,
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.state_size": geometry.gdn_head_dim,
        "ssm.group_count": geometry.gdn_k_heads,
        "ssm.time_step_rank": geometry.gdn_v_heads,
        "ssm.inner_size": geometry.value_channels,
    }
    own |= {"nextn_predict_layers": 1} if geometry.mtp else {}
    out: dict[str, object] = {"general.architecture": "qwen35"}
    out |= {f"qwen35.{key}": value for key, value in own.items()}
    out["tokenizer.ggml.eos_token_id"] = geometry.eos_id
    return out | (_gguf_tokenizer(geometry.vocab) if tokenizer else {})


LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
GLOBAL_NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
MTP_NAMES = {
    "mtp.fc.weight": "eh_proj",
    "mtp.pre_fc_norm_embedding.weight": "enorm",
    "mtp.pre_fc_norm_hidden.weight": "hnorm",
    "mtp.norm.weight": "shared_head_norm",
}


def gguf_name(name: str, n_layers: int = 0) -> str:
    """Return llama.cpp's name of a tensor; the MTP head is block `n_layers`."""
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    if name in MTP_NAMES:
        return f"blk.{n_layers}.nextn.{MTP_NAMES[name]}.weight"
    _, layer, rest = name.removeprefix("mtp.").split(".", 2)
    layer = str(n_layers) if name.startswith("mtp.") else layer
    special = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
    short = special.get(rest) or LAYER_NAMES[rest.removesuffix(".weight")] + ".weight"
    return f"blk.{layer}.{short}"


def to_gguf_meaning(name: str, value: Array, geometry: Geometry) -> Array:
    """Return a tensor as GGUF files hold it: norms as they act, value heads tiled."""
    if ".linear_attn." in name:
        return _gdn_to_gguf(name.split(".linear_attn.")[1], value, geometry)
    return value + 1 if value.ndim == 1 else value  # every other vector is a norm


def _gdn_to_gguf(part: str, value: Array, geometry: Geometry) -> Array:
    dim, keys = geometry.gdn_head_dim, geometry.key_channels
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        flat = value.reshape(value.shape[0], -1)
        tiled = tile_value_heads(flat[keys:], geometry, dim)
        return np.concatenate([flat[:keys], tiled])
    if part == "in_proj_z.weight":
        return tile_value_heads(value, geometry, dim)
    if part == "out_proj.weight":
        return tile_value_heads(value, geometry, dim, axis=1)
    if part == "norm.weight":
        return value
    tiled = tile_value_heads(value, geometry, 1)
    return -np.exp(tiled) if part == "A_log" else tiled


def write_gguf(
    path: Path,
    model: Model,
    *,
    matrices: str = "Q8_0",
    tokenizer: bool = False,
    changes: Mapping[str, object] | None = None,
) -> Path:
    """Write a GGUF file; matrices in the named format, vectors and convolutions float32.

    `changes` replaces metadata; None takes a key away.
    """
    tensors = {}
    for name, value in model.tensors.items():
        stored = to_gguf_meaning(name, value, model.geometry)
        plain = stored.ndim == 1 or "conv1d" in name
        format_name = "F32" if plain else matrices
        spelled = gguf_name(name, len(model.geometry.layers))
        tensors[spelled] = (format_name, stored.shape, encode(stored, format_name))
    metadata = gguf_metadata(model.geometry, tokenizer=tokenizer) | dict(changes or {})
    kept = {key: value for key, value in metadata.items() if value is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes(kept, tensors))
    return path


# --- a tokenizer of bytes ------------------------------------------------------------------------


def byte_alphabet() -> list[str]:
    """Return the printable character that byte-level BPE writes for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = (byte for byte in range(256) if byte not in plain)
    table = {byte: chr(256 + i) for i, byte in enumerate(rest)} | {b: chr(b) for b in plain}
    return [table[byte] for byte in range(256)]


def byte_tokenizer(vocab: int) -> dict[str, Any]:
    """Return tokenizer.json: one token a byte, then the special tokens; needs vocab >= 261."""
    pattern = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    added = [
        {"id": 256 + i, "content": token, "special": i < 3, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for i, token in enumerate(SPECIAL_TOKENS)
    ]
    assert vocab >= 256 + len(SPECIAL_TOKENS)
    alphabet = {token: i for i, token in enumerate(byte_alphabet())}
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": pattern | {"trim_offsets": False},
        "decoder": pattern | {"trim_offsets": False},
        "model": {"type": "BPE", "vocab": alphabet, "merges": []},
    }


def _gguf_tokenizer(vocab: int) -> dict[str, object]:
    unused = vocab - 256 - len(SPECIAL_TOKENS)
    assert unused >= 0
    padding = [f"[PAD{i}]" for i in range(unused)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": [*byte_alphabet(), *SPECIAL_TOKENS, *padding],
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 3, 4, 4] + [5] * unused,
        "tokenizer.ggml.merges": [],
    }
