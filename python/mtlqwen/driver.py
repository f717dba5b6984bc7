"""The thread that runs the passes of one engine, and the doors to it.

Every sequence has an inbox, a queue that its reader waits on. Whoever runs a pass afterwards puts
into the inboxes what the core has to say. Readers never hold a lock while they wait, so Ctrl-C
reaches them at once; a dropped reader says so through a queue as well, since the garbage collector
may drop it anywhere, even inside this module's own locked lines.
Knows nothing of text.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import os
import threading
import weakref
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias


class Poll(Protocol):
    """What the core reports about one sequence."""

    @property
    def token_ids(self) -> list[int]: ...  # noqa: D102
    @property
    def finish_reason(self) -> str | None: ...  # noqa: D102
    @property
    def ttft_s(self) -> float: ...  # noqa: D102
    @property
    def prefill_s(self) -> float: ...  # noqa: D102
    @property
    def decode_s(self) -> float: ...  # noqa: D102
    @property
    def prompt_tokens(self) -> int: ...  # noqa: D102
    @property
    def completion_tokens(self) -> int: ...  # noqa: D102


class Core(Protocol):
    """The part of ``_core.Engine`` that Python uses; tests put a scripted one in its place."""

    @property
    def context(self) -> int: ...  # noqa: D102
    @property
    def slots(self) -> int: ...  # noqa: D102
    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    def submit(  # noqa: D102
        self,
        token_ids: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop_ids: Sequence[int],
    ) -> int: ...
    def step(self) -> bool: ...  # noqa: D102
    def poll(self, sequence: int) -> Poll: ...  # noqa: D102
    def cancel(self, sequence: int) -> None: ...  # noqa: D102
    def release(self, sequence: int) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def stats(self) -> dict[str, int | float | str]: ...  # noqa: D102


# What a reader finds in its inbox: (sequence id, news or the error that ended it).
News: TypeAlias = "tuple[int, Poll | BaseException]"
Inbox: TypeAlias = "SimpleQueue[News]"

_open_drivers: weakref.WeakSet[Driver]


class Driver:
    """Runs the passes of one core: in its own thread, or in whoever calls `step`.

    The thread starts with the first sequence, unless `step` was called before; it is joined by
    `close`, and at interpreter exit. ``_lock`` guards the start of the thread, ``_inboxes`` and
    ``_closed``; it is never held during a pass.
    """

    def __init__(self, core: Core) -> None:
        """Take charge of ``core``; starts nothing yet."""
        self._core = core
        self._pid = os.getpid()
        self._lock = threading.RLock()  # an engine may be collected inside a locked line
        self._passing = threading.Lock()  # held by whoever runs a pass
        self._stepping = threading.Lock()  # held by the one caller of step()
        self._inboxes: dict[int, Inbox] = {}
        self._bell: SimpleQueue[int | None] = SimpleQueue()  # a dropped sequence, or just a wake-up
        self._thread: threading.Thread | None = None
        self._manual = False
        self._closed = False
        _open_drivers.add(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def check(self) -> None:
        """Raise what must keep a caller away.

        Raises:
            RuntimeError: the engine is closed, or belongs to the parent of this forked process.
        """
        self._check_process()
        if self._closed:
            raise self._closed_error()

    def submit(
        self,
        inbox: Inbox,
        token_ids: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop_ids: Sequence[int],
    ) -> int:
        """Hand a request to the core; its news go to ``inbox``. Returns the sequence id."""
        self.check()
        with self._lock:
            self.check()
            sequence = self._core.submit(
                token_ids,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                stop_ids=stop_ids,
            )
            self._inboxes[sequence] = inbox
            if self._thread is None and not self._manual:
                self._thread = threading.Thread(target=self._run, name="mtlqwen", daemon=True)
                self._thread.start()
        self._bell.put(None)
        return sequence

    def wait(self, inbox: Inbox) -> News:
        """Return the next news of an inbox; runs passes itself where no thread does."""
        self._check_process()
        while True:
            if self._thread is not None or self._closed:
                return inbox.get()
            try:
                return inbox.get_nowait()
            except Empty:
                self._pass()

    def drop(self, sequence: int) -> None:
        """Cancel and forget a sequence. Takes no lock: a destructor may call it anywhere."""
        if self._closed or os.getpid() != self._pid:
            return
        # It may have ended or the engine may have closed a moment ago.
        with contextlib.suppress(ValueError, RuntimeError):
            self._core.cancel(sequence)
        self._bell.put(sequence)

    def step(self) -> bool:
        """Run one pass in the caller's thread; from the first call on, callers run them all.

        Returns:
            False when there was nothing to do.

        Raises:
            RuntimeError: the driver thread has started already, or another step is running.
        """
        self.check()
        with self._lock:
            if self._thread is not None:
                raise RuntimeError(
                    "[engine] step: the driver thread runs this engine; call step before the "
                    "first generation to run it yourself"
                )
            self._manual = True
        if not self._stepping.acquire(blocking=False):
            raise RuntimeError("[engine] step: another step is running; one caller at a time")
        try:
            return self._pass()
        finally:
            self._stepping.release()

    def close(self) -> None:
        """End every sequence, wake every reader, stop the thread. May be called at any time."""
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._lock:
            self._closed = True
            thread = self._thread
        self._core.close()  # stops the running pass and waits for it
        self._bell.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            inboxes = list(self._inboxes.items())
            self._inboxes.clear()
        for sequence, inbox in inboxes:
            inbox.put((sequence, self._closed_error()))

    def _run(self) -> None:
        """Run passes while there is work; sleep on the bell otherwise."""
        while not self._closed:
            if not self._pass():
                self._answer(self._bell.get())

    def _pass(self) -> bool:
        """Run one pass and deliver its news; False when there was nothing to do or it failed."""
        with self._passing:
            if self._closed:
                return False
            self._answer_all()
            try:
                busy = self._core.step()
            except Exception as error:
                self._fail_all(error)
                return False
            self._deliver()
            return busy and not self._closed

    def _deliver(self) -> None:
        for sequence, inbox in self._open_inboxes():
            try:
                news = self._core.poll(sequence)
            except Exception as error:
                self._forget(sequence)
                inbox.put((sequence, error))
                continue
            if news.finish_reason is not None:
                self._forget(sequence)
            if news.token_ids or news.finish_reason is not None:
                inbox.put((sequence, news))

    def _fail_all(self, error: BaseException) -> None:
        """Give the error of a pass to every reader; the engine goes on without their sequences."""
        for sequence, inbox in self._open_inboxes():
            self._forget(sequence)
            inbox.put((sequence, copy.copy(error)))  # each reader's raise adds its own traceback

    def _open_inboxes(self) -> list[tuple[int, Inbox]]:
        """Return the inboxes that are served: none once it closes, for `close` tells them."""
        with self._lock:
            return [] if self._closed else list(self._inboxes.items())

    def _forget(self, sequence: int) -> None:
        with self._lock:
            known = self._inboxes.pop(sequence, None)
        if known is not None and not self._closed:
            self._core.release(sequence)

    def _answer(self, dropped: int | None) -> None:
        if dropped is not None:
            self._forget(dropped)

    def _answer_all(self) -> None:
        while True:
            try:
                self._answer(self._bell.get_nowait())
            except Empty:
                return

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"[engine] this process: forked after the engine was made (got pid {os.getpid()}, "
                f"want {self._pid}); make an engine in the child, or start it with spawn"
            )

    @staticmethod
    def _closed_error() -> RuntimeError:
        return RuntimeError("[engine] engine: it is closed; make a new one")


_open_drivers = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Join the threads while the interpreter still stands."""
    for driver in list(_open_drivers):
        driver.close()
