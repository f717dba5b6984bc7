"""The readers against files that other programs wrote, and the errors as Python sees them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from checkpoints import Geometry, random_model, write_gguf, write_hf
from file_formats import decode, encode, gguf_bytes, round_to, safetensors_bytes
from mtlqwen import _core
from mtlqwen.errors import FormatError, ModelError

readers = _core._testing


@pytest.mark.parametrize("matrices", ["Q8_0", "F16", "BF16", "F32"])
def test_gguf_directory_agrees_with_the_gguf_package(tmp_path: Path, matrices: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", random_model(Geometry()), matrices=matrices)
    ours = readers.open_gguf(str(path))["tensors"]
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name]["format"] == tensor.tensor_type.name
        assert ours[name]["shape"] == [int(dim) for dim in reversed(tensor.shape)]
        assert ours[name]["offset"] == tensor.data_offset
        assert ours[name]["bytes"] == tensor.n_bytes


def test_metadata_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "qwen35")
    values: dict[str, list[Any]] = {
        "texts": ["a", "", "é\U0001f600"],
        "numbers": [1, -2, 3],
        "floats": [0.5, -1.0],
        "flags": [True, False],
        "nested": [[1, 2], [3]],
    }
    for key, value in values.items():
        writer.add_array(key, value)
    writer.add_uint64("big", 2**63)
    writer.add_int64("low", -(2**63))
    writer.add_float64("double", 0.1)
    writer.add_bool("yes", True)
    writer.add_tensor("t", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = _core.read_gguf_metadata(str(path))
    expected: dict[str, object] = dict(values) | {
        "big": 2**63,
        "low": -(2**63),
        "double": 0.1,
        "yes": True,
    }
    assert {key: metadata[key] for key in expected} == expected
    assert isinstance(metadata["yes"], bool)


def test_safetensors_in_one_file_and_in_shards(tmp_path: Path) -> None:
    model = random_model(Geometry())
    whole = readers.open_safetensors(str(write_hf(tmp_path / "one", model)))
    parts = readers.open_safetensors(str(write_hf(tmp_path / "many", model, shards=3)))
    assert len(whole) == 1
    assert len(parts) == 3
    shapes = {name: entry["shape"] for name, entry in whole[0]["tensors"].items()}
    assert shapes == {
        name: entry["shape"] for part in parts for name, entry in part["tensors"].items()
    }
    assert shapes["model.embed_tokens.weight"] == [288, 64]


@pytest.mark.parametrize("format_name", ["F32", "F16", "BF16", "Q8_0"])
def test_the_writers_of_these_tests_round_as_the_formats_do(format_name: str) -> None:
    value = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    kept = round_to(value, format_name)
    type_id = gguf.GGMLQuantizationType[format_name]
    raw = encode(value, format_name)
    rows = raw.view(np.float32 if format_name == "F32" else np.uint8).reshape(4, -1)
    if format_name == "F16":
        rows = raw.view(np.float16).reshape(4, -1)
    np.testing.assert_array_equal(kept, gguf.quants.dequantize(rows, type_id))
    np.testing.assert_array_equal(kept, decode(raw, format_name, value.shape))


def test_unsupported_formats_are_kept_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    raw = np.zeros(8, np.uint8)
    path.write_bytes(safetensors_bytes({"a": ("F8_E4M3", (8,), raw), "b": ("I64", (1,), raw)}))
    assert readers.open_safetensors(str(path))[0]["unsupported"] == {"a": "F8_E4M3", "b": "I64"}


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_a_path_that_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FormatError, match=r"cannot be (opened|read)"):
        readers.open_gguf(str(tmp_path / name))


def test_errors_name_file_key_and_both_values(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 7, 0, 0))
    with pytest.raises(FormatError) as caught:
        readers.open_gguf(str(path))
    assert str(caught.value) == (
        f"[gguf] {path}: version of GGUF not supported (got 7, want 2 or 3)"
    )
    path.write_bytes(gguf_bytes({"general.architecture": 3}, {}))
    with pytest.raises(ModelError, match=r"key general\.architecture has a wrong value"):
        readers.model_config(str(path))
