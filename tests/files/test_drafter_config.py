"""Configs of drafters in both formats: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from drafters import (
    DrafterGeometry,
    drafter_gguf_metadata,
    drafter_hf_config,
    random_drafter,
    write_drafter_gguf,
    write_drafter_hf,
)
from file_formats import gguf_bytes
from mtlqwen import _core
from mtlqwen.errors import FormatError, ModelError

GEOMETRY = DrafterGeometry(layers="ssf", taps=(0, 2, 5), target_layers=8)
DELETE = object()


def read(path: Path) -> dict[str, Any]:
    return dict(_core._testing.dflash_config(str(path)))


def hf_with(directory: Path, changes: Mapping[str, object]) -> Path:
    """Write a config.json that differs, here or in dflash_config; DELETE takes a key away."""
    config = drafter_hf_config(GEOMETRY)
    for key, value in changes.items():
        level = config["dflash_config"] if key in config["dflash_config"] else config
        level[key] = value
        if value is DELETE:
            del level[key]
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def gguf_with(path: Path, changes: Mapping[str, object]) -> Path:
    """Write a GGUF file of metadata alone."""
    metadata = drafter_gguf_metadata(GEOMETRY) | dict(changes)
    kept = {key: value for key, value in metadata.items() if value is not DELETE}
    path.write_bytes(gguf_bytes(kept, {}))
    return path


def test_every_format_gives_the_same_config(tmp_path: Path) -> None:
    drafter = random_drafter(GEOMETRY)
    got = [
        read(write_drafter_hf(tmp_path / "new", drafter)),
        read(write_drafter_hf(tmp_path / "old", drafter, legacy=True)),
        read(write_drafter_gguf(tmp_path / "d.gguf", drafter)),
    ]
    for config in got:
        assert config.pop("eps") == pytest.approx(1e-6, rel=1e-6)  # float32
    assert got[0] == got[1] == got[2]
    assert got[0] == {
        "hidden": 64,
        "intermediate": 96,
        "vocab": 288,
        "windows": [12, 12, 0],
        "causal": [True, True, False],
        "n_heads": 2,
        "n_kv_heads": 1,
        "head_dim": 32,
        "rope_theta": 1e6,
        "block_size": 8,
        "mask_id": 287,
        "embedding_scale": 1.0,
        "taps": [0, 2, 5],
    }


@pytest.mark.parametrize("causal", [True, False])
def test_causality_of_all_layers_goes_before_the_rule(tmp_path: Path, causal: bool) -> None:
    drafter = random_drafter(DrafterGeometry(layers="sf", causal=causal))
    for path in (
        write_drafter_hf(tmp_path / "hf", drafter),
        write_drafter_gguf(tmp_path / "d.gguf", drafter),
    ):
        config = read(path)
        assert config["causal"] == [causal] * 2
        assert config["windows"] == [12, 0]


@pytest.mark.parametrize(
    ("target_layers", "n_layers", "taps"),
    [
        (32, 8, [1, 5, 9, 13, 17, 21, 25, 29]),
        (64, 8, [1, 10, 18, 27, 35, 44, 52, 61]),
        (64, 5, [1, 16, 31, 46, 61]),
        (40, 8, [1, 6, 11, 16, 22, 27, 32, 37]),
        (32, 5, [1, 8, 15, 22, 29]),
        (24, 3, [1, 11, 21]),
        (25, 3, [1, 12, 22]),  # 11.5: to the even neighbour
        (8, 1, [4]),
    ],
)
def test_default_taps(tmp_path: Path, target_layers: int, n_layers: int, taps: list[int]) -> None:
    changes = {
        "target_layer_ids": DELETE,
        "num_target_layers": target_layers,
        "num_hidden_layers": n_layers,
        "layer_types": ["full_attention"] * n_layers,
    }
    assert read(hf_with(tmp_path, changes))["taps"] == taps


def test_what_files_may_leave_out(tmp_path: Path) -> None:
    changes = {"layer_types": DELETE, "sliding_window": None, "input_embedding_scale": DELETE}
    config = read(hf_with(tmp_path, changes | {"vocab_size": DELETE}))
    assert config["windows"] == [0, 0, 0]
    assert config["causal"] == [False] * 3
    assert config["embedding_scale"] == 1.0
    assert config["vocab"] == 0
    path = gguf_with(
        tmp_path / "d.gguf",
        {"dflash.vocab_size": DELETE, "dflash.rope.dimension_count": DELETE}
        | {"tokenizer.ggml.tokens": [f"t{i}" for i in range(300)]},
    )
    assert read(path)["vocab"] == 300


def test_bundled_drafter(root: Path) -> None:
    path = root / "python" / "mtlqwen" / "models" / "tiny" / "tiny-qwen3.5-dflash-Q8_0.gguf"
    config = read(path)
    assert config["taps"] == [1, 3, 4, 5, 6]
    assert config["windows"] == [0] * 4
    assert config["causal"] == [False] * 4
    assert (config["block_size"], config["mask_id"], config["vocab"]) == (16, 8191, 8192)
    assert (config["n_heads"], config["n_kv_heads"], config["head_dim"]) == (8, 2, 128)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["Qwen3ForCausalLM"], "dflash_config": DELETE}, "not a drafter that"),
        ({"selector_rank": 256, "conv_kernel_size": 2}, "(has conv_kernel_size, selector_rank"),
        ({"markov_rank": 256}, "(has markov_rank, want a DFlash drafter without)"),
        ({"sample_from_anchor": True}, "DFlash2 and DSpark do not run"),
        ({"quantization": {"bits": 4}}, "quantised safetensors do not run"),
        ({"hidden_size": DELETE}, "hidden_size is not one that runs (got nothing"),
        ({"hidden_size": 72}, "got 72, want a multiple of 32"),
        ({"hidden_size": 2**40}, "hidden_size is not one that runs"),
        ({"intermediate_size": 0}, "intermediate size is not one that runs (got 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is not one that runs (got 1000000000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is not one that runs (got 0"),
        ({"num_hidden_layers": 2}, "layer_types is not one that runs (got an array"),
        ({"layer_types": ["x"] * 3}, "want sliding_attention or full_attention"),
        ({"layer_types": DELETE}, "layer_types is not one that runs (got nothing"),
        ({"sliding_window": None}, "sliding_window is not one that runs (got nothing"),
        ({"sliding_window": 0}, "sliding_window is not one that runs (got 0"),
        ({"is_causal": 1}, "is_causal is not one that runs (got 1"),
        ({"num_key_value_heads": 0}, "number of K/V heads is not one that runs (got 0"),
        ({"num_attention_heads": 9}, "want 1 to 8 times the 1 K/V heads"),
        ({"head_dim": 40}, "head_dim is not one that runs (got 40"),
        ({"head_dim": 512}, "head_dim is not one that runs (got 512"),
        ({"num_attention_heads": 2**31, "num_key_value_heads": 2**31}, "attention heads"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_type is not one"),
        ({"rope_scaling": {"type": "yarn"}}, 'type is not one that runs (got "yarn"'),
        ({"rope_parameters": {"rope_theta": 0.5}}, "rope theta"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.25}}, "got 0.25"),
        ({"rope_parameters": DELETE}, "rope_theta is not one that runs (got nothing"),
        ({"rms_norm_eps": 0}, "RMS norm epsilon"),
        ({"vocab_size": 2**31}, "vocabulary size"),
        ({"block_size": 1}, "block size is not one that runs (got 1, want 2 to"),
        ({"block_size": 2**31}, "block size is not one that runs"),
        ({"mask_token_id": DELETE}, "mask_token_id is not one that runs (got nothing"),
        ({"mask_token_id": 288}, "mask token id is not one that runs (got 288, want 0 to 287)"),
        ({"mask_token_id": -1}, "mask_token_id is not one that runs (got -1"),
        ({"input_embedding_scale": 2.0}, "embedding scale is not one that runs (got 2, want 1)"),
        ({"input_embedding_scale": "1"}, "input_embedding_scale is not one that runs"),
        ({"target_layer_ids": []}, "number of target layers is not one that runs (got 0"),
        ({"target_layer_ids": 3}, "target_layer_ids is not one that runs (got 3"),
        ({"target_layer_ids": [1, -1]}, "target_layer_ids is not one that runs (got -1"),
        ({"target_layer_ids": [2, 1]}, "target_layer_ids is not one that runs (got 2 before 1"),
        ({"target_layer_ids": [1, 1]}, "(got 1 before 1, want ascending, without repeats)"),
        ({"target_layer_ids": [1, 1024]}, "target_layer_ids is not one that runs (got 1024, want"),
        ({"target_layer_ids": [1, 2**31]}, "(got 2147483648, want at most 1023)"),
        ({"target_layer_ids": list(range(1025))}, "number of target layers"),
        ({"hidden_size": 65536}, "target layers times hidden size"),
        ({"target_layer_ids": DELETE, "num_target_layers": 4}, "num_target_layers is not one"),
        ({"target_layer_ids": DELETE, "num_target_layers": DELETE}, "num_target_layers"),
        (
            {"target_layer_ids": DELETE, "num_target_layers": 5},
            "target_layer_ids, spread over num_target_layers is not one that runs (got 2 before 2",
        ),
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
        ({"general.architecture": "qwen35"}, 'got architecture "qwen35", want dflash'),
        ({"general.architecture": "dflash-draft"}, 'got architecture "dflash-draft"'),
        ({"general.architecture": DELETE}, "key general.architecture is missing"),
        (
            {"dflash.conv_kernel_size": 2, "dflash.selector_rank": 256},
            "has dflash.conv_kernel_size",
        ),
        ({"dflash.embedding_length": DELETE}, "key dflash.embedding_length is missing"),
        ({"dflash.embedding_length": 72}, "got 72, want a multiple of 32"),
        ({"dflash.block_count": 10**9}, "block_count is not one that runs (got 1000000000"),
        ({"dflash.block_count": 0}, "block_count is not one that runs (got 0"),
        ({"dflash.block_count": 2}, "sliding_window_pattern is not one that runs (got 3 values"),
        ({"dflash.attention.sliding_window_pattern": DELETE}, "(got nothing, want 3)"),
        ({"dflash.attention.sliding_window_pattern": 3}, "sliding_window_pattern"),
        ({"dflash.attention.head_count": 12}, "number of attention heads"),
        ({"dflash.attention.head_count_kv": [1, 1, 1]}, "got array of 3"),
        ({"dflash.attention.value_length": 64}, "attention.value_length"),
        ({"dflash.rope.dimension_count": 16}, "rope.dimension_count is not one that runs (got 16"),
        ({"dflash.rope.freq_base": float("inf")}, "want a finite float"),
        ({"dflash.rope.scaling.type": "yarn"}, "rope.scaling.type is not one that runs"),
        ({"dflash.block_size": DELETE}, "key dflash.block_size is missing"),
        ({"dflash.target_layers": DELETE}, "dflash.target_layers is not one that runs (got nothi"),
        ({"dflash.target_layers": [0, 1]}, "dflash.target_layers is not one that runs (got 0"),
        ({"dflash.target_layers": [3, 2]}, "dflash.target_layers is not one that runs (got 3 befo"),
        ({"dflash.target_layers": [3, 1025]}, "(got 1025, want at most 1024)"),
        ({"dflash.target_layers": []}, "target_layers"),
        ({"dflash.embedding_scale": -1.0}, "embedding scale"),
        ({"tokenizer.ggml.mask_token_id": DELETE}, "key tokenizer.ggml.mask_token_id is missing"),
        ({"tokenizer.ggml.mask_token_id": 288}, "mask token id is not one that runs (got 288"),
    ],
)
def test_gguf_config_refused(tmp_path: Path, changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(gguf_with(tmp_path / "d.gguf", changes))
    assert message in str(caught.value)


def test_config_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(FormatError, match="nested deeper than 32"):
        read(tmp_path)
    (tmp_path / "config.json").write_text('{"dflash_config": 3}', encoding="utf-8")
    with pytest.raises(ModelError, match="hidden_size is not one that runs"):
        read(tmp_path)
