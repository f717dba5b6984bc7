"""The readers of `reader` for asyncio: the driver wakes the event loop, no thread waits.

Imported when first used, so that programs without asyncio do not load it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType

from mtlqwen.driver import Driver
from mtlqwen.generation import Generation
from mtlqwen.mailbox import Mailbox
from mtlqwen.reader import AtEnd, Handle
from mtlqwen.result import Completion, Piece


class LoopBell:
    """A bell that a coroutine of the running event loop waits for."""

    def __init__(self) -> None:
        """Take the running loop."""
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._rung: deque[Mailbox] = deque()
        self._called = False  # the loop has been asked to wake the coroutine

    def put(self, mailbox: Mailbox, /) -> None:
        """Wake the coroutine, from any thread."""
        self._rung.append(mailbox)
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop was closed; its tasks must not be kept by their bells
                with contextlib.suppress(ValueError):
                    mailbox.bells.remove(self)

    async def get(self) -> Mailbox:
        """Return the next mailbox that rings."""
        while not self._rung:
            await self._event.wait()
            self._event.clear()
        return self._rung.popleft()

    def _wake(self) -> None:
        self._called = False
        self._event.set()


async def wait(driver: Driver, generation: Generation, ready: Callable[[], bool]) -> None:
    """Wait until ``ready``, which news of a generation may bring about."""
    if ready():
        return
    bell = LoopBell()
    generation.mailbox.bells.append(bell)
    try:
        while not ready():
            await bell.get()
            driver.check_process()
    finally:
        generation.mailbox.bells.remove(bell)


async def collect(driver: Driver, generations: Sequence[Generation]) -> list[Completion]:
    """Run generations together, as `reader.collect` does; a cancelled task ends them."""
    bell = LoopBell()
    running: dict[Mailbox, Generation] = {}
    handles: list[Handle] = []  # the generations end with this frame, whatever happens
    try:
        for generation in generations:
            running[generation.mailbox] = generation
            generation.mailbox.bells.append(bell)
            handles.append(Handle(generation, driver, None))
        while running:
            mailbox = await bell.get()
            if mailbox in running and running[mailbox].ended():
                running.pop(mailbox).check()
    finally:
        for generation in generations:
            generation.cancel()
    return [generation.result() for generation in generations]


class AsyncStream(AsyncIterator[Piece]):
    """The pieces of one generation as they come; an asynchronous iterator for one task.

    Dropping it, ``aclose`` and leaving its ``async with`` block cancel what is left of the
    generation, and so does the cancellation of a task that waits for it.

    Example:
        >>> import asyncio
        >>> from mtlqwen import Engine
        >>> async def main(engine):
        ...     stream = engine.astream("Once upon a time", max_tokens=8)
        ...     text = "".join([piece async for piece in stream])
        ...     return text == (await stream.result()).text
        >>> with Engine("tiny") as engine:
        ...     asyncio.run(main(engine))
        True
    """

    def __init__(
        self, generation: Generation, driver: Driver, owner: object, at_end: AtEnd | None = None
    ) -> None:
        """Start ``generation``; ``owner`` (the engine) stays alive as long as the stream.

        ``at_end`` is called when nothing more will be read.
        """
        self._generation = generation
        self._at_end = at_end
        self._driver = driver
        self._handle = Handle(generation, driver, owner)
        self._next = 0
        self._closed = False

    def __aiter__(self) -> AsyncStream:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Piece:
        """Return the next piece when it is there.

        Raises:
            StopAsyncIteration: the generation has ended.
            MtlqwenError: it failed.
            RuntimeError: the engine was closed.
        """
        if self._closed:
            raise StopAsyncIteration
        generation = self._generation
        try:
            await wait(self._driver, generation, lambda: generation.peek(self._next)[0])
            _, piece = generation.peek(self._next)
            if piece is None:
                generation.check()
                raise StopAsyncIteration
            self._next += 1
            return piece
        except BaseException as error:
            self._end(isinstance(error, StopAsyncIteration))
            raise

    async def result(self) -> Completion:
        """Read what is left and return the whole generation (a `ChatResult` for a chat)."""
        async for _ in self:
            pass
        return self._generation.result()

    async def aclose(self) -> None:
        """Cancel what is left of the generation; its slot is free within a step."""
        self._end(False)

    def _end(self, finished: bool) -> None:
        self._closed = True
        self._generation.cancel()
        if self._at_end is not None:
            self._at_end(finished)

    async def __aenter__(self) -> AsyncStream:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the stream."""
        await self.aclose()
