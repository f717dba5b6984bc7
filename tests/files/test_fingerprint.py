"""Fingerprints: the same for the same model, and no two models have one."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkpoints import Geometry, Model, random_model, write_gguf, write_hf
from mtlqwen import _core

GEOMETRY = Geometry(layers="ga", gdn_k_heads=2, gdn_v_heads=6)


def fingerprint(path: Path) -> str:
    return str(_core._testing.fingerprint(str(path)))


def changed_models() -> Iterator[tuple[str, Model]]:
    """Models that differ from random_model(GEOMETRY) in one tensor each, by its name."""
    base = random_model(GEOMETRY)
    for name, value in base.tensors.items():
        yield name, dataclasses.replace(base, tensors={**base.tensors, name: value * 2 + 0.25})


def test_a_model_has_one_fingerprint(tmp_path: Path) -> None:
    model = random_model(GEOMETRY)
    path = write_gguf(tmp_path / "m.gguf", model)
    moved = Path(shutil.copy(path, tmp_path / "n.gguf"))
    assert fingerprint(path) == fingerprint(moved)
    whole = write_hf(tmp_path / "whole", model)
    sharded = write_hf(tmp_path / "sharded", model, shards=3)
    assert fingerprint(whole) == fingerprint(sharded)


def test_every_tensor_counts(tmp_path: Path) -> None:
    seen = {fingerprint(write_gguf(tmp_path / "m.gguf", random_model(GEOMETRY))): "none"}
    for name, model in changed_models():
        found = fingerprint(write_gguf(tmp_path / "m.gguf", model))
        assert found not in seen, f"{name} as {seen[found]}"
        seen[found] = name


@pytest.mark.parametrize(
    "change",
    [
        {"layers": "ag"},
        {"layers": "gag"},
        {"gdn_v_heads": 4},
        {"rope_theta": 20_000.0},
    ],
)
def test_the_config_counts(tmp_path: Path, change: dict[str, object]) -> None:
    other = dataclasses.replace(GEOMETRY, **change)  # type: ignore[arg-type]
    paths = [
        write_gguf(tmp_path / f"{i}.gguf", random_model(geometry))
        for i, geometry in enumerate((GEOMETRY, other))
    ]
    assert fingerprint(paths[0]) != fingerprint(paths[1])


def test_quantisations_and_formats_differ(tmp_path: Path) -> None:
    model = random_model(GEOMETRY)
    paths = [
        write_gguf(tmp_path / f"{matrices}.gguf", model, matrices=matrices)
        for matrices in ("Q8_0", "F16", "BF16", "F32")
    ]
    paths.append(write_hf(tmp_path / "hf", model))
    assert len({fingerprint(path) for path in paths}) == len(paths)
