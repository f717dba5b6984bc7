"""Chats that run their tools: rounds of one turn and its tools' results, as one stream.

Knows nothing of models, templates and files.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from mtlqwen.checks import check_flag, check_integer
from mtlqwen.messages import Tools
from mtlqwen.prepare import MIN_DEADLINE, Terms
from mtlqwen.reader import Stream
from mtlqwen.result import ChatResult, Completion, Piece
from mtlqwen.tool_runs import ToolRuns

Message: TypeAlias = dict[str, Any]

MAX_ROUNDS = 8  # unless the caller says


class Rounds:
    """What the rounds so far have added to a conversation."""

    def __init__(self, runs: ToolRuns, max_rounds: int, terms: Terms) -> None:
        """Begin the first round; ``terms`` are those of all together."""
        self.runs = runs
        self.added: list[Message] = []
        self._left = max_rounds
        self._terms = terms
        seconds = terms.deadline_s
        self._end = None if seconds is None else time.monotonic() + seconds

    def more(self, result: Completion) -> ChatResult | None:
        """Return the turn whose tools are to be run, unless it is the last."""
        late = self._end is not None and time.monotonic() >= self._end
        if late or self._left == 0 or result.finish_reason != "tool_calls":
            return None
        assert isinstance(result, ChatResult)
        self._left -= 1
        return result

    def after(self, turn: ChatResult, results: Sequence[str]) -> list[Message]:
        """Return what is added when a turn and its tools' results are."""
        told = [{"role": "tool", "content": result} for result in results]
        return [*self.added, turn.message, *told]

    @property
    def terms(self) -> Terms:
        """The terms of the next round, which has the time that is left."""
        if self._end is None:
            return self._terms
        return replace(self._terms, deadline_s=max(self._end - time.monotonic(), MIN_DEADLINE))

    def whole(self, result: Completion) -> Completion:
        """Return the last turn, which knows of the rounds before it."""
        assert isinstance(result, ChatResult)
        result.rounds = list(self.added)
        return result


def make_rounds(
    tools: Tools | None, run_tools: bool, max_rounds: int | None, terms: Terms
) -> Rounds | None:
    """Return the rounds of a chat that runs its tools; None of one that does not.

    Raises:
        TypeError, ValueError: an argument is wrong, or there is nothing to run.
    """
    check_flag("chat", "run_tools", run_tools)
    if not run_tools:
        if max_rounds is not None:
            raise ValueError("[chat] max_rounds: only with run_tools=True")
        return None
    rounds = MAX_ROUNDS if max_rounds is None else max_rounds
    return Rounds(ToolRuns(tools), check_integer("chat", "max_rounds", rounds, 1, 2**31 - 1), terms)


class ToolStream(Stream):
    """A `Stream` over all rounds; what tools return are pieces of the kind ``tool_result``."""

    def __init__(self, rounds: Rounds, begin: Callable[[list[Message]], Stream]) -> None:
        """Begin the first round; ``begin`` gets the messages that the rounds before have added."""
        self._rounds = rounds
        self._begin = begin
        self._stream = begin([])
        self._results: deque[Piece] = deque()
        self._closed = False

    def __next__(self) -> Piece:
        """Return the next piece, waiting for it, and for tools."""
        try:
            while not self._results:
                piece = next(self._stream, None)
                if piece is not None:
                    return piece
                self._next_round()
            return self._results.popleft()
        except BaseException:
            self.close()  # or the next call would run the tools of the round again
            raise

    def _next_round(self) -> None:
        turn = None if self._closed else self._rounds.more(self._stream.result())
        texts = [] if turn is None else self._rounds.runs.run(turn.tool_calls)
        if turn is None or self._closed:  # by a tool, or while it ran
            raise StopIteration
        added = self._rounds.after(turn, texts)
        self._stream = self._begin(added)
        self._rounds.added = added
        self._results.extend(Piece(text, [], "tool_result") for text in texts)

    def result(self) -> Completion:
        """Read what is left and return the last turn; its ``messages`` have all rounds."""
        for _ in self:
            pass
        return self._rounds.whole(self._stream.result())

    def close(self) -> None:
        """Cancel what is left of the round; no other one begins."""
        self._closed = True
        self._results.clear()
        self._stream.close()
