"""Configs of both formats: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import (
    Geometry,
    gguf_metadata,
    hf_config,
    random_model,
    write_gguf,
    write_hf,
)
from file_formats import gguf_bytes
from mtlqwen import _core
from mtlqwen.errors import FormatError, ModelError

GEOMETRY = Geometry(layers="ggga", gdn_k_heads=2, gdn_v_heads=4, tied=False)
DELETE = object()


def read(path: Path) -> dict[str, Any]:
    return dict(_core._testing.model_config(str(path)))


def hf_with(directory: Path, changes: Mapping[str, object]) -> Path:
    """Write a checkpoint whose config.json differs; DELETE takes a key away."""
    write_hf(directory, random_model(GEOMETRY))
    config = hf_config(GEOMETRY) | dict(changes)
    kept = {key: value for key, value in config.items() if value is not DELETE}
    (directory / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return directory


def gguf_with(path: Path, changes: Mapping[str, object]) -> Path:
    """Write a GGUF file of metadata alone: enough for all errors of the config."""
    metadata = gguf_metadata(GEOMETRY) | dict(changes)
    kept = {key: value for key, value in metadata.items() if value is not DELETE}
    table = np.zeros((4, GEOMETRY.hidden), np.float32)
    raw = np.frombuffer(table.tobytes(), np.uint8)
    path.write_bytes(gguf_bytes(kept, {"token_embd.weight": ("F32", table.shape, raw)}))
    return path


def test_both_formats_give_the_same_config(tmp_path: Path) -> None:
    model = random_model(GEOMETRY)
    hf = read(write_hf(tmp_path / "hf", model))
    other = read(write_gguf(tmp_path / "m.gguf", model))
    assert hf.pop("architecture") == "qwen3_5_text"
    assert other.pop("architecture") == "qwen35"
    assert hf.pop("k_head_tiled") is False
    assert other.pop("k_head_tiled") is True
    for config in (hf, other):
        assert config.pop("eps") == pytest.approx(1e-6, rel=1e-6)  # float32
    assert hf == other
    assert hf["layers"] == ["gdn", "gdn", "gdn", "attention"]
    assert hf["rotary_dim"] == GEOMETRY.rotary_dim
    assert hf["tied"] is False


def test_multimodal_config_is_nested(tmp_path: Path) -> None:
    text = hf_config(GEOMETRY)
    rope = text.pop("rope_parameters")
    text |= {"rope_theta": rope["rope_theta"], "partial_rotary_factor": 0.25}
    del text["layer_types"]
    directory = hf_with(tmp_path, dict.fromkeys(text, DELETE) | {"rope_parameters": DELETE})
    config: dict[str, object] = {"model_type": "qwen3_5", "text_config": text}
    config |= {"vision_config": {"depth": 12}, "tie_word_embeddings": False}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    got = read(directory)
    assert got["rotary_dim"] == 8
    assert got["rope_theta"] == 1e6
    assert got["layers"] == ["gdn", "gdn", "gdn", "attention"]  # every fourth by default


def test_stop_ids_come_from_every_file_that_names_them(tmp_path: Path) -> None:
    directory = hf_with(tmp_path, {"eos_token_id": 5})
    generation = json.dumps({"eos_token_id": [7, 5]})
    (directory / "generation_config.json").write_text(generation, encoding="utf-8")
    added = {"9": {"content": "<|im_end|>"}, "10": {"content": "<think>"}}
    tokenizer = json.dumps({"added_tokens_decoder": added})
    (directory / "tokenizer_config.json").write_text(tokenizer, encoding="utf-8")
    assert read(directory)["eos_ids"] == [5, 7, 9]


def test_gguf_tokens_give_stop_ids_and_the_valid_part_of_the_vocabulary(tmp_path: Path) -> None:
    model = random_model(Geometry(vocab=320, eos_id=258))
    config = read(write_gguf(tmp_path / "m.gguf", model, tokenizer=True))
    assert config["eos_ids"] == [258, 256]
    assert config["n_valid_tokens"] == 261
    assert config["vocab"] == 320


def test_gguf_interval_and_prediction_layers(tmp_path: Path) -> None:
    model = random_model(Geometry(layers="gaga"))
    changes = {
        "qwen35.attention.recurrent_layers": None,
        "qwen35.full_attention_interval": 2,
        "qwen35.block_count": 5,
        "qwen35.nextn_predict_layers": 1,
    }
    config = read(write_gguf(tmp_path / "m.gguf", model, changes=changes))
    assert config["layers"] == ["gdn", "attention"] * 2
    assert config["mtp_layers"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, 'got model_type "llama", want qwen3_5 or qwen3_5_text'),
        ({"model_type": "qwen3_next"}, 'got model_type "qwen3_next"'),
        ({"model_type": "qwen3_5_moe"}, "dense Qwen 3.5, 3.6 and 3.8"),
        ({"model_type": DELETE}, 'got model_type ""'),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised safetensors do not run"),
        ({"hidden_size": DELETE}, "hidden_size is not one that runs (got nothing"),
        ({"hidden_size": "64"}, 'hidden_size is not one that runs (got "64", want an integer)'),
        ({"hidden_size": 2**40}, "hidden_size is not one that runs"),
        ({"hidden_size": -64}, "hidden_size is not one that runs (got -64"),
        ({"hidden_size": 72}, "got 72, want a multiple of 32"),
        ({"hidden_size": 0}, "got 0, want a multiple of 32"),
        ({"num_hidden_layers": 10**9, "layer_types": DELETE}, "num_hidden_layers"),
        ({"num_hidden_layers": 5}, "layer_types is not one that runs (got an array"),
        ({"layer_types": ["x"] * 4}, "want linear_attention or full_attention"),
        ({"num_key_value_heads": 0}, "number of K/V heads is not one that runs (got 0"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "number of attention heads"),
        ({"head_dim": 40}, "head_dim is not one that runs (got 40"),
        ({"head_dim": 2**31}, "head_dim"),
        ({"linear_num_value_heads": 3}, "number of linear value heads"),
        ({"linear_num_key_heads": 2**31, "linear_num_value_heads": 2**31}, "linear key heads"),
        ({"linear_value_head_dim": 128}, "linear_value_head_dim"),
        ({"linear_key_head_dim": 96, "linear_value_head_dim": 96}, "want 64 or 128"),
        ({"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim is not one that runs (got 3"),
        ({"rms_norm_eps": 0}, "RMS norm epsilon"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_type is not one"),
        ({"rope_scaling": {"type": "yarn"}}, 'type is not one that runs (got "yarn"'),
        ({"rope_parameters": {"rope_theta": 0.0}}, "rope theta"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 7}}, "0 to 1"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.04}}, "rotary"),
        ({"max_position_embeddings": 0}, "context length"),
        ({"vocab_size": 2**31}, "vocabulary size"),
        ({"eos_token_id": 10**6}, "end-of-sequence id is not one that runs (got 1000000"),
        ({"attention_bias": True}, "attention_bias is not one that runs (got true, want false)"),
        ({"hidden_act": "gelu"}, 'hidden_act is not one that runs (got "gelu", want silu)'),
    ],
)
def test_hf_config_refused(tmp_path: Path, changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(hf_with(tmp_path, changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "llama"}, 'got "llama", want qwen35'),
        ({"general.architecture": "qwen3next"}, 'got "qwen3next"'),
        ({"general.architecture": "qwen35moe"}, 'got "qwen35moe"'),
        ({"general.architecture": DELETE}, "key general.architecture is missing"),
        ({"qwen35.embedding_length": DELETE}, "key qwen35.embedding_length is missing"),
        ({"qwen35.embedding_length": "64"}, 'got string "64", want an unsigned 32-bit integer'),
        ({"qwen35.embedding_length": -1}, "got integer -1"),
        ({"qwen35.block_count": 10**9}, "block_count is not one that runs (got 1000000000"),
        ({"qwen35.block_count": 0}, "block_count"),
        ({"qwen35.nextn_predict_layers": 4}, "more than the 4 MTP layers"),
        ({"qwen35.attention.recurrent_layers": [True]}, "got 1 values, want 4"),
        ({"qwen35.ssm.conv_kernel": 5}, "ssm.conv_kernel is not one that runs (got 5, want 4)"),
        ({"qwen35.ssm.inner_size": 64}, "time_step_rank x state_size = 256"),
        ({"qwen35.ssm.group_count": 3}, "a multiple of the 3 key heads"),
        ({"qwen35.attention.value_length": 64}, "attention.value_length"),
        ({"qwen35.rope.dimension_count": 15}, "rotary dimensions is not one"),
        ({"qwen35.rope.freq_base": 1}, "want a finite float"),
        ({"qwen35.rope.freq_base": float("nan")}, "want a finite float"),
        ({"qwen35.rope.scaling.type": "yarn"}, "rope.scaling.type is not one that runs"),
        ({"qwen35.full_attention_interval": 0}, "full_attention_interval"),
        ({"qwen35.attention.head_count_kv": [1, 2]}, "got array of 2"),
        ({"tokenizer.ggml.eos_token_id": 258}, "end-of-sequence id is not one that runs"),
    ],
)
def test_gguf_config_refused(tmp_path: Path, changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(gguf_with(tmp_path / "m.gguf", {"tokenizer.ggml.eos_token_id": 1} | dict(changes)))
    assert message in str(caught.value)


def test_config_that_is_no_json(tmp_path: Path) -> None:
    directory = hf_with(tmp_path, {})
    (directory / "config.json").write_text('{"a": 1,}', encoding="utf-8")
    with pytest.raises(FormatError, match="invalid JSON at byte 8"):
        read(directory)
    (directory / "config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(FormatError, match="nested deeper than 32"):
        read(directory)


def test_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"directory has no config\.json"):
        read(tmp_path)
