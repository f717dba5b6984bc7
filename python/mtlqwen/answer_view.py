"""Shows an answer while it comes: text as it is or as Markdown, reasoning folded, calls in a line.

Knows screens and pieces; nothing of engines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mtlqwen.result import Piece, ToolCall

if TYPE_CHECKING:
    from mtlqwen.screen import Screen

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


class AnswerView:
    """Shows one answer as plain text."""

    def __init__(self, screen: Screen, *, folded: bool = True) -> None:
        """Show it on ``screen``; ``folded`` reasoning is a line that counts its tokens."""
        self._screen = screen
        self._folded = folded
        self._kind = ""
        self._thought = 0

    def add(self, piece: Piece) -> None:
        """Show a piece."""
        if piece.kind != self._kind:
            self._end_kind()
            self._kind = piece.kind
        if piece.kind == "reasoning":
            self._think(piece)
        elif piece.kind == "text":
            self._text(piece)
        elif piece.kind == "tool_result":
            self._screen.write(f"{piece}\n", "dim")
        if piece.tool_call is not None:
            self._screen.write(f"{call_line(piece.tool_call)}\n", "bold")

    def end(self) -> None:
        """Nothing more comes."""
        self._end_kind()
        self._kind = ""

    def _think(self, piece: Piece) -> None:
        if not self._folded:
            self._screen.write(piece, "dim")
            return
        self._thought += len(piece.token_ids)
        self._screen.line(f"thinking, {self._thought} tokens")

    def _text(self, text: str) -> None:
        self._screen.write(text)

    def _end_text(self) -> None:
        self._screen.write("\n")

    def _end_kind(self) -> None:
        if self._kind == "text":
            self._end_text()
        elif self._kind == "reasoning" and self._folded:
            self._screen.line("")
            self._screen.write(f"(thought {self._thought} tokens; /show)\n", "dim")
            self._thought = 0
        elif self._kind == "reasoning":
            self._screen.write("\n")


class MarkdownView(AnswerView):
    """Shows text as Markdown: whole blocks stay as they are, the last one is drawn anew."""

    def __init__(self, screen: Screen, console: Any, *, folded: bool = True) -> None:
        """Show it on a console of rich, which writes to ``screen``'s stream."""
        super().__init__(screen, folded=folded)
        self._console = console
        self._block = ""
        self._live: Any = None

    def _text(self, text: str) -> None:
        from rich.live import Live
        from rich.markdown import Markdown

        self._block += text
        whole, rest = split_blocks(self._block)
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=8)
            self._live.start()
        if whole:
            self._live.update(Markdown(whole), refresh=True)
            self._live.stop()
            self._console.print()
            self._live, self._block = None, rest
            if rest:
                self._text("")
            return
        self._live.update(Markdown(self._block))

    def _end_text(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live, self._block = None, ""


def split_blocks(text: str) -> tuple[str, str]:
    r"""Return the blocks of a Markdown text that are whole, and the last one.

    Example:
        >>> split_blocks("One.\n\n```\na\n\nb")
        ('One.', '```\na\n\nb')
    """
    at = text.rfind("\n\n")
    while at >= 0 and len(_FENCE.findall(text[:at])) % 2:
        at = text.rfind("\n\n", 0, at)
    whole = text[: max(at, 0)]
    return (whole, text[at:].lstrip("\n")) if whole.strip() else ("", text)


def call_line(call: ToolCall) -> str:
    """Return a call as a line of code."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"
