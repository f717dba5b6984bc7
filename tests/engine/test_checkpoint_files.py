"""Checkpoints that leave the engine: saved, loaded, kept in a directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Geometry, random_model, write_gguf
from engine.test_recall import GEOMETRY, run, text
from mtlqwen import FormatError, ModelError, _core

Open = Callable[..., _core.Engine]

PROMPT = text(300, 1)
NOTE = '{"turns": "zwölf"}'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("files") / "model.gguf"
    return str(write_gguf(path, random_model(GEOMETRY, seed=7)))


@pytest.fixture
def open_engine(kernels: str, model: str) -> Iterator[Open]:
    engines: list[_core.Engine] = []

    def open_one(**options: Any) -> _core.Engine:
        settings: dict[str, Any] = {"deterministic": True, "context": 1024, **options}
        engines.append(_core.Engine(model, kernels=kernels, **settings))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


@pytest.fixture
def saved(open_engine: Open, tmp_path: Path) -> Path:
    """What an engine saved after PROMPT."""
    engine, path = open_engine(), tmp_path / "saved.mtlq"
    run(engine, PROMPT)
    assert engine.save_checkpoint(str(path), PROMPT, NOTE, True) == 256
    return path


def idle(engine: _core.Engine) -> None:
    while engine.step():
        pass


def test_another_engine_goes_on_from_a_file(open_engine: Open, saved: Path) -> None:
    expected, _ = run(open_engine(cache_memory=0), PROMPT)
    engine = open_engine()
    assert engine.load_checkpoint(str(saved)) == (PROMPT, NOTE, 256)
    assert run(engine, PROMPT) == (expected, 256)
    assert engine.load_checkpoint(str(saved)) == (PROMPT, NOTE, 256), "it is there already"


def test_a_file_without_a_state_keeps_the_tokens(
    open_engine: Open, saved: Path, tmp_path: Path
) -> None:
    engine, path = open_engine(), str(tmp_path / "s")
    assert engine.save_checkpoint(path, PROMPT, NOTE, True) == 0, "nothing was computed yet"
    assert engine.load_checkpoint(path) == (PROMPT, NOTE, 0)
    run(engine, PROMPT)
    assert engine.save_checkpoint(path, PROMPT, NOTE, False) == 0, "nobody asked for it"
    assert Path(path).stat().st_size < saved.stat().st_size / 2


def test_states_of_other_kernels_are_not_mixed(open_engine: Open, saved: Path) -> None:
    engine = open_engine(deterministic=False)
    assert engine.load_checkpoint(str(saved)) == (PROMPT, NOTE, 0)
    assert run(engine, PROMPT)[1] == 0


def test_an_engine_without_a_cache_reads_the_tokens(open_engine: Open, saved: Path) -> None:
    assert open_engine(cache_memory=0).load_checkpoint(str(saved)) == (PROMPT, NOTE, 0)


def test_a_shorter_context_does_not_take_the_state(open_engine: Open, saved: Path) -> None:
    assert open_engine(context=200).load_checkpoint(str(saved)) == (PROMPT, NOTE, 0)


def test_a_state_that_the_cache_has_no_room_for_is_not_cached(
    open_engine: Open, saved: Path
) -> None:
    engine = open_engine(cache_memory=1 << 16)
    assert engine.load_checkpoint(str(saved)) == (PROMPT, NOTE, 0)
    assert engine.stats()["cache_checkpoints"] == 0


def test_another_models_file_is_refused(kernels: str, saved: Path, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", random_model(GEOMETRY, seed=8))
    engine = _core.Engine(str(other), kernels=kernels)
    with pytest.raises(ModelError, match="another model"):
        engine.load_checkpoint(str(saved))
    engine.close()


def test_damage_anywhere_is_an_error_and_never_text(open_engine: Open, saved: Path) -> None:
    engine, whole = open_engine(), saved.read_bytes()
    places = [*range(0, 256, 7), *range(256, len(whole), max(len(whole) // 40, 1))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        saved.write_bytes(damaged)
        with pytest.raises((FormatError, ModelError), match=r"\[checkpoint\]"):
            engine.load_checkpoint(str(saved))
        engine.check_integrity()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            engine.load_checkpoint(str(saved))
    assert run(engine, PROMPT)[1] == 0, "nothing of it came into the cache"
    with pytest.raises(FormatError, match="No such file"):
        engine.load_checkpoint(str(saved) + "x")


def test_a_path_that_cannot_be_written_is_an_error(open_engine: Open, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere"):
        open_engine().save_checkpoint(str(tmp_path / "nowhere" / "s"), PROMPT, NOTE, True)


def test_saving_beside_a_running_engine(open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine()
    expected, _ = run(open_engine(cache_memory=0), PROMPT)
    run(engine, PROMPT)
    stop = threading.Event()
    errors: list[BaseException] = []

    def save() -> None:
        try:
            for i in range(1000):
                path = str(tmp_path / str(i % 3))
                assert engine.save_checkpoint(path, PROMPT, NOTE, True) == 256
                assert engine.load_checkpoint(path) == (PROMPT, NOTE, 256)
                if stop.is_set():
                    return
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    for i in range(10):
        assert run(engine, PROMPT)[0] == expected
        run(engine, text(200, 50 + i))
    stop.set()
    thread.join()
    assert not errors


def test_a_closed_engine_says_so(open_engine: Open, saved: Path) -> None:
    engine = open_engine()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.load_checkpoint(str(saved))
    with pytest.raises(RuntimeError, match="closed"):
        engine.save_checkpoint(str(saved), PROMPT, NOTE, True)


def test_a_directory_outlives_the_engine(open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine(cache_dir=str(tmp_path))
    expected, _ = run(engine, PROMPT)
    run(engine, text(500, 2), checkpoint_at=[200, 490])
    idle(engine)
    engine.close()
    again = open_engine(cache_dir=str(tmp_path))
    assert run(again, PROMPT) == (expected, 256)
    assert run(again, text(500, 2))[1] == 490
    assert run(again, text(480, 2))[1] == 200, "what others may share was kept as well"
    assert again.stats()["disk_hits"] == 3


def test_closing_writes_what_waits(open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine(cache_dir=str(tmp_path))
    prompts = [text(300, 60 + i) for i in range(8)]
    for prompt in prompts:
        engine.submit(prompt, max_tokens=1, temperature=0.0, seed=0, stop_ids=[])
    while int(engine.stats()["live"]) + int(engine.stats()["waiting"]):
        engine.step()
    engine.close()
    again = open_engine(cache_dir=str(tmp_path))
    assert [run(again, prompt)[1] for prompt in prompts] == [256] * 8


def test_a_damaged_file_of_the_directory_is_a_miss(open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine(cache_dir=str(tmp_path))
    expected, _ = run(engine, PROMPT)
    engine.close()
    (file,) = tmp_path.rglob("*.checkpoint")
    damaged = bytearray(file.read_bytes())
    damaged[-100] ^= 1
    file.write_bytes(damaged)
    again = open_engine(cache_dir=str(tmp_path))
    assert run(again, PROMPT) == (expected, 0)
    assert again.stats()["disk_hits"] == 0
    again.close()
    assert run(open_engine(cache_dir=str(tmp_path)), PROMPT)[1] == 256, "written anew"


def test_a_directory_keeps_to_its_bytes(open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine(cache_dir=str(tmp_path))
    run(engine, PROMPT)
    engine.close()
    one = sum(file.stat().st_size for file in tmp_path.rglob("*.checkpoint"))
    engine = open_engine(cache_dir=str(tmp_path), cache_dir_bytes=3 * one)
    for i in range(6):
        run(engine, text(300, 70 + i))
        idle(engine)
    engine.close()
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.checkpoint")) <= 3 * one
    assert run(open_engine(cache_dir=str(tmp_path)), text(300, 75))[1] == 256, "the newest stay"


def test_a_directory_that_is_none_is_an_error(open_engine: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match="file"):
        open_engine(cache_dir=str(tmp_path / "file"))
    with pytest.raises(ValueError, match="cache_dir: without a cache in memory"):
        open_engine(cache_dir=str(tmp_path), cache_memory=0)


def test_models_without_either_kind_of_layer(kernels: str, tmp_path: Path) -> None:
    for layers in ("aa", "gg"):
        geometry = Geometry(layers=layers, heads=2, kv_heads=2, vocab=288, context=1024)
        path = str(write_gguf(tmp_path / f"{layers}.gguf", random_model(geometry, seed=9)))
        engine = _core.Engine(path, kernels=kernels, deterministic=True)
        expected, cached = run(engine, PROMPT)
        assert cached == 0
        assert run(engine, PROMPT) == (expected, 256)
        engine.save_checkpoint(str(tmp_path / "s"), PROMPT, NOTE, True)
        engine.close()
        engine = _core.Engine(path, kernels=kernels, deterministic=True)
        assert engine.load_checkpoint(str(tmp_path / "s")) == (PROMPT, NOTE, 256)
        assert run(engine, PROMPT) == (expected, 256)
        engine.close()
