"""Sequences that begin alike and come together: one computes the beginning, the others wait."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine.driving import Run, run_all, step_and_read
from engine.hash_model import build_hash_kernels, draw_tokens, write_hash_model
from engine.hash_oracle import Continuations
from engine.tracking import CONTEXT
from mtlqwen import _core

N_SHARED = 200  # tokens: more than a pass has rows
N_TOKENS = 5
BLOCK_TOKENS = 128
SLOTS = 8


class Together:
    """Eight prompts of one beginning on the hash kernels, and what follows each."""

    def __init__(self, root: Path, folder: Path) -> None:
        model, path = write_hash_model(folder)
        self.model, self.kernels = str(path), build_hash_kernels(root)
        rng, follow = random.Random(8), Continuations(model)
        shared = draw_tokens(rng, model, N_SHARED)
        self.tails = [[i, *draw_tokens(rng, model, rng.randint(5, 40))] for i in range(SLOTS)]
        self.prompts = [shared + tail for tail in self.tails]
        self.expected: list[list[int]] = []
        for i, prompt in enumerate(self.prompts):
            tokens = follow(prompt, i)
            self.expected.append([next(tokens) for _ in range(N_TOKENS)])

    def open(self, **options: Any) -> _core.Engine:
        return _core.Engine(
            self.model, kernels=self.kernels, context=CONTEXT, slots=SLOTS, **options
        )

    def submit(self, engine: _core.Engine, checkpoint_at: list[int]) -> list[Run]:
        return [
            Run(
                engine.submit(
                    prompt,
                    max_tokens=N_TOKENS,
                    temperature=0.0,
                    seed=i,
                    stop_ids=[],
                    checkpoint_at=checkpoint_at,
                )
            )
            for i, prompt in enumerate(self.prompts)
        ]

    def check(self, engine: _core.Engine, runs: list[Run]) -> None:
        assert [run.token_ids for run in runs] == self.expected[-len(runs) :]
        engine.check_integrity()


@pytest.fixture(scope="module")
def together(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Together:
    return Together(root, tmp_path_factory.mktemp("hash"))


def cached(engine: _core.Engine, runs: list[Run]) -> list[int]:
    return [engine.poll(run.sequence).cached_tokens for run in runs]


def computed(engine: _core.Engine, n_sequences: int) -> int:
    """Rows for prompts: all but those that put in a generated token."""
    stats = engine.stats()
    rows = int(stats["prefill_rows"]) + int(stats["decode_rows"])
    return rows - n_sequences * (N_TOKENS - 1)


@pytest.mark.parametrize(("hints", "interval"), [([N_SHARED], 0), ([], 64), ([], 0)])
def test_what_all_begin_with_is_computed_once(
    together: Together, hints: list[int], interval: int
) -> None:
    engine = together.open(checkpoint_interval=interval)
    runs = together.submit(engine, hints)
    run_all(engine, runs)
    together.check(engine, runs)
    assert cached(engine, runs) == [0] + [N_SHARED] * (SLOTS - 1)
    assert computed(engine, SLOTS) == N_SHARED + sum(map(len, together.tails))
    engine.close()


def test_without_a_cache_each_computes_it(together: Together) -> None:
    engine = together.open(cache_memory=0)
    runs = together.submit(engine, [N_SHARED])
    run_all(engine, runs)
    together.check(engine, runs)
    assert cached(engine, runs) == [0] * SLOTS
    assert computed(engine, SLOTS) == sum(map(len, together.prompts))
    engine.close()


@pytest.mark.parametrize("passes", [0, 1, 2])
@pytest.mark.parametrize("end", ["cancel", "release"])
def test_the_next_one_computes_it_where_the_first_ends_early(
    together: Together, passes: int, end: str
) -> None:
    engine = together.open(checkpoint_interval=0)
    runs = together.submit(engine, [N_SHARED])
    for _ in range(passes):
        assert step_and_read(engine, runs)
    first, others = runs[0], runs[1:]
    getattr(engine, end)(first.sequence)
    run_all(engine, others)
    together.check(engine, others)
    # Less than a block is computed again sooner than waited for.
    assert all(N_SHARED - BLOCK_TOKENS < n <= N_SHARED for n in cached(engine, others)[1:])
    engine.close()


def test_nobody_waits_for_less_than_a_block(together: Together) -> None:
    engine = together.open(block_tokens=256)
    assert N_SHARED < 256
    runs = together.submit(engine, [N_SHARED])
    run_all(engine, runs)
    together.check(engine, runs)
    assert cached(engine, runs) == [0] * SLOTS
    engine.close()
