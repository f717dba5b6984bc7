"""Make a Q8_0 GGUF with the shape of a published model and random weights, for measuring speed.

Every matrix has the size that the real model has, so a pass moves and computes exactly as much;
the weights say nothing. llama.cpp reads the file too, and both choose the same tokens: the layers
add little to what the embedding says, so that rounding does not grow from layer to layer as random
weights would otherwise make it; rows of the embedding differ in length, so that the best logit
stands clear of the next; and the weights of the last norm have either sign, so that a token does
not choose itself, as it would where embedding and head are one. The file depends on shape and seed
alone.

Needs the packages gguf and numpy. Example:
    python tools/make_shape_gguf.py 0.8b qwen3.5-0.8b-shape-Q8_0.gguf
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

Bytes = npt.NDArray[np.uint8]

N_TOKENS = 248320
EOS_ID = 248046  # <|im_end|>
HEAD_DIM = 256
GDN_HEAD_DIM = 128
GDN_K_HEADS = 16
CONV_TAPS = 4
QBLOCK = 32  # weights of a Q8_0 block
WEIGHT_STD = 0.02
OUTPUT_STD = 0.01  # of the matrices that add to the residual; half scales stay normal numbers
EMBEDDING_STD = 2.0
EMBEDDING_SPREAD = 0.5  # of the logarithm of a row's length
UNIFORM_STD = 127 / 3**0.5  # of integers drawn evenly from -127..127
CHUNK_QBLOCKS = 1 << 20  # drawn at once: 34 MiB


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes that differ between the models; embedding and head are one matrix in all of them."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    gdn_v_heads: int


SHAPES = {
    "0.8b": Shape(hidden=1024, layers=24, intermediate=3584, heads=8, kv_heads=2, gdn_v_heads=16),
    "2b": Shape(hidden=2048, layers=24, intermediate=6144, heads=8, kv_heads=2, gdn_v_heads=16),
    "4b": Shape(hidden=2560, layers=32, intermediate=9216, heads=16, kv_heads=4, gdn_v_heads=32),
}
FULL_ATTENTION_INTERVAL = 4


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file: a Q8_0 matrix, or float32 values between low and high."""

    name: str
    shape: tuple[int, ...]
    low: float = 0.0
    high: float = 0.0
    std: float = 0.0  # of a matrix
    spread: float = 0.0  # of the logarithm of the length of a matrix row

    @property
    def is_matrix(self) -> bool:
        """Q8_0, else float32."""
        return self.std > 0

    @property
    def n_bytes(self) -> int:
        """Its size in the file, without padding."""
        n = int(np.prod(self.shape, dtype=np.int64))
        return n // QBLOCK * (QBLOCK + 2) if self.is_matrix else 4 * n


def norm(name: str, dim: int) -> Tensor:
    """Weights of a norm: near one."""
    return Tensor(f"{name}.weight", (dim,), 0.9, 1.1)


def matrix(name: str, rows: int, columns: int, std: float = WEIGHT_STD) -> Tensor:
    """A Q8_0 matrix."""
    return Tensor(f"{name}.weight", (rows, columns), std=std)


def attention(shape: Shape, block: str) -> Iterator[Tensor]:
    """Full attention; a head of attn_q holds query and gate."""
    kv_rows = shape.kv_heads * HEAD_DIM
    yield matrix(f"{block}.attn_q", 2 * shape.heads * HEAD_DIM, shape.hidden)
    yield matrix(f"{block}.attn_k", kv_rows, shape.hidden)
    yield matrix(f"{block}.attn_v", kv_rows, shape.hidden)
    yield matrix(f"{block}.attn_output", shape.hidden, shape.heads * HEAD_DIM, OUTPUT_STD)
    yield norm(f"{block}.attn_q_norm", HEAD_DIM)
    yield norm(f"{block}.attn_k_norm", HEAD_DIM)


def linear_attention(shape: Shape, block: str) -> Iterator[Tensor]:
    """Gated DeltaNet: decays between a thousandth and nearly all of the state a token."""
    heads = shape.gdn_v_heads
    inner = heads * GDN_HEAD_DIM
    channels = 2 * GDN_K_HEADS * GDN_HEAD_DIM + inner
    gate_bound = WEIGHT_STD * 3**0.5
    yield matrix(f"{block}.attn_qkv", channels, shape.hidden)
    yield matrix(f"{block}.attn_gate", inner, shape.hidden)
    for name in ("ssm_alpha", "ssm_beta"):
        yield Tensor(f"{block}.{name}.weight", (heads, shape.hidden), -gate_bound, gate_bound)
    yield Tensor(f"{block}.ssm_a", (heads,), -16.0, -1.0)
    yield Tensor(f"{block}.ssm_dt.bias", (heads,), -6.9, -2.3)
    yield Tensor(f"{block}.ssm_conv1d.weight", (channels, CONV_TAPS), -0.5, 0.5)
    yield norm(f"{block}.ssm_norm", GDN_HEAD_DIM)
    yield matrix(f"{block}.ssm_out", shape.hidden, inner, OUTPUT_STD)


