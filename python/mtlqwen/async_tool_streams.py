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
        try:
            while not self._results:
                piece = await anext(self._stream, None)
                if piece is not None:
                    return piece
                await self._next_round()
            return self._results.popleft()
        except BaseException:
            await self.aclose()
            raise

    async def _next_round(self) -> None:
        last = await self._stream.result()
        turn = None if self._closed else self._rounds.more(last)
        texts = [] if turn is None else await self._rounds.runs.arun(turn.tool_calls)
        if turn is None or self._closed:
            raise StopAsyncIteration
        added = self._rounds.after(turn, texts)
        self._stream = self._begin(added)
        self._rounds.added = added
        self._results.extend(Piece(text, [], "tool_result") for text in texts)

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
