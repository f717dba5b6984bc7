"""Conversions that are broken off go on, and end with the same bytes; what cannot be is refused."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints import Geometry, random_model, write_hf
from files.sources import write_source
from mtlqwen import CapacityError, FormatError, ModelError, convert
from mtlqwen.cli import main
from mtlqwen.conversion import partial_file, rows
from mtlqwen.conversion.partial_file import PartialFile

TESTS = Path(__file__).parent.parent
# Kills itself when it has been told of so many pieces.
KILLED = """
import os, signal, sys
from mtlqwen import convert
from mtlqwen.conversion import partial_file, rows

partial_file._SYNC_BYTES = rows._WEIGHTS_AT_ONCE = 1000
left = int(sys.argv[3])

def tell(stage, done, total):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

convert(sys.argv[1], sys.argv[2], "q8_0", progress=tell)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "hf", random_model(Geometry(mtp=True)), shards=2)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_file, "_SYNC_BYTES", 1000)
    monkeypatch.setattr(rows, "_WEIGHTS_AT_ONCE", 1000)


class Told:
    """A progress function that stops the work at a random moment."""

    def __init__(self, after: int) -> None:
        self.calls: list[int] = []
        self._after = after

    def __call__(self, stage: str, done: int, total: int) -> None:
        assert stage == "convert"
        self.calls.append(done)
        if len(self.calls) == self._after:
            raise KeyboardInterrupt


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"hf"}


def test_goes_on_wherever_it_was_stopped(tmp_path: Path, source: Path) -> None:
    whole = Told(0)
    want = convert(source, tmp_path / "want.gguf", progress=whole, threads=1).read_bytes()
    assert whole.calls == sorted(whole.calls)
    assert whole.calls[-1] == len(want)
    path, rng, before = tmp_path / "out" / "want.gguf", random.Random(0), 0
    path.parent.mkdir()
    calls: list[int] = []
    while len(calls) < 200:
        told = Told(rng.randint(1, 60))
        try:
            convert(source, path, progress=told, threads=rng.randint(1, 3))
        except KeyboardInterrupt:
            assert names(path.parent) == {"want.gguf.partial", "want.gguf.partial.journal"}
            assert told.calls[0] >= before  # what the journal had is not done again
            before = told.calls[0]
            calls.append(len(told.calls))
        else:
            break
    assert len(calls) > 3
    assert names(path.parent) == {"want.gguf"}
    assert path.read_bytes() == want
    assert len(told.calls) < len(whole.calls)


def test_goes_on_after_a_kill(tmp_path: Path, source: Path) -> None:
    whole = Told(0)
    want = convert(source, tmp_path / "want.gguf", progress=whole).read_bytes()
    path, rng = tmp_path / "out" / "want.gguf", random.Random(1)
    path.parent.mkdir()
    for _ in range(3):
        at = rng.randint(2, len(whole.calls) // 2)
        command = [sys.executable, "-c", KILLED, str(source), str(path), str(at)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    told = Told(0)
    assert convert(source, path, progress=told).read_bytes() == want
    assert len(told.calls) < len(whole.calls)


@pytest.mark.parametrize("damage", ["torn", "garbage", "empty", "gone", "short part"])
def test_a_damaged_journal_costs_time_and_nothing_else(
    tmp_path: Path, source: Path, damage: str
) -> None:
    want = convert(source, tmp_path / "want.gguf").read_bytes()
    (tmp_path / "want.gguf").unlink()
    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "want.gguf", progress=Told(150))
    part, journal = tmp_path / "want.gguf.partial", tmp_path / "want.gguf.partial.journal"
    text = journal.read_bytes()
    assert text.count(b"\n") > 5
    if damage == "short part":
        part.write_bytes(part.read_bytes()[:500])
    elif damage == "gone":
        journal.unlink()
    else:
        ends = {"torn": text[:-1], "garbage": text + b"\0\0\n7\n", "empty": b""}
        journal.write_bytes(ends[damage])
    assert convert(source, tmp_path / "want.gguf").read_bytes() == want


def test_another_source_or_type_begins_anew(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "m.gguf"
    want = convert(source, path, "q4_0").read_bytes()
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        convert(source, path, "q8_0", progress=Told(150))
    assert convert(source, path, "q4_0").read_bytes() == want
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        convert(source, path, "q4_0", progress=Told(150))
    write_hf(source, random_model(Geometry(mtp=True), seed=5), shards=2)
    other = convert(source, path, "q4_0").read_bytes()
    assert other == convert(source, path, "q4_0", overwrite=True).read_bytes()
    assert other != want


def test_only_one_process_writes_a_file(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "a", "identity", [3]) as first:
        with pytest.raises(FileExistsError, match="another process is writing it"):
            PartialFile(tmp_path / "a", "identity", [3])
        first.write(memoryview(b"abc"))
        first.end_piece()
        first.finish()
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_a_full_disk_is_seen_before(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(CapacityError, match=r"does not fit the disk \(got 0.0 GB free, want"):
        convert(source, tmp_path / "m.gguf")
    assert names(tmp_path) == set()


def drop(folder: Path, name: str) -> None:
    (folder / name).unlink()


def edit(folder: Path, name: str, change: Callable[[dict[str, object]], object]) -> None:
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))


def cut(folder: Path) -> None:
    shard = folder / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-10])


