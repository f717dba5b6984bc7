"""Writes to a terminal, a pipe or a file: dimmed and bold for a person, plain elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from mtlqwen.progress import is_terminal

if TYPE_CHECKING:
    from mtlqwen.answer_view import AnswerView
    from mtlqwen.reader import Stream
    from mtlqwen.result import Completion


class Screen:
    """Writes to a stream: with colours on a terminal that has them, plain elsewhere."""

    def __init__(self, stream: TextIO | None) -> None:
        """Write to ``stream``; None is a closed one, which takes nothing."""
        self._stream = stream
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.colours = is_terminal(stream) and not plain

    def write(self, text: str, style: str = "") -> None:
        """Write ``text``; ``style`` is ``bold``, ``dim`` or nothing."""
        if self.colours and style and text:
            text = f"\x1b[{1 if style == 'bold' else 2}m{text}\x1b[0m"
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    def line(self, text: str) -> None:
        """Write the last line anew, where a person sees it."""
        if self.colours:
            self.write(f"\r\x1b[K\x1b[2m{text}\x1b[0m")

    def heading(self, text: str) -> None:
        """Write a title with a blank line before it."""
        self.write(f"\n{text}\n", "bold")


def show_stream(screen: Screen, stream: Stream) -> Completion:
    """Write the pieces of a stream as they come and return its result.

    Reasoning is dimmed, or named where nothing can be dimmed.
    """
    kind = None
    for piece in stream:
        if piece.kind != kind:
            screen.write("\n" if kind else "")
            named = piece.kind == "reasoning" and not screen.colours
            screen.write("[thinking] " if named else "")
        kind = piece.kind
        screen.write(piece, "dim" if kind == "reasoning" else "")
    screen.write("\n")
    return stream.result()


def make_view(screen: Screen, stream: TextIO) -> Callable[[], AnswerView]:
    """Return what makes views of answers: Markdown where rich is installed, else plain text."""
    from mtlqwen.answer_view import AnswerView, MarkdownView

    if not screen.colours:
        return lambda: AnswerView(screen)
    try:
        from rich.console import Console
    except ImportError:
        return lambda: AnswerView(screen)
    return lambda: MarkdownView(screen, Console(file=stream))
