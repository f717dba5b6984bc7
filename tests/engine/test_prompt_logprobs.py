"""Logprobs of prompts: against float64, in parts, in company, preempted, with drafters."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from checkpoints import Geometry, Model, random_model, write_hf
from engine.drafting import force_width
from engine.hash_model import bank_bytes, least_budget
from engine.reference_model import ReferenceModel
from file_formats import round_to
from mtlqwen import _core

CONTEXT = 512
GEOMETRY = Geometry(
    layers="gaga", heads=4, kv_heads=2, head_dim=64, tied=False, mtp=True, context=CONTEXT
)
BUNDLE_BYTES = 4 * 128 * 2 * 64 * 2  # keys and values of two layers
N_TOKENS = 8
Told = tuple[float, list[tuple[int, float]]]


@dataclass
class Teller:
    """A prompt, how many of the likeliest are wanted in each place, and what was told."""

    prompt: list[int]
    n_top: int
    options: dict[str, Any] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Told] = field(default_factory=list)
    sequence: int = 0
    finish_reason: str | None = None

    def submit(self, engine: _core.Engine) -> None:
        defaults: dict[str, Any] = {"temperature": 0.0, "seed": 0, "stop_ids": []}
        defaults["max_tokens"] = N_TOKENS
        self.sequence = engine.submit(
            self.prompt,
            prompt_logprobs=self.n_top,
            **defaults | self.options,
        )

    def read(self, engine: _core.Engine) -> None:
        poll = engine.poll(self.sequence)
        told = list(zip(poll.prompt_logprobs, poll.top_prompt_logprobs, strict=True))
        assert len(told) in (0, len(self.prompt) - 1), "all at once"
        assert not told or not self.told, "and once"
        self.told += told
        self.token_ids += poll.token_ids
        self.logprobs += zip(poll.logprobs, poll.top_logprobs, strict=True)
        self.finish_reason = poll.finish_reason
        assert poll.cached_tokens == 0


def run(engine: _core.Engine, tellers: list[Teller]) -> None:
    for teller in tellers:
        teller.submit(engine)
    busy = True
    while busy:
        busy = engine.step()
        engine.check_integrity()
        for teller in tellers:
            if teller.finish_reason is None:
                teller.read(engine)
    for teller in tellers:
        assert teller.finish_reason == "length"
        assert len(teller.told) == len(teller.prompt) - 1
        assert len(teller.token_ids) == teller.options.get("max_tokens", N_TOKENS)
        engine.release(teller.sequence)


def tellers() -> list[Teller]:
    """Of every length, alike at the beginning, with options for what follows them."""
    rng = random.Random(4)
    text = [rng.randrange(GEOMETRY.vocab) for _ in range(CONTEXT)]
    options: list[dict[str, Any]] = [
        {},
        {"logprobs": 2},
        {"logprobs": 0, "frequency_penalty": 0.5, "bad_words": [[3], [4, 5]]},
        {"temperature": 0.9, "seed": 3, "top_k": 20, "min_p": 0.01},
    ]
    return [
        Teller(text[:n], n_top, options[i % len(options)])
        for i, (n, n_top) in enumerate(
            [(1, 3), (2, 0), (129, 20), (40, 1), (300, 2), (128, 5), (17, 0), (200, 20), (65, 1)]
        )
    ]


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model(GEOMETRY, seed=5)


@pytest.fixture(scope="module")
def path(model: Model, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_hf(tmp_path_factory.mktemp("told"), model, dtype="F32"))


def open_engine(path: str, kernels: str, **options: Any) -> _core.Engine:
    return _core.Engine(path, kernels=kernels, context=CONTEXT, deterministic=True, **options)


@pytest.fixture(scope="module")
def alone(path: str, kernels: str) -> list[Teller]:
    engine = open_engine(path, kernels, slots=1)
    told = tellers()
    for teller in told:
        run(engine, [teller])
    engine.close()
    return told


def test_they_are_what_float64_says(model: Model, alone: list[Teller]) -> None:
    text = max((teller.prompt for teller in alone), key=len)
    logits = ReferenceModel(model, lambda value: round_to(value, "F32")).logits(text)
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    for teller in alone:
        for i, (logprob, top) in enumerate(teller.told):
            row = expected[i]
            assert abs(logprob - row[teller.prompt[i + 1]]) < 0.02
            assert len(top) == teller.n_top
            ids = [token for token, _ in top]
            values = [value for _, value in top]
            np.testing.assert_allclose(values, row[ids], rtol=0, atol=0.02)
            assert values == sorted(values, reverse=True)
            rest = np.delete(row, ids)
            assert not top or rest.max() < values[-1] + 0.02


def check(engine: _core.Engine, alone: list[Teller]) -> None:
    told = tellers()
    run(engine, told)
    for teller, expected in zip(told, alone, strict=True):
        assert teller.told == expected.told
        assert teller.token_ids == expected.token_ids
        assert teller.logprobs == expected.logprobs


@pytest.mark.parametrize("spec", ["off", "ngram", "mtp"])
def test_company_parts_and_drafts_change_no_bit(
    path: str, kernels: str, alone: list[Teller], spec: str
) -> None:
    for slots, rows in ((8, 128), (3, 7), (2, 100)):
        engine = open_engine(path, kernels, slots=slots, spec=spec)
        _core._testing.set_pass_rows(engine, rows)
        if spec != "off":
            force_width(engine, 2)
        check(engine, alone)
        check(engine, alone)  # with all that is cached now
        engine.close()


def test_what_was_told_before_a_preemption_is_not_told_again(
    path: str, kernels: str, alone: list[Teller]
) -> None:
    """The elder has taken a second block when the younger needs the third for its prompt."""
    budget = least_budget(path, kernels, 3, CONTEXT, deterministic=True)
    budget += 2 * bank_bytes(GEOMETRY, BUNDLE_BYTES)
    engine = open_engine(path, kernels, slots=3, memory_budget=budget, cache_memory=0)
    longest = next(teller for teller in alone if len(teller.prompt) == 300)
    elder = Teller(longest.prompt[:126], 1, {"max_tokens": 40})
    younger = Teller(longest.prompt, longest.n_top, longest.options)
    run(engine, [elder, younger])
    assert engine.stats()["preemptions"] == 1
    assert [logprob for logprob, _ in elder.told] == [each for each, _ in longest.told[:125]]
    assert (younger.told, younger.token_ids) == (longest.told, longest.token_ids)
    engine.close()


def test_a_cancelled_prompt_tells_nothing(path: str, kernels: str) -> None:
    engine = open_engine(path, kernels, slots=1)
    teller = Teller(tellers()[4].prompt, 2)
    teller.submit(engine)
    engine.step()
    teller.read(engine)
    engine.cancel(teller.sequence)
    engine.step()
    teller.read(engine)
    assert (teller.finish_reason, teller.told) == ("cancelled", [])
    engine.close()


def test_too_many_are_refused(path: str, kernels: str) -> None:
    engine = open_engine(path, kernels, slots=1)
    with pytest.raises(ValueError, match=r"prompt_logprobs: out of range \(got 21, want 0 to 20"):
        Teller([1, 2], 21).submit(engine)
    engine.close()
