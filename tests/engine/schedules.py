"""Random schedules of one engine: submit, step, cancel, interrupt, fail, save, load, reopen.

Each is replayed by its seed alone (but for the moment at which another thread interrupts). Every
token that is read must be what the sequence gives alone, whatever the prefix cache spares it;
`Reference` says what that is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

import numpy as np
from engine.tracking import CONTEXT, Reference, Saved, Tally, Tracked
from mtlqwen import CapacityError, DeviceError, _core

N_REFERENCES = 7  # of one schedule at most: few enough to be met again
FAULTS = ("commit", "mapping", "allocation")
inject_fault: Callable[[str, int], bool] = _core._testing.inject_fault


T = TypeVar("T")
OpenEngine: TypeAlias = Callable[[random.Random], tuple[_core.Engine, int]]  # with block_tokens
Move: TypeAlias = Callable[[], None]


class Schedule:
    """One random schedule on the engines that `open_engine` makes."""

    def __init__(
        self,
        seed: int,
        references: Sequence[Reference],
        open_engine: OpenEngine,
        tally: Tally,
        *,
        faults: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.references = draw_references(self.rng, references)
        self.open_engine, self.tally = open_engine, tally
        self.faults = faults
        self.engine, self.block_tokens = open_engine(self.rng)
        self.known: list[Tracked] = []
        self.late_failure = False  # a fault has happened that no step has reported yet
        self.files: list[Saved] = []
        self.met: list[list[int]] = []  # prompts of this engine

    def moves(self) -> dict[Move, float]:
        """What may be done next, and how often."""
        faulty = 3.0 if self.faults else 0.0
        return {
            self.submit: 12,
            self.plain_step: 30,
            self.cancel: 2,
            self.release: 2,
            self.interrupted_step: 3,
            self.faulty_step: faulty,
            self.faulty_file: faulty / 3,
            self.cut_differently: 3,
            self.save: 3,
            self.load: 3,
            self.save_beside_a_step: 1,
            self.reopen: 0.4,
        }

    def run(self, n_moves: int) -> None:
        """Make n_moves moves, then let everything finish."""
        moves = self.moves()
        with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as self.other_thread:
            self.folder = Path(folder)
            for move in self.rng.choices(list(moves), list(moves.values()), k=n_moves):
                move()
            while self.step():
                pass
        self.check_end()
        self.close()

    def close(self) -> None:
        stats = self.engine.stats()
        self.tally.preemptions += int(stats["preemptions"])
        self.tally.evictions += int(stats["cache_evictions"])
        for sequence in self.known:
            end = sequence.ended or "open"
            self.tally.ends[end] = self.tally.ends.get(end, 0) + 1
        self.engine.close()
        self.known, self.met = [], []

    def submit(self) -> None:
        self.submit_one(self.rng.choice(self.references))

    def submit_one(self, reference: Reference) -> None:
        prompt = reference.prompt
        room = CONTEXT - len(reference.prompt)
        max_tokens = min(self.rng.choice([1, 2, 5, 12, 40, 40]), room)
        tokens = reference.tokens(max_tokens)
        stop_ids = [self.rng.choice(tokens)] if self.rng.random() < 0.3 else []
        expected, reason = tokens, "length"
        if stop_ids:
            expected, reason = tokens[: tokens.index(stop_ids[0]) + 1], "stop"
        deadline_s = self.rng.choice([0.001, 0.01]) if self.rng.random() < 0.05 else None
        recall = self.rng.random() < 0.9
        n_checkpoints = min(self.rng.choice([0, 0, 1, 2, 5]), len(prompt))
        sequence = self.engine.submit(
            prompt,
            max_tokens=max_tokens if max_tokens < room else 10_000,
            temperature=reference.temperature,
            seed=reference.seed,
            stop_ids=stop_ids,
            priority=self.rng.randint(-2, 2),
            deadline_s=deadline_s,
            checkpoint_at=sorted(self.rng.sample(range(1, len(prompt) + 1), n_checkpoints)),
            recall=recall,
        )
        late = deadline_s is not None
        known = max((n_shared(prompt, other) for other in self.met), default=0)
        self.known.append(
            Tracked(sequence, reference, expected, reason, known, recall, may_be_late=late)
        )
        self.met.append(prompt)

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

    def save(self) -> None:
        """The state of some prefix goes to a file, while sequences run."""
        known = self.pick()
        reference = known.reference if known else self.rng.choice(self.references)
        token_ids = reference.prompt + reference.tokens(self.rng.randint(0, 5))
        if self.rng.random() < 0.3:
            token_ids = token_ids[: self.rng.randint(1, len(token_ids))]
        note = "\N{BLACK STAR} a note" * self.rng.randint(0, 2)
        self.save_one(token_ids, note, self.rng.random() < 0.8)

    def save_one(self, token_ids: list[int], note: str, with_state: bool) -> None:
        path = self.folder / f"{len(self.files)}.checkpoint"
        n_state = self.file_call(
            lambda: self.engine.save_checkpoint(str(path), token_ids, note, with_state)
        )
        if n_state is None:
            return
        assert n_state <= len(token_ids) * with_state
        self.files.append(Saved(path, token_ids, note, n_state))
        self.tally.saved += n_state > 0

    def file_call(self, call: Callable[[], T]) -> T | None:
        """None where it reports a fault from before it."""
        try:
            return call()
        except (CapacityError, DeviceError):
            if not self.late_failure:
                raise
            self.late_failure = False
            for sequence in self.known:
                sequence.may_fail |= sequence.ended is None
            return None

    def save_beside_a_step(self) -> None:
        done = self.other_thread.submit(self.save)
        self.step()
        done.result()

    def load(self) -> None:
        """A file of this engine, or of one before it, is read; a prompt that begins so follows."""
        files = [f for f in self.files if f.n_state or self.rng.random() < 0.1]
        if not files:
            return
        saved = self.rng.choice(files)
        loaded = self.file_call(lambda: self.engine.load_checkpoint(str(saved.path)))
        if loaded is None:
            return
        token_ids, note, n_cached = loaded
        assert (token_ids, note) == (saved.token_ids, saved.note)
        assert n_cached in (0, saved.n_state)
        if n_cached == 0:
            return
        self.tally.loaded += 1
        begin = token_ids[:n_cached]
        kin = [r for r in self.references if n_shared(r.prompt, begin) == n_cached]
        if kin:
            self.submit_one(self.rng.choice(kin))

    def faulty_file(self) -> None:
        """A commit, mapping or allocation of a file's way fails, the first two like a pass."""
        kind = self.rng.choice(FAULTS)
        waiting = [s for s in self.known if s.ended is None and not s.may_fail]
        inject_fault(kind, 1)
        raised = False
        try:
            self.rng.choice((self.save, self.load))()
        except (CapacityError, DeviceError):
            raised = True
        fired = not inject_fault(kind, 0)
        self.tally.file_faults += fired
        assert fired or not raised
        if raised and kind != "allocation":
            for sequence in waiting:
                sequence.may_fail = True
            self.read()
        if fired and not raised and kind == "mapping":
            self.late_failure = True  # the next commit reports it
        assert len(list(self.folder.iterdir())) == len(self.files), "a part of a file is left"

    def reopen(self) -> None:
        self.tally.reopened += 1
        self.close()
        self.late_failure = False
        self.engine, self.block_tokens = self.open_engine(self.rng)
        for _ in range(self.rng.randint(0, 3)):
            self.load()

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
        self.note_poll(sequence, poll)
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

    def note_poll(self, sequence: Tracked, poll: Any) -> None:
        cached: int = poll.cached_tokens
        assert cached < len(sequence.reference.prompt)
        assert cached == 0 or sequence.recall
        if cached and not sequence.cached:
            self.tally.hits += 1
            self.tally.partial_hits += cached < sequence.known
            self.tally.mid_block_hits += cached % self.block_tokens != 0
            self.tally.loaded_hits += cached > sequence.known
        sequence.cached = cached

    def check_logits(self, sequence: Tracked, new: int) -> None:
        if new == len(sequence.tokens):
            return
        expected = sequence.reference.logits(len(sequence.tokens) - 1)
        if expected is None:
            return
        logits = np.asarray(_core._testing.last_logits(self.engine, sequence.id), np.float32)
        assert np.array_equal(logits.view(np.uint32), expected.view(np.uint32))

    def check_end(self) -> None:
        assert all(sequence.ended for sequence in self.known)
        stats = self.engine.stats()
        assert (stats["live"], stats["waiting"], stats["kv_bytes"]) == (0, 0, 0)


def draw_references(rng: random.Random, references: Sequence[Reference]) -> list[Reference]:
    """One, some that begin like it, and two of any kind."""
    first = rng.choice(references)
    kin = [r for r in references if n_shared(r.prompt, first.prompt) >= 16]
    drawn = rng.sample(kin, min(N_REFERENCES - 2, len(kin)))
    return drawn + rng.sample(references, 2)


def n_shared(a: list[int], b: list[int]) -> int:
    """Tokens that both begin with."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def run_schedules(
    seeds: Sequence[int],
    references: Sequence[Reference],
    open_engine: OpenEngine,
    *,
    n_moves: int = 60,
    faults: bool = True,
    schedule: type[Schedule] = Schedule,
) -> Tally:
    """Run one schedule for each seed; a failure names the seed that repeats it."""
    tally = Tally()
    for seed in seeds:
        try:
            schedule(seed, references, open_engine, tally, faults=faults).run(n_moves)
        except BaseException:
            for kind in FAULTS:
                inject_fault(kind, 0)
            print(f"schedule with seed {seed} failed")
            raise
    return tally
