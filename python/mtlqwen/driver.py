"""The thread that runs the passes of one engine, and the doors to it.

Every sequence has a mailbox. Whoever runs a pass afterwards puts into the mailboxes what the core
has to say and rings their bells. Readers never hold a lock while they wait, so Ctrl-C reaches them
at once. A dropped reader is noticed by a weak reference whose callback is C code: the garbage
collector may drop it anywhere, even inside this module's own locked lines, and no signal can
interrupt it.
Knows nothing of text.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from mtlqwen.mailbox import Mailbox, Poll

REST_S = 1.0  # without work, before the core gives memory back


class Core(Protocol):
    """The part of ``_core.Engine`` that Python uses; tests put a scripted one in its place."""

    @property
    def drafter(self) -> str: ...  # noqa: D102
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
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] = (),
        sample_index: int = 0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Sequence[tuple[int, float]] = (),
        allowed_ids: Sequence[int] = (),
        bad_words: Sequence[Sequence[int]] = (),
        min_tokens: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        recall: bool = True,
        thinking_budget: tuple[int, int, Sequence[int]] | None = None,
        constraint: tuple[int, int | None] | None = None,
    ) -> int: ...
    @property
    def mask_words(self) -> int: ...  # noqa: D102
    def set_mask_fn(self, function: Callable[..., list[Exception | None]]) -> None: ...  # noqa: D102
    def step(self) -> bool: ...  # noqa: D102
    def news(self) -> list[int]: ...  # noqa: D102
    def poll(self, sequence: int) -> Poll: ...  # noqa: D102
    def cancel(self, sequence: int) -> None: ...  # noqa: D102
    def release(self, sequence: int) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def memory_map(self) -> dict[str, Any]: ...  # noqa: D102
    def stats(self) -> dict[str, int | float | str]: ...  # noqa: D102
    def check_integrity(self) -> None: ...  # noqa: D102
    def save_checkpoint(  # noqa: D102
        self, path: str, token_ids: Sequence[int], note: str, with_state: bool
    ) -> int: ...
    def load_checkpoint(self, path: str) -> tuple[list[int], str, int]: ...  # noqa: D102
    def start_trace(self, path: str) -> None: ...  # noqa: D102
    def stop_trace(self) -> bool: ...  # noqa: D102


_open_drivers: weakref.WeakSet[Driver]
_exiting = False


class Driver:
    """Runs the passes of one core: in its own thread, or in whoever calls `step`.

    The thread starts with the first sequence, unless `step` was called before; it is joined by
    `close`, and at interpreter exit. ``_lock`` guards the start of the thread and ``_closed``. The
    running thread never waits for it, nor for any other that a reader may hold: a signal's handler
    may call `close`, which joins the thread, in the middle of whatever a reader does.

    Two calls of the core must not be parted from what follows by a signal: `submit` from the
    sequence's entry in its mailbox, `poll` from the tokens' arrival there. Both are run by
    ``list.extend``, one call of C for the interpreter, which looks for signals between calls only.
    """

    def __init__(self, core: Core) -> None:
        """Take charge of ``core``; starts nothing yet."""
        self._core = core
        self._pid = os.getpid()
        self._lock = threading.RLock()  # an engine may be collected inside a locked line
        self._passing = threading.Lock()  # held by whoever runs a pass
        self._stepping = threading.Lock()  # held by the one caller of step()
        self._mailboxes: dict[Mailbox, None] = {}  # in order of arrival
        self._by_sequence: dict[int, Mailbox] = {}  # those of them that are known by number
        self._bell: SimpleQueue[object] = SimpleQueue()  # something was submitted, or dropped
        self._thread: threading.Thread | None = None  # the newest one started
        self._runner: threading.Thread | None = None  # the one that runs the passes
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
        self.check_process()
        if self._closed:
            stop_at_exit()
            raise self._closed_error()

    def submit(
        self, mailbox: Mailbox, owner: object, token_ids: Sequence[int], **options: Any
    ) -> None:
        """Hand a request to the core, with the options of `Core.submit`.

        The sequence goes on as long as ``owner`` lives, and no longer.
        """
        self.check()
        submit = functools.partial(self._core.submit, token_ids, **options)
        with self._lock:
            if self._closed:
                raise self._closed_error()
            mailbox.owner = weakref.ref(owner, self._bell.put)
            self._mailboxes[mailbox] = None
            self._start_thread()
        try:
            mailbox.sequences.extend(itertools.starmap(submit, ((),)))
        except Exception:
            self._forget(mailbox)
            self.check()
            raise
        self._bell.put(None)

    def wait(self, bell: SimpleQueue[Mailbox], timeout: float | None = None) -> Mailbox | None:
        """Return the next mailbox that rings; runs passes itself where no thread does.

        Returns:
            None when ``timeout`` seconds have passed.
        """
        self.check_process()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            own = self._thread is None and not self._closed
            left = None
            if end is not None:
                left = min(max(end - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
            with contextlib.suppress(Empty):
                return bell.get(block=not own, timeout=left)
            if left is not None and left <= 0.0:
                return None
            if own:
                self._pass()

    def drop(self, mailbox: Mailbox) -> None:
        """Cancel and forget a sequence; its slot is free within a step."""
        mailbox.dropped = True
        if self._closed or os.getpid() != self._pid:
            return
        if mailbox.sequences and not mailbox.ended:
            # It may have ended or the engine may have closed a moment ago.
            with contextlib.suppress(ValueError, RuntimeError):
                self._core.cancel(mailbox.sequences[0])
        self._bell.put(None)

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
        mine: list[bool] = []
        try:
            mine.extend(map(self._stepping.acquire, (False,)))  # see the class
            if mine == [False]:
                raise RuntimeError("[engine] step: another step is running; one caller at a time")
            return self._pass()
        finally:
            if mine == [True]:
                self._stepping.release()

    def close(self) -> None:
        """End every sequence, wake every reader, stop the thread. May be called at any time."""
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._lock:
            self._closed = True
        self._core.close()  # stops the running pass and waits for it
        self._bell.put(None)
        with self._lock:
            runner = self._runner
        if runner is not None and runner is not threading.current_thread():
            runner.join()
        for mailbox in list(self._mailboxes):
            self._end(mailbox, self._closed_error())

    def check_process(self) -> None:
        """Raise RuntimeError in a forked child."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"[engine] this process: forked after the engine was made (got pid {os.getpid()}, "
                f"want {self._pid}); make an engine in the child, or start it with spawn"
            )

    def _start_thread(self) -> None:
        """Start the thread if there is none; under ``_lock``.

        A signal may have parted an earlier start: a thread without an identity never ran.
        """
        if self._manual or (self._thread is not None and self._thread.ident is not None):
            return
        self._thread = threading.Thread(target=self._run, name="mtlqwen", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run passes while there is work; sleep on the bell otherwise.

        After a second without a bell comes one more pass: at that the core gives memory back.
        """
        with self._lock:
            if self._runner is not None:
                return
            self._runner = threading.current_thread()
        rest: float | None = REST_S
        while not self._closed:
            if self._pass():
                rest = REST_S
                continue
            try:
                self._bell.put(self._bell.get(timeout=rest))  # it stays there: the pass looks at it
                rest = REST_S
            except Empty:
                rest = None

    def _pass(self) -> bool:
        """Run one pass and deliver its news; False when there was nothing to do or it failed."""
        with self._passing:
            if self._closed:
                return False
            self._sweep()
            try:
                busy = self._core.step()
                news = self._core.news()
            except Exception as error:
                return self._survive(error)
            for sequence in news:
                self._deliver(sequence)
            return busy and not self._closed

    def _survive(self, error: Exception) -> bool:
        """Tell the sequences of a failed pass; True when others may go on.

        The core knows which sequences the failure ended. Where it names none, all end.
        """
        try:
            news = self._core.news()
        except Exception:
            news = []
        for sequence in news:
            self._deliver(sequence)
        if news:
            return not self._closed
        for mailbox in self._served():
            if mailbox.sequences:
                self._end(mailbox, error)
        return False

    def _sweep(self) -> None:
        """Forget what was dropped since the last pass."""
        rings = self._bell.qsize()
        if rings == 0:
            return
        for mailbox in self._served():
            if mailbox.unwanted:
                self._forget(mailbox)
                mailbox.ring()
        for _ in range(rings):  # only now: a signal before this line leaves them there
            self._bell.get_nowait()

    def _deliver(self, sequence: int) -> None:
        mailbox = self._by_sequence.get(sequence) or self._find(sequence)
        if mailbox is None:
            return
        try:
            if not mailbox.ended:
                mailbox.fresh.extend(map(self._core.poll, mailbox.sequences))
        except Exception as error:
            if not self._closed:  # else close() tells them
                self._end(mailbox, error)
            return
        mailbox.settle()
        if mailbox.ended:
            self._forget(mailbox)
        mailbox.ring()

    def _end(self, mailbox: Mailbox, error: BaseException) -> None:
        """Give an error to a sequence's readers; the engine goes on without it."""
        mailbox.settle()
        if not mailbox.ended:
            mailbox.error = error
        self._forget(mailbox)
        # At exit only daemon threads can still wait; they must not wake to print an error.
        if not _exiting:
            mailbox.ring()

    def _find(self, sequence: int) -> Mailbox | None:
        """Return a sequence's mailbox; its number is learned at the first news."""
        for mailbox in self._served():
            for number in mailbox.sequences:
                self._by_sequence.setdefault(number, mailbox)
        return self._by_sequence.get(sequence)

    def _served(self) -> list[Mailbox]:
        """Return the mailboxes that are served: none once it closes, for `close` tells them."""
        return [] if self._closed else list(self._mailboxes)

    def _forget(self, mailbox: Mailbox) -> None:
        if mailbox.sequences and not self._closed:
            with contextlib.suppress(ValueError, RuntimeError):  # a signal came after the release
                self._core.release(mailbox.sequences[0])
        self._mailboxes.pop(mailbox, None)
        for number in mailbox.sequences:
            self._by_sequence.pop(number, None)
        mailbox.constraint = None

    @staticmethod
    def _closed_error() -> RuntimeError:
        return RuntimeError("[engine] engine: it is closed; make a new one")


def stop_at_exit() -> None:
    """Never return to a daemon thread at interpreter exit: it could only print an error."""
    if _exiting and threading.current_thread().daemon:
        SimpleQueue[None]().get()


_open_drivers = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Join the threads while the interpreter still stands."""
    global _exiting
    _exiting = True
    for driver in list(_open_drivers):
        driver.close()
