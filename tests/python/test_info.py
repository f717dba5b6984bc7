"""`mtlqwen info`: what it says of files that run, of files that do not, and of no files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mtlqwen
import numpy as np
import pytest
from checkpoints import Geometry, random_model, write_gguf, write_hf
from file_formats import gguf_bytes, safetensors_bytes
from mtlqwen import Engine
from mtlqwen.cli import main
from mtlqwen.info import describe, lines

GEOMETRY = Geometry(layers="gga", mtp=True)
FOLDER = Path(mtlqwen.__file__).parent / "models" / "tiny"
DRAFTER = FOLDER / "tiny-qwen3.5-dflash-Q8_0.gguf"


def gguf(folder: Path) -> Path:
    return write_gguf(folder / "m.gguf", random_model(GEOMETRY), tokenizer=True)


def checkpoint(folder: Path) -> Path:
    return write_hf(folder / "m", random_model(GEOMETRY), shards=2, tokenizer=True)


@pytest.mark.parametrize("write", [gguf, checkpoint])
def test_a_model_that_runs(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    report = describe(path)
    model = random_model(GEOMETRY)
    assert report["weights"] == sum(value.size for value in model.tensors.values())
    assert report["runs"]
    assert report["problems"] == []
    assert report["config"]["layers"] == ["gdn", "gdn", "attention"]
    assert report["mtp"]["runs"]
    assert report["files"] == (2 if path.is_dir() else 1)
    kinds = {row["type"]: row["tensors"] for row in report["types"]}
    assert kinds.keys() == ({"BF16"} if path.is_dir() else {"Q8_0", "F32"})
    assert sum(kinds.values()) == len(model.tensors)
    layers = [row["layer"] for row in report["layers"]]
    assert layers[:3] == [0, 1, 2]
    assert layers[3:] == ["mtp", "embedding, norm"]
    assert [row["kind"] for row in report["layers"]] == ["gdn", "gdn", "attention", "", ""]
    assert sum(row["bytes"] for row in report["layers"]) == report["bytes"]
    assert json.loads(json.dumps(report)) == report


def test_a_model_without_a_prediction_head(tmp_path: Path) -> None:
    model = random_model(Geometry(layers="gga"))
    report = describe(write_gguf(tmp_path / "m.gguf", model, tokenizer=True))
    assert report["mtp"] == {"runs": False, "problem": "the model has none"}
    assert "mtp_problem" not in report["config"]


def test_memory_is_what_an_engine_takes() -> None:
    memory = describe("tiny")["memory"]
    with Engine("tiny", context=1024, slots=1, spec="off", cache_memory=0) as engine:
        stream = engine.stream([1] * 900, max_tokens=4, ignore_eos=True)
        next(iter(stream))
        stats = engine.stats()
    assert stats["kv_bytes"] == 1024 * memory["token"]  # whole blocks of 128
    assert memory["states"] <= stats["bank_bytes"] <= 1.2 * memory["states"]
    assert [row["context"] for row in memory["by_context"]] == [4096, 8192]
    of_one = memory["weights"] + memory["states"] + 4096 * memory["token"]
    assert memory["by_context"][0]["one"] == of_one


def test_weights_are_not_read(tmp_path: Path) -> None:
    path = gguf(tmp_path)
    size = path.stat().st_size
    with path.open("r+b") as file:  # a hole of 8 GB within the range of the last tensor
        data = file.read()
        file.seek(size)
        file.truncate(size + 8 * 2**30)
    assert data
    assert describe(path)["runs"]


def test_a_type_that_does_not_run(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    raw = np.zeros(64, np.uint8)
    shard = safetensors_bytes(
        {"model.norm.weight": ("F8_E5M2", (64,), raw), "visual.a": ("BF16", (32,), raw)}
    )
    (path / "model.safetensors").write_bytes(shard)
    report = describe(path)
    assert not report["runs"]
    rows = {row["type"]: (row["runs"], row["weights"], row["bytes"]) for row in report["types"]}
    assert rows == {"F8_E5M2": (False, 64, 64), "BF16": (True, 32, 64)}
    assert "embed_tokens.weight is missing" in report["problems"][0]
    text = "\n".join(lines(report))
    assert "F8_E5M2           1          64        64 B   does not run" in text
    assert "does not run:\n  [weights]" in text
    assert "vision tensors are not read" in text


def test_another_architecture(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "llama"}, {}))
    report = describe(path)
    assert not report["runs"]
    assert 'got "llama", want qwen35' in report["problems"][0]
    assert "not a Qwen's" in report["problems"][1]


def test_a_drafter() -> None:
    report = describe(DRAFTER)
    assert report["problems"] == ["it is a drafter: name its model, and this file as drafter="]
    assert not report["runs"]
    assert describe("tiny")["drafter"] == {"path": str(DRAFTER), "problem": ""}


def test_a_drafter_that_does_not_fit(tmp_path: Path) -> None:
    path = gguf(tmp_path)
    (tmp_path / "m-dflash.gguf").symlink_to(DRAFTER)
    report = describe(path)
    assert report["runs"]
    assert "belongs to another model" in report["drafter"]["problem"]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "tiny", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["config"]["vocab"] == 8192
    assert main(["info", "tiny"]) == 0
    text = capsys.readouterr().out
    assert "8 layers (6 of Gated DeltaNet, 2 of attention)" in text
    assert "\n0 to 2 gdn              4.81 MB   Q8_0 4.73 MB, F32 70.21 kB\n3 attention" in text
    assert "\nmtp " in text
    assert "\nruns\n" in text
    assert "context    one sequence   8 sequences" in text


@pytest.mark.parametrize("name", ["nosuch.gguf", "owner/nosuchname"])
def test_nothing_of_that_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", name]) == 1
    assert capsys.readouterr().err.startswith("mtlqwen: [")
