"""What random schedules run: engines of many kinds, and requests on the real kernels."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checkpoints import Geometry
from engine.driving import run_all, submit
from engine.hash_model import bank_bytes, least_budget
from engine.schedules import OpenEngine
from engine.tracking import CONTEXT, Reference
from mtlqwen import _core

# MTLQWEN_SCHEDULE_SEED=n repeats schedule n alone.
ONLY = os.environ.get("MTLQWEN_SCHEDULE_SEED")
BLOCK_TOKENS = (64, 128, 256)
PLANE_BYTES = 2 * 64 * 2  # of one token: 2 heads of 64 halves each


def seeds(first: int, n: int) -> Sequence[int]:
    return [int(ONLY)] if ONLY else range(first, first + n)


def opener(
    geometry: Geometry,
    model: str,
    kernels: str,
    *,
    deterministic: bool | None = None,
    n_planes: int = 4,
    **drafting: Any,
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
            **drafting,
        )

    def open_engine(rng: random.Random) -> tuple[_core.Engine, int]:
        slots, block_tokens = rng.choice((1, 2, 3, 5, 8)), rng.choice(BLOCK_TOKENS)
        bundle_bytes = block_tokens * n_planes * PLANE_BYTES
        # For one of a whole context, or for some of one block each, and no more.
        block = bundle_bytes + 2 * bank_bytes(geometry, bundle_bytes)
        others = rng.randint(slots // 2, slots - 1) * block
        others -= (-(-CONTEXT // block_tokens) - 1) * bundle_bytes
        scarce = least(slots, block_tokens) + max(others, 0)
        options = dict(drafting)
        if drafting:  # none, some or all states behind the rows of a draft may be kept
            options["candidate_bytes"] = rng.choice([0, 0, 2 * bank_bytes(geometry, 1), 1 << 30])
            options["draft_noise"] = rng.random() < 0.5
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
            **options,
        )
        return engine, block_tokens

    return open_engine


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


def run_alone(path: Path, kernels: str, vocab: int) -> list[Reference]:
    """Requests of a file's model, greedy and sampled, that begin alike or do not."""
    alone = _core.Engine(str(path), kernels=kernels, context=CONTEXT, slots=1, deterministic=True)
    rng = random.Random(0)
    references: list[Reference] = []
    longest = [rng.randrange(vocab) for _ in range(CONTEXT - 10)]
    for length in (1, 40, 100, 115, 120, 127, 200, 250, CONTEXT - 10):
        shared = rng.randint(0, length)
        prompt = longest[:shared]
        prompt += [rng.randrange(vocab) for _ in range(length - shared)]
        references.append(Alone(alone, prompt, rng.choice([0.0, 1.0])))
    alone.close()
    return references
