"""Fingerprints: the same for the same model, and no two models have one."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkpoints import Geometry, Model, random_model, write_gguf, write_hf
from drafters import Drafter, DrafterGeometry, random_drafter, write_drafter_gguf
from mtlqwen import _core

GEOMETRY = Geometry(layers="ga", gdn_k_heads=2, gdn_v_heads=6)


def fingerprint(path: Path, *, mtp: bool = False, dflash: Path | None = None) -> str:
    drafter = "" if dflash is None else str(dflash)
    return str(_core._testing.fingerprint(str(path), mtp=mtp, dflash=drafter))


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


def test_drafters_count(tmp_path: Path) -> None:
    model = random_model(dataclasses.replace(GEOMETRY, mtp=True))
    target = write_gguf(tmp_path / "m.gguf", model)
    first = random_drafter(DrafterGeometry(layers="sf"))
    seen = {fingerprint(target), fingerprint(target, mtp=True)}
    drafters = [first, random_drafter(DrafterGeometry(layers="sf"), seed=1)]
    drafters += [
        dataclasses.replace(first, geometry=dataclasses.replace(first.geometry, **change))
        for change in ({"window": 13}, {"causal": True}, {"mask_id": 286}, {"rope_theta": 1e5})
    ]
    for i, drafter in enumerate(drafters):
        path = write_drafter_gguf(tmp_path / f"{i}.gguf", drafter)
        seen |= {fingerprint(target, mtp=mtp, dflash=path) for mtp in (False, True)}
    assert len(seen) == 2 + 2 * len(drafters)


def test_every_tensor_of_a_drafter_counts(tmp_path: Path) -> None:
    model = random_model(dataclasses.replace(GEOMETRY, mtp=True))
    target = write_gguf(tmp_path / "m.gguf", model)
    base = random_drafter(DrafterGeometry())
    seen = set()
    for name, value in base.tensors.items():
        other = Drafter(base.geometry, base.tensors | {name: value * 2 + 0.25})
        seen.add(fingerprint(target, dflash=write_drafter_gguf(tmp_path / "d.gguf", other)))
    assert len(seen) == len(base.tensors)
    heads = set()
    for name in (name for name in model.tensors if name.startswith("mtp.")):
        tensors = model.tensors | {name: model.tensors[name] * 2 + 0.25}
        other_model = dataclasses.replace(model, tensors=tensors)
        path = write_gguf(tmp_path / "n.gguf", other_model)
        assert fingerprint(path) == fingerprint(target)
        heads.add(fingerprint(path, mtp=True))
    assert len(heads) == 15
