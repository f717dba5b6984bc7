"""The twin of `tool_streams` in asyncio; imported when first used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mtlqwen.areader import AsyncStream
from mtlqwen.result import Completion, Piece
from mtlqwen.tool_streams import Message, Rounds


class AsyncToolStream(AsyncStream):
    """`ToolStream` in asyncio; the tools of a round run together."""

    def __init__(self, rounds: Rounds, begin: Callable[[list[Message]], AsyncStream]) -> None:
        """Begin the first round, as `ToolStream`."""
        self._rounds = rounds
        self._begin = begin
        self._stream = begin([])
        self._results: deque[Piece] = deque()
        self._closed = False

    async def __anext__(self) -> Piece:
        """Return the next piece when it is there."""
        while not self._results:
            try:
                return await anext(self._stream)
            except StopAsyncIteration:
                last = await self._stream.result()
                turn = None if self._closed else self._rounds.more(last)
                if turn is None:
                    raise
                texts = await self._rounds.runs.arun(turn.tool_calls)
                self._results.extend(self._rounds.add(turn, texts))
                self._stream = self._begin(self._rounds.added)
        return self._results.popleft()

    async def result(self) -> Completion:
        """Read what is left and return the last turn; its ``messages`` have all rounds."""
        async for _ in self:
            pass
        return self._rounds.whole(await self._stream.result())

    async def aclose(self) -> None:
        """Cancel what is left of the round; no other one begins."""
        self._closed = True
        self._results.clear()
        await self._stream.aclose()
