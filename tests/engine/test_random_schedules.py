"""Thousands of random schedules give every sequence the tokens that it gets alone."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import Geometry, random_model, write_gguf
from engine.driving import run_all, submit
from engine.hash_model import (
    GEOMETRY,
    bank_bytes,
    build_hash_kernels,
    hash_references,
    least_budget,
    write_hash_model,
)
from engine.schedules import OpenEngine, run_schedules
from engine.tracking import CONTEXT, Lazy, Reference, Tally
from mtlqwen import _core

# MTLQWEN_SCHEDULE_SEED=n repeats schedule n alone.
ONLY = os.environ.get("MTLQWEN_SCHEDULE_SEED")
BLOCK_TOKENS = (64, 128, 256)
TOKEN_BYTES = 4 * 2 * 64 * 2  # 4 planes of 2 heads of 64 halves each


def seeds(first: int, n: int) -> Sequence[int]:
    return [int(ONLY)] if ONLY else range(first, first + n)


def opener(
    geometry: Geometry, model: str, kernels: str, *, deterministic: bool | None = None
) -> OpenEngine:
    """Engines with one to eight slots, memory for all of them or for hardly more than one."""

    @cache
    def least(slots: int, block_tokens: int) -> int:
        # Those that are not deterministic need more, so the others have memory to spare.
        return least_budget(
            model,
            kernels,
            slots,
            deterministic=bool(deterministic),
            block_tokens=block_tokens,
        )

    def open_engine(rng: random.Random) -> tuple[_core.Engine, int]:
        slots, block_tokens = rng.choice((1, 2, 3, 5, 8)), rng.choice(BLOCK_TOKENS)
        bundle_bytes = block_tokens * TOKEN_BYTES
        # For one of a whole context, or for some of one block each, and no more.
        block = bundle_bytes + 2 * bank_bytes(geometry, bundle_bytes)
        others = rng.randint(slots // 2, slots - 1) * block
        others -= (-(-CONTEXT // block_tokens) - 1) * bundle_bytes
        scarce = least(slots, block_tokens) + max(others, 0)
        engine = _core.Engine(
            model,
            kernels=kernels,
            context=CONTEXT,
            slots=slots,
            memory_budget=rng.choice([None, scarce, scarce, scarce + rng.randint(1, 8) * block]),
            prefill_share=rng.choice([0.0, 0.25, 1.0]),
            deterministic=rng.random() < 0.5 if deterministic is None else deterministic,
            checkpoint_interval=rng.choice([0, 16, 16, 64, 128, 512]),
            block_tokens=block_tokens,
            cache_memory=rng.choice(
                [None, 1 << 30, rng.randint(2, 8) * bundle_bytes, rng.choice([0, None])]
            ),
        )
        return engine, block_tokens

    return open_engine


@pytest.fixture(scope="module")
def hash_engine(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Lazy], OpenEngine]:
    model, path = write_hash_model(tmp_path_factory.mktemp("hash"))
    return hash_references(model, 12, n_kin=36), opener(
        GEOMETRY, str(path), build_hash_kernels(root)
    )


def check(tally: Tally, n: int) -> None:
    print(tally)
    if ONLY:
        return
    assert tally.preemptions > n / 10
    assert tally.faults > n / 10
    assert tally.interrupts > n / 2
    assert min(tally.ends.get(end, 0) for end in ("length", "stop", "cancelled", "error")) > n / 10
    assert tally.hits > n
    assert tally.partial_hits > n / 10
    assert tally.mid_block_hits > n / 2
    assert tally.evictions > n / 4
    assert min(tally.saved, tally.loaded) > n / 4
    assert min(tally.loaded_hits, tally.file_faults) > n / 40


def near(references: list[Lazy]) -> list[Lazy]:
    """The shorter ones: quick to compute."""
    return sorted(references, key=lambda reference: len(reference.prompt))[:24]


def test_schedules_give_what_each_sequence_gives_alone(
    hash_engine: tuple[list[Lazy], OpenEngine],
) -> None:
    references, open_engine = hash_engine
    check(run_schedules(seeds(0, 40), near(references), open_engine), 40)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
def test_two_thousand_schedules_give_what_each_sequence_gives_alone(
    hash_engine: tuple[list[Lazy], OpenEngine],
) -> None:
    references, open_engine = hash_engine
    check(run_schedules(seeds(1000, 2000), references, open_engine), 2000)


class Alone:
    """A request on the real kernels, run once with nothing else."""

    def __init__(self, engine: _core.Engine, prompt: list[int], temperature: float) -> None:
        self.prompt, self.temperature, self.seed = prompt, temperature, len(prompt)
        n = min(40, CONTEXT - len(prompt))
        run = submit(engine, prompt, max_tokens=n, temperature=temperature, seed=self.seed)
        run_all(engine, [run], logits=True)
        self._tokens, self._logits = run.token_ids, run.logits

    def tokens(self, n: int) -> list[int]:
        return self._tokens[:n]

    def logits(self, i: int) -> npt.NDArray[np.float32] | None:
        return np.asarray(self._logits[i], np.float32)


@pytest.fixture(scope="module")
def real_engine(
    kernels: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Reference], OpenEngine]:
    geometry = Geometry(
        layers="gaga",
        heads=4,
        kv_heads=2,
        head_dim=64,
        gdn_k_heads=2,
        gdn_v_heads=4,
        context=CONTEXT,
    )
    path = tmp_path_factory.mktemp("real") / "model.gguf"
    write_gguf(path, random_model(geometry, seed=2))
    alone = _core.Engine(str(path), kernels=kernels, context=CONTEXT, slots=1, deterministic=True)
    rng = random.Random(0)
    references: list[Reference] = []
    longest = [rng.randrange(geometry.vocab) for _ in range(CONTEXT - 10)]
    for length in (1, 40, 100, 115, 120, 127, 200, 250, CONTEXT - 10):
        shared = rng.randint(0, length)
        prompt = longest[:shared]
        prompt += [rng.randrange(geometry.vocab) for _ in range(length - shared)]
        references.append(Alone(alone, prompt, rng.choice([0.0, 1.0])))
    alone.close()
    return references, opener(geometry, str(path), kernels, deterministic=True)


def test_deterministic_bits_are_those_of_the_sequence_alone(
    real_engine: tuple[list[Reference], OpenEngine],
) -> None:
    references, open_engine = real_engine
    print(run_schedules(seeds(0, 6), references, open_engine))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
def test_a_hundred_schedules_keep_the_bits_of_the_sequence_alone(
    real_engine: tuple[list[Reference], OpenEngine],
) -> None:
    references, open_engine = real_engine
    check(run_schedules(seeds(1000, 100), references, open_engine), 100)
