"""One generation seen from its caller: news of the core in, pieces of text and a result out.

Knows the driver and the text rules; knows nothing of models, templates and files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType

from mtlqwen.driver import Driver, Inbox, News, Poll
from mtlqwen.result import Completion, FinishReason, Piece, Timings, Usage
from mtlqwen.stream import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is handed to the core, checked."""

    token_ids: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    stop_ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What every result tells beside its text."""

    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings


class Generation:
    """One sequence from submission to result; one thread at a time."""

    def __init__(
        self,
        driver: Driver,
        request: Request,
        transcript: Transcript,
        make_result: Callable[[Transcript, Facts], Completion],
    ) -> None:
        """Prepare; `start` submits."""
        self._driver = driver
        self._request = request
        self._transcript = transcript
        self._make_result = make_result
        self._sequence: int | None = None  # while the driver knows it
        self._last: Poll | None = None
        self._finish: FinishReason | None = None

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._finish is not None

    def start(self, inbox: Inbox) -> int:
        """Submit the sequence; its news go to ``inbox``. Returns the sequence id."""
        request = self._request
        self._sequence = self._driver.submit(
            inbox,
            request.token_ids,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            stop_ids=request.stop_ids,
        )
        return self._sequence

    def take(self, news: Poll | BaseException) -> list[Piece]:
        """Take news in and return the pieces that they bring.

        Raises:
            BaseException: the error that ended the sequence.
        """
        if isinstance(news, BaseException):
            self._sequence, self._finish = None, "cancelled"
            raise news
        self._last = news
        pieces = self._transcript.feed(news.token_ids)
        if news.finish_reason is not None:
            self._sequence = None
            pieces += self._transcript.finish()
            self._finish = _finish_reason(news.finish_reason)
        if self._transcript.stopped:
            self.drop()
            self._finish = "stop"
        return pieces

    def drop(self) -> None:
        """Cancel what is left of it; what came before stays readable in the result."""
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            self._driver.drop(sequence)
        if self._finish is None:
            self._finish = "cancelled"

    def result(self) -> Completion:
        """Return what was generated, finished or not."""
        transcript, last = self._transcript, self._last
        usage = Usage(
            prompt_tokens=len(self._request.token_ids),
            completion_tokens=len(transcript.token_ids),
            reasoning_tokens=transcript.reasoning_tokens,
        )
        facts = Facts(
            token_ids=transcript.token_ids,
            finish_reason=self._finish or "cancelled",
            usage=usage,
            timings=_timings(last),
        )
        return self._make_result(transcript, facts)


class Stream(Iterator[Piece]):
    """The pieces of one generation as they come; an iterator.

    Dropping it, closing it or leaving its ``with`` block cancels what is left of the generation.

    Example:
        >>> from mtlqwen import Engine
        >>> with Engine("tiny") as engine:
        ...     stream = engine.stream("Once upon a time", max_tokens=8)
        ...     text = "".join(stream)
        >>> text == stream.result().text
        True
    """

    def __init__(self, generation: Generation, driver: Driver, owner: object) -> None:
        """Start ``generation``; ``owner`` (the engine) stays alive as long as the stream."""
        self._generation = generation
        self._driver = driver
        self._owner = owner
        self._inbox: SimpleQueue[News] = SimpleQueue()
        self._ready: deque[Piece] = deque()
        generation.start(self._inbox)

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
        try:
            while not self._ready:
                if self._generation.done:
                    raise StopIteration
                _, news = self._driver.wait(self._inbox)
                self._ready += self._generation.take(news)
            return self._ready.popleft()
        except BaseException:
            self._generation.drop()
            raise

    def result(self) -> Completion:
        """Read what is left and return the whole generation (a `ChatResult` for a chat)."""
        for _ in self:
            pass
        return self._generation.result()

    def close(self) -> None:
        """Cancel what is left of the generation; its slot is free within a step."""
        self._generation.drop()
        self._ready.clear()

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

    def __del__(self) -> None:
        """Cancel a stream that nobody reads any more."""
        if hasattr(self, "_generation"):
            self._generation.drop()


def collect(driver: Driver, generations: Sequence[Generation]) -> list[Completion]:
    """Run generations together and return their results in order; on an error none goes on."""
    inbox: SimpleQueue[News] = SimpleQueue()
    running: dict[int, Generation] = {}
    try:
        for generation in generations:
            running[generation.start(inbox)] = generation
        while running:
            sequence, news = driver.wait(inbox)
            if sequence not in running:
                continue  # it had ended by a stop string; this came before the driver knew
            running[sequence].take(news)
            if running[sequence].done:
                del running[sequence]
    finally:
        for generation in generations:
            generation.drop()
    return [generation.result() for generation in generations]


def _finish_reason(word: str) -> FinishReason:
    if word in ("stop", "length", "cancelled"):
        return word  # type: ignore[return-value]
    raise RuntimeError(f"[engine] finish reason: unknown (got {word})")


def _timings(poll: Poll | None) -> Timings:
    if poll is None:
        return Timings(ttft_s=0.0, prefill_tps=0.0, decode_tps=0.0)
    prefill_tps = poll.prompt_tokens / poll.prefill_s if poll.prefill_s > 0 else 0.0
    after_first = max(poll.completion_tokens - 1, 0)
    decode_tps = after_first / poll.decode_s if poll.decode_s > 0 else 0.0
    return Timings(ttft_s=poll.ttft_s, prefill_tps=prefill_tps, decode_tps=decode_tps)
