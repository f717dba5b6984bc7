"""Ctrl-C in a program that goes on after it: an exception where one is awaited, nowhere else.

Knows nothing of chats and engines.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_NUDGES = (0.02, 0.1, 0.5)  # seconds after a signal; a busy machine needs the later ones


class Interrupts:
    """While its block runs, SIGINT raises KeyboardInterrupt only inside `run`, and once in each.

    One that comes at another time is kept for the next `run`. So no code between two of them, and
    none that clears up behind one, can be torn by it.

    A signal that comes right before a call of the system waits does not end that wait, so a thread
    sends another one behind each: SIGURG, which does nothing but wake.
    """

    def __init__(self) -> None:
        """Leave signals alone for now."""
        self._open = False
        self._came = False
        # Only this thread gets signals, and may say what they do.
        self._has_signals = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        """Take SIGINT over."""
        if not self._has_signals:
            return
        told, tell = os.pipe()
        os.set_blocking(tell, False)
        threading.Thread(target=_nudge, args=(told, threading.get_ident()), daemon=True).start()
        self._tell = tell
        self._fd_before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        self._urgent_before = signal.signal(signal.SIGURG, lambda *_: None)
        self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if not self._has_signals:
            return
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._tell)
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)
        signal.signal(signal.SIGURG, self._urgent_before or signal.SIG_DFL)

    def run(self, call: Callable[[], T]) -> T | None:
        """Return what ``call`` does; None where an interrupt came before it was done."""
        try:
            try:
                self._open = True
                self.check()
                return call()
            finally:
                self._open = False
        except KeyboardInterrupt:
            self._came = False
            return None

    def check(self) -> None:
        """Raise the interrupt that came and was kept, or lost: destructors drop exceptions."""
        if self._came:
            raise KeyboardInterrupt

    def _handle(self, *_: object) -> None:
        self._came = True
        if self._open:
            self._open = False  # first, or a second signal might follow the first out of `run`
            raise KeyboardInterrupt


def _nudge(told: int, thread: int) -> None:
    """Wake ``thread`` behind every SIGINT that the pipe ``told`` tells of, until that is closed."""
    while number := os.read(told, 1):
        for seconds in _NUDGES if number[0] == signal.SIGINT else ():
            time.sleep(seconds)
            signal.pthread_kill(thread, signal.SIGURG)
    os.close(told)
