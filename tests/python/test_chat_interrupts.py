"""Ctrl-C at every moment of a chat in a terminal: it stops an answer, and never the chat."""

from __future__ import annotations

import builtins
import itertools
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import mtlqwen
import pytest
from mtlqwen import SamplingParams
from mtlqwen.answer_view import AnswerView
from mtlqwen.chat_loop import ChatLoop
from mtlqwen.interrupts import Interrupts
from mtlqwen.screen import Screen
from python.conftest import MakeEngine
from python.fake_core import Script
from python.test_surface import Terminal

PACKAGE = Path(mtlqwen.__file__).parent
OPCODES = {str(PACKAGE / "interrupts.py")}
LINES = {str(PACKAGE / f"{name}.py") for name in ("chat_loop", "answer_view", "screen")}


class Moments:
    """Sends SIGINT at one moment of a run, and maybe again a few calls later.

    A moment is an instruction of what takes the signal, or a line of the chat: more than where the
    interpreter looks for signals.
    """

    def __init__(self, first: int, later: int) -> None:
        self._left = first
        self._later = later
        self.sent = 0

    def start(self) -> None:
        sys.settrace(self._trace)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:  # those that run already
            if frame.f_code.co_filename in OPCODES | LINES:
                self._trace(frame, "call", None)
                frame.f_trace = self._trace
            frame = frame.f_back

    def stop(self) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if name not in OPCODES | LINES:
            return None
        if event == "call":
            frame.f_trace_opcodes = name in OPCODES
            return self._trace
        if event == ("opcode" if name in OPCODES else "line"):
            self._left -= 1
            if self._left == 0:
                if self._later:
                    sys.setprofile(self._profile)
                self._send()
        return self._trace

    def _profile(self, _: FrameType, event: str, __: object) -> None:
        if event in ("call", "c_return"):
            self._later -= 1
            if self._later == 0:
                sys.setprofile(None)
                self._send()

    def _send(self) -> None:
        self.sent += 1
        signal.raise_signal(signal.SIGINT)


class Views:
    """Makes views and counts those that have not ended."""

    def __init__(self, screen: Screen) -> None:
        self.open = 0
        self._screen = screen

    def __call__(self) -> AnswerView:
        views = self

        class View(AnswerView):
            def end(self) -> None:
                super().end()
                views.open = 0

        self.open = 1
        return View(self._screen)


@pytest.mark.parametrize("later", [0, 1, 4])
def test_no_moment_ends_a_chat(
    make_engine: MakeEngine, echo: Script, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    engine = make_engine(echo)
    engine.step()
    before = signal.getsignal(signal.SIGINT)
    sampling = SamplingParams(thinking=False)
    for first in itertools.count(1, 2 if later else 1):
        terminal, moments = Terminal(), Moments(first, later)
        views = Views(Screen(terminal))
        loop = ChatLoop(engine, Screen(terminal), views, system=None, sampling=sampling)
        lines = iter(["", "/no-thing", "a"])

        def read(_: str, moments: Moments = moments, lines: Any = lines) -> str:
            line = next(lines, "/quit")
            if line == "":
                moments.start()
            if line == "/quit":
                moments.stop()
            return str(line)

        monkeypatch.setattr(builtins, "input", read)
        try:
            loop.run()
        finally:
            moments.stop()
        assert signal.getsignal(signal.SIGINT) is before
        shown = terminal.getvalue()
        assert moments.sent == ("(stopped" in shown) + ("(Ctrl-D or" in shown) or later, first
        assert views.open == 0, first
        messages = loop._session.messages
        assert [message["content"] for message in messages] in ([], ["a", "[a]"]), first
        assert not loop._session._conversation.busy, first
        if not moments.sent:
            break
    assert first > 200


def test_an_interrupt_that_something_drops_is_raised_again() -> None:
    interrupts = Interrupts()
    after: list[int] = []

    def call() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            interrupts.check()
            after.append(1)

    with interrupts:
        assert interrupts.run(call) is None
        assert interrupts.run(lambda: 7) == 7
    assert not after


def test_a_signal_that_wakes_nobody_is_followed_by_one_that_does() -> None:
    """It goes to another thread: as one that comes right before the wait, it does not end it."""
    interrupts, late = Interrupts(), threading.Event()

    def send() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def call() -> object:
        threading.Timer(0.1, send).start()
        return select.select([], [], [], 30)

    timer = threading.Timer(25, late.set)
    timer.start()
    with interrupts:
        assert interrupts.run(call) is None
    timer.cancel()
    assert not late.is_set()
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL


def test_interrupts_leave_other_threads_and_errors_alone() -> None:
    told: list[object] = []

    def run(call: Callable[[], object]) -> None:
        with Interrupts() as _:
            pass
        interrupts = Interrupts()
        with interrupts:
            told.append(interrupts.run(call))

    thread = threading.Thread(target=run, args=(lambda: 3,))
    thread.start()
    thread.join()
    assert told == [3]
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 // 0)
