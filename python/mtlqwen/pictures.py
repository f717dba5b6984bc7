"""Pictures of an engine's memory as SVG: the pool, and the prefix tree.

Plain shapes without scripts or fonts of their own; letters have the page's colour. Knows no engine.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtlqwen.cards import BLUE, GREEN

PURPLE = "#9a6bd8"

# What a bundle may be held by, as the core has it.
BY_SLOT, BY_CACHE, BY_STATE = 1, 2, 4

_KINDS = (
    ("sequences", BLUE, lambda holder: holder == BY_SLOT),
    ("sequences and checkpoints", "#2b93a5", lambda holder: holder == BY_SLOT | BY_CACHE),
    ("checkpoints", GREEN, lambda holder: holder == BY_CACHE),
    ("states", PURPLE, lambda holder: bool(holder & BY_STATE)),
)
_WIDTH = 640
_CELL = 10  # pixels from cell to cell
_COLUMNS = _WIDTH // _CELL
_MAX_CELLS = 8 * _COLUMNS
_ROW = 24  # pixels of a row of the tree
_MAX_ROWS = 24
_TEXT = 220  # pixels for the text at the end of a row
_LETTERS = 30  # that fit there


@dataclass(slots=True)
class Branch:
    """Tokens that all its branches begin with, in the prefix tree.

    Attributes:
        n_tokens: from the beginning to its end.
        text: how it goes on behind the branch before it, clipped.
        uses: how often prompts found the checkpoint at its end; None: there is none.
        branches: those behind it.
    """

    n_tokens: int
    text: str
    uses: int | None = None
    branches: list[Branch] = field(default_factory=list)


def pool_picture(holders: Sequence[int]) -> str:
    """Return squares for the bundles of a pool by who holds them, in the order of their numbers.

    Of a large pool a square stands for several: the holder of most of them gives it its colour, and
    the fuller it is the stronger that is.
    """
    each = -(-len(holders) // _MAX_CELLS) or 1
    cells = [holders[at : at + each] for at in range(0, len(holders), each)]
    shapes = [_cell(index, cell) for index, cell in enumerate(cells)]
    top = _CELL * -(-len(cells) // _COLUMNS) + 16
    x = 0.0
    for name, colour, belongs in _KINDS:
        count = sum(map(belongs, holders))
        label = f"{name} {count}"
        shapes.append(f'<rect x="{x:.0f}" y="{top - 9}" width="9" height="9" fill="{colour}"/>')
        shapes.append(_text(x + 14, top, label))
        x += 34 + 6.5 * len(label)
    shapes.append(_text(x, top, f"free {sum(not holder for holder in holders)}"))
    title = f"bundles of the pool{f', {each} a square' if each > 1 else ''}"
    return _svg(top + 6, title, shapes)


def _cell(index: int, holders: Sequence[int]) -> str:
    x, y = _CELL * (index % _COLUMNS), _CELL * (index // _COLUMNS)
    counts = [sum(map(belongs, holders)) for _, _, belongs in _KINDS]
    held = sum(counts)
    place = f'x="{x + 0.5}" y="{y + 0.5}" width="8" height="8"'
    if not held:
        return f'<rect {place} fill="none" stroke="currentColor" stroke-opacity=".25"/>'
    colour = _KINDS[counts.index(max(counts))][1]
    return f'<rect {place} fill="{colour}" fill-opacity="{0.4 + 0.6 * held / len(holders):.2f}"/>'


def tree_picture(root: Branch) -> str:
    """Return the prefix tree: tokens to the right, a row for each end, dots for checkpoints."""
    longest = max(_ends(root))
    drawing = _Tree((_WIDTH - _TEXT - 12) / max(longest, 1))
    drawing.add(root, 6.0, 6.0)
    height = _ROW * min(max(drawing.rows, 1), _MAX_ROWS) + 8
    shapes = drawing.shapes
    if drawing.rows > _MAX_ROWS:
        height += _ROW
        shapes.append(_text(6, height - 8, f"and {drawing.rows - _MAX_ROWS} more ends"))
    return _svg(height, f"prefix tree, up to {longest} tokens", shapes)


def _ends(root: Branch) -> list[int]:
    """Return where every branch ends."""
    ends, todo = [], [root]
    while todo:
        branch = todo.pop()
        ends.append(branch.n_tokens)
        todo.extend(branch.branches)
    return ends


class _Tree:
    """Draws branches from top to bottom."""

    def __init__(self, scale: float) -> None:
        """Draw ``scale`` pixels for a token."""
        self.rows = 0
        self.shapes: list[str] = []
        self._scale = scale

    def add(self, root: Branch, x: float, y: float) -> None:
        """Draw a tree; a loop, since a chain may be deeper than Python calls go."""
        todo = [(root, x, y, False)]
        while todo:
            branch, x, y, goes_on = todo.pop()
            y_own = y if goes_on else self._begin_row()
            end = 6.0 + branch.n_tokens * self._scale
            if self.rows <= _MAX_ROWS:
                self._line(branch, x, y, end, y_own)
            for place, other in reversed(list(enumerate(branch.branches))):
                todo.append((other, end, y_own, place == 0))  # the first one in the same row

    def _begin_row(self) -> float:
        self.rows += 1
        return _ROW * self.rows - _ROW / 2 + 4

    def _line(self, branch: Branch, x: float, y: float, end: float, y_own: float) -> None:
        if branch.n_tokens:
            self.shapes.append(
                f'<path d="M{x:.1f} {y:.1f}V{y_own:.1f}H{end:.1f}" fill="none" '
                'stroke="currentColor" stroke-opacity=".5"/>'
            )
        label = f"{branch.n_tokens} tokens"
        if branch.uses is not None:
            label += f", found {branch.uses} times"
            self.shapes.append(
                f'<circle cx="{end:.1f}" cy="{y_own:.1f}" r="{4 + min(branch.uses, 4)}" '
                f'fill="{GREEN}"><title>{html.escape(f"{label}: {branch.text}")}</title></circle>'
            )
        if not branch.branches and branch.n_tokens:
            text = branch.text[:_LETTERS] + "…" * (len(branch.text) > _LETTERS)
            self.shapes.append(_text(end + 12, y_own + 4, f"{branch.n_tokens}: {text}"))


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def _svg(height: int, title: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'style="width:100%;max-width:{_WIDTH}px;display:block;margin:6px 0;overflow:visible" '
        f'font-size="11" fill="currentColor"><title>{html.escape(title)}</title>'
        f"{''.join(shapes)}</svg>"
    )
