"""Tensors of drafters by name, and of the prediction heads in targets' own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import (
    Geometry,
    Model,
    gguf_name,
    random_model,
    to_gguf_meaning,
    write_gguf,
    write_hf,
)
from drafters import (
    Drafter,
    DrafterGeometry,
    drafter_gguf_name,
    random_drafter,
    write_drafter_gguf,
    write_drafter_hf,
)
from file_formats import decode, round_to
from mtlqwen import _core
from mtlqwen.errors import FormatError, ModelError

Array = np.ndarray[Any, np.dtype[np.float32]]

TARGET = Geometry(layers="ga", mtp=True, gdn_k_heads=2, gdn_v_heads=4)
MODEL = random_model(TARGET, seed=5)
HEAD = sorted(name for name in MODEL.tensors if name.startswith("mtp."))
GEOMETRY = DrafterGeometry(layers="sf", heads=4, kv_heads=2)
DRAFTER = random_drafter(GEOMETRY, seed=6)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("target") / "m.gguf", MODEL)


def resolve(path: Path, target: Path) -> dict[str, Any]:
    return dict(_core._testing.dflash_check(str(path), str(target)))


def read_matrix(entry: dict[str, Any]) -> Array:
    rows, cols = entry["shape"]
    bits = {"F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8.5}[entry["format"]]
    raw = np.fromfile(entry["path"], np.uint8, int(rows * cols * bits / 8), offset=entry["offset"])
    return decode(raw, entry["format"], (rows, cols))


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("shards", [1, 3])
def test_hf_tensors(tmp_path: Path, target: Path, dtype: str, shards: int) -> None:
    found = resolve(write_drafter_hf(tmp_path, DRAFTER, dtype=dtype, shards=shards), target)
    assert found.keys() == DRAFTER.tensors.keys()
    for name, value in DRAFTER.tensors.items():
        got = read_matrix(found[name]) if isinstance(found[name], dict) else found[name]
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("matrices", ["Q8_0", "BF16"])
def test_gguf_tensors(tmp_path: Path, target: Path, matrices: str) -> None:
    found = resolve(write_drafter_gguf(tmp_path / "d.gguf", DRAFTER, matrices=matrices), target)
    assert found.keys() == DRAFTER.tensors.keys()
    for name, value in DRAFTER.tensors.items():
        if isinstance(found[name], dict):
            np.testing.assert_array_equal(read_matrix(found[name]), round_to(value, matrices))
        else:
            np.testing.assert_array_equal(np.float32(found[name]), value)


@pytest.mark.parametrize("name", sorted(DRAFTER.tensors))
def test_each_missing_or_misshapen_tensor_is_named(tmp_path: Path, target: Path, name: str) -> None:
    value = DRAFTER.tensors[name]
    rest = {key: value for key, value in DRAFTER.tensors.items() if key != name}
    with pytest.raises(ModelError) as caught:
        resolve(write_drafter_gguf(tmp_path / "d.gguf", Drafter(GEOMETRY, rest)), target)
    assert f"{drafter_gguf_name(name)}: missing" in str(caught.value)
    longer = Drafter(GEOMETRY, rest | {name: np.concatenate([value, value])})
    with pytest.raises(ModelError) as caught:
        resolve(write_drafter_hf(tmp_path / "hf", longer), target)
    assert f"{name}: wrong shape (got [{2 * len(value)}" in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        (("candidate_selector.hidden_projection.weight",), "candidate_selector.hidden_projection"),
        (("layers.0.attention_conv.base_kernel", "layers.0.mlp_conv.base_kernel"), "mlp_conv"),
        (tuple(f"x{i}" for i in range(9)), "(has x0, x1, x2, x3 and 5 others, want"),
    ],
)
def test_a_drafter_of_another_kind_is_refused(
    tmp_path: Path, target: Path, extra: tuple[str, ...], found: str
) -> None:
    tensors = DRAFTER.tensors | {name: np.zeros(2, np.float32) for name in extra}
    with pytest.raises(ModelError, match="DFlash2 and DSpark do not run") as caught:
        resolve(write_drafter_hf(tmp_path, Drafter(GEOMETRY, tensors)), target)
    assert found in str(caught.value)


def test_copies_of_the_targets_tables_are_ignored(tmp_path: Path, target: Path) -> None:
    tensors = dict(DRAFTER.tensors)
    tensors |= {"embed_tokens.weight": np.zeros((2, 2), np.float32)}
    found = resolve(write_drafter_hf(tmp_path, Drafter(GEOMETRY, tensors)), target)
    assert found.keys() == DRAFTER.tensors.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 128}, "hidden size (got 128, want 64)"),
        ({"vocab": 320}, "vocabulary size (got 320, want 288)"),
        ({"vocab": 0, "mask_id": 300}, "mask token id (got 300, want less than 288)"),
    ],
)
def test_a_drafter_of_another_model_is_refused(
    tmp_path: Path, target: Path, change: dict[str, Any], message: str
) -> None:
    drafter = random_drafter(replace(GEOMETRY, **change))
    for path in (
        write_drafter_hf(tmp_path / "hf", drafter),
        write_drafter_gguf(tmp_path / "d.gguf", drafter),
    ):
        with pytest.raises(ModelError) as caught:
            resolve(path, target)
        assert f"{path}: drafter belongs to another model: {message}" in str(caught.value)


def test_a_drafter_of_a_deeper_model_is_refused_in_the_numbers_of_its_file(
    tmp_path: Path, target: Path
) -> None:
    drafter = random_drafter(replace(GEOMETRY, taps=(0, 2)))
    path = write_drafter_hf(tmp_path / "hf", drafter)
    with pytest.raises(ModelError, match=r"target_layer_ids, counted from 0 \(got 2, want"):
        resolve(path, target)
    path = write_drafter_gguf(tmp_path / "d.gguf", drafter)
    with pytest.raises(ModelError, match=r"dflash.target_layers, counted from 1 \(got 3, want"):
        resolve(path, target)


def test_files_that_are_no_drafters(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ModelError, match='got architecture "qwen35", want dflash'):
        resolve(target, target)
    with pytest.raises(FormatError, match=r"directory has no config\.json"):
        resolve(tmp_path, target)
    whole = write_drafter_gguf(tmp_path / "d.gguf", DRAFTER)
    raw = whole.read_bytes()
    for cut in (0, 3, 40, len(raw) // 2, len(raw) - 1):
        whole.write_bytes(raw[:cut])
        with pytest.raises(FormatError):
            resolve(whole, target)


def test_damaged_files_are_refused_or_read(tmp_path: Path, target: Path) -> None:
    """Any byte of what is not weights may be anything: an error of ours, or a drafter."""
    rng = np.random.default_rng(7)
    gguf = write_drafter_gguf(tmp_path / "d.gguf", DRAFTER)
    directory = write_drafter_hf(tmp_path / "hf", DRAFTER)
    head = gguf.read_bytes().index(b"blk.1.attn_v") + 200
    safetensors = directory / "model.safetensors"
    header = 8 + int.from_bytes(safetensors.read_bytes()[:8], "little")
    config = directory / "config.json"
    places = [(gguf, gguf, head), (safetensors, directory, header)]
    for file, drafter, size in [*places, (config, directory, config.stat().st_size)]:
        whole = file.read_bytes()
        refused = 0
        for place in rng.integers(0, size, 150):
            value = rng.integers(0, 256).astype(np.uint8).tobytes()
            file.write_bytes(whole[:place] + value + whole[place + 1 :])
            try:
                resolve(drafter, target)
            except (FormatError, ModelError):
                refused += 1
        file.write_bytes(whole)
        assert refused > 50
        resolve(drafter, target)


def test_bundled_drafter_serves_the_bundled_model(root: Path) -> None:
    folder = root / "python" / "mtlqwen" / "models" / "tiny"
    found = resolve(folder / "tiny-qwen3.5-dflash-Q8_0.gguf", folder / "tiny-qwen3.5-Q8_0.gguf")
    assert len(found) == 3 + 4 * 11
    assert _core._testing.mtp_problem(str(folder / "tiny-qwen3.5-Q8_0.gguf")) == ""


# --- the prediction head -------------------------------------------------------------------------


def check(path: Path) -> dict[str, Any]:
    return dict(_core._testing.weights_check(str(path)))


def problem(path: Path) -> str:
    return str(_core._testing.mtp_problem(str(path)))


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", ""])
@pytest.mark.parametrize("mtp_prefix", ["", "model.", "language_model."])
def test_head_in_safetensors(tmp_path: Path, prefix: str, mtp_prefix: str) -> None:
    path = write_hf(tmp_path, MODEL, prefix=prefix, mtp_prefix=mtp_prefix, shards=2)
    assert problem(path) == ""
    found = check(path)
    assert found.keys() == MODEL.tensors.keys()
    for name in HEAD:
        if isinstance(found[name], dict):
            np.testing.assert_array_equal(read_matrix(found[name]), MODEL.tensors[name])
        else:
            np.testing.assert_array_equal(found[name], 1 + MODEL.tensors[name])


def test_head_in_gguf(target: Path) -> None:
    assert problem(target) == ""
    found = check(target)
    assert found.keys() == MODEL.tensors.keys()
    for name in HEAD:
        stored = to_gguf_meaning(name, MODEL.tensors[name], TARGET)
        if isinstance(found[name], dict):
            np.testing.assert_array_equal(read_matrix(found[name]), round_to(stored, "Q8_0"))
        else:
            np.testing.assert_array_equal(np.float32(found[name]), stored)


@pytest.mark.parametrize("name", HEAD)
def test_a_head_that_is_not_whole_is_none(tmp_path: Path, name: str) -> None:
    rest = {key: value for key, value in MODEL.tensors.items() if key != name}
    hf = write_hf(tmp_path / "hf", Model(TARGET, rest))
    gguf = write_gguf(tmp_path / "m.gguf", Model(TARGET, rest))
    assert f"{name}: missing" in problem(hf)
    assert f"{gguf_name(name, 2)}: missing" in problem(gguf)
    for path in (hf, gguf):
        assert not any(found.startswith("mtp.") for found in check(path))


def test_a_head_of_other_shapes_says_so_when_asked(tmp_path: Path) -> None:
    wrong = MODEL.tensors | {"mtp.fc.weight": np.zeros((64, 64), np.float32)}
    path = write_gguf(tmp_path / "m.gguf", Model(TARGET, wrong))
    text = "blk.2.nextn.eh_proj.weight: wrong shape (got [64, 64], want [64, 128])"
    assert text in problem(path)
    assert "mtp.fc.weight" not in check(path)


def test_a_model_without_a_head_or_with_two(tmp_path: Path) -> None:
    model = random_model(replace(TARGET, mtp=False))
    assert "mtp.pre_fc_norm_embedding.weight: missing" in problem(write_hf(tmp_path / "hf", model))
    changes = {"qwen35.nextn_predict_layers": 2, "qwen35.block_count": 4}
    changes |= {"qwen35.attention.recurrent_layers": [True, False, False, False]}  # type: ignore[dict-item]
    two = write_gguf(tmp_path / "two.gguf", MODEL, changes=changes)
    assert "number of MTP layers is not one that runs (got 2, want 1)" in problem(two)
