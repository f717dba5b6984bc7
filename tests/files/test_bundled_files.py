"""The files of the bundled model are whole, and hold what their card says."""

from __future__ import annotations

import json
from pathlib import Path

from mtlqwen import _core

MIB = 1 << 20


def tiny(root: Path) -> Path:
    return root / "python" / "mtlqwen" / "models" / "tiny"


def test_target(root: Path) -> None:
    path = tiny(root) / "tiny-qwen3.5-Q8_0.gguf"
    config = _core._testing.model_config(str(path))
    assert config["layers"] == (["gdn"] * 3 + ["attention"]) * 2
    assert (config["hidden"], config["intermediate"], config["vocab"]) == (512, 1536, 8192)
    assert (config["gdn_k_heads"], config["gdn_v_heads"], config["gdn_head_dim"]) == (4, 8, 128)
    assert config["mtp_layers"] == 1
    assert config["tied"] is True
    assert config["n_valid_tokens"] == 8192
    generation = json.loads((tiny(root) / "generation_config.json").read_text(encoding="utf-8"))
    assert config["eos_ids"] == generation["eos_token_id"]
    assert path.stat().st_size < 49 * MIB


def test_target_has_its_prediction_head(root: Path) -> None:
    tensors = _core._testing.open_gguf(str(tiny(root) / "tiny-qwen3.5-Q8_0.gguf"))["tensors"]
    assert tensors["blk.8.nextn.eh_proj.weight"]["shape"] == [512, 1024]
    for name in ("enorm", "hnorm", "shared_head_norm"):
        assert tensors[f"blk.8.nextn.{name}.weight"]["shape"] == [512]
    for name, tensor in tensors.items():
        small = len(tensor["shape"]) == 1 or any(p in name for p in ("conv1d", "alpha", "beta"))
        assert tensor["format"] == ("F32" if small else "Q8_0")


def test_drafter(root: Path) -> None:
    path = str(tiny(root) / "tiny-qwen3.5-dflash-Q8_0.gguf")
    metadata = _core.read_gguf_metadata(path)
    assert metadata["general.architecture"] == "dflash"
    assert metadata["dflash.target_layers"] == [2, 4, 5, 6, 7]  # counted from 1
    assert metadata["dflash.block_size"] == 16
    assert metadata["tokenizer.ggml.mask_token_id"] == 8191
    assert _core._testing.open_gguf(path)["tensors"]["fc.weight"]["shape"] == [512, 2560]


def test_tokenizer_and_template(root: Path) -> None:
    metadata = _core.read_gguf_metadata(str(tiny(root) / "tiny-qwen3.5-Q8_0.gguf"))
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == 8192
    assert tokens[8167] == "<|im_end|>"
    assert "<tool_call>" in str(metadata["tokenizer.chat_template"])
