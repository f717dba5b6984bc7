"""A sequence gets the same tokens however its prompt is cut and whoever shares its passes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from engine.driving import Run, generate, open_tiny, run_all, step_and_read, submit
from mtlqwen import _core

N_TOKENS = 12


@pytest.fixture(scope="module")
def prompts(root: Path) -> list[list[int]]:
    items = json.loads((root / "tests/golden/prompts.json").read_text())
    return [item["prompt_ids"] for item in items]


@pytest.fixture(scope="module")
def engine(kernels: str) -> Iterator[_core.Engine]:
    engine = open_tiny(kernels)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def single(kernels: str) -> Iterator[_core.Engine]:
    """One slot, so that a pass may be as short as one row."""
    engine = open_tiny(kernels, slots=1)
    yield engine
    engine.close()


@pytest.fixture
def pass_rows(single: _core.Engine) -> Iterator[None]:
    yield
    _core._testing.set_pass_rows(single, 128)


def split_prefill(engine: _core.Engine, prompt: list[int], first: int) -> Run:
    """The first pass takes `first` rows of the prompt, the next ones the rest."""
    run = submit(engine, prompt, max_tokens=N_TOKENS)
    _core._testing.set_pass_rows(engine, first)
    step_and_read(engine, [run], logits=True)
    _core._testing.set_pass_rows(engine, 128)
    run_all(engine, [run], logits=True)
    engine.release(run.sequence)
    return run


@pytest.mark.usefixtures("pass_rows")
def test_a_prompt_split_anywhere_equals_the_whole(
    single: _core.Engine, prompts: list[list[int]]
) -> None:
    prompt = prompts[0]
    whole = split_prefill(single, prompt, 128)
    for first in range(1, len(prompt)):
        split = split_prefill(single, prompt, first)
        assert split.token_ids == whole.token_ids, f"split after {first} rows"
        np.testing.assert_allclose(split.logits[0], whole.logits[0], rtol=0, atol=2e-3)


@pytest.mark.usefixtures("pass_rows")
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 31, 64])
def test_a_prompt_in_equal_chunks_equals_the_whole(
    single: _core.Engine, prompts: list[list[int]], rows: int
) -> None:
    prompt = prompts[4]  # 244 tokens: two blocks
    whole = generate(single, prompt, max_tokens=N_TOKENS)
    _core._testing.set_pass_rows(single, rows)
    assert generate(single, prompt, max_tokens=N_TOKENS) == whole


def test_eight_together_equal_each_alone(engine: _core.Engine, prompts: list[list[int]]) -> None:
    alone = [generate(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts[:8]]
    together = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts[:8]]
    run_all(engine, together)
    assert [run.token_ids for run in together] == alone


def test_sampled_text_depends_on_seed_and_position_alone(
    engine: _core.Engine, prompts: list[list[int]]
) -> None:
    options = {"temperature": 1.0, "seed": 7}
    alone = generate(engine, prompts[0], max_tokens=N_TOKENS, **options)
    company = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts[1:5]]
    step_and_read(engine, company)
    run = submit(engine, prompts[0], max_tokens=N_TOKENS, temperature=1.0, seed=7)
    run_all(engine, [run, *company])
    assert run.token_ids == alone
    others = {
        tuple(generate(engine, prompts[0], max_tokens=N_TOKENS, temperature=1.0, seed=seed))
        for seed in range(8, 12)
    }
    assert len(others | {tuple(alone)}) > 2, "four other seeds gave hardly any other text"


def test_more_sequences_than_slots_wait_and_finish(kernels: str, prompts: list[list[int]]) -> None:
    engine = open_tiny(kernels, slots=2)
    runs = [submit(engine, prompt, max_tokens=3) for prompt in prompts[:5]]
    step_and_read(engine, runs)
    stats = engine.stats()
    assert (stats["live"], stats["waiting"]) == (2, 3)
    run_all(engine, runs)
    assert [run.finish_reason for run in runs] == ["length"] * 5
    engine.close()


def test_all_memory_of_finished_sequences_is_free(
    engine: _core.Engine, prompts: list[list[int]]
) -> None:
    run = submit(engine, prompts[3], max_tokens=2)
    step_and_read(engine, [run])
    assert int(engine.stats()["kv_bytes"]) > 0
    run_all(engine, [run])
    assert engine.stats()["kv_bytes"] == 0
    memory = engine.stats()["memory_bytes"]
    generate(engine, prompts[4], max_tokens=2)
    assert engine.stats()["memory_bytes"] == memory, "a slot used again takes no new memory"
