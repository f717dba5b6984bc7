"""Asks engines with drafters, and counts what came of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtlqwen import _core
from mtlqwen.hub import resolve, resolve_drafter

from bench.drive import CONTEXT, TINY
from bench.questions import Question, by_kind

SLOTS = 8


@dataclass(frozen=True)
class Asked:
    """What is asked: requests, how many together, how often."""

    questions: list[Question]
    stop_ids: list[int]
    together: tuple[int, ...]
    drafters: tuple[str, ...]
    max_tokens: int
    rounds: int


@dataclass
class Work:
    """Tokens, seconds and passes of runs; the decode ones from the last first token on."""

    tokens: int = 0
    seconds: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    decode_passes: int = 0

    def add(self, other: Work) -> None:
        """Sum of both."""
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.decode_tokens += other.decode_tokens
        self.decode_s += other.decode_s
        self.decode_passes += other.decode_passes

    @property
    def rate(self) -> float:
        """Tokens a second, prompts included in the time."""
        return self.tokens / self.seconds

    @property
    def decode_rate(self) -> float:
        """Tokens a second of decoding alone."""
        return self.decode_tokens / self.decode_s if self.decode_s else 0.0

    @property
    def per_pass(self) -> float:
        """Tokens of all sequences in a pass of decoding."""
        return self.decode_tokens / self.decode_passes if self.decode_passes else 0.0


@dataclass(frozen=True)
class Drafted:
    """A pass of a sequence that decoded."""

    width: int
    accepted: int
    ended: bool  # with it the answer: nothing is known of the proposals behind


@dataclass
class Drafts:
    """Such passes of runs."""

    passes: list[Drafted] = field(default_factory=list)

    def accepted_at(self, place: int) -> float | None:
        """Share accepted of the proposals at a place that were reached."""
        hits = sum(drafted.accepted > place for drafted in self.passes)
        misses = sum(d.accepted == place < d.width and not d.ended for d in self.passes)
        return hits / (hits + misses) if hits + misses else None

    @property
    def per_pass(self) -> float:
        """Tokens of a sequence in a pass."""
        n_tokens = sum(1 + drafted.accepted for drafted in self.passes)
        return n_tokens / len(self.passes) if self.passes else 0.0


def open_drafting(
    spec: str, *, deterministic: bool = False, draft_noise: bool = False
) -> _core.Engine:
    """The bundled model with a drafter."""
    drafter = resolve_drafter(resolve("tiny")) if spec in ("dflash", "auto") else None
    return _core.Engine(
        str(TINY),
        kernels=str(Path(str(_core.__file__)).with_name("kernels.metallib")),
        context=CONTEXT,
        slots=SLOTS,
        cache_memory=0,  # rounds repeat their prompts
        deterministic=deterministic,
        spec=spec,
        drafter=str(drafter or ""),
        draft_noise=draft_noise,
    )


def groups_of(asked: Asked, n: int) -> Iterator[tuple[str, list[Question]]]:
    """Requests of one kind, n together; a kind with fewer is asked some of them again."""
    for kind, questions in by_kind(asked.questions).items():
        n_groups = max(len(questions) // n, 1)
        again = itertools.cycle(questions)
        for _ in range(n_groups):
            yield kind, list(itertools.islice(again, n))


def submit_all(
    engine: _core.Engine, group: Sequence[Question], asked: Asked, temperature: float = 0.0
) -> list[int]:
    """Queue a group; each request has a seed of its own."""
    return [
        engine.submit(
            list(question.token_ids),
            max_tokens=asked.max_tokens,
            temperature=temperature,
            seed=seed,
            stop_ids=asked.stop_ids,
        )
        for seed, question in enumerate(group)
    ]


def release_all(engine: _core.Engine, sequences: Sequence[int]) -> list[list[int]]:
    """Forget finished sequences; return their tokens."""
    token_ids = [engine.poll(sequence).token_ids for sequence in sequences]
    for sequence in sequences:
        engine.release(sequence)
    return token_ids


def run_timed(engine: _core.Engine, group: Sequence[Question], asked: Asked) -> Work:
    """Run a group to its end; nothing is read before."""
    begin = time.perf_counter()
    sequences = submit_all(engine, group, asked)
    while min(engine.poll(sequence).completion_tokens for sequence in sequences) == 0:
        engine.step()
    first = time.perf_counter()
    n_first = sum(engine.poll(sequence).completion_tokens for sequence in sequences)
    passes = 0
    while engine.step():
        passes += 1
    end = time.perf_counter()
    n_tokens = sum(engine.poll(sequence).completion_tokens for sequence in sequences)
    release_all(engine, sequences)
    return Work(n_tokens, end - begin, n_tokens - n_first, end - first, passes)


def run_watched(
    engine: _core.Engine, group: Sequence[Question], asked: Asked, temperature: float = 0.0
) -> Drafts:
    """Run a group and look at every pass."""
    sequences = submit_all(engine, group, asked, temperature)
    drafts = Drafts()
    seen = dict.fromkeys(sequences, (0, 0))  # tokens, accepted
    while engine.step():
        for sequence in sequences:
            poll = engine.poll(sequence)
            tokens, accepted = seen[sequence]
            if poll.completion_tokens == tokens:
                continue
            if tokens > 0:
                width = len(_core._testing.last_draft(engine, sequence))
                ended = poll.finish_reason is not None
                drafts.passes.append(Drafted(width, poll.accepted_tokens - accepted, ended))
            seen[sequence] = poll.completion_tokens, poll.accepted_tokens
    release_all(engine, sequences)
    return drafts
