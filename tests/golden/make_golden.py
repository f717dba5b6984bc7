"""Make golden.json and golden_logits.npz: transformers in float32 on the shipped GGUF's weights.

Needs `pip install torch transformers gguf numpy` (made with torch 2.13.0 on the CPU, transformers
5.24.0, gguf 0.19.0). Use:

    python tests/golden/make_golden.py python/mtlqwen/models/tiny/tiny-qwen3.5-Q8_0.gguf

The prompts stand in prompts.json. For each: its ids, 64 greedy tokens (past end-of-turn too, where
ties are closer), the five largest logits behind each of them, and, in the .npz, all logits behind
the last prompt token.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGUFReader, dequantize
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

HERE = Path(__file__).parent
N_TOKENS = 64
TOP = 5

NAMES = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}


class Metadata:
    """Typed access to the metadata of a GGUF file."""

    def __init__(self, reader: GGUFReader) -> None:
        self.fields = reader.fields

    def __getitem__(self, key: str) -> Any:
        """Value of a metadata key."""
        return self.fields[key].contents()

    def model(self, key: str) -> Any:
        return self[f"qwen35.{key}"]


def config_of(meta: Metadata) -> Qwen3_5TextConfig:
    n_layers = meta.model("block_count") - meta.model("nextn_predict_layers")
    interval = meta.model("full_attention_interval")
    kinds = [
        "linear_attention" if (i + 1) % interval else "full_attention" for i in range(n_layers)
    ]
    head_dim = meta.model("attention.key_length")
    return Qwen3_5TextConfig(
        vocab_size=len(meta["tokenizer.ggml.tokens"]),
        hidden_size=meta.model("embedding_length"),
        intermediate_size=meta.model("feed_forward_length"),
        num_hidden_layers=n_layers,
        layer_types=kinds,
        num_attention_heads=meta.model("attention.head_count"),
        num_key_value_heads=meta.model("attention.head_count_kv"),
        head_dim=head_dim,
        rms_norm_eps=meta.model("attention.layer_norm_rms_epsilon"),
        linear_num_key_heads=meta.model("ssm.group_count"),
        linear_num_value_heads=meta.model("ssm.time_step_rank"),
        linear_key_head_dim=meta.model("ssm.state_size"),
        linear_value_head_dim=meta.model("ssm.state_size"),
        linear_conv_kernel_dim=meta.model("ssm.conv_kernel"),
        tie_word_embeddings=True,
        max_position_embeddings=meta.model("context_length"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": meta.model("rope.freq_base"),
            "partial_rotary_factor": meta.model("rope.dimension_count") / head_dim,
            "mrope_section": meta.model("rope.dimension_sections")[:3],
            "mrope_interleaved": True,
        },
    )


def untile(x: np.ndarray, n_k: int, n_v: int) -> np.ndarray:
    """Value heads (axis 0) from the file's (repetition, key head) to (key head, repetition)."""
    r = n_v // n_k
    return x.reshape(r, n_k, x.shape[0] // n_v, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def to_hf(name: str, x: np.ndarray, config: Qwen3_5TextConfig) -> tuple[str, np.ndarray] | None:
    """Name and values in transformers' conventions; None for tensors of the MTP block."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight", x
    if name == "output_norm.weight":
        return "model.norm.weight", x - 1
    _, layer, rest = name.split(".", 2)
    if int(layer) >= config.num_hidden_layers:
        return None
    prefix = f"model.layers.{layer}."
    n_k, n_v = config.linear_num_key_heads, config.linear_num_value_heads
    keys = 2 * n_k * config.linear_key_head_dim
    if rest == "ssm_a":
        return prefix + "linear_attn.A_log", np.log(-untile(x, n_k, n_v))
    if rest == "ssm_dt.bias":
        return prefix + "linear_attn.dt_bias", untile(x, n_k, n_v)
    stem = rest.removesuffix(".weight")
    return f"{prefix}{NAMES[stem]}.weight", weight_to_hf(stem, x, keys, n_k, n_v)


def weight_to_hf(stem: str, x: np.ndarray, keys: int, n_k: int, n_v: int) -> np.ndarray:
    """One layer weight in transformers' order of value heads, norms as differences from one."""
    if stem in ("attn_qkv", "ssm_conv1d"):
        x = np.concatenate([x[:keys], untile(x[keys:], n_k, n_v)])
    elif stem in ("attn_gate", "ssm_alpha", "ssm_beta"):
        x = untile(x, n_k, n_v)
    elif stem == "ssm_out":
        x = untile(np.ascontiguousarray(x.T), n_k, n_v).T
    if stem == "ssm_conv1d":
        x = x[:, None, :]
    if stem in ("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm"):
        x = x - 1
    return x


def load(path: Path) -> Qwen3_5ForCausalLM:
    reader = GGUFReader(path)
    config = config_of(Metadata(reader))
    state = {}
    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        converted = to_hf(tensor.name, values, config)
        if converted is not None:
            name, values = converted
            state[name] = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    model = Qwen3_5ForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"tensors do not match: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def continue_greedily(model: Qwen3_5ForCausalLM, ids: list[int]) -> tuple[list[int], torch.Tensor]:
    """N_TOKENS greedy ids, and the logits (1 + N_TOKENS, vocab) that lead to and follow them."""
    tokens = list(ids)
    for _ in range(N_TOKENS):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(ids) :], model(torch.tensor([tokens])).logits[0, len(ids) - 1 :]


def main() -> None:
    path = Path(sys.argv[1])
    torch.set_grad_enabled(False)
    model = load(path)
    prompts = json.loads((HERE / "prompts.json").read_text())
    items, first_logits = [], []
    for prompt in prompts:
        ids = prompt["prompt_ids"]
        greedy, logits = continue_greedily(model, ids)
        top = logits[:-1].topk(TOP)
        items.append(
            {
                "id": prompt["id"],
                "kind": prompt["kind"],
                "prompt": prompt["prompt"],
                "prompt_ids": ids,
                "greedy_ids": greedy,
                "top_ids": top.indices.tolist(),
                "top_logits": [[round(v, 5) for v in row] for row in top.values.tolist()],
            }
        )
        first_logits.append(logits[0].numpy())
        print(prompt["id"], greedy[:8], flush=True)
    made_with = {
        "weights_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "gguf": getattr(gguf, "__version__", "0.19.0"),
        "dtype": "float32, on weights dequantised from the GGUF file",
    }
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    text = f'{{"made_with": {json.dumps(made_with)},\n"items": [\n{lines}\n]}}\n'
    (HERE / "golden.json").write_text(text)
    np.savez_compressed(HERE / "golden_logits.npz", logits=np.stack(first_logits))


if __name__ == "__main__":
    main()
