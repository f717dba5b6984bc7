"""What stands beside the weights, and files that are no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mtlqwen
import pytest
from drafters import DrafterGeometry, random_drafter, write_drafter_gguf
from mtlqwen import Engine, FormatError, ModelError, SamplingParams
from mtlqwen.assets import DEFAULT_MAX_TOKENS, load_assets, read_gguf_metadata
from mtlqwen.hub import ModelFiles, resolve

FOLDER = Path(mtlqwen.__file__).parent / "models" / "tiny"
TINY = FOLDER / "tiny-qwen3.5-Q8_0.gguf"
TINY_DRAFTER = FOLDER / "tiny-qwen3.5-dflash-Q8_0.gguf"


def test_defaults_come_from_generation_config() -> None:
    assets = load_assets(resolve("tiny"))
    assert assets.defaults == SamplingParams(temperature=0.0, max_tokens=512, ignore_eos=False)
    assert sorted(assets.stop_ids) == [8165, 8167]


def test_defaults_without_generation_config(tmp_path: Path) -> None:
    (tmp_path / "alone.gguf").symlink_to(TINY)
    assets = load_assets(resolve(tmp_path / "alone.gguf"))
    assert assets.defaults.max_tokens == DEFAULT_MAX_TOKENS
    assert sorted(assets.stop_ids) == [8165, 8167]
    assert assets.template == read_gguf_metadata(TINY)["tokenizer.chat_template"]


@pytest.mark.parametrize(
    ("text", "temperature"),
    [
        ('{"do_sample": true, "temperature": 0.7}', 0.7),
        ('{"do_sample": true}', 1.0),
        ('{"do_sample": true, "temperature": NaN}', 0.0),
        ('{"temperature": 0.7}', 0.0),
        ('{"do_sample": true, "temperature": -1, "max_new_tokens": true}', 0.0),
        ('{"eos_token_id": [true, -1, 99999999999, "x"], "max_new_tokens": 99999999999}', 0.0),
    ],
)
def test_temperature_of_generation_config(tmp_path: Path, text: str, temperature: float) -> None:
    (tmp_path / "alone.gguf").symlink_to(TINY)
    (tmp_path / "generation_config.json").write_text(text)
    assets = load_assets(resolve(tmp_path / "alone.gguf"))
    assert assets.defaults.temperature == temperature
    assert sorted(assets.stop_ids) == [8165, 8167]


def make_junk(folder: Path) -> Path:
    path = folder / "junk.gguf"
    path.write_bytes(b"no model" * 1000)
    return path


def make_short(folder: Path) -> Path:
    path = folder / "short.gguf"
    path.write_bytes(TINY.read_bytes()[:300_000])
    return path


def make_other(folder: Path) -> Path:
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


def make_broken_sidecar(folder: Path) -> Path:
    (folder / "alone.gguf").symlink_to(TINY)
    (folder / "generation_config.json").write_text("[1]")
    return folder / "alone.gguf"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (make_junk, FormatError, "not a GGUF file"),
        (make_short, FormatError, "short.gguf"),
        (make_other, ModelError, "llama"),
        (make_broken_sidecar, FormatError, "not a JSON object"),
        (lambda folder: folder / "missing.gguf", FileNotFoundError, "no such file"),
        (lambda folder: TINY_DRAFTER, ModelError, "dflash"),
    ],
)
def test_a_file_that_is_no_model(
    tmp_path: Path, make: Callable[[Path], Path], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Engine(make(tmp_path))


def damage(path: Path) -> str:
    path.write_bytes(TINY_DRAFTER.read_bytes()[:300_000])
    return "found.gguf"


def mismatch(path: Path) -> str:
    write_drafter_gguf(path, random_drafter(DrafterGeometry()))
    return r"belongs to another model: hidden size \(got 64, want 512\)"


@pytest.mark.parametrize("spoil", [damage, mismatch])
def test_a_drafter_that_does_not_run_is_said_to_be_optional(
    tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    model, found = tmp_path / "alone.gguf", tmp_path / "found.gguf"
    model.symlink_to(TINY)
    words = spoil(found)
    hint = '; no drafter is needed: spec="off" runs without, drafter= names another'
    refused: list[dict[str, Any]] = [{}, {"spec": "dflash"}, {"drafter": found}]
    for options in refused:
        with pytest.raises((FormatError, ModelError), match=words) as caught:
            Engine(model, **options)
        assert str(caught.value).endswith(hint)
    taken: list[dict[str, Any]] = [{"spec": "off"}, {"drafter": TINY_DRAFTER}]
    for options in taken:
        with Engine(model, **options) as engine:
            assert engine.drafter == options.get("spec", "dflash")


def test_a_directory_without_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        load_assets(ModelFiles("x", tmp_path))


def test_an_error_in_progress_comes_back() -> None:
    def fail(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Engine("tiny", progress=fail)