def poison(folder: Path) -> None:
    shard = folder / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-2] + np.float32(np.inf).tobytes()[2:])


SHARD = "model-00001-of-00002.safetensors"
REFUSED: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "shard": (lambda f: drop(f, SHARD), FormatError, f"'{SHARD}' is missing; download it"),
    "cut": (cut, FormatError, "data leaves the file"),
    "tokenizer": (lambda f: drop(f, "tokenizer.json"), ModelError, "no tokenizer.json in it"),
    "split": (
        lambda f: edit(f, "tokenizer.json", lambda d: d.update(normalizer=None)),
        ModelError,
        "not Qwen's tokenizer",
    ),
    "moe": (
        lambda f: edit(f, "config.json", lambda d: d.update(model_type="qwen3_5_moe")),
        ModelError,
        "model_type is not one that runs .got 'qwen3_5_moe', want qwen3_5 or qwen3_5_text",
    ),
    "shape": (
        lambda f: edit(f, "config.json", lambda d: d.update(intermediate_size=97)),
        ModelError,
        r"gate_proj.weight: wrong shape \(got \[96, 64\], want \[97, 64\]\)",
    ),
    "type": (
        lambda f: edit(f, "config.json", lambda d: d.update(hidden_size="64")),
        ModelError,
        "hidden_size is not one that runs .got '64', want a whole number",
    ),
    "head": (
        lambda f: edit(f, "config.json", lambda d: d.update(tie_word_embeddings=False)),
        ModelError,
        "lm_head.weight: missing in",
    ),
    "index": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b"}}'),
        FormatError,
        "weight_map names no files beside it",
    ),
    "infinity": (poison, ModelError, "a weight that Q8_0 cannot hold|a weight that F32 cannot"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(tmp_path: Path, source: Path, what: str) -> None:
    damage, error, message = REFUSED[what]
    damage(source)
    with pytest.raises(error, match=message):
        convert(source, tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("target", "options", "error", "message"),
    [
        ("m.bin", {}, ValueError, "no name of a GGUF file"),
        ("none/m.gguf", {}, FileNotFoundError, "its folder is not there"),
        ("there.gguf", {}, FileExistsError, "is there; remove it, or pass overwrite"),
        ("m.gguf", {"type": "q9"}, ValueError, "got q9, want f32, f16, bf16, q8_0"),
        ("m.gguf", {"parts": {"attn_q": "x"}}, ValueError, "got x, want f32"),
        ("m.gguf", {"parts": {"attn": "f16"}}, ValueError, "no matrix of this model .*got 'attn'"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, source: Path, target: str, options: dict[str, object], error: type, message: str
) -> None:
    (tmp_path / "there.gguf").touch()
    with pytest.raises(error, match=message):
        convert(source, tmp_path / target, **options)  # type: ignore[arg-type]


def test_a_gguf_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a file already"):
        convert("tiny", tmp_path / "m.gguf")


def test_the_command(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.gguf"
    arguments = ["convert", str(source), str(path), "--type", "q4_0", "--threads", "1"]
    assert main([*arguments, "--part", "token_embd=q8_0"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    want = convert(
        source, tmp_path / "m.gguf", "q4_0", parts={"token_embd": "q8_0"}, overwrite=True
    )
    assert path.read_bytes() == want.read_bytes()
    assert main(arguments) == 1
    assert "is there; remove it" in capsys.readouterr().err