def tensors(shape: Shape) -> Iterator[Tensor]:
    """All of a model, in file order."""
    table = (N_TOKENS, shape.hidden)
    yield Tensor("token_embd.weight", table, std=EMBEDDING_STD, spread=EMBEDDING_SPREAD)
    yield Tensor("output_norm.weight", (shape.hidden,), -1.5, 1.5)
    for i in range(shape.layers):
        block = f"blk.{i}"
        yield norm(f"{block}.attn_norm", shape.hidden)
        yield norm(f"{block}.post_attention_norm", shape.hidden)
        full = (i + 1) % FULL_ATTENTION_INTERVAL == 0
        yield from (attention if full else linear_attention)(shape, block)
        yield matrix(f"{block}.ffn_gate", shape.intermediate, shape.hidden)
        yield matrix(f"{block}.ffn_up", shape.intermediate, shape.hidden)
        yield matrix(f"{block}.ffn_down", shape.hidden, shape.intermediate, OUTPUT_STD)


def add_metadata(w: gguf.GGUFWriter, name: str, shape: Shape) -> None:
    """Add what the architecture `qwen35` needs."""
    w.add_name(f"qwen3.5-{name}-shape, random weights")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(shape.layers)
    w.add_context_length(262144)
    w.add_embedding_length(shape.hidden)
    w.add_feed_forward_length(shape.intermediate)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(N_TOKENS)
    w.add_rope_freq_base(1e7)
    w.add_rope_dimension_count(HEAD_DIM // 4)
    w.add_rope_dimension_sections([11, 11, 10, 0])
    w.add_uint32("qwen35.full_attention_interval", FULL_ATTENTION_INTERVAL)
    w.add_ssm_conv_kernel(CONV_TAPS)
    w.add_ssm_state_size(GDN_HEAD_DIM)
    w.add_ssm_group_count(GDN_K_HEADS)
    w.add_ssm_time_step_rank(shape.gdn_v_heads)
    w.add_ssm_inner_size(shape.gdn_v_heads * GDN_HEAD_DIM)


def add_tokenizer(w: gguf.GGUFWriter) -> None:
    """Add a byte-level vocabulary: the bytes, one merge, and tokens that no text contains."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    tokens = letters + ["th"] + [f"<{i}>" for i in range(len(letters) + 1, N_TOKENS)]
    tokens[EOS_ID] = "<|im_end|>"
    types = [gguf.TokenType.NORMAL] * N_TOKENS
    types[EOS_ID] = gguf.TokenType.CONTROL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(["t h"])
    w.add_eos_token_id(EOS_ID)
    w.add_add_bos_token(False)


def draw(tensor: Tensor, rng: np.random.Generator) -> Iterator[Bytes]:
    """The bytes of a tensor, in pieces."""
    if not tensor.is_matrix:
        values = rng.uniform(tensor.low, tensor.high, tensor.shape).astype("<f4")
        yield values.reshape(-1).view(np.uint8)
        return
    qblocks_per_row = tensor.shape[1] // QBLOCK
    rows_at_once = max(1, CHUNK_QBLOCKS // qblocks_per_row)
    for first in range(0, tensor.shape[0], rows_at_once):
        rows = min(rows_at_once, tensor.shape[0] - first)
        yield draw_rows(tensor, rng, rows, qblocks_per_row)


def draw_rows(tensor: Tensor, rng: np.random.Generator, rows: int, qblocks: int) -> Bytes:
    """Rows of Q8_0 blocks: a half scale, then 32 integers; -128 never stands in a real file."""
    lengths = np.exp(tensor.spread * rng.standard_normal((rows, 1)))
    scales = tensor.std / UNIFORM_STD * rng.uniform(0.5, 1.5, (rows, qblocks)) * lengths
    out = np.empty((rows * qblocks, QBLOCK + 2), np.uint8)
    out[:, :2] = scales.astype("<f2").reshape(-1, 1).view(np.uint8)
    values = np.frombuffer(rng.bytes(rows * qblocks * QBLOCK), np.int8)
    out[:, 2:].view(np.int8)[:] = np.maximum(values, -127).reshape(-1, QBLOCK)
    return out.reshape(-1)


def write(path: Path, name: str, shape: Shape, seed: int) -> None:
    """Write the file; memory stays at a few pieces of it."""
    writer = gguf.GGUFWriter(path, "qwen35")
    add_metadata(writer, name, shape)
    add_tokenizer(writer)
    contents = list(tensors(shape))
    for tensor in contents:
        kind = GGMLQuantizationType.Q8_0 if tensor.is_matrix else GGMLQuantizationType.F32
        dtype = np.dtype(np.float32)  # `shape` counts weights, not bytes
        writer.add_tensor_info(tensor.name, tensor.shape, dtype, tensor.n_bytes, raw_dtype=kind)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    alignment = writer.data_alignment
    writer.close()
    rng = np.random.default_rng(seed)
    with path.open("ab") as file:
        for tensor in contents:
            file.write(b"\0" * (-file.tell() % alignment))
            for piece in draw(tensor, rng):
                file.write(piece.data)
        file.write(b"\0" * (-file.tell() % alignment))


def main() -> None:
    """Write one file, whole or not at all."""
    parser = argparse.ArgumentParser(description="make a GGUF of random weights")
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    part = args.output.with_name(args.output.name + ".part")
    write(part, args.shape, SHAPES[args.shape], args.seed)
    part.replace(args.output)


if __name__ == "__main__":
    main()
