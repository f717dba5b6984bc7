"""Where the driver leaves the news of one sequence, and how a reader hears of them.

A signal may part any two lines of the main thread, so what matters is in the state, never in a
message: tokens stand at their own positions, a dropped reader is one whose mark is set or whose
owner is gone, and a bell says no more than "look again".
Knows nothing of text.
"""

from __future__ import annotations

import weakref
from typing import Protocol, TypeAlias

Logprob: TypeAlias = tuple[float, list[tuple[int, float]]]


class Poll(Protocol):
    """What the core reports about one sequence."""

    @property
    def token_ids(self) -> list[int]: ...  # noqa: D102
    @property
    def finish_reason(self) -> str | None: ...  # noqa: D102
    @property
    def ttft_s(self) -> float: ...  # noqa: D102
    @property
    def prefill_s(self) -> float: ...  # noqa: D102
    @property
    def decode_s(self) -> float: ...  # noqa: D102
    @property
    def prompt_tokens(self) -> int: ...  # noqa: D102
    @property
    def cached_tokens(self) -> int: ...  # noqa: D102
    @property
    def completion_tokens(self) -> int: ...  # noqa: D102
    @property
    def drafter(self) -> str: ...  # noqa: D102
    @property
    def draft_passes(self) -> int: ...  # noqa: D102
    @property
    def drafted_tokens(self) -> int: ...  # noqa: D102
    @property
    def accepted_tokens(self) -> int: ...  # noqa: D102
    @property
    def logprobs(self) -> list[float]: ...  # noqa: D102
    @property
    def top_logprobs(self) -> list[list[tuple[int, float]]]: ...  # noqa: D102
    @property
    def prompt_logprobs(self) -> list[float]: ...  # noqa: D102
    @property
    def top_prompt_logprobs(self) -> list[list[tuple[int, float]]]: ...  # noqa: D102


class Bell(Protocol):
    """Something that wakes a reader; a ``queue.SimpleQueue`` is one. Must not block nor raise."""

    def put(self, item: Mailbox, /) -> None: ...  # noqa: D102


class Mailbox:
    """What the driver knows of one sequence.

    Attributes:
        sequences: the core's id once it has been submitted, else empty.
        fresh: what the core said and `settle` has not taken in yet.
        tokens: every generated token.
        logprobs: of each of them, if they were asked for: its logprob, and the likeliest tokens in
            its place with theirs.
        prompt_logprobs: the same of the prompt's tokens but the first, once all are known.
        accepted: once proposals are accepted, of each report by the tokens before it: how many it
            brought, and how many proposals held so far.
        last: the newest report.
        finish_reason: how the core ended the sequence, if it did.
        error: what ended the sequence instead of a finish reason.
        dropped: nobody wants more of it.
        bells: rung after every change; a reader hangs its own.
        end_bells: rung when nothing more will come, for readers who need not wake before.
        constraint: what holds its text, kept as long as the core may ask for masks.
    """

    __slots__ = (
        "__weakref__",
        "accepted",
        "bells",
        "constraint",
        "dropped",
        "end_bells",
        "error",
        "finish_reason",
        "fresh",
        "last",
        "logprobs",
        "owner",
        "prompt_logprobs",
        "sequences",
        "tokens",
    )

    def __init__(self, *, with_logprobs: bool = False) -> None:
        """Start empty."""
        self.sequences: list[int] = []
        self.fresh: list[Poll] = []
        self.tokens: list[int] = []
        self.logprobs: list[Logprob] | None = [] if with_logprobs else None
        self.prompt_logprobs: list[Logprob] = []
        self.accepted: dict[int, tuple[int, int]] = {}
        self.last: Poll | None = None
        self.finish_reason: str | None = None
        self.error: BaseException | None = None
        self.dropped = False
        self.bells: list[Bell] = []
        self.end_bells: list[Bell] = []
        self.owner: weakref.ref[object] | None = None
        self.constraint: object = None

    @property
    def ended(self) -> bool:
        """Whether the core has nothing more to say."""
        return self.finish_reason is not None or self.error is not None

    @property
    def unwanted(self) -> bool:
        """Whether it was dropped, or its owner was."""
        return self.dropped or (self.owner is not None and self.owner() is None)

    def settle(self) -> None:
        """Take in what is fresh. Done twice, it changes nothing more."""
        for poll in self.fresh:
            token_ids = poll.token_ids  # each access makes a list
            start = poll.completion_tokens - len(token_ids)
            if self.logprobs is not None:  # before their tokens, as those before the end
                self.logprobs[start:] = zip(poll.logprobs, poll.top_logprobs, strict=True)
            if prompt := poll.prompt_logprobs:  # all of them, in one poll
                self.prompt_logprobs[:] = zip(prompt, poll.top_prompt_logprobs, strict=True)
            if n_accepted := poll.accepted_tokens:
                self.accepted[start] = (len(token_ids), n_accepted)
            self.tokens[start:] = token_ids
            self.last = poll
            # After its tokens: whoever sees the end must see them all.
            self.finish_reason = poll.finish_reason
        self.fresh.clear()

    def ring(self) -> None:
        """Wake all who wait for this sequence."""
        if self.bells:
            for bell in tuple(self.bells):
                bell.put(self)
        if self.end_bells and (self.dropped or self.ended):
            for bell in tuple(self.end_bells):
                bell.put(self)
