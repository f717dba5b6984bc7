"""Tells code from prose in a text that grows: fences, and backticks within a line.

Knows nothing of models.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class CodeLines:
    """A growing text; its lines are looked at only when somebody asks.

    Attributes:
        line: the last line, without its end.
        fence: the fence of the code block that is open, or ``""``.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._unseen: list[str] = []
        self.line = ""
        self.fence = ""

    def add(self, text: str) -> None:
        """Take more of the text in."""
        self._unseen.append(text)

    def look(self) -> CodeLines:
        """Bring `line` and `fence` up to date."""
        if self._unseen:
            *lines, self.line = (self.line + "".join(self._unseen)).split("\n")
            self._unseen = []
            for line in lines:
                self._end_line(line)
        return self

    def closes(self, line: str) -> bool:
        """Whether ``line`` is the end of the code block that is open."""
        fence = _FENCE.fullmatch(line)
        return bool(fence and fence[1].startswith(self.fence) and not fence[2].strip())

    @property
    def inline(self) -> bool:
        """Whether the last line has opened code that it has not closed."""
        return self.line.count("`") % 2 == 1

    def _end_line(self, line: str) -> None:
        if self.fence:
            self.fence = "" if self.closes(line) else self.fence
            return
        fence = _FENCE.fullmatch(line)
        # A backtick behind backticks makes them code within a line.
        if fence and not (fence[1][0] == "`" and "`" in fence[2]):
            self.fence = fence[1]
