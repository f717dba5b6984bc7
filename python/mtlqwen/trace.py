"""Traces of an engine: what it did and when, for a trace viewer. See docs/tracing.md."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from mtlqwen.driver import Core


class Trace:
    """A trace that is being written; `Engine.trace` starts one.

    Use it in a ``with`` block, or call `stop`. The engine's `close` completes the file as well.

    Attributes:
        path: the file, for https://ui.perfetto.dev or chrome://tracing.
    """

    def __init__(self, core: Core, path: str | Path) -> None:
        """Start writing; see `Engine.trace`."""
        self.path = Path(path)
        with self.path.open("ab"):
            pass  # an OSError says better than the core why a path cannot be written
        self._core: Core | None = core
        core.start_trace(str(self.path))

    def stop(self) -> None:
        """Complete the file. Passes that end later are not in it; a second call does nothing.

        Raises:
            OSError: not all could be written; what the file holds still loads.
        """
        core, self._core = self._core, None
        if core is not None and not core.stop_trace():
            raise OSError(f"[trace] {self.path}: could not be written whole; is the disk full?")

    def __enter__(self) -> Trace:
        """Return the trace itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()
