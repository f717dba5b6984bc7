"""Make the two files of the bundled model, target and drafter, as Q8_0 GGUF.

They are converted from Hugging Face checkpoints with the metadata keys, tensor names and
transforms of llama.cpp's converter for the architectures `qwen35` and `dflash`, so that
llama.cpp reads the results too. The output depends on the input alone.

Needs the packages gguf and numpy. Example:
    python tools/make_tiny_gguf.py SOURCE_DIR DRAFTER_DIR python/mtlqwen/models/tiny
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, quants

Array = npt.NDArray[np.float32]

MLP_NAMES = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
ATTENTION_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
HEAD_NORM_NAMES = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
PRE_TOKENIZER = "qwen35"
TOKEN_NORMAL, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED = 1, 3, 4, 5


@dataclass(frozen=True)
class Checkpoint:
    """A Hugging Face directory: its config and its tensors as float32."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, Array]

    def tensor(self, name: str) -> Array:
        """Return a tensor by name, with or without the prefix `model.`."""
        found = self.tensors.get(f"model.{name}")
        return self.tensors[name] if found is None else found

    @property
    def rope_theta(self) -> float:
        """Base of the rotary frequencies."""
        return float(self.config["rope_parameters"]["rope_theta"])


@dataclass
class Output:
    """One GGUF file being written: small tensors stay float32, matrices become Q8_0."""

    writer: gguf.GGUFWriter
    arch: str

    def plain(self, name: str, value: Array) -> None:
        """Add a float32 tensor."""
        self.writer.add_tensor(name, np.ascontiguousarray(value, np.float32))

    def matrix(self, name: str, value: Array) -> None:
        """Add a Q8_0 tensor."""
        packed = quants.quantize(np.ascontiguousarray(value, np.float32), GGMLQuantizationType.Q8_0)
        self.writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q8_0)

    def finish(self) -> None:
        """Write everything and close the file."""
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def widen(raw: bytes, dtype: str) -> Array:
    """Return safetensors data as float32."""
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    types = {"F32": np.float32, "F16": np.float16}
    return np.frombuffer(raw, types[dtype]).astype(np.float32)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read config.json and model.safetensors of a directory."""
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    data = (path / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = data[start + first : start + last]
            tensors[name] = widen(raw, entry["dtype"]).reshape(entry["shape"])
    return Checkpoint(path, config, tensors)


def value_head_tiler(config: dict[str, Any]) -> Callable[[Array, int], Array]:
    """Return the reordering of value heads: HF groups them by key head, GGUF repeats the key heads.

    New head rep * Hk + kh is old head kh * r + rep.
    """
    key_heads = config["linear_num_key_heads"]
    repeats = config["linear_num_value_heads"] // key_heads

    def tile(value: Array, head_rows: int) -> Array:
        heads = value.reshape(key_heads, repeats, head_rows, *value.shape[1:])
        return heads.swapaxes(0, 1).reshape(value.shape)

    return tile


def add_shape(out: Output, source: Checkpoint, n_blocks: int) -> None:
    """Add the metadata that both architectures share."""
    config, w = source.config, out.writer
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_license("apache-2.0")
    w.add_block_count(n_blocks)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(source.rope_theta)
    w.add_vocab_size(config["vocab_size"])


def add_target_shape(out: Output, source: Checkpoint) -> None:
    """Add the metadata that only the hybrid target has."""
    config, w = source.config, out.writer
    rope = config["rope_parameters"]
    w.add_uint32(f"{out.arch}.nextn_predict_layers", config["mtp_num_hidden_layers"])
    w.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
    w.add_rope_dimension_sections([*rope["mrope_section"], 0])
    w.add_uint32(f"{out.arch}.full_attention_interval", config["full_attention_interval"])
    w.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    w.add_ssm_state_size(config["linear_key_head_dim"])
    w.add_ssm_group_count(config["linear_num_key_heads"])
    w.add_ssm_time_step_rank(config["linear_num_value_heads"])
    w.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])


def add_drafter_shape(out: Output, drafter: Checkpoint) -> None:
    """Add the metadata of the block drafter; target layers count from 1, as in llama.cpp."""
    config, w = drafter.config, out.writer
    w.add_rope_dimension_count(config["head_dim"])
    w.add_uint32(f"{out.arch}.block_size", config["block_size"])
    layers = config["dflash_config"]["target_layer_ids"]
    w.add_array(f"{out.arch}.target_layers", [layer + 1 for layer in layers])
    w.add_bool(f"{out.arch}.attention.causal", False)
    w.add_mask_token_id(config["dflash_config"]["mask_token_id"])


def add_tokenizer(out: Output, source: Checkpoint) -> None:
    """Add tokens, merges, special ids and the chat template of the target."""
    tokenizer = json.loads((source.path / "tokenizer.json").read_text(encoding="utf-8"))
    n_tokens = source.config["vocab_size"]
    tokens = [f"[PAD{i}]" for i in range(n_tokens)]
    types = [TOKEN_UNUSED] * n_tokens
    for token, token_id in tokenizer["model"]["vocab"].items():
        tokens[token_id], types[token_id] = token, TOKEN_NORMAL
    for entry in tokenizer["added_tokens"]:
        tokens[entry["id"]] = entry["content"]
        types[entry["id"]] = TOKEN_CONTROL if entry["special"] else TOKEN_USER_DEFINED
    merges = tokenizer["model"]["merges"]
    w = out.writer
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(PRE_TOKENIZER)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    w.add_eos_token_id(source.config["eos_token_id"])
    w.add_pad_token_id(source.config["pad_token_id"])
    w.add_add_bos_token(False)
    w.add_chat_template((source.path / "chat_template.jinja").read_text(encoding="utf-8"))


def add_matrices(
    out: Output, source: Checkpoint, names: dict[str, str], hf: str, block: str
) -> None:
    """Add the matrices of one layer that need no transform."""
    for hf_name, name in names.items():
        out.matrix(f"{block}.{name}.weight", source.tensor(f"{hf}.{hf_name}.weight"))


def add_linear_attention(out: Output, source: Checkpoint, hf: str, block: str) -> None:
    """Add the Gated DeltaNet part of one layer, value heads tiled."""
    config, tile = source.config, value_head_tiler(source.config)
    dim = config["linear_value_head_dim"]
    key_rows = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]  # of q and k

    def get(name: str) -> Array:
        return source.tensor(f"{hf}.linear_attn.{name}")

    def tile_values(value: Array) -> Array:
        return np.concatenate([value[:key_rows], tile(value[key_rows:], dim)])

    out.matrix(f"{block}.attn_qkv.weight", tile_values(get("in_proj_qkv.weight")))
    out.matrix(f"{block}.attn_gate.weight", tile(get("in_proj_z.weight"), dim))
    out.plain(f"{block}.ssm_alpha.weight", tile(get("in_proj_a.weight"), 1))
    out.plain(f"{block}.ssm_beta.weight", tile(get("in_proj_b.weight"), 1))
    out.plain(f"{block}.ssm_a", -np.exp(tile(get("A_log"), 1)))
    out.plain(f"{block}.ssm_dt.bias", tile(get("dt_bias"), 1))
    out.plain(f"{block}.ssm_conv1d.weight", tile_values(get("conv1d.weight")[:, 0, :]))
    out.plain(f"{block}.ssm_norm.weight", get("norm.weight"))
    out.matrix(f"{block}.ssm_out.weight", tile(get("out_proj.weight").T, dim).T)


def add_target_layer(out: Output, source: Checkpoint, hf: str, block: str, *, full: bool) -> None:
    """Add a layer of the target or the MTP layer; norms are stored less one in the source."""
    post_norm = source.tensor(f"{hf}.post_attention_layernorm.weight") + 1
    out.plain(f"{block}.attn_norm.weight", source.tensor(f"{hf}.input_layernorm.weight") + 1)
    out.plain(f"{block}.post_attention_norm.weight", post_norm)
    add_matrices(out, source, MLP_NAMES, hf, block)
    if not full:
        add_linear_attention(out, source, hf, block)
        return
    add_matrices(out, source, ATTENTION_NAMES, hf, block)
    for hf_name, name in HEAD_NORM_NAMES.items():
        out.plain(f"{block}.{name}.weight", source.tensor(f"{hf}.{hf_name}.weight") + 1)


def add_mtp(out: Output, source: Checkpoint, block: str) -> None:
    """Add the multi-token prediction head as the block after the last layer."""
    add_target_layer(out, source, "mtp.layers.0", block, full=True)
    out.matrix(f"{block}.nextn.eh_proj.weight", source.tensor("mtp.fc.weight"))
    out.plain(f"{block}.nextn.enorm.weight", source.tensor("mtp.pre_fc_norm_embedding.weight") + 1)
    out.plain(f"{block}.nextn.hnorm.weight", source.tensor("mtp.pre_fc_norm_hidden.weight") + 1)
    out.plain(f"{block}.nextn.shared_head_norm.weight", source.tensor("mtp.norm.weight") + 1)


def write_target(source: Checkpoint, path: Path) -> None:
    """Write the target with its MTP head."""
    out = Output(gguf.GGUFWriter(path, "qwen35"), "qwen35")
    layers = source.config["layer_types"]
    out.writer.add_name("tiny-qwen3.5")
    add_shape(out, source, len(layers) + source.config["mtp_num_hidden_layers"])
    add_target_shape(out, source)
    add_tokenizer(out, source)
    out.matrix("token_embd.weight", source.tensor("embed_tokens.weight"))
    out.plain("output_norm.weight", source.tensor("norm.weight") + 1)
    for i, kind in enumerate(layers):
        add_target_layer(out, source, f"layers.{i}", f"blk.{i}", full=kind == "full_attention")
    add_mtp(out, source, f"blk.{len(layers)}")
    out.finish()


def write_drafter(drafter: Checkpoint, source: Checkpoint, path: Path) -> None:
    """Write the block drafter; its norm weights act as stored, its head is the target's."""
    out = Output(gguf.GGUFWriter(path, "dflash"), "dflash")
    n_layers = drafter.config["num_hidden_layers"]
    out.writer.add_name("tiny-qwen3.5-dflash")
    add_shape(out, drafter, n_layers)
    add_drafter_shape(out, drafter)
    add_tokenizer(out, source)
    out.matrix("fc.weight", drafter.tensor("fc.weight"))
    out.plain("enc.output_norm.weight", drafter.tensor("hidden_norm.weight"))
    out.plain("output_norm.weight", drafter.tensor("norm.weight"))
    for i in range(n_layers):
        hf, block = f"layers.{i}", f"blk.{i}"
        out.plain(f"{block}.attn_norm.weight", drafter.tensor(f"{hf}.input_layernorm.weight"))
        out.plain(
            f"{block}.ffn_norm.weight", drafter.tensor(f"{hf}.post_attention_layernorm.weight")
        )
        add_matrices(out, drafter, ATTENTION_NAMES | MLP_NAMES, hf, block)
        for hf_name, name in HEAD_NORM_NAMES.items():
            out.plain(f"{block}.{name}.weight", drafter.tensor(f"{hf}.{hf_name}.weight"))
    out.finish()


def main() -> None:
    """Write both files and copy the generation defaults beside them."""
    parser = argparse.ArgumentParser(description="make the bundled model's GGUF files")
    parser.add_argument("source", type=Path, help="target: config, weights, tokenizer")
    parser.add_argument("drafter", type=Path, help="block drafter: config, weights")
    parser.add_argument("output", type=Path, help="directory that receives the files")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    source = read_checkpoint(args.source)
    write_target(source, args.output / "tiny-qwen3.5-Q8_0.gguf")
    drafter_path = args.output / "tiny-qwen3.5-dflash-Q8_0.gguf"
    write_drafter(read_checkpoint(args.drafter), source, drafter_path)
    shutil.copyfile(args.source / "generation_config.json", args.output / "generation_config.json")


if __name__ == "__main__":
    main()
