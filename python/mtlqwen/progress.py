"""Shows how far the loading of a model is: on a terminal or in a notebook, elsewhere if asked.

Knows how to draw one line; knows nothing of what is loaded.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TextIO, TypeAlias

# Called with (stage, done, total), bytes for "download" and "convert"; done == total ends a stage.
Progress: TypeAlias = Callable[[str, int, int], None]

_WIDTH = 24  # characters of the bar


def make_progress(progress: Progress | bool | None) -> Progress | None:
    """Return what is to be called: the caller's own function, a drawn line, or nothing.

    Raises:
        TypeError: it is neither callable nor a bool nor None.
    """
    if progress is None:
        progress = is_terminal(sys.stderr) or in_notebook()
    if isinstance(progress, bool):
        return _drawn() if progress else None
    if not callable(progress):
        raise TypeError(f"[engine] progress: not callable and no bool (got {progress!r})")
    return progress


def in_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel, which can show HTML and redraw it.

    IPython is not imported here: a kernel has done so.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _drawn() -> Progress:
    if not in_notebook():
        return Line(sys.stderr)
    from mtlqwen.cell import CellBar

    return CellBar()


class Line:
    """One line that is redrawn in place on a terminal; a line for each stage elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on ``stream``."""
        self._stream = stream
        self._redraws = is_terminal(stream)
        self._shown = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of a stage is done."""
        ended = done >= total
        if self._redraws:
            columns = max(shutil.get_terminal_size().columns - 1, 1)
            filled = _WIDTH * done // total if total > 0 else _WIDTH
            amount = f"{done}/{total}"
            if stage in ("download", "convert"):
                amount = f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"
            text = f"{stage:<10} {'#' * filled}{'.' * (_WIDTH - filled)} {amount}"[:columns]
            self._write("\r" + text.ljust(min(len(self._shown), columns)))
            self._shown = text
            if ended:
                self._write("\r" + " " * len(text) + "\r")
                self._shown = ""
        elif ended:
            self._write(f"{stage}: done\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._redraws = False  # a closed pipe must not stop the loading


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees what is written to ``stream``."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
