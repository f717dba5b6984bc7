"""Which files a model's name means. The hub itself is never asked here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from file_formats import gguf_bytes
from mtlqwen import ModelError
from mtlqwen.hub import resolve, resolve_drafter


class HttpError(Exception):
    """As libraries of HTTP have them: no OSError."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf", "m-UD-Q4_K_XL.gguf"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_file_and_a_directory_are_themselves(folder: Path, model_dir: Path) -> None:
    file = folder / "m-Q8_0.gguf"
    assert resolve(file).weights == file
    assert resolve(str(file)).is_gguf
    assert resolve(str(model_dir)).weights == model_dir
    sidecar = resolve(model_dir).sidecar("tokenizer.json")
    assert sidecar == model_dir / "tokenizer.json"
    assert resolve(file).sidecar("generation_config.json") is None


def test_a_local_path_goes_before_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "owner" / "name").mkdir(parents=True)
    (folder / "owner" / "name" / "one.gguf").touch()
    monkeypatch.chdir(folder)
    assert resolve("owner/name").weights == Path("owner/name/one.gguf")


@pytest.mark.parametrize(
    ("quant", "name"),
    [("Q8_0", "m-Q8_0.gguf"), ("q4_k_m", "m-Q4_K_M.gguf"), ("UD-Q4_K_XL", "m-UD-Q4_K_XL.gguf")],
)
def test_a_quantisation_picks_its_file(folder: Path, quant: str, name: str) -> None:
    assert resolve(f"{folder}:{quant}").weights == folder / name


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        (":Q4_K", "no file for Q4_K (got m-Q4_K_M.gguf, m-Q8_0.gguf, m-UD-Q4_K_XL.gguf)"),
        (":F16", "no file for F16"),
        ("", "several GGUF files"),
    ],
)
def test_a_choice_that_is_none(folder: Path, suffix: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(f"{folder}{suffix}")
    assert words in str(caught.value)


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither config.json nor a GGUF file"):
        resolve(tmp_path)


@pytest.mark.parametrize(
    "name", ["nosuch", "nosuch.gguf", "./a/b", "/a/b", "a/b.gguf", "a/b/c", "~/nosuch/x"]
)
def test_a_missing_file(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or directory"):
        resolve(name)


@pytest.mark.parametrize(("model", "error"), [("", ValueError), (3, TypeError), (None, TypeError)])
def test_a_model_that_is_no_name(model: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"\[model\] model: "):
        resolve(model)


def test_names_that_no_file_can_have(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(FileNotFoundError, match=r"^\[model\] x{256}: file name too long \(want a"):
        resolve("x" * 256)
    for name in ("m\0", "m\udcff.gguf"):
        with pytest.raises(ValueError, match=r"^\[model\] model: no name \(got 'm\\"):
            resolve(name)
    with pytest.raises(FileNotFoundError, match=r"^\[model\] ~nosuchuser/m: no such file"):
        resolve("~nosuchuser/m")
    (folder / ("d" * 253)).mkdir()
    (folder / ("d" * 253) / "m-Q8_0.gguf").touch()
    assert resolve("d" * 253 + ":Q8_0").weights.name == "m-Q8_0.gguf"


def test_a_place_that_may_not_be_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(PermissionError, match=r"^\[model\] owner/name: this user may not look"):
        resolve("owner/name")


@pytest.mark.parametrize(
    "error",
    [
        HttpError("no way through"),
        ConnectionResetError(104, "Connection reset by peer"),
        OSError(28, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_hub_that_gives_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def ask(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", ask)
    with pytest.raises(ConnectionError, match="the hub cannot be reached") as caught:
        resolve("owner/nosuchname")
    assert f"({type(error).__name__}: {error})" in str(caught.value)


@pytest.mark.parametrize("name", ["owner/" + "n" * 97, "ow--ner/name", "owner/name.", "öwner/name"])
def test_what_the_hub_calls_no_name(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or directory, and no hub id"):
        resolve(name)


def test_local_files_do_not_load_the_hub_library(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert resolve(f"{folder}:Q8_0").is_gguf


def test_parts_of_a_file_are_one_choice(tmp_path: Path) -> None:
    for part in (1, 2):
        (tmp_path / f"m-Q8_0-{part:05}-of-00002.gguf").touch()
    assert resolve(tmp_path).weights.name == "m-Q8_0-00001-of-00002.gguf"
    assert resolve(f"{tmp_path}:Q8_0").weights.name == "m-Q8_0-00001-of-00002.gguf"


def test_unsloths_dynamic_kind_is_another(tmp_path: Path) -> None:
    (tmp_path / "m-UD-Q4_K_M.gguf").touch()
    assert resolve(f"{tmp_path}:Q4_K_M").weights.name == "m-UD-Q4_K_M.gguf"
    (tmp_path / "m-Q4_K_M.gguf").touch()
    assert resolve(f"{tmp_path}:Q4_K_M").weights.name == "m-Q4_K_M.gguf"
    assert resolve(f"{tmp_path}:UD-Q4_K_M").weights.name == "m-UD-Q4_K_M.gguf"


def test_a_found_file_whose_name_is_no_text(tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/m-\xff-Q8_0.gguf")).touch()
    for name in (tmp_path, f"{tmp_path}:Q8_0"):
        with pytest.raises(ValueError, match=r"^\[model\] '.*udcff.*': no name that can be opened"):
            resolve(name)
    (tmp_path / "beside").mkdir()
    drafter = os.fsdecode(bytes(tmp_path) + b"/beside/m-dflash-\xff.gguf")
    Path(drafter).write_bytes(gguf_bytes({"general.architecture": "dflash"}, {}))
    (tmp_path / "beside" / "m.gguf").touch()
    with pytest.raises(ValueError, match=r"^\[drafter\] '.*udcff.*': no name that can be opened"):
        resolve_drafter(resolve(tmp_path / "beside" / "m.gguf"))
