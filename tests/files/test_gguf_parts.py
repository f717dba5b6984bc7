"""GGUF files in parts: read as one, and refused where the parts do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import Geometry, gguf_metadata, random_model, write_gguf
from file_formats import gguf_bytes
from mtlqwen import Engine, _core
from mtlqwen.errors import FormatError

GEOMETRY = Geometry(tied=False)
N_PARTS = 3
NAME = "m-{:05}-of-00003.gguf"


def write_parts(folder: Path, whole: Path) -> Path:
    """Write the same model in parts, the first without tensors; return the first."""
    raw = whole.read_bytes()
    tensors = {
        name: (
            entry["format"],
            tuple(entry["shape"]),
            np.frombuffer(raw[entry["offset"] :][: entry["bytes"]], np.uint8),
        )
        for name, entry in _core._testing.open_gguf(str(whole))["tensors"].items()
    }
    names = sorted(tensors)
    halves = [[], names[::2], names[1::2]]
    for part, chosen in enumerate(halves):
        metadata: dict[str, object] = gguf_metadata(GEOMETRY, tokenizer=True) if part == 0 else {}
        metadata |= {"split.no": part, "split.count": N_PARTS, "split.tensors.count": len(names)}
        path = folder / NAME.format(part + 1)
        path.write_bytes(gguf_bytes(metadata, {name: tensors[name] for name in chosen}))
    return folder / NAME.format(1)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "whole" / "m.gguf", random_model(GEOMETRY), tokenizer=True)


@pytest.fixture
def first(tmp_path: Path, whole: Path) -> Path:
    return write_parts(tmp_path, whole)


def contents(path: Path) -> dict[str, Any]:
    """Return values of vectors, and stored bytes of matrices, by name."""
    out: dict[str, Any] = {}
    for name, entry in _core._testing.weights_check(str(path)).items():
        if isinstance(entry, dict):
            rows, cols = entry["shape"]
            file, offset = Path(entry["path"]), entry["offset"]
            entry = file.read_bytes()[offset : offset + rows * cols // 32 * 34]
        out[name] = entry
    return out


def test_parts_are_one_model(whole: Path, first: Path) -> None:
    assert contents(first) == contents(whole)
    assert _core.read_gguf_metadata(str(first)).keys() > {"general.architecture", "split.no"}
    config, same = (_core.read_config(str(path)) for path in (first, whole))
    assert config | {"mtp_problem": ""} == same | {"mtp_problem": ""}
    assert (config["tied"], config["vocab"]) == (False, GEOMETRY.vocab)
    texts = []
    for path in (whole, first):
        with Engine(path, context=256, slots=1, block_tokens=256) as engine:
            texts.append(engine.generate([1, 2, 3], max_tokens=8, temperature=0.0).token_ids)
    assert texts[0] == texts[1]


def test_a_part_that_is_not_the_first(first: Path) -> None:
    with pytest.raises(FormatError, match=r"is part 2 of 3 \(want the first\); name the file that"):
        _core.read_config(str(first.with_name(NAME.format(2))))


def test_a_first_part_under_another_name(first: Path) -> None:
    path = first.rename(first.with_name("m.gguf"))
    with pytest.raises(FormatError, match=r"want one that ends in -00001-of-00003\.gguf"):
        _core.read_config(str(path))


def test_a_missing_part(first: Path) -> None:
    first.with_name(NAME.format(3)).unlink()
    with pytest.raises(FormatError, match=r"m-00003-of-00003\.gguf: cannot be opened"):
        _core.read_config(str(first))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gguf_bytes({}, {}), "does not say that it is part 3 of 3"),
        (gguf_bytes({"split.no": 1, "split.count": 3}, {}), "does not say that it is part 3"),
        (gguf_bytes({"split.no": 2, "split.count": 4}, {}), "does not say that it is part 3"),
        (gguf_bytes({"split.no": 2, "split.count": 3}, {}), "the parts do not hold all tensors"),
        (b"GGUF", "m-00003-of-00003.gguf: version"),
    ],
)
def test_a_part_of_something_else(first: Path, content: bytes, words: str) -> None:
    first.with_name(NAME.format(3)).write_bytes(content)
    with pytest.raises(FormatError, match=words):
        _core.read_config(str(first))


def test_a_tensor_in_two_parts(first: Path) -> None:
    zeros = np.zeros(4, np.uint8)
    again = gguf_bytes(
        {"split.no": 2, "split.count": 3}, {"blk.0.attn_gate.weight": ("F32", (1,), zeros)}
    )
    first.with_name(NAME.format(3)).write_bytes(again)
    with pytest.raises(FormatError, match=r"tensor blk\.0\.attn_gate\.weight lies in two parts"):
        _core.read_config(str(first))
