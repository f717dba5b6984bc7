"""Tensors by name: both formats hold the same model, and what is missing or wrong is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import (
    Geometry,
    Model,
    gguf_metadata,
    gguf_name,
    hf_config,
    random_model,
    to_gguf_meaning,
    write_gguf,
    write_hf,
)
from file_formats import decode, encode, gguf_bytes, round_to, safetensors_bytes
from mtlqwen import _core
from mtlqwen.errors import FormatError, ModelError

GEOMETRY = Geometry(layers="ga", gdn_k_heads=2, gdn_v_heads=6)
MODEL = random_model(GEOMETRY, seed=3)


def resolve(path: Path) -> dict[str, Any]:
    return dict(_core._testing.weights_check(str(path)))


def read_matrix(entry: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows, cols = entry["shape"]
    bits = {"F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8.5}[entry["format"]]
    raw = np.fromfile(entry["path"], np.uint8, int(rows * cols * bits / 8), offset=entry["offset"])
    return decode(raw, entry["format"], (rows, cols))


def acting(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what a vector means: norms hold 1 + w, A_log the decay, heads grouped."""
    value = MODEL.tensors[name]
    if name.endswith("A_log"):
        return -np.exp(value)
    plain = name.endswith(("linear_attn.norm.weight", "dt_bias", "conv1d.weight"))
    return (value if plain else 1 + value).reshape(-1)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model.", ""])
def test_hf_tensors(tmp_path: Path, prefix: str, dtype: str) -> None:
    found = resolve(write_hf(tmp_path, MODEL, prefix=prefix, dtype=dtype, shards=2))
    assert found.keys() == MODEL.tensors.keys()
    for name, value in MODEL.tensors.items():
        if isinstance(found[name], dict):
            np.testing.assert_array_equal(read_matrix(found[name]), round_to(value, dtype))
        elif dtype != "F16":  # the model is drawn in BF16, so F32 and BF16 keep it whole
            np.testing.assert_allclose(found[name], acting(name), rtol=3e-7)  # exp: 2 ulp


@pytest.mark.parametrize("matrices", ["Q8_0", "BF16", "F16", "F32"])
def test_gguf_tensors(tmp_path: Path, matrices: str) -> None:
    found = resolve(write_gguf(tmp_path / "m.gguf", MODEL, matrices=matrices))
    assert found.keys() == MODEL.tensors.keys()
    for name, value in MODEL.tensors.items():
        stored = to_gguf_meaning(name, value, GEOMETRY)
        if isinstance(found[name], dict):
            assert found[name]["format"] == matrices
            np.testing.assert_array_equal(read_matrix(found[name]), round_to(stored, matrices))
        else:
            np.testing.assert_array_equal(np.float32(found[name]), stored.reshape(-1))


def test_a_head_of_its_own(tmp_path: Path) -> None:
    model = random_model(Geometry(tied=False))
    for path in (write_hf(tmp_path / "hf", model), write_gguf(tmp_path / "m.gguf", model)):
        assert "lm_head.weight" in resolve(path)
    tied = random_model(Geometry(tied=True))
    assert "lm_head.weight" not in resolve(write_gguf(tmp_path / "tied.gguf", tied))


def test_config_that_promises_a_head(tmp_path: Path) -> None:
    model = random_model(Geometry(tied=False))
    tensors = {name: value for name, value in model.tensors.items() if name != "lm_head.weight"}
    with pytest.raises(ModelError, match=r"lm_head\.weight: missing"):
        resolve(write_hf(tmp_path, Model(model.geometry, tensors)))


def test_other_tensors_are_ignored(tmp_path: Path) -> None:
    extra = {"mtp.fc.weight": np.zeros((2, 2), np.float32), "visual.x": np.zeros(3, np.float32)}
    path = write_hf(tmp_path, Model(GEOMETRY, MODEL.tensors | extra), prefix="model.")
    assert resolve(path).keys() == MODEL.tensors.keys()


