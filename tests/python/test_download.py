"""Models from a hub on this machine: what is fetched, kept, resumed and refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import mtlqwen
import pytest
from checkpoints import Geometry, random_model
from files.sources import write_source
from huggingface_hub import constants
from mtlqwen import CapacityError, Engine, ModelError, convert
from mtlqwen.cli import main
from mtlqwen.download import Downloads
from mtlqwen.hub import resolve, resolve_drafter
from python.fake_hub import COMMIT, FakeHub, Repository

TINY = Path(mtlqwen.__file__).parent / "models" / "tiny" / "tiny-qwen3.5-Q8_0.gguf"
GGUF = {
    "m-Q4_K_M.gguf": b"GGUF" + bytes(range(256)) * 40,
    "m-Q8_0.gguf": b"8" * 30_000,
    "m-UD-Q4_K_M.gguf": b"u" * 100,
    "m-dflash-Q8_0.gguf": b"d" * 100,
    "mmproj-F16.gguf": b"p" * 100,
    "BF16/m-BF16-00001-of-00002.gguf": b"1" * 100,
    "BF16/m-BF16-00002-of-00002.gguf": b"2" * 100,
    "config.json": b"{}",
    "generation_config.json": b'{"top_k": 20}',
    "README.md": b"# m",
}
SHARDS = ["model.safetensors-00001-of-00002.safetensors", "m2.safetensors"]
CHECKPOINT = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "vocab.json": b"{}",
    "chat_template.jinja": b"{{ 1 }}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
    ).encode(),
    SHARDS[0]: b"a" * 5_000,
    SHARDS[1]: b"b" * 6_000,
    "consolidated.safetensors": b"c" * 11_000,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with a repository of each kind, and an empty cache."""
    fake = FakeHub()
    fake.repositories = {
        "owner/m-GGUF": Repository(dict(GGUF)),
        "owner/m": Repository(dict(CHECKPOINT)),
        "owner/gated": Repository(dict(GGUF), gated=True),
    }
    monkeypatch.setattr(constants, "ENDPOINT", fake.url)
    template = fake.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield fake
    fake.close()


def names(hub: FakeHub) -> list[str]:
    return sorted(name for name, *_ in hub.served)


