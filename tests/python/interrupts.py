"""A program that interrupts itself: SIGINT at random moments of every call that waits.

Run by the tests as ``python interrupts.py ROUNDS SEED [manual]``. It prints what it counted and
what is left of it in the engine; whatever it prints on stderr is a failure.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

from mtlqwen import Engine, Handle, SamplingParams

LONG = SamplingParams(max_tokens=400, ignore_eos=True)
PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Good morning"}]


class Killer:
    """A thread that sends one SIGINT to the process whenever it is armed."""

    def __init__(self) -> None:
        self.delays: SimpleQueue[float] = SimpleQueue()
        self.armed = 0
        self.handled = 0
        signal.signal(signal.SIGINT, self._handle)
        threading.Thread(target=self._run, daemon=True).start()

    def arm(self, seconds: float) -> None:
        self.armed += 1
        self.delays.put(seconds)

    def spend(self) -> None:
        """Return when no signal is on its way any more.

        One that was sent may not have come yet: what counts is that its handler has run.
        """
        while self.handled < self.armed:
            time.sleep(0.0005)

    def _handle(self, number: int, frame: object) -> None:
        self.handled += 1
        raise KeyboardInterrupt

    def _run(self) -> None:
        while True:
            time.sleep(self.delays.get())
            os.kill(os.getpid(), signal.SIGINT)


class Loop:
    """One event loop for all rounds: ``asyncio.run`` itself does not survive every signal.

    A signal between a look at the signals and the wait for events is seen only when the loop wakes,
    so it has a pulse. With ``manual`` the pulse runs the engine's passes.
    """

    def __init__(self, engine: Engine, manual: bool) -> None:
        self._engine = engine
        self._manual = manual
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # tasks that the signal ended
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that it did not let begin

    def run(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine; after an interrupt, end whatever is left of it."""
        try:
            self._loop.create_task(self._pulse())
            self._loop.run_until_complete(make())
        finally:
            while tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(tasks))

    async def _pulse(self) -> None:
        while True:
            if self._manual:
                self._engine.step()
            await asyncio.sleep(0.002)


def ways(engine: Engine, loop: Loop) -> dict[str, Callable[[], object]]:
    """Return every way to wait for text."""

    def cancel() -> None:
        for _ in range(50):
            engine.submit(PROMPT, sampling=LONG).cancel()

    async def tasks() -> None:
        jobs = [engine.agenerate(PROMPT, sampling=LONG) for _ in range(3)]
        await asyncio.gather(*jobs)

    async def astream() -> None:
        async for _ in engine.astream(PROMPT, sampling=LONG):
            pass

    async def handle() -> None:
        await engine.submit(PROMPT, sampling=LONG)

    session = engine.session(thinking=False)

    def speak(answer: Callable[..., object]) -> None:
        """Say something in a session that every turn leaves idle and whole."""
        before = session.messages
        try:
            answer("Good morning", sampling=LONG)
            assert len(session.messages) == len(before) + 2
        finally:
            assert session.messages[: len(before)] == before
            assert len(session.messages) in (len(before), len(before) + 2)
            if len(before) > 6:
                session.rewind(3)

    return {
        "generate": lambda: engine.generate(PROMPT, sampling=LONG),
        "generate a list": lambda: engine.generate([PROMPT] * 12, sampling=LONG),
        "generate with stop": lambda: engine.generate(PROMPT, stop="\x00", sampling=LONG),
        "many short ones": lambda: [engine.generate(PROMPT, max_tokens=1) for _ in range(50)],
        "chat": lambda: engine.chat(MESSAGES, sampling=LONG),
        "stream": lambda: list(engine.stream(PROMPT, sampling=LONG)),
        "drop streams": lambda: [next(engine.stream(PROMPT, sampling=LONG)) for _ in range(50)],
        "submit": lambda: [engine.submit(PROMPT, max_tokens=2) for _ in range(50)],
        "say": lambda: speak(session.say),
        "session stream": lambda: speak(lambda *a, **k: list(session.stream(*a, **k))),
        "iterate": lambda: list(engine.submit(PROMPT, sampling=LONG)),
        "cancel": cancel,
        "agenerate": lambda: loop.run(tasks),
        "astream": lambda: loop.run(astream),
        "await": lambda: loop.run(handle),
    }


def ask_again(handle: Handle, killer: Killer, seconds: float) -> str:
    """Interrupt the reading of a handle, then read it to its end."""
    try:
        killer.arm(seconds)
        handle.result()
        killer.spend()
    except KeyboardInterrupt:
        pass
    return handle.result().text


def settle(engine: Engine, manual: bool) -> None:
    """Let the engine notice what was dropped."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if manual:
            engine.step()
        stats = engine.stats()
        if stats["live"] == 0 and stats["waiting"] == 0 and not engine._driver._mailboxes:
            return
        time.sleep(0.005)


def main(rounds: int, seed: int, manual: bool) -> None:
    """Interrupt ``rounds`` times and say what came of it."""
    rng = random.Random(seed)
    killer = Killer()
    caught: Counter[str] = Counter()
    report = sys.unraisablehook

    def unraisable(event: sys.UnraisableHookArgs) -> None:
        # The interpreter drops an interrupt that comes inside a destructor. Those of others, like
        # the weak sets of asyncio and threading, are written in Python.
        home = getattr(event.object, "__module__", None) or "mtlqwen"
        if event.exc_type is KeyboardInterrupt and not home.startswith("mtlqwen"):
            caught["dropped by others"] += 1
        else:
            report(event)

    sys.unraisablehook = unraisable
    engine = Engine("tiny")
    if manual:
        engine.step()
    want = engine.generate(PROMPT, max_tokens=24)
    calls = list(ways(engine, Loop(engine, manual)).items())
    wrong = 0
    done = 0
    while done < rounds:
        name = ""
        try:
            done += 1
            seconds = rng.choice((0.0005, 0.005, 0.03)) * rng.random()
            if done % 10 == 0:
                handle = engine.submit(PROMPT, max_tokens=24)
                name = "result, again"
                wrong += ask_again(handle, killer, seconds) != want
                caught[name] += 1
                continue
            name, call = calls[done % len(calls)]
            killer.arm(seconds)
            call()
            killer.spend()
        except KeyboardInterrupt:
            caught[name] += 1
    killer.spend()
    settle(engine, manual)
    stats = engine.stats()
    engine.check_integrity()
    again = engine.generate(PROMPT, max_tokens=24)
    wrong += (again != want) + (again.token_ids != want.token_ids)
    ways_hit = len(caught.keys() & {"result, again", *dict(calls)})
    print(sum(caught.values()), wrong, stats["live"], stats["waiting"], ways_hit)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "manual" in sys.argv[3:])