@pytest.mark.parametrize("name", sorted(MODEL.tensors))
def test_each_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    rest = Model(GEOMETRY, {key: value for key, value in MODEL.tensors.items() if key != name})
    with pytest.raises(ModelError, match="missing") as caught:
        resolve(write_hf(tmp_path / "hf", rest))
    assert name in str(caught.value)
    with pytest.raises(ModelError) as caught:
        resolve(write_gguf(tmp_path / "m.gguf", rest))
    if name != "embed_tokens.weight":  # GGUF takes the size of the vocabulary from it
        assert f"{gguf_name(name)}: missing" in str(caught.value)


@pytest.mark.parametrize("name", sorted(MODEL.tensors))
def test_each_wrong_shape_is_named(tmp_path: Path, name: str) -> None:
    value = MODEL.tensors[name]
    longer = np.concatenate([value, value])
    model = Model(GEOMETRY, MODEL.tensors | {name: longer})
    with pytest.raises(ModelError, match="wrong shape") as caught:
        resolve(write_hf(tmp_path, model))
    got, want = list(longer.shape), list(value.shape)
    assert f"{name}: wrong shape (got {got}, want {want})" in str(caught.value)


def test_a_quantisation_without_kernels_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", MODEL, matrices="F32")
    raw = path.read_bytes()
    name = b"blk.0.ffn_up.weight"
    place = raw.index(name) + len(name) + 4 + 2 * 8  # dimension count, two dimensions
    path.write_bytes(raw[:place] + (34).to_bytes(4, "little") + raw[place + 4 :])
    with pytest.raises(ModelError) as caught:
        resolve(path)
    assert "blk.0.ffn_up.weight: format does not run (got TQ1_0, want F32" in str(caught.value)


def test_a_quantised_vector_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensors = {}
    for name, value in MODEL.tensors.items():
        stored = to_gguf_meaning(name, value, GEOMETRY)
        format_name = "Q8_0" if name == "norm.weight" else "F32"
        tensors[gguf_name(name)] = (format_name, stored.shape, encode(stored, format_name))
    path.write_bytes(gguf_bytes(gguf_metadata(GEOMETRY), tensors))
    with pytest.raises(ModelError, match=r"output_norm\.weight: format does not run \(got Q8_0"):
        resolve(path)


def test_mlx_layout_is_refused(tmp_path: Path) -> None:
    name = "layers.0.linear_attn.conv1d.weight"
    moved = np.ascontiguousarray(np.moveaxis(MODEL.tensors[name], 1, 2))
    with pytest.raises(ModelError, match="MLX conversions do not run"):
        resolve(write_hf(tmp_path, Model(GEOMETRY, MODEL.tensors | {name: moved})))


def test_a_safetensors_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes({}))
    with pytest.raises(ModelError, match="name the directory"):
        resolve(path)


def test_architecture_is_named_before_missing_weights(tmp_path: Path) -> None:
    write_hf(tmp_path, MODEL)
    (tmp_path / "model.safetensors").unlink()
    config = tmp_path / "config.json"
    with pytest.raises(FormatError, match="has no weights"):
        resolve(tmp_path)
    text = config.read_text(encoding="utf-8").replace("qwen3_5_text", "mistral")
    config.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match='got model_type "mistral"'):
        resolve(tmp_path)


@pytest.mark.parametrize("k_heads", [1, 2, 4])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_any_head_geometry(tmp_path: Path, k_heads: int, repeats: int) -> None:
    geometry = Geometry(gdn_k_heads=k_heads, gdn_v_heads=k_heads * repeats, heads=6, kv_heads=2)
    model = random_model(geometry)
    assert hf_config(geometry)["linear_num_value_heads"] == k_heads * repeats
    decay = "layers.0.linear_attn.A_log"
    grouped = resolve(write_hf(tmp_path / "hf", model))[decay]
    tiled = resolve(write_gguf(tmp_path / "m.gguf", model))[decay]
    for head in range(k_heads * repeats):  # new head rep * Hk + kh is old head kh * r + rep
        rep, key_head = divmod(head, k_heads)
        assert tiled[head] == pytest.approx(grouped[key_head * repeats + rep], rel=3e-7)
