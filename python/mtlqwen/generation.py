"""One generation: from the tokens in its mailbox to pieces of text and a result.

Knows the driver and the text rules; knows nothing of models, templates and files.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from mtlqwen.driver import Driver, stop_at_exit
from mtlqwen.mailbox import Bell, Logprob, Mailbox, Poll
from mtlqwen.request import Request
from mtlqwen.result import Completion, FinishReason, Piece, Speculation, Timings, Usage
from mtlqwen.stream import Transcript
from mtlqwen.structured import Parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What every result tells beside its text."""

    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    spec: Speculation
    logprobs: list[Logprob] | None  # one for each token
    prompt_ids: Sequence[int]
    prompt_logprobs: list[Logprob] | None  # one for each of these but the first


class Generation:
    """One sequence from submission to result, for any number of threads.

    The text is worked out from the tokens in the mailbox by whoever asks for it; where the text
    itself may end it, by the driver as well. A signal may interrupt that work: it leaves ``_torn``
    set, and the next one to ask begins again with the first token.
    """

    def __init__(
        self,
        driver: Driver,
        request: Request,
        make_transcript: Callable[[], Transcript],
        make_result: Callable[[Transcript, Facts], Completion],
        parse: Callable[[str, Facts], Parsed],
        *,
        watched: bool,
        constraint: object = None,
    ) -> None:
        """Prepare; `start` submits.

        Args:
            driver: runs the passes.
            request: what is asked of the core.
            make_transcript: returns an empty transcript.
            make_result: makes the result at the end, but for the value of its text.
            parse: makes that.
            watched: the text itself may end the sequence, so the driver must look at it.
            constraint: what holds the text, to be kept as long as it runs.
        """
        self.mailbox = Mailbox(with_logprobs=request.logprobs is not None)
        self.mailbox.constraint = constraint
        self._driver = driver
        self._request = request
        self._make_transcript = make_transcript
        self._make_result = make_result
        self._parse = parse
        self._parsed: list[Parsed] = []  # of the text that has ended, once a result was made
        self._lock = threading.Lock()  # guards all that follows
        self._torn = True
        self._transcript: Transcript
        self._pieces: list[Piece]
        self._n_taken: int  # tokens that the transcript has
        self._finish: FinishReason | None
        if watched:
            self.mailbox.bells.append(self)

    def start(self, owner: object) -> None:
        """Submit the sequence; it goes on as long as ``owner`` lives."""
        request = self._request
        self._driver.submit(self.mailbox, owner, request.token_ids, **request.options())

    def put(self, _: Mailbox, /) -> None:
        """Look for an end in the text: the driver rings this as a bell.

        It does not wait for a reader who is at the text already: that one may have been stopped by
        a signal whose handler closes the engine, and so waits for the driver.
        """
        held: list[bool] = []
        try:
            held.extend(map(self._lock.acquire, (False,)))  # see `Driver`
            if held == [True] and not self.mailbox.dropped and self.mailbox.error is None:
                self._update_locked()
        finally:
            if held == [True]:
                self._lock.release()

    def cancel(self) -> None:
        """End it; what came before stays readable."""
        if not self.mailbox.ended and not self.mailbox.dropped:
            self._driver.drop(self.mailbox)
            self.mailbox.ring()

    def finish_reason(self) -> FinishReason | None:
        """Return how it ended; None while it goes on, and when an error ended it."""
        self._driver.check_process()
        with self._lock:
            return self._update_locked()

    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason() is not None or self.mailbox.error is not None

    def peek(self, index: int) -> tuple[bool, Piece | None]:
        """Return whether it is known what piece ``index`` is, and that: None behind the last."""
        self._driver.check_process()
        failed = self.mailbox.error is not None  # before the update, which then sees all tokens
        with self._lock:
            finish = self._update_locked()
            if len(self._pieces) > index:
                return True, self._pieces[index]
            return finish is not None or failed, None

    def check(self) -> None:
        """Raise the error that ended the sequence, if one did."""
        error = self.mailbox.error
        if error is not None and self.finish_reason() is None:
            stop_at_exit()
            raise copy.copy(error)  # each reader's raise adds its own traceback

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready``, which news may bring about."""
        self._wait(self.mailbox.bells, ready, None)

    def wait_for_end(self, timeout: float | None) -> bool:
        """Wait until it has ended; False when ``timeout`` seconds have passed before."""
        return self._wait(self.mailbox.end_bells, self.ended, timeout)

    def _wait(self, bells: list[Bell], ready: Callable[[], bool], timeout: float | None) -> bool:
        if ready():
            return True
        end = None if timeout is None else time.monotonic() + timeout
        bell: SimpleQueue[Mailbox] = SimpleQueue()
        bells.append(bell)
        try:
            while not ready():
                left = None if end is None else end - time.monotonic()
                if self._driver.wait(bell, left) is None:
                    return ready()
            return True
        finally:
            bells.remove(bell)

    def result(self) -> Completion:
        """Return what was generated, finished or not."""
        self._driver.check_process()
        with self._lock:
            ended = self._update_locked()
            transcript, last = self._transcript, self.mailbox.last
            logprobs = self.mailbox.logprobs
            prompt_ids = self._request.token_ids
            # A text may end before its prompt has been computed.
            has_prompt = self._request.prompt_logprobs is not None and bool(transcript.token_ids)
            usage = Usage(
                prompt_tokens=len(prompt_ids),
                completion_tokens=len(transcript.token_ids),
                reasoning_tokens=transcript.reasoning_tokens,
                cached_tokens=last.cached_tokens if last else 0,
            )
            facts = Facts(
                token_ids=list(transcript.token_ids),
                finish_reason=ended or "cancelled",
                usage=usage,
                timings=_timings(last, len(transcript.token_ids)),
                spec=_speculation(self.mailbox, len(transcript.token_ids)),
                logprobs=None if logprobs is None else logprobs[: len(transcript.token_ids)],
                prompt_ids=prompt_ids,
                prompt_logprobs=list(self.mailbox.prompt_logprobs) if has_prompt else None,
            )
            result = self._make_result(transcript, facts)
        # Outside of the lock: the code of a caller's type may do anything.
        parsed = self._parsed[0] if self._parsed else self._parse(result.text, facts)
        if ended and not self._parsed:
            self._parsed.append(parsed)
        result.parsed, result.parse_problem = parsed.value, parsed.problem
        return result

    def _update_locked(self) -> FinishReason | None:
        """Work out the text so far and how it ended."""
        if self._torn:
            self._transcript, self._pieces = self._make_transcript(), []
            self._n_taken, self._finish = 0, None
        self._torn = True
        if self._finish is None:
            self._advance_locked()
        self._torn = False
        return self._finish

    def _advance_locked(self) -> None:
        mailbox, transcript = self.mailbox, self._transcript
        # Both before the tokens: an end must not be seen without the tokens before it.
        dropped, reason = mailbox.dropped, mailbox.finish_reason
        fresh = mailbox.tokens[self._n_taken :]
        self._n_taken += len(fresh)
        self._pieces += transcript.feed(fresh)
        if transcript.stopped or transcript.looping:
            self._pieces += transcript.finish()
            self._finish = "stop" if transcript.stopped else "repetition"
            if not mailbox.ended:
                self._driver.drop(mailbox)
        elif reason is not None or dropped:
            self._pieces += transcript.finish()
            self._finish = _finish_reason(reason or "cancelled")


def _finish_reason(word: str) -> FinishReason:
    if word in ("stop", "length", "cancelled", "deadline"):
        return word  # type: ignore[return-value]
    raise RuntimeError(f"[engine] finish reason: unknown (got {word})")


def _timings(poll: Poll | None, n_tokens: int) -> Timings:
    """Return the times of ``n_tokens``: a draft may have given more, behind a stop string."""
    if poll is None:
        return Timings(ttft_s=0.0, prefill_tps=0.0, decode_tps=0.0)
    computed = poll.prompt_tokens - poll.cached_tokens
    prefill_tps = computed / poll.prefill_s if poll.prefill_s > 0 else 0.0
    after_first = max(n_tokens - 1, 0)
    decode_tps = after_first / poll.decode_s if poll.decode_s > 0 else 0.0
    return Timings(ttft_s=poll.ttft_s, prefill_tps=prefill_tps, decode_tps=decode_tps)


def _speculation(mailbox: Mailbox, n_tokens: int) -> Speculation:
    poll = mailbox.last
    if poll is None:
        return Speculation()
    return Speculation(
        drafter=poll.drafter,
        passes=poll.draft_passes,
        drafted=poll.drafted_tokens,
        accepted=poll.accepted_tokens,
        positions=_accepted_positions(list(mailbox.accepted.items()), n_tokens),
    )


def _accepted_positions(
    reports: Sequence[tuple[int, tuple[int, int]]], n_tokens: int
) -> tuple[int, ...]:
    """Return which of the first ``n_tokens`` tokens were drafted.

    A report comes after every pass, whose tokens are those of its draft that held, and one more.
    Where there are more (a signal kept a report back, or a budget of reasoning ended it), it is not
    known which these were, and none counts.
    """
    positions: list[int] = []
    before = 0
    for start, (n_new, total) in reports:
        accepted, before = total - before, total
        if n_new <= accepted + 1:
            positions.extend(range(start, min(start + min(accepted, n_new), n_tokens)))
    return tuple(positions)