@pytest.mark.parametrize(
    ("quant", "files"),
    [
        ("q8_0", ["m-Q8_0.gguf"]),
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("UD-Q4_K_M", ["m-UD-Q4_K_M.gguf"]),
        ("BF16", ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"]),
    ],
)
def test_a_quantisation_brings_only_what_it_needs(
    hub: FakeHub, quant: str, files: list[str]
) -> None:
    found = resolve(f"owner/m-GGUF:{quant}").weights
    assert [found.read_bytes(), found.name] == [GGUF[files[0]], Path(files[0]).name]
    sidecar = [] if quant == "BF16" else ["generation_config.json"]
    assert names(hub) == sorted(files + sidecar)
    hub.served.clear()
    assert resolve(f"owner/m-GGUF:{quant}").weights == found
    assert names(hub) == []


def test_a_drafter_by_its_name(hub: FakeHub) -> None:
    model = resolve("owner/m-GGUF:Q8_0")
    found = resolve_drafter(model, "owner/m-GGUF:Q8_0")
    assert found is not None
    assert found.read_bytes() == GGUF["m-dflash-Q8_0.gguf"]


def test_a_checkpoint_brings_the_shards_of_its_index(hub: FakeHub) -> None:
    folder = resolve("owner/m").weights
    left_out = {"vocab.json", "consolidated.safetensors"}
    assert set(names(hub)) == CHECKPOINT.keys() - left_out
    assert (folder / SHARDS[1]).read_bytes() == CHECKPOINT[SHARDS[1]]
    hub.repositories["owner/m"].files["model.safetensors"] = b"w"
    shutil.rmtree(constants.HF_HUB_CACHE)
    hub.served.clear()
    resolve("owner/m")
    assert "model.safetensors" in names(hub)
    assert not set(SHARDS) & set(names(hub))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("owner/m-GGUF", "several GGUF files (got BF16/m-BF16-00001-of-00002.gguf, m-Q4_K_M.gguf"),
        ("owner/m-GGUF:Q4_K", "no file for Q4_K (got"),
        ("owner/m:Q8_0", "nor a GGUF file in it"),
    ],
)
def test_a_choice_that_is_none(hub: FakeHub, name: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(name)
    assert words in str(caught.value)
    assert names(hub) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", SHARDS[1]])
def test_a_checkpoint_that_lacks_something(hub: FakeHub, name: str) -> None:
    del hub.repositories["owner/m"].files[name]
    with pytest.raises(ModelError, match=rf"^\[hub\] owner/m: not complete: no {name} in it"):
        resolve("owner/m")
    assert names(hub) in ([], ["model.safetensors.index.json"])


def test_one_gguf_file_needs_no_quantisation(hub: FakeHub) -> None:
    hub.repositories["owner/one"] = Repository({"m.gguf": b"m", "config.json": b"{}"})
    assert resolve("owner/one").weights.read_bytes() == b"m"
    hub.close()
    assert resolve("owner/one").weights.read_bytes() == b"m"


def test_a_line_that_breaks_is_taken_up_again(hub: FakeHub) -> None:
    hub.cuts["m-Q8_0.gguf"] = [12_345]
    assert resolve("owner/m-GGUF:Q8_0").weights.read_bytes() == GGUF["m-Q8_0.gguf"]
    sent = [(first, count) for name, first, count in hub.served if name == "m-Q8_0.gguf"]
    assert sent == [(0, 12_345), (12_000, 18_000)]


def test_a_later_call_goes_on_where_one_stopped(hub: FakeHub) -> None:
    hub.cuts["m-Q8_0.gguf"] = [12_345, *[0] * 20]
    with pytest.raises(ConnectionError, match="the hub cannot be reached"):
        resolve("owner/m-GGUF:Q8_0")
    cached = Downloads(allowed=False)
    with pytest.raises(ConnectionError, match="not, or not whole, in the local cache"):
        resolve("owner/m-GGUF:Q8_0", cached)
    hub.cuts.clear()
    hub.served.clear()
    seen: list[tuple[str, int, int]] = []
    how = Downloads(progress=lambda *now: seen.append(now))
    assert resolve("owner/m-GGUF:Q8_0", how).weights.read_bytes() == GGUF["m-Q8_0.gguf"]
    assert hub.served[0] == ("m-Q8_0.gguf", 12_000, 18_000)
    assert seen[0] == ("download", 12_000, 30_000 + len(GGUF["generation_config.json"]))


def test_an_interrupt_leaves_what_has_come(hub: FakeHub) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if done > 20_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve("owner/m-GGUF:Q8_0", Downloads(progress=interrupt))
    hub.served.clear()
    resolve("owner/m-GGUF:Q8_0")
    assert hub.served[0] == ("m-Q8_0.gguf", 20_000, 10_000)


def test_an_error_of_the_progress_function_stays_itself(hub: FakeHub) -> None:
    def fail(stage: str, done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        resolve("owner/m-GGUF:Q8_0", Downloads(progress=fail))


def test_what_arrives_damaged_gets_no_place(hub: FakeHub) -> None:
    hub.spoiled = {"m-Q8_0.gguf"}
    with pytest.raises(ConnectionError, match=r"m-Q8_0\.gguf arrived damaged and was deleted"):
        resolve("owner/m-GGUF:Q8_0")
    hub.spoiled = set()
    assert resolve("owner/m-GGUF:Q8_0").weights.read_bytes() == GGUF["m-Q8_0.gguf"]


def test_progress_counts_bytes(hub: FakeHub) -> None:
    seen: list[tuple[str, int, int]] = []
    resolve("owner/m-GGUF:Q8_0", Downloads(progress=lambda *now: seen.append(now)))
    total = len(GGUF["m-Q8_0.gguf"]) + len(GGUF["generation_config.json"])
    assert [stage for stage, *_ in seen] == ["download"] * len(seen)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("download", total, total)


def test_progress_counts_what_another_process_brings(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = GGUF["m-Q8_0.gguf"]

    @contextmanager
    def late(storage: Path, checksum: str) -> Iterator[None]:
        if checksum == hashlib.sha256(data).hexdigest():
            (storage / "blobs").mkdir(parents=True, exist_ok=True)
            (storage / "blobs" / checksum).write_bytes(data)
        yield

    monkeypatch.setattr("mtlqwen.download._locked", late)
    seen: list[tuple[str, int, int]] = []
    resolve("owner/m-GGUF:Q8_0", Downloads(progress=lambda *now: seen.append(now)))
    total = len(data) + len(GGUF["generation_config.json"])
    assert seen[-1] == ("download", total, total)
    assert names(hub) == ["generation_config.json"]


def test_the_hub_prints_no_bars_of_its_own(
    hub: FakeHub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    resolve("owner/m")
    assert capfd.readouterr() == ("", "")


def test_without_a_connection_the_cache_serves(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = resolve("owner/m-GGUF:Q8_0").weights
    folder = resolve("owner/m").weights
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = hub.requests
    assert resolve("owner/m-GGUF:Q8_0").weights == found
    with pytest.raises(ConnectionError, match=r"OfflineModeIsEnabled.*connect once"):
        resolve("owner/m-GGUF:Q4_K_M")
    assert hub.requests == asked
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.close()
    assert resolve("owner/m").weights == folder
    (folder / SHARDS[1]).unlink()
    with pytest.raises(ConnectionError, match="not in the local cache"):
        resolve("owner/m")


def test_a_revision_is_pinned(hub: FakeHub) -> None:
    old = "a" * 40
    repository = hub.repositories["owner/m-GGUF"]
    repository.revisions |= {"v1": old, "refs/pr/1": old}
    branch = resolve("owner/m-GGUF@v1:Q8_0").weights
    assert branch.parent.name == old
    assert resolve("owner/m-GGUF:Q8_0").weights.parent.name == COMMIT
    asked = hub.requests
    assert resolve(f"owner/m-GGUF@{old}:Q8_0").weights == branch
    assert hub.requests == asked  # a commit never changes
    with pytest.raises(FileNotFoundError, match=r"owner/m-GGUF@v2: no such branch, tag or commit"):
        resolve("owner/m-GGUF@v2:Q8_0")


def test_a_branch_that_moved_brings_what_changed(hub: FakeHub) -> None:
    repository = hub.repositories["owner/m-GGUF"]
    resolve("owner/m-GGUF:Q8_0")
    repository.revisions["main"] = "b" * 40
    repository.files["generation_config.json"] = b"{}"
    hub.served.clear()
    assert resolve("owner/m-GGUF:Q8_0").weights.parent.name == "b" * 40
    assert names(hub) == ["generation_config.json"]


def test_a_branch_that_moves_meanwhile_changes_nothing(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.repositories["owner/m-GGUF"]
    repository.revisions["before"] = COMMIT
    ask = huggingface_hub.HfApi.model_info

    def move(*arguments: Any, **options: Any) -> Any:
        told = ask(*arguments, **options)
        repository.revisions["main"] = "b" * 40
        return told

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", move)
    weights = resolve("owner/m-GGUF:Q8_0").weights
    assert weights.read_bytes() == GGUF["m-Q8_0.gguf"]
    assert weights.parent.name == COMMIT
    hub.close()
    assert resolve("owner/m-GGUF:Q8_0").weights == weights


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("owner/none", FileNotFoundError, "no such repository, or a private one"),
        ("owner/gated:Q8_0", PermissionError, "gated; accept its terms"),
    ],
)
def test_a_repository_that_gives_nothing(
    hub: FakeHub, name: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=rf"^\[hub\] {name.split(':')[0]}: {words}"):
        resolve(name)


def test_memory_and_disk_are_looked_at_before(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CapacityError, match=r"got 30000 bytes, want at most 29999\); no weights"):
        resolve("owner/m-GGUF:Q8_0", Downloads(memory=29_999))
    with pytest.raises(CapacityError, match=r"got 11000 bytes, want at most 10999\)"):
        resolve("owner/m", Downloads(memory=10_999))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=30_000))
    with pytest.raises(CapacityError, match=r"disk is too small \(got 30000 bytes free"):
        resolve("owner/m-GGUF:Q8_0")
    assert names(hub) == ["model.safetensors.index.json"]
    with pytest.raises(CapacityError, match=r"^\[hub\] owner/m-GGUF: weights do not fit"):
        Engine("owner/m-GGUF:Q8_0", memory_budget=100)


def test_one_cache_for_all_programs(hub: FakeHub) -> None:
    theirs = huggingface_hub.hf_hub_download("owner/m-GGUF", "m-Q8_0.gguf")
    hub.served.clear()
    assert resolve("owner/m-GGUF:Q8_0").weights == Path(theirs)
    assert names(hub) == ["generation_config.json"]
    ours = resolve("owner/m").weights
    hub.served.clear()
    assert huggingface_hub.hf_hub_download("owner/m", SHARDS[0]) == str(ours / SHARDS[0])
    assert names(hub) == []


def test_an_engine_from_the_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10 << 20)
    hub.repositories["owner/tiny"] = Repository({TINY.name: TINY.read_bytes()})
    seen: list[Any] = []
    with Engine("owner/tiny:Q8_0", progress=lambda *now: seen.append(now)) as engine:
        assert repr(engine).startswith("Engine('owner/tiny:Q8_0', ")
        assert engine.generate("a", max_tokens=1).usage.completion_tokens == 1
    assert seen[0][0] == "download"


def test_pull_shows_how_far_it_is(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["pull", "owner/m-GGUF:Q8_0"]) == 0
    shown = capsys.readouterr()
    assert shown.out.endswith("/m-Q8_0.gguf\n")
    assert "\rdownload   ################" in shown.err


def test_the_environment_of_the_hub_holds(hub: FakeHub, tmp_path: Path) -> None:
    program = "import sys; from mtlqwen.hub import resolve; print(resolve(sys.argv[1]).weights)"

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, "owner/m-GGUF:Q8_0"],
            env=os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert "OfflineModeIsEnabled" in run(HF_HUB_OFFLINE="1").stderr
    first = run()
    assert first.stderr == ""
    assert first.stdout.startswith(str(tmp_path / "hub" / "models--owner--m-GGUF"))
    assert run(HF_HUB_OFFLINE="1").stdout == first.stdout


def test_a_checkpoint_is_converted_from_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    source = write_source(tmp_path / "hf", random_model(Geometry()), shards=2)
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    hub.repositories["owner/hf"] = Repository(files)
    (tmp_path / "here").mkdir()
    want = convert(source, tmp_path / "here" / "m.gguf").read_bytes()
    stages: set[str] = set()
    path = convert(
        "owner/hf", tmp_path / "m.gguf", progress=lambda stage, done, total: stages.add(stage)
    )
    assert path.read_bytes() == want
    assert stages == {"download", "convert"}
