"""Random schedules of one engine: submit, step, cancel, release, interrupt, fail, reopen.

Each is replayed by its seed alone (but for the moment at which another thread interrupts). Every
token that is read must be what the sequence gives alone; `Reference` says what that is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from mtlqwen import CapacityError, DeviceError, _core

CONTEXT = 384  # three blocks
FAULTS = ("commit", "mapping", "allocation")
inject_fault: Callable[[str, int], bool] = _core._testing.inject_fault


class Reference(Protocol):
    """One request, and what it gives when nothing else runs."""

    prompt: list[int]
    temperature: float
    seed: int

    def tokens(self, n: int) -> list[int]:
        """The first n tokens."""

    def logits(self, i: int) -> npt.NDArray[np.float32] | None:
        """Logits behind the i-th token, where bits are to be compared."""


class Lazy:
    """A reference that is computed as far as it is asked for."""

    def __init__(self, prompt: list[int], seed: int, tokens: Iterator[int]) -> None:
        self.prompt, self.seed, self.temperature = prompt, seed, 0.0
        self._source, self._known = tokens, list[int]()

    def tokens(self, n: int) -> list[int]:
        while len(self._known) < n:
            self._known.append(next(self._source))
        return self._known[:n]

    def logits(self, i: int) -> npt.NDArray[np.float32] | None:
        return None


@dataclass
class Tracked:
    """A submitted sequence and what must become of it."""

    id: int
    reference: Reference
    expected: list[int]
    reason: str
    tokens: list[int] = field(default_factory=list)
    ended: str | None = None  # finish reason, or "error"
    cancelled: bool = False
    may_fail: bool = False
    may_be_late: bool = False


@dataclass
class Tally:
    """What the schedules of a test did, so that it can tell that nothing was left out."""

    steps: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    preemptions: int = 0
    interrupts: int = 0
    reopened: int = 0


class Schedule:
    """One random schedule on the engines that `open_engine` makes."""

    def __init__(
        self,
        seed: int,
        references: Sequence[Reference],
        open_engine: Callable[[random.Random], _core.Engine],
        tally: Tally,
        *,
        faults: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.references, self.open_engine, self.tally = references, open_engine, tally
        self.faults = faults
        self.engine = open_engine(self.rng)
        self.known: list[Tracked] = []
        self.late_failure = False  # a fault has happened that no step has reported yet

    def run(self, n_moves: int) -> None:
        """Make n_moves moves, then let everything finish."""
        moves = [self.submit, self.plain_step, self.cancel, self.release, self.interrupted_step]
        moves += [self.faulty_step, self.cut_differently, self.reopen]
        weights = [12, 30, 2, 2, 3, 3 if self.faults else 0, 3, 0.3]
        with ThreadPoolExecutor(1) as self.other_thread:
            for move in self.rng.choices(moves, weights, k=n_moves):
                move()
            while self.step():
                pass
        self.check_end()
        self.close()

    def close(self) -> None:
        self.tally.preemptions += int(self.engine.stats()["preemptions"])
        for sequence in self.known:
            end = sequence.ended or "open"
            self.tally.ends[end] = self.tally.ends.get(end, 0) + 1
        self.engine.close()
        self.known = []

    def submit(self) -> None:
        reference = self.rng.choice(self.references)
        room = CONTEXT - len(reference.prompt)
        max_tokens = min(self.rng.choice([1, 2, 5, 12, 40, 40]), room)
        tokens = reference.tokens(max_tokens)
        stop_ids = [self.rng.choice(tokens)] if self.rng.random() < 0.3 else []
        expected, reason = tokens, "length"
        if stop_ids:
            expected, reason = tokens[: tokens.index(stop_ids[0]) + 1], "stop"
        deadline_s = self.rng.choice([0.001, 0.01]) if self.rng.random() < 0.05 else None
        sequence = self.engine.submit(
            reference.prompt,
            max_tokens=max_tokens if max_tokens < room else 10_000,
            temperature=reference.temperature,
            seed=reference.seed,
            stop_ids=stop_ids,
            priority=self.rng.randint(-2, 2),
            deadline_s=deadline_s,
        )
        self.known.append(
            Tracked(sequence, reference, expected, reason, may_be_late=deadline_s is not None)
        )

    def plain_step(self) -> None:
        self.step()

    def pick(self) -> Tracked | None:
        return self.rng.choice(self.known) if self.known else None

    def cancel(self) -> None:
        if sequence := self.pick():
            sequence.cancelled = True
            self.engine.cancel(sequence.id)

    def release(self) -> None:
        if sequence := self.pick():
            self.engine.release(sequence.id)
            self.known.remove(sequence)

    def cut_differently(self) -> None:
        rows = self.rng.choice([self.engine.slots, 128, self.rng.randint(self.engine.slots, 128)])
        _core._testing.set_pass_rows(self.engine, rows)

    def interrupted_step(self) -> None:
        """Another thread cancels or releases a sequence while the pass runs."""
        sequence = self.pick()
        if not sequence:
            return
        self.tally.interrupts += 1
        engine, delay = self.engine, self.rng.random() * 2e-3
        releases = self.rng.random() < 0.3
        sequence.cancelled = True
        if releases:
            self.known.remove(sequence)

        def interrupt() -> None:
            time.sleep(delay)
            (engine.release if releases else engine.cancel)(sequence.id)

        done = self.other_thread.submit(interrupt)
        self.step()
        done.result()

    def faulty_step(self) -> None:
        """A commit, mapping or allocation of the step fails, if it makes any."""
        kind = self.rng.choice(FAULTS)
        waiting = [s for s in self.known if s.ended is None and not s.may_fail]
        for sequence in waiting:
            sequence.may_fail = True
        inject_fault(kind, self.rng.randint(1, 2))
        raised = False
        try:
            self.step()
        except (CapacityError, DeviceError):
            raised = True
        fired = not inject_fault(kind, 0)
        self.tally.faults += fired
        if fired and not raised and kind == "mapping":
            self.late_failure = True  # the next commit reports it
        if not fired:
            for sequence in waiting:
                sequence.may_fail = False
        self.read()

    def reopen(self) -> None:
        self.tally.reopened += 1
        self.close()
        self.late_failure = False
        self.engine = self.open_engine(self.rng)

    def step(self) -> bool:
        self.tally.steps += 1
        if self.late_failure:
            for sequence in self.known:
                sequence.may_fail |= sequence.ended is None
        try:
            busy = self.engine.step()
        except (CapacityError, DeviceError):
            if not any(s.may_fail for s in self.known) and not self.late_failure:
                raise
            self.late_failure = False
            busy = True
        self.engine.check_integrity()
        stats = self.engine.stats()
        assert float(stats["memory_bytes"]) <= 1.02 * float(stats["budget_bytes"])
        self.read()
        return busy

    def read(self) -> None:
        for sequence in self.known:
            if sequence.ended is None:
                self.read_one(sequence)

    def read_one(self, sequence: Tracked) -> None:
        try:
            poll: Any = self.engine.poll(sequence.id)
        except (DeviceError, CapacityError):
            assert sequence.may_fail
            sequence.ended = "error"
            return
        new = len(sequence.tokens)
        sequence.tokens += poll.token_ids
        assert sequence.tokens == sequence.expected[: len(sequence.tokens)]
        self.check_logits(sequence, new)
        sequence.ended = poll.finish_reason
        if poll.finish_reason == "cancelled":
            assert sequence.cancelled
        elif poll.finish_reason == "deadline":
            assert sequence.may_be_late
        elif poll.finish_reason is not None:
            assert (sequence.tokens, poll.finish_reason) == (sequence.expected, sequence.reason)

    def check_logits(self, sequence: Tracked, new: int) -> None:
        if new + 1 != len(sequence.tokens):
            return
        expected = sequence.reference.logits(new)
        if expected is None:
            return
        logits = np.asarray(_core._testing.last_logits(self.engine, sequence.id), np.float32)
        assert np.array_equal(logits.view(np.uint32), expected.view(np.uint32))

    def check_end(self) -> None:
        assert all(sequence.ended for sequence in self.known)
        stats = self.engine.stats()
        assert (stats["live"], stats["waiting"], stats["kv_bytes"]) == (0, 0, 0)


def run_schedules(
    seeds: Sequence[int],
    references: Sequence[Reference],
    open_engine: Callable[[random.Random], _core.Engine],
    *,
    n_moves: int = 60,
    faults: bool = True,
) -> Tally:
    """Run one schedule for each seed; a failure names the seed that repeats it."""
    tally = Tally()
    for seed in seeds:
        try:
            Schedule(seed, references, open_engine, tally, faults=faults).run(n_moves)
        except BaseException:
            for kind in FAULTS:
                inject_fault(kind, 0)
            print(f"schedule with seed {seed} failed")
            raise
    return tally
