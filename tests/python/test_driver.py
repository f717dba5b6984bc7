"""Threads, cancellation, errors and ends of life, on a scripted core."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mtlqwen import DeviceError, Engine
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import FakeCore, Script

Say = Callable[[str], Script]
LONG = 4000  # tokens of a generation that never ends within a test


def endless(prompt: list[int]) -> list[int]:
    return [120]


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Return whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def test_many_threads_get_their_own_texts(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    core = FakeCore(lambda prompt: tokenizer.encode(tokenizer.decode(prompt) * 5 + "<|im_end|>"))
    engine = make_engine(core)
    prompts = [f"p{number}" for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(engine.generate, prompts)) == [prompt * 5 for prompt in prompts]
    assert core.sequences == {}


def test_two_engines_in_two_threads(make_engine: MakeEngine, say: Say) -> None:
    engines = [make_engine(say("one")), make_engine(say("two"))]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda engine: engine.generate("a"), engines)) == ["one", "two"]


@pytest.mark.parametrize("way", ["close", "drop", "with", "break"])
def test_a_stream_left_behind_is_cancelled(make_engine: MakeEngine, way: str) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    if way == "with":
        with engine.stream("a", max_tokens=LONG) as opened:
            next(opened)
    elif way == "break":
        for _ in engine.stream("a", max_tokens=LONG):
            break
    else:
        stream = engine.stream("a", max_tokens=LONG)
        next(stream)
        assert core.live() == 1
        if way == "close":
            stream.close()
            assert list(stream) == []
            assert stream.result().finish_reason == "cancelled"
        del stream
    gc.collect()
    assert wait_until(lambda: core.live() == 0 and not core.sequences)
    assert len(core.submitted[0].made) < LONG


def test_a_stream_keeps_its_engine_alive(make_engine: MakeEngine, say: Say) -> None:
    stream = make_engine(say("text")).stream("a")
    gc.collect()
    assert "".join(stream) == "text"


def test_an_error_of_a_pass_reaches_every_reader(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    streams = [engine.stream("a", max_tokens=LONG) for _ in range(3)]
    for stream in streams:
        next(stream)
    core.step_error = DeviceError("[device] pass: failed")
    for stream in streams:
        with pytest.raises(DeviceError, match="pass: failed"):
            list(stream)
    core.script = say("again")
    assert engine.generate("a") == "again"
    assert core.sequences == {}


def test_an_error_of_one_sequence_reaches_its_reader_only(
    make_engine: MakeEngine, say: Say
) -> None:
    core = FakeCore(say("text"))
    engine = make_engine(core)
    core.poison = DeviceError("[device] sequence: failed")
    with pytest.raises(DeviceError, match="sequence: failed"):
        engine.generate(["a", "b"])
    assert engine.generate(["a", "b"]) == ["text", "text"]


def test_close_wakes_everybody(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(engine.generate, "a", max_tokens=LONG) for _ in range(4)]
        assert wait_until(lambda: core.live() == 4)
        engine.close()
        for reader in readers:
            with pytest.raises(RuntimeError, match="it is closed"):
                reader.result(timeout=5)
    engine.close()
    assert core.closed
    with pytest.raises(RuntimeError, match="it is closed"):
        engine.generate("a")
    with pytest.raises(RuntimeError, match="it is closed"):
        engine.stats()
    with pytest.raises(RuntimeError, match="it is closed"):
        engine.step()


def test_close_from_many_threads_at_once(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    stream = engine.stream("a", max_tokens=LONG)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda _: engine.close(), range(8)):
            pass
    with pytest.raises(RuntimeError, match="it is closed"):
        list(stream)


def test_a_forgotten_engine_joins_its_thread(make_engine: MakeEngine, model_dir: Path) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    other = Engine(str(model_dir))  # on the same core; nothing else holds it
    stream = other.stream("a", max_tokens=LONG)
    del other, stream
    gc.collect()
    assert core.closed
    assert engine._driver._thread is None


def test_an_interrupt_cancels_its_sequence_and_the_engine_goes_on(
    make_engine: MakeEngine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    left = 0
    wait = engine._driver.wait

    def interrupted(bell: object, timeout: float | None = None) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            assert wait_until(lambda: core.live() == 1)
            raise KeyboardInterrupt
        return wait(bell, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(engine._driver, "wait", interrupted)
    # A call for the whole text waits once, for the end.
    calls = ((engine.generate, 1), (lambda *a, **k: list(engine.stream(*a, **k)), 3))
    for call, n_waits in calls:
        left = n_waits
        with pytest.raises(KeyboardInterrupt):
            call("a", max_tokens=LONG)
        assert wait_until(lambda: core.live() == 0 and not core.sequences)
    core.script = say("fine")
    assert engine.generate("a") == "fine"


def test_who_wants_the_whole_text_wakes_at_its_end_only(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(FakeCore(endless))
    waits: list[object] = []
    wait = engine._driver.wait

    def counted(bell: object, timeout: float | None = None) -> object:
        waits.append(bell)
        return wait(bell, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(engine._driver, "wait", counted)
    assert [len(text.token_ids) for text in engine.generate(["a", "b"], max_tokens=40)] == [40, 40]
    assert len(waits) == 2  # one for each prompt
    assert len(engine.submit("a", max_tokens=40).result().token_ids) == 40
    assert len(waits) <= 3


def test_an_embedder_steps_by_itself(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(say("text"))
    engine = make_engine(core)
    assert not engine.step()
    stream = engine.stream("a")
    assert core.passes == 0
    while engine.step():
        pass
    assert core.passes == 5
    assert "".join(stream) == "text"
    assert engine.generate("a") == "text"  # waiting, it runs the passes itself
    assert not [t for t in threading.enumerate() if t is engine._driver._thread]


def test_step_is_refused_beside_the_driver_thread(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("x"))
    engine.generate("a")
    with pytest.raises(RuntimeError, match="driver thread runs this engine"):
        engine.step()


def test_two_concurrent_steps_raise(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.3)
    engine = make_engine(core)
    engine.step()
    stream = engine.stream("a", max_tokens=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.step)
        assert wait_until(core.stepping.locked)
        with pytest.raises(RuntimeError, match="another step is running"):
            engine.step()
        assert running.result()
    assert list(stream) == ["x"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_refused(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    stream = engine.stream("a", max_tokens=LONG)
    next(stream)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: engine.generate("b"), lambda: next(stream), engine.stats, engine.step):
            try:
                call()
            except RuntimeError as error:
                refused += "forked" in str(error)
        stream.close()
        engine.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert next(stream) == "x"


EXIT_SCRIPT = """
import sys
sys.path[:0] = {path!r}
import mtlqwen.engine
from python.fake_core import FakeCore
core = FakeCore(lambda prompt: [120], step_s=0.001)
mtlqwen.engine._make_core = lambda *_: core
engine = mtlqwen.Engine({model!r})
stream = engine.stream("a", max_tokens=4000)
print(next(stream), flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "del engine, stream"])
def test_the_interpreter_exits_with_live_work(root: Path, model_dir: Path, end: str) -> None:
    path = [str(root / "tests"), *sys.path]
    script = EXIT_SCRIPT.format(path=path, model=str(model_dir), end=end)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")
