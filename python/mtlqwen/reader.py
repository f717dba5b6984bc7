"""Generations as callers hold them: handles, streams, results of a whole list.

Knows nothing of text rules, models, templates and files.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeAlias

from mtlqwen.driver import Driver
from mtlqwen.generation import Generation
from mtlqwen.mailbox import Mailbox
from mtlqwen.result import Completion, FinishReason, Piece

# Called with whether the text was read to its end; what was cancelled on the way counts as well.
AtEnd: TypeAlias = Callable[[bool], None]


class Handle:
    """A generation that runs in the background, as `Engine.submit` returns it.

    All of it may be used from any thread, by many at once. Iterating gives the pieces from the
    first one on, each time; ``await handle`` gives the result in asyncio. A handle that nobody
    holds any more cancels its generation; a timeout or an interrupt while waiting does not.

    Example:
        >>> from mtlqwen import Engine
        >>> with Engine("tiny") as engine:
        ...     handle = engine.submit("Once upon a time", max_tokens=8, priority=1)
        ...     text = "".join(handle)
        >>> text == handle.result().text
        True
    """

    def __init__(self, generation: Generation, driver: Driver, owner: object) -> None:
        """Start ``generation``; ``owner`` (the engine) stays alive as long as the handle."""
        self._generation = generation
        self._driver = driver
        self._owner = owner
        generation.start(self)

    def __iter__(self) -> Iterator[Piece]:
        """Return an iterator over all pieces, which waits for those that are still to come.

        Raises:
            MtlqwenError: the generation failed.
            RuntimeError: the engine was closed.
        """
        return Pieces(self)

    def __await__(self) -> Generator[Any, None, Completion]:
        """Return the result when it is there."""
        from mtlqwen.areader import wait

        yield from wait(self._driver, self._generation, self._generation.ended).__await__()
        self._generation.check()
        return self._generation.result()

    def result(self, timeout: float | None = None) -> Completion:
        """Return the whole generation (a `ChatResult` for messages), waiting for its end.

        Args:
            timeout: seconds to wait at most. Unset: as long as it takes.

        Raises:
            TimeoutError: it has not ended in time; it goes on.
            MtlqwenError: it failed.
            RuntimeError: the engine was closed.
        """
        if not self._generation.wait_for_end(timeout):
            raise TimeoutError(
                f"[engine] result: not there in time (waited {timeout} s); the generation goes on, "
                "cancel() ends it"
            )
        self._generation.check()
        return self._generation.result()

    def cancel(self) -> None:
        """End the generation; its slot is free within a step. What it said so far is its result."""
        self._generation.cancel()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._generation.ended()

    @property
    def finish_reason(self) -> FinishReason | None:
        """How it ended, as in its result; None while it goes on, and when it failed."""
        if self._generation.finish_reason() is None:
            return None
        return self._generation.result().finish_reason

    def __repr__(self) -> str:
        """Return its state in a line."""
        error = self._generation.mailbox.error
        state = self.finish_reason or ("running" if error is None else type(error).__name__)
        return f"Handle({state}, {len(self._generation.mailbox.tokens)} tokens)"


class Pieces(Iterator[Piece]):
    """The pieces of a handle, from the first one on.

    No generator: the end of one runs Python code, and a signal that comes then would be lost.
    """

    def __init__(self, handle: Handle) -> None:
        """Keep ``handle`` alive."""
        self._handle = handle
        self._next = 0

    def __next__(self) -> Piece:
        """Return the next piece, waiting for it."""
        generation, index = self._handle._generation, self._next
        generation.wait(lambda: generation.peek(index)[0])
        _, piece = generation.peek(index)
        if piece is None:
            generation.check()
            raise StopIteration
        self._next = index + 1
        return piece


class Stream(Iterator[Piece]):
    """The pieces of one generation as they come; an iterator for one thread.

    Dropping it, closing it or leaving its ``with`` block cancels what is left of the generation,
    and so does an interrupt while it waits.

    Example:
        >>> from mtlqwen import Engine
        >>> with Engine("tiny") as engine:
        ...     stream = engine.stream("Once upon a time", max_tokens=8)
        ...     text = "".join(stream)
        >>> text == stream.result().text
        True
    """

    def __init__(
        self, generation: Generation, driver: Driver, owner: object, at_end: AtEnd | None = None
    ) -> None:
        """Start ``generation``; ``owner`` (the engine) stays alive as long as the stream.

        ``at_end`` is called when nothing more will be read.
        """
        self._generation = generation
        self._owner = owner
        self._at_end = at_end
        self._pieces = Pieces(Handle(generation, driver, owner))
        self._closed = False

    def __iter__(self) -> Stream:
        """Return the stream itself."""
        return self

    def __next__(self) -> Piece:
        """Return the next piece, waiting for it.

        Raises:
            StopIteration: the generation has ended.
            MtlqwenError: it failed.
            RuntimeError: the engine was closed.
        """
        if self._closed:
            raise StopIteration
        try:
            return next(self._pieces)
        except BaseException as error:
            self._generation.cancel()
            if self._at_end is not None:
                self._at_end(isinstance(error, StopIteration))
            raise

    def result(self) -> Completion:
        """Read what is left and return the whole generation (a `ChatResult` for a chat)."""
        for _ in self:
            pass
        return self._generation.result()

    def show(self, *, markdown: bool = True) -> Completion:
        """Show the text as it comes, in a notebook's cell or else on stdout; return the result.

        Args:
            markdown: whether a notebook takes the text for Markdown, as chats write it.
        """
        from mtlqwen.cell import show

        return show(self, is_markdown=markdown)

    def close(self) -> None:
        """Cancel what is left of the generation; its slot is free within a step."""
        self._closed = True
        self._generation.cancel()
        if self._at_end is not None:
            self._at_end(False)

    def __enter__(self) -> Stream:
        """Return the stream itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the stream."""
        self.close()


def collect(driver: Driver, generations: Sequence[Generation]) -> list[Completion]:
    """Run generations together and return their results in order; on an error none goes on."""
    bell: SimpleQueue[Mailbox] = SimpleQueue()
    running: dict[Mailbox, Generation] = {}
    handles: list[Handle] = []  # the generations end with this frame, whatever happens
    try:
        for generation in generations:
            running[generation.mailbox] = generation
            generation.mailbox.end_bells.append(bell)
            handles.append(Handle(generation, driver, None))
        while running:
            mailbox = driver.wait(bell)
            if mailbox in running and running[mailbox].ended():
                running.pop(mailbox).check()
    finally:
        for generation in generations:
            generation.cancel()
    return [generation.result() for generation in generations]
