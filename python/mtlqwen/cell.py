"""The output of a notebook's cell: answers as they come, and how far loading is.

All that knows IPython, which is never imported here before a notebook has done so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mtlqwen.answer_view import call_line
from mtlqwen.cards import Part, bar, footer, frame, parts_html, result_facts
from mtlqwen.progress import in_notebook

if TYPE_CHECKING:
    from mtlqwen.reader import Stream
    from mtlqwen.result import Completion, Piece

_INTERVAL_S = 0.1  # from one redrawing to the next, at least
_SHARE = 0.1  # of the time that redrawing may take


class Cell:
    """One output that is redrawn in place, at a bounded rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Show nothing yet."""
        self._clock = clock
        self._handle: Any = None
        self._next = 0.0

    def draw(self, make: Callable[[], dict[str, str]], *, now: bool = False) -> None:
        """Show what ``make`` returns, a bundle of MIME types; maybe not, unless it must be now.

        Long texts take longer to redraw, and so are redrawn less often.
        """
        start = self._clock()
        if start < self._next and not now:
            return
        bundle = make()
        if self._handle is None:
            from IPython.display import display

            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
        took = self._clock() - start
        self._next = start + max(_INTERVAL_S, took / _SHARE)


class CellBar:
    """A bar for the stages of loading; gone when they are done. A `Progress`."""

    def __init__(self) -> None:
        """Show nothing before the first stage."""
        self._cell = Cell()
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of a stage is done."""
        from_new = stage != self._stage
        ended = done >= total
        self._stage = stage
        self._cell.draw(lambda: self._bundle(stage, done, total), now=from_new or ended)

    def _bundle(self, stage: str, done: int, total: int) -> dict[str, str]:
        if done >= total:
            return {"text/plain": "", "text/html": ""}
        amount = f"{done}/{total}"
        if stage == "download":
            amount = f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"
        text = f"{stage} {amount}"
        return {"text/plain": text, "text/html": footer([text]) + bar(done / total)}


class _Answer:
    """What has come of an answer, as the parts of a card."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def add(self, piece: Piece) -> None:
        """Add a piece; of a call only the whole is shown."""
        if piece.tool_call is not None:
            self.parts.append(("tool_call", call_line(piece.tool_call)))
        elif piece.kind != "tool_call" and piece:
            before = self.parts.pop()[1] if self._goes_on(piece.kind) else ""
            self.parts.append((piece.kind, before + piece))

    def _goes_on(self, kind: str) -> bool:
        return bool(self.parts) and self.parts[-1][0] == kind != "tool_result"

    def bundle(self, facts: list[str], *, is_markdown: bool) -> dict[str, str]:
        """Return what a cell shows of it."""
        text = "".join(text for kind, text in self.parts if kind == "text")
        body = parts_html(self.parts, is_markdown=is_markdown)
        return {"text/plain": text, "text/html": frame("", body, footer(facts))}


def show(stream: Stream, *, is_markdown: bool) -> Completion:
    """Show a stream in the cell while it comes, else on stdout; return its result."""
    if not in_notebook():
        from mtlqwen.screen import Screen, show_stream

        return show_stream(Screen(sys.stdout), stream)
    cell, answer = Cell(), _Answer()
    facts = ["stopped"]  # by an error or an interrupt, if it stays
    try:
        for piece in stream:
            answer.add(piece)
            cell.draw(lambda: answer.bundle(["…"], is_markdown=is_markdown))
        result = stream.result()
        facts = result_facts(result)
        return result
    finally:
        cell.draw(lambda: answer.bundle(facts, is_markdown=is_markdown), now=True)
