"""Ctrl-C in a program that goes on after it: an exception where one is awaited, nowhere else.

Knows nothing of chats and engines.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Interrupts:
    """While its block runs, SIGINT raises KeyboardInterrupt only inside `run`, and once in each.

    One that comes at another time is kept for the next `run`. So no code between two of them, and
    none that clears up behind one, can be torn by it.
    """

    def __init__(self) -> None:
        """Leave signals alone for now."""
        self._open = False
        self._came = False
        # Only this thread gets signals, and may say what they do.
        self._has_signals = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        """Take SIGINT over."""
        if self._has_signals:
            self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if self._has_signals:
            signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

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
