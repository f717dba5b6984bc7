"""Passes that are stopped: what they left half done is no checkpoint, and nothing else stops."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from engine.driving import run_all, submit
from engine.hash_model import build_hash_kernels, draw_tokens, least_budget, write_hash_model
from engine.hash_oracle import Continuations
from mtlqwen import _core

CONTEXT = 256
BLOCK_TOKENS = 64
BUNDLE_BYTES = 64 << 10
N_TOKENS = 4


class Stopping:
    """Engines on the hash kernels, and cancels that meet a pass."""

    def __init__(self, root: Path, folder: Path) -> None:
        model, path = write_hash_model(folder)
        self.path, self.kernels = str(path), build_hash_kernels(root)
        self.model, self.rng = model, random.Random(3)
        self.follow = Continuations(model)

    def tokens(self, n: int) -> list[int]:
        return draw_tokens(self.rng, self.model, n)

    def least(self) -> int:
        return least_budget(self.path, self.kernels, 2, CONTEXT, block_tokens=BLOCK_TOKENS)

    def open(self, **options: Any) -> _core.Engine:
        settings = {"context": CONTEXT, "block_tokens": BLOCK_TOKENS, **options}
        return _core.Engine(self.path, kernels=self.kernels, **settings)

    def step_and_cancel(self, engine: _core.Engine, sequences: list[int]) -> None:
        """Cancel them from another thread, most often while the pass runs."""
        delay = self.rng.random() * 2e-3

        def cancel() -> None:
            time.sleep(delay)
            for sequence in sequences:
                engine.cancel(sequence)

        other = threading.Thread(target=cancel)
        other.start()
        engine.step()
        other.join()


@pytest.fixture(scope="module")
def stopping(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Stopping:
    return Stopping(root, tmp_path_factory.mktemp("stopped"))


def test_a_block_that_was_not_copied_is_left_to_nobody(stopping: Stopping) -> None:
    """A sequence shares its last block with its checkpoint, which is evicted by another's request.

    It is cancelled before the copy for its own next token was made.
    """
    prompt, other = stopping.tokens(100), stopping.tokens(120)
    longer = [*prompt, 5, 6, 7]
    tokens = stopping.follow(longer, 0)
    expected = [next(tokens) for _ in range(N_TOKENS)]
    least, met = stopping.least(), 0
    for trial in range(400):
        # The pool is to be full when the other one asks.
        engine = stopping.open(
            slots=2,
            memory_budget=least + (5 + trial % 3) * BUNDLE_BYTES,
            cache_memory=1 << 24,
            checkpoint_interval=0,
        )
        first = engine.submit(
            prompt, max_tokens=50, temperature=0.0, seed=0, stop_ids=[], checkpoint_at=[70, 100]
        )
        assert engine.step()
        submit(engine, other, max_tokens=1)
        stopping.step_and_cancel(engine, [first])
        stats = engine.stats()
        met += stats["passes_stopped"] == 1 and stats["cache_evictions"] == 2
        run_all(engine, [])
        engine.check_integrity()
        again = submit(engine, longer, max_tokens=N_TOKENS)
        run_all(engine, [again])
        assert again.token_ids == expected
        engine.close()
        if met == 20:
            return
    pytest.fail(f"met {met} times only")


def test_a_late_cancel_stops_no_copy_to_the_disk(stopping: Stopping, tmp_path: Path) -> None:
    engine = stopping.open(slots=8, cache_dir=str(tmp_path))
    rounds = 0
    # When a cancel comes is the machine's choice; a pass has to be stopped often enough.
    while rounds < 100 or (rounds < 3000 and int(engine.stats()["passes_stopped"]) <= 10):
        rounds += 1
        runs = [submit(engine, stopping.tokens(70), max_tokens=1) for _ in range(6)]
        late = submit(engine, stopping.tokens(70), max_tokens=20)
        for _ in range(4):  # the last ones are followed by a copy of what the first ones left
            engine.step()
        stopping.step_and_cancel(engine, [late.sequence])
        run_all(engine, runs)
        for run in (*runs, late):
            engine.release(run.sequence)
    stats = engine.stats()
    engine.close()
    assert int(stats["passes_stopped"]) > 10
    assert stats["passes_failed"] == 0
    assert int(stats["disk_written"]) > 100
