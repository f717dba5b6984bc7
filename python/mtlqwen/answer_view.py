"""Shows an answer while it comes: text as it is or as Markdown, reasoning folded, calls in a line.

Knows screens and pieces; nothing of engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtlqwen.code_lines import CodeLines
from mtlqwen.result import Piece, ToolCall

if TYPE_CHECKING:
    from mtlqwen.screen import Screen


class AnswerView:
    """Shows one answer as plain text."""

    def __init__(self, screen: Screen) -> None:
        """Show it on ``screen``; reasoning is a line that counts its tokens."""
        self._screen = screen
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
        self._thought += len(piece.token_ids)
        self._screen.line(f"thinking, {self._thought} tokens")

    def _text(self, text: str) -> None:
        self._screen.write(text)

    def _end_text(self) -> None:
        self._screen.write("\n")

    def _end_kind(self) -> None:
        if self._kind == "text":
            self._end_text()
        elif self._kind == "reasoning":
            self._screen.line("")
            self._screen.write(f"(thought {self._thought} tokens; /show)\n", "dim")
            self._thought = 0


class MarkdownView(AnswerView):
    """Shows text as Markdown: whole blocks stay as they are, the last one is drawn anew.

    A block ends at an empty line outside of fences. It is parsed when it is drawn, some times a
    second, not for every token.
    """

    def __init__(self, screen: Screen, console: Any) -> None:
        """Show it on a console of rich, which writes to ``screen``'s stream."""
        super().__init__(screen)
        self._console = console
        self._code = CodeLines()
        self._block = ""
        self._live: Any = None

    def _text(self, text: str) -> None:
        from rich.live import Live

        *ends, begun = text.split("\n")
        for end in ends:
            is_empty = not end and not self._code.look().line
            self._code.add(end + "\n")
            if not is_empty or self._code.look().fence:
                self._block += end + "\n"
            elif self._block:
                self._end_block()
        self._code.add(begun)
        self._block += begun
        if self._live is None and self._block:
            self._live = Live(
                console=self._console, refresh_per_second=8, get_renderable=self._drawn
            )
            self._live.start()

    def _drawn(self) -> Any:
        from rich.markdown import Markdown

        return Markdown(self._block)

    def _end_block(self) -> None:
        if self._live is None:
            self._console.print(self._drawn())
        else:
            self._live.stop()  # which draws it once more
        self._console.print()
        self._live, self._block = None, ""

    def _end_text(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live, self._block, self._code = None, "", CodeLines()


def call_line(call: ToolCall) -> str:
    """Return a call as a line of code."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"
