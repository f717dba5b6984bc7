"""Tokens in, pieces of text out: whole characters, no stop string, each piece of one kind.

What a text is cut into does not depend on how many tokens arrive at a time: every token is taken
by itself. `parts` knows what is of which kind. Knows nothing of engines and threads.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

from mtlqwen.call_reader import Part
from mtlqwen.call_tags import SIGNS
from mtlqwen.loops import LoopDetector
from mtlqwen.parts import PartReader
from mtlqwen.result import Kind, Piece, ToolCall
from mtlqwen.tool_calls import CallTypes

# Added tokens that change the kind of what follows them.
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class StopMatcher:
    """Finds the first stop string in a growing text and holds back what may begin one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Look for ``stops``; none of them is empty."""
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Return what is safe to show after ``text`` arrived; sets ``stopped`` at a stop string.

        The stop string that is complete first wins, and of two that end together the longer one.
        """
        if not self._stops or not text:
            return text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return what was held back: the text has ended, so no stop string began there."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Return the length of the longest end of ``text`` that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class Transcript:
    """What one sequence has said so far.

    In a chat the marks (``<think>``, ``<tool_call>``) cut the text into kinds and do not show,
    where they are not written about; newlines around each part do not show either. Without a chat
    all is ``text``, marks included.

    Attributes:
        token_ids: every token taken in, up to the one that completed a stop string.
        calls: the tool calls that are complete.
        reasoning_tokens: how many tokens came while the kind was reasoning.
        stopped: a stop string has ended the text.
        looping: repeats have ended it.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        *,
        stop: tuple[str, ...] = (),
        min_tokens: int = 0,
        repeat_limit: int | None = None,
        marks: dict[int, str] | None = None,
        kind: Kind = "text",
        types: CallTypes | None = None,
    ) -> None:
        """Start empty.

        Args:
            token_bytes: the bytes that a token adds to the text.
            stop: stop strings, looked for in ``text`` only.
            min_tokens: so many tokens come before the first in which they are looked for.
            repeat_limit: see `LoopDetector`; all tokens count, of whatever kind.
            marks: token id -> one of `MARKS`; given for a chat.
            kind: the kind that the prompt leaves open.
            types: the tools that may be called.
        """
        self._token_bytes = token_bytes
        self._signs = {token_id: SIGNS[mark] for token_id, mark in (marks or {}).items()}
        self._reader = None if marks is None else PartReader(kind, types or CallTypes())
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = StopMatcher(stop)
        self._min_tokens = min_tokens
        self._loops = None if repeat_limit is None else LoopDetector(repeat_limit)
        self._kind: Kind = kind
        self._pending: list[int] = []  # tokens whose text has not been shown
        self._newlines = ""  # held back: the end of a part does not show its newlines
        self._gap: dict[Kind, str] = {}  # what separates the next part of a kind from the last one
        self._begun = False  # the current part has had more than newlines
        self._empty = True  # the current part has shown nothing yet
        self._parts: dict[Kind, list[str]] = {"text": [], "reasoning": [], "tool_call": []}
        self.token_ids: list[int] = []
        self._undecided = 0  # tokens whose kind what follows will tell
        self.calls: list[ToolCall] = []
        self.reasoning_tokens = 0
        self.looping = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text; tokens after it are not taken in."""
        return self._stop.stopped

    def text(self, kind: Kind = "text") -> str:
        """Return all shown text of one kind."""
        return "".join(self._parts[kind])

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Take tokens in and return the pieces that can be shown now."""
        pieces: list[Piece] = []
        for token_id in token_ids:
            if self.stopped or self.looping:
                break
            self.token_ids.append(token_id)
            self._pending.append(token_id)
            pieces += self._read(token_id)
            self.looping = self._loops is not None and self._loops.feed(token_id)
        return pieces

    def finish(self) -> list[Piece]:
        """Return the last pieces; an unfinished character becomes U+FFFD."""
        if self.stopped:
            return []
        pieces: list[Piece] = []
        if self._reader is not None:
            rest = self._utf8.decode(b"", final=True)
            pieces = self._show_parts([*self._reader.feed(rest), *self._reader.finish()])
            self.reasoning_tokens += self._undecided * (self._kind == "reasoning")
        return pieces + self._end_part()

    def _read(self, token_id: int) -> list[Piece]:
        """Take one token in."""
        sign, reader = self._signs.get(token_id), self._reader
        if sign is None:
            text = self._utf8.decode(self._token_bytes(token_id))
        else:
            text = self._utf8.decode(b"", final=True) + sign
            self._utf8.reset()
        if reader is None:
            return self._show(text)
        before = reader.kind
        pieces = self._show_parts(reader.feed(text))
        if reader.undecided:
            self._undecided += 1
        elif self._undecided:
            waited, self._undecided = self._undecided + 1, 0
            after = reader.kind
            # The mark that ended the reasoning belongs to it.
            ended = before == "reasoning" and after == "text"
            self.reasoning_tokens += ended or waited * (after == "reasoning")
        else:
            self.reasoning_tokens += before == "reasoning"
        return pieces

    def _show_parts(self, parts: Iterable[Part]) -> list[Piece]:
        pieces: list[Piece] = []
        for part in parts:
            if self.stopped:
                break
            if part.starts:
                pieces += self._end_part()
                self._kind, self._begun, self._empty = part.kind, False, True
            shown = self._show(part.text)
            if part.call is not None:
                self.calls.append(part.call)
                shown = shown or [self._piece("")]
                shown[-1].tool_call = part.call
            pieces += shown
        return pieces

    def _end_part(self) -> list[Piece]:
        pieces = self._show(self._utf8.decode(b"", final=True))
        if not self.stopped and self._kind == "text":
            pieces += self._emit(self._stop.flush())
        if not self._empty:
            self._gap[self._kind] = self._newlines or "\n"
        self._newlines = ""
        return pieces

    def _show(self, text: str) -> list[Piece]:
        if self._reader is not None and not self._begun:
            text = text.lstrip("\n")
            self._begun = bool(text)
        if self._kind == "text" and len(self.token_ids) > self._min_tokens:
            text = self._stop.feed(text)
        return self._emit(text)

    def _emit(self, text: str) -> list[Piece]:
        if self._reader is not None and text:
            text = self._newlines + text
            shown = text.rstrip("\n")
            self._newlines = text[len(shown) :]
            text = shown
        if not text:
            return []
        if self._empty:
            text = self._gap.pop(self._kind, "") + text
            self._empty = False
        self._parts[self._kind].append(text)
        return [self._piece(text)]

    def _piece(self, text: str) -> Piece:
        piece = Piece(text, self._pending, self._kind)
        self._pending = []
        return piece
