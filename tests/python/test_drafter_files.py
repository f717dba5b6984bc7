"""Where a model's drafter is found. The hub itself is never asked here."""

from __future__ import annotations

from pathlib import Path

import pytest
from file_formats import gguf_bytes
from mtlqwen import ModelError
from mtlqwen.hub import ModelFiles, is_drafter, resolve, resolve_drafter

MODEL = gguf_bytes({"general.architecture": "qwen35", "general.name": "dflash"}, {})
DRAFTER = gguf_bytes({"general.architecture": "dflash", "dflash.block_size": 16}, {})


def fill(folder: Path, *names: str) -> ModelFiles:
    """Make files in a folder, drafters where the name says so; the first one is the model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(DRAFTER if "flash" in name.lower() else MODEL)
    return ModelFiles("m", folder / names[0])


def make_dir(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}", encoding="utf-8")
    return path


def test_the_bundled_model_finds_its_own() -> None:
    found = resolve_drafter(resolve("tiny"))
    assert found is not None
    assert found.name == "tiny-qwen3.5-dflash-Q8_0.gguf"
    assert found == resolve_drafter(resolve("tiny"), "tiny")
    assert resolve(found.parent).weights == resolve("tiny").weights


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ([], None),
        (["some-flash.gguf"], "some-flash.gguf"),  # the only one, and no other model
        (["some-flash.gguf", "other.gguf"], None),
        (["some-flash.gguf", "more-flash.gguf"], None),
        (["some-flash.gguf", "mmproj-F16.gguf"], "some-flash.gguf"),
        (["Q3-9B-DFlash-Q8_0.gguf", "other.gguf", "some-flash.gguf"], "Q3-9B-DFlash-Q8_0.gguf"),
        (["q3-9b_dflash.gguf", "Q3-4B-dflash.gguf"], "q3-9b_dflash.gguf"),
        (["Q3-9B-dflash.gguf", "Q3-9B-Q4_K_M-dflash.gguf"], "Q3-9B-Q4_K_M-dflash.gguf"),
        (["Q3-9-dflash.gguf", "Q3-9B-Q8_0-dflash.gguf"], None),
        (["Q3-4B-Q8_0.gguf", "Q3-4B-dflash.gguf"], None),
    ],
)
def test_beside_a_file(tmp_path: Path, others: list[str], found: str | None) -> None:
    files = fill(tmp_path, "Q3-9B-Q4_K_M.gguf", *others)
    assert resolve_drafter(files) == (None if found is None else tmp_path / found)


def test_several_of_one_name(tmp_path: Path) -> None:
    files = fill(tmp_path, "M-Q4_0.gguf", "M-dflash-Q8_0.gguf", "M-DFlash-BF16.gguf")
    with pytest.raises(ModelError) as caught:
        resolve_drafter(files)
    words = "several drafters beside it (got M-DFlash-BF16.gguf, M-dflash-Q8_0.gguf); name one"
    assert words in str(caught.value)
    assert resolve_drafter(files, f"{tmp_path}:Q8_0") == tmp_path / "M-dflash-Q8_0.gguf"


def test_beside_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_dir(tmp_path / "Q3-9B")
    assert resolve_drafter(resolve(model)) is None
    make_dir(tmp_path / "Q3-4B-DFlash")
    (tmp_path / "Q3-9B-dflash").mkdir()  # no config.json
    assert resolve_drafter(resolve(model)) is None
    sibling = make_dir(tmp_path / "Q3-9B-DFlash")
    assert resolve_drafter(resolve(model)) == sibling
    monkeypatch.chdir(model)
    assert resolve_drafter(resolve(".")) == sibling
    inner = make_dir(model / "Q3-9B-dflash")
    assert resolve_drafter(resolve(model)) == inner


def test_a_drafter_by_name(tmp_path: Path) -> None:
    files = fill(tmp_path, "M-Q8_0.gguf", "M-dflash-Q8_0.gguf")
    wanted = tmp_path / "M-dflash-Q8_0.gguf"
    for name in (wanted, str(wanted), tmp_path, f"{tmp_path}:q8_0"):
        assert resolve_drafter(files, name) == wanted
        assert resolve(tmp_path).weights == files.weights
    directory = make_dir(tmp_path / "drafter")
    assert resolve_drafter(files, directory) == directory


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("./none.gguf", FileNotFoundError, r"\[drafter\] \./none\.gguf: no such file"),
        ("", ValueError, r"\[drafter\] drafter: an empty name"),
        (3, TypeError, r"\[drafter\] drafter: not a string or a path \(got 3\)"),
    ],
)
def test_a_name_that_is_none(tmp_path: Path, name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_drafter(fill(tmp_path, "m.gguf"), name)


def test_a_folder_without_one(tmp_path: Path) -> None:
    files = fill(tmp_path / "a", "m-Q8_0.gguf", "m-Q4_0.gguf")
    with pytest.raises(ModelError, match=r"\[drafter\] .*: no drafter in it \(got m-Q4_0\.gguf, m"):
        resolve_drafter(files, tmp_path / "a")
    (tmp_path / "b").mkdir()
    with pytest.raises(ModelError, match="neither config"):
        resolve_drafter(files, tmp_path / "b")


def test_only_a_gguf_file_of_that_architecture_is_one(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    assert not is_drafter(path)
    assert not is_drafter(tmp_path)
    for content, says in [(DRAFTER, True), (MODEL, False), (b"", False), (DRAFTER[4:], False)]:
        path.write_bytes(content)
        assert is_drafter(path) == says
    path.write_bytes(gguf_bytes({"general.architecture": "dflash-draft"}, {}))
    assert not is_drafter(path)
