"""An interrupt at every point of the Python code where the interpreter may deliver one.

It looks for signals where a Python function begins and after each call of C; there a profile
function raises KeyboardInterrupt instead. All runs in one thread, on a scripted core.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import operator
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace

import mtlqwen
import mtlqwen.driver
import pytest
from mtlqwen import Engine
from python.conftest import MakeEngine
from python.fake_core import FakeCore, Script

Say = Callable[[str], Script]
PACKAGE = str(Path(mtlqwen.__file__).parent)
SAID = "abcd"


def interrupted(number: int, call: Callable[[], object], *, threads: bool = False) -> bool:
    """Run ``call`` with an interrupt at its point ``number``; False: it has fewer points."""
    points = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal points
        name = frame.f_code.co_filename
        if event in ("call", "c_return") and (
            name.startswith(PACKAGE) or (threads and name == threading.__file__)
        ):
            points += 1
            if points == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    try:
        sys.setprofile(profile)
        call()
    except KeyboardInterrupt:
        return True
    except RuntimeError:
        # An interrupt inside threading.Condition.wait may come out as "release unlocked lock".
        if threads:
            return True
        raise
    finally:
        sys.setprofile(None)
    return False


WAYS: dict[str, Callable[[Engine], object]] = {
    "generate": lambda engine: engine.generate("x"),
    "list": lambda engine: engine.generate(["x", "y"], stop="Z"),
    "stream": lambda engine: list(engine.stream("x", stop="c")),
    "form": lambda engine: engine.generate("x", choices=[SAID]).parsed,
    "submit": lambda engine: engine.submit("x").result(),
    "iterate": lambda engine: list(engine.submit("x", priority=1)),
    "cancel": lambda engine: engine.submit("x").cancel(),
    "drop": lambda engine: next(engine.stream("x")),
    "step": lambda engine: [engine.submit("x"), engine.step(), engine.step()],
}


@pytest.mark.parametrize("way", WAYS)
def test_no_point_loses_a_sequence(make_engine: MakeEngine, say: Say, way: str) -> None:
    core = FakeCore(say(SAID))
    fills: list[object] = []
    # A function of C, as that of the core is.
    core.set_mask_fn = fills.append  # type: ignore[assignment, method-assign]
    engine = make_engine(core)
    engine.step()
    number = 1
    while interrupted(number, lambda: WAYS[way](engine)):
        gc.collect(0)
        engine.step()
        assert not core.sequences, number
        assert not engine._driver._mailboxes, number
        assert engine.generate("x") == SAID
        number += 1
    assert number > 60  # points
    assert len(fills) == 1  # a core takes no second one


def test_no_point_loses_a_token(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say(SAID))
    engine.step()
    number = 1
    while True:
        handle, other = engine.submit("x"), engine.submit("y", stop="Z", logprobs=1)
        hit = interrupted(number, handle.result)
        assert handle.result() == "".join(handle) == SAID, number
        assert other.result() == "".join(other) == SAID, number
        assert len(handle.result().token_ids) == len(SAID) + 1
        logprobs = other.result().logprobs
        assert logprobs is not None
        assert [each.token_id for each in logprobs] == other.result().token_ids, number
        if not hit:
            break
        number += 1
    assert number > 60


@pytest.mark.parametrize("way", ["say", "stream"])
def test_no_point_leaves_a_session_inside_a_turn(
    make_engine: MakeEngine, say: Say, way: str
) -> None:
    core = FakeCore(say(SAID))
    engine = make_engine(core)
    engine.step()
    number = 1
    while True:
        session = engine.session(thinking=False)
        call = session.say if way == "say" else lambda text, s=session: list(s.stream(text))
        hit = interrupted(number, functools.partial(call, "x"))
        engine.step()
        assert not core.sequences, number
        assert len(session.messages) in ((0, 2) if hit else (2,)), number
        assert session.say("y") == SAID, number
        if not hit:
            break
        number += 1
    assert number > 60


def test_no_point_of_the_first_call_leaves_an_engine_without_its_thread(
    make_engine: MakeEngine, say: Say
) -> None:
    number = 1
    hit = True
    while hit:
        core = FakeCore(say(SAID))
        engine = make_engine(core)
        hit = interrupted(number, lambda e=engine: e.submit("x"), threads=True)  # type: ignore[misc]
        assert engine.submit("x").result(timeout=20) == SAID, number
        engine.close()
        number += 1
    assert number > 60


def test_an_interrupt_right_behind_the_cores_submit(
    make_engine: MakeEngine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = FakeCore(say(SAID))
    engine = make_engine(core)
    engine.step()
    send = getattr(ctypes.CDLL(None), "raise")

    def submit_and_signal(submit: Callable[..., int], *args: object, **options: object) -> object:
        """Return a callable that submits and then sends a signal, without Python in between."""
        call = functools.partial(submit, *args, **options)
        submits = itertools.starmap(call, itertools.repeat(()))
        signals = map(send, itertools.repeat(int(signal.SIGINT)))
        return functools.partial(
            next, map(operator.itemgetter(0), zip(submits, signals, strict=True))
        )

    with monkeypatch.context() as patch:
        patch.setattr(mtlqwen.driver, "functools", SimpleNamespace(partial=submit_and_signal))
        for way in ("generate", "stream", "submit"):
            with pytest.raises(KeyboardInterrupt):
                WAYS[way](engine)
    assert len(core.submitted) == 3
    gc.collect()
    engine.step()
    assert not core.sequences
    assert engine.generate("x") == SAID
