"""How requests end, and what the core refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.driving import generate, open_tiny, run_all, step_and_read, submit
from mtlqwen import CapacityError, FormatError, ModelError, _core

PROMPT = [8166, 305, 198, 617, 258]


@pytest.fixture(scope="module")
def engine(kernels: str) -> Iterator[_core.Engine]:
    engine = open_tiny(kernels, context=256)
    yield engine
    engine.close()


def test_a_stop_id_ends_a_sequence_and_is_its_last_token(engine: _core.Engine) -> None:
    free = generate(engine, PROMPT, max_tokens=8)
    run = submit(engine, PROMPT, max_tokens=8, stop_ids=[free[3]])
    run_all(engine, [run])
    assert run.finish_reason == "stop"
    assert run.token_ids == free[: free.index(free[3]) + 1]


def test_max_tokens_ends_a_sequence(engine: _core.Engine) -> None:
    run = submit(engine, PROMPT, max_tokens=5)
    run_all(engine, [run])
    assert (run.finish_reason, len(run.token_ids)) == ("length", 5)


def test_no_tokens_wanted_is_finished_at_once(engine: _core.Engine) -> None:
    run = submit(engine, PROMPT, max_tokens=0)
    assert engine.poll(run.sequence).finish_reason == "length"
    assert not engine.step()


def test_the_context_ends_a_sequence(kernels: str) -> None:
    engine = open_tiny(kernels, context=20)
    run = submit(engine, PROMPT, max_tokens=1000)
    run_all(engine, [run])
    assert (run.finish_reason, len(run.token_ids)) == ("length", 20 - len(PROMPT))
    engine.close()


def test_a_cancelled_sequence_leaves_the_others_alone(engine: _core.Engine) -> None:
    alone = generate(engine, PROMPT, max_tokens=10)
    kept, dropped = submit(engine, PROMPT, max_tokens=10), submit(engine, PROMPT, max_tokens=10)
    step_and_read(engine, [kept, dropped])
    engine.cancel(dropped.sequence)
    run_all(engine, [kept, dropped])
    assert dropped.finish_reason == "cancelled"
    assert kept.token_ids == alone


def test_cancel_from_another_thread_stops_the_running_pass(engine: _core.Engine) -> None:
    expected = generate(engine, PROMPT, max_tokens=4)
    long = submit(engine, PROMPT * 40, max_tokens=4)
    other = submit(engine, PROMPT, max_tokens=4)
    cancel = threading.Timer(0.02, engine.cancel, [long.sequence])
    cancel.start()
    run_all(engine, [long, other])
    cancel.join()
    while engine.step():
        pass
    assert other.token_ids == expected
    assert long.finish_reason in ("cancelled", "length")


def test_a_released_sequence_is_forgotten(engine: _core.Engine) -> None:
    run = submit(engine, PROMPT, max_tokens=10)
    step_and_read(engine, [run])
    engine.release(run.sequence)
    assert not engine.step()
    assert engine.stats()["kv_bytes"] == 0
    with pytest.raises(ValueError, match="unknown, or released"):
        engine.poll(run.sequence)


def test_two_steps_at_once_are_refused(engine: _core.Engine) -> None:
    submit(engine, PROMPT * 40, max_tokens=1)
    errors: list[str] = []
    started = threading.Barrier(2)

    def step() -> None:
        started.wait()
        try:
            engine.step()
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=step) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 1
    assert "another thread is inside step()" in errors[0]


@pytest.mark.parametrize(
    ("prompt", "options", "error", "words"),
    [
        ([], {}, ValueError, "empty"),
        ([8192], {}, ValueError, r"got 8192, want 0 to 8191"),
        ([5, -1], {}, ValueError, r"index 1 \(got -1"),
        ([5], {"temperature": float("nan")}, ValueError, "not a finite number >= 0"),
        ([5], {"temperature": -0.5}, ValueError, "not a finite number >= 0"),
        ([5], {"temperature": float("inf")}, ValueError, "not a finite number >= 0"),
        ([5] * 256, {}, CapacityError, r"got 256 tokens, the context holds 256"),
        ([5] * 9000, {}, CapacityError, r"got 9000 tokens, the context holds 256"),
    ],
)
def test_requests_that_cannot_run_are_refused(
    engine: _core.Engine,
    prompt: list[int],
    options: dict[str, float],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        submit(engine, prompt, **options)  # type: ignore[arg-type]
    assert len(generate(engine, PROMPT, max_tokens=1)) == 1, "the engine works afterwards"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"context": 8193}, CapacityError, r"got 8193 tokens, want at most 8192"),
        ({"slots": 0}, ValueError, r"got 0, want 1 to 32"),
        ({"slots": 33}, ValueError, r"got 33, want 1 to 32"),
    ],
)
def test_engines_that_cannot_be_are_refused(
    kernels: str, options: dict[str, int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        open_tiny(kernels, **options)  # type: ignore[arg-type]


def test_files_that_are_no_models_are_refused(kernels: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        _core.Engine(str(tmp_path / "absent.gguf"), kernels=kernels)
    (tmp_path / "wrong.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(FormatError, match="not a GGUF file"):
        _core.Engine(str(tmp_path / "wrong.gguf"), kernels=kernels)
    with pytest.raises((FormatError, ModelError), match="config"):
        _core.Engine(str(tmp_path), kernels=kernels)


def test_a_closed_engine_says_so(kernels: str) -> None:
    engine = open_tiny(kernels, context=64)
    submit(engine, PROMPT, max_tokens=4)
    engine.close()
    engine.close()
    for call in (engine.step, engine.stats, lambda: submit(engine, PROMPT)):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_stream_of_cancels_does_not_keep_the_others_from_moving(engine: _core.Engine) -> None:
    kept = submit(engine, PROMPT * 40, max_tokens=4)
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            for sequence in list(live):
                engine.cancel(sequence)

    live: list[int] = []
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(40):
            live.append(submit(engine, PROMPT, max_tokens=4).sequence)
            step_and_read(engine, [kept])
            if kept.finish_reason is not None:
                break
    finally:
        done.set()
        thread.join()
    assert kept.finish_reason == "length"
    run_all(engine, [])
