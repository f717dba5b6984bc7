"""What changes the choice of a token: against a plain oracle, with every drafter, in company."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import Geometry, random_model, write_gguf
from engine.choice_oracle import Options, choose, edited
from engine.driving import Run, open_tiny, run_all
from mtlqwen import DeviceError, _core

CONTEXT = 512
N_TOKENS = 40
PROMPTS = (
    "Once upon a time there was a small robot who",
    "a b c a b c a b c a b",
    "List the numbers: 1, 2, 3, 4,",
)
VARIED = Options(temperature=0.8, seed=11, top_k=20, top_p=0.9, min_p=0.02)


def open_engine(kernels: str, spec: str, *, slots: int = 8) -> _core.Engine:
    return open_tiny(kernels, context=CONTEXT, slots=slots, deterministic=True, spec=spec)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    from mtlqwen import Engine

    with Engine("tiny", spec="off") as engine:
        return [engine.tokenizer.encode(text) for text in PROMPTS]


def submit(
    engine: _core.Engine,
    prompt: list[int],
    options: Options,
    stops: list[int],
    n_tokens: int = N_TOKENS,
) -> Run:
    return Run(engine.submit(prompt, max_tokens=n_tokens, stop_ids=stops, **options.arguments()))


def texts(
    engine: _core.Engine, jobs: list[tuple[list[int], Options]], stops: list[int]
) -> list[list[int]]:
    runs = [submit(engine, prompt, options, stops) for prompt, options in jobs]
    run_all(engine, runs)
    for run in runs:
        engine.release(run.sequence)
    return [run.token_ids for run in runs]


CASES = {
    "greedy": Options(),
    "varied": VARIED,
    "top_k": Options(temperature=1.0, seed=1, top_k=3),
    "top_k of one": Options(temperature=2.0, seed=2, top_k=1),
    "top_p": Options(temperature=1.2, seed=3, top_p=0.5),
    "top_p of nothing": Options(temperature=1.2, seed=3, top_p=1e-6),
    "min_p": Options(temperature=1.5, seed=4, min_p=0.2),
    "presence": Options(presence_penalty=1.5),
    "frequency": Options(frequency_penalty=0.7),
    "repetition": Options(repetition_penalty=1.4),
    "negative penalties": Options(temperature=0.7, seed=5, frequency_penalty=-0.3),
    "all penalties": replace(
        VARIED, presence_penalty=0.5, frequency_penalty=0.2, repetition_penalty=1.1
    ),
    "another sample": replace(VARIED, sample_index=3),
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_every_token_is_the_oracles(
    kernels: str, prompts: list[list[int]], options: Options
) -> None:
    engine = open_engine(kernels, "off")
    for prompt in prompts:
        run = submit(engine, prompt, options, [])
        run_all(engine, [run], logits=True)
        firm = check(run, prompt, options, [])
        assert firm > N_TOKENS * 0.8
        engine.release(run.sequence)
    engine.close()


def check(run: Run, prompt: list[int], options: Options, stops: list[int]) -> int:
    """How many tokens are surely the oracle's; the others are near-ties."""
    n_firm = 0
    for i, (token, raw) in enumerate(zip(run.token_ids, run.logits, strict=True)):
        logits = edited(raw, options, prompt, run.token_ids[:i], stops)
        expected, firm = choose(logits, options, len(prompt) + i)
        if firm:
            assert token == expected, f"token {i}"
        n_firm += firm
    return n_firm


def test_biases_words_and_allowed_ids(kernels: str, prompts: list[list[int]]) -> None:
    engine = open_engine(kernels, "off")
    prompt = prompts[0]
    plain = texts(engine, [(prompt, Options())], [])[0]
    rng = random.Random(3)
    likely = sorted(set(plain))
    for options in (
        Options(logit_bias=dict.fromkeys(likely[:3], -5.0)),
        Options(logit_bias={plain[0]: -np.inf, plain[1]: 4.0}),
        Options(bad_words=[[plain[0]], plain[2:4], [*prompt[-2:], plain[0]], plain[3:7]]),
        Options(bad_words=[plain[i : i + 1 + i % 3] for i in range(0, 30, 3)], temperature=0.7),
        Options(allowed_ids=rng.sample(range(1000), 40)),
        Options(allowed_ids=[plain[0]]),
        Options(allowed_ids=likely, temperature=1.0, seed=9, top_p=0.9, frequency_penalty=0.5),
    ):
        run = submit(engine, prompt, options, [])
        run_all(engine, [run], logits=True)
        assert check(run, prompt, options, []) > N_TOKENS * 0.8
        assert not options.allowed_ids or set(run.token_ids) <= set(options.allowed_ids)
        engine.release(run.sequence)
    engine.close()


def test_min_tokens_holds_stops_back(kernels: str, prompts: list[list[int]]) -> None:
    engine = open_engine(kernels, "off")
    prompt = prompts[0]
    plain = texts(engine, [(prompt, Options())], [])[0]
    stops = [plain[2], plain[5]]
    assert texts(engine, [(prompt, Options())], stops)[0] == plain[:3]
    for n in (1, 3, 4, 10):
        options = Options(min_tokens=n)
        run = submit(engine, prompt, options, stops)
        run_all(engine, [run], logits=True)
        check(run, prompt, options, stops)
        assert len(run.token_ids) > min(n, 3) - (n < 3)
        assert not set(run.token_ids[:n]) & set(stops)
        engine.release(run.sequence)
    engine.close()


def jobs_of(prompts: list[list[int]], repeated: list[int]) -> list[tuple[list[int], Options]]:
    """Every case behind every prompt; words and allowed ids that the first one's text has."""
    words = [repeated[i : i + 1 + i % 4] for i in range(0, 36, 3)]
    return [(prompt, options) for prompt in prompts for options in CASES.values()] + [
        (prompts[0], Options(bad_words=words)),
        (prompts[0], Options(allowed_ids=sorted(set(repeated)), repetition_penalty=1.3)),
        (prompts[-1], Options(min_tokens=20, frequency_penalty=0.1)),
    ]


Alone = tuple[list[tuple[list[int], Options]], list[int], list[list[int]]]


def alone(kernels: str, prompts: list[list[int]]) -> Alone:
    """Jobs, ids that end a text, and the texts without drafts, one after another."""
    plain = open_engine(kernels, "off", slots=1)
    repeated = texts(plain, [(prompts[0], Options())], [])[0]
    jobs, stops = jobs_of(prompts, repeated), [repeated[7]]
    expected = texts(plain, jobs, stops)
    plain.close()
    return jobs, stops, expected


@pytest.fixture(scope="module")
def few(kernels: str, prompts: list[list[int]]) -> Alone:
    return alone(kernels, prompts[1:2])


@pytest.fixture(scope="module")
def many(kernels: str, prompts: list[list[int]]) -> Alone:
    return alone(kernels, prompts)


def check_drafts(kernels: str, spec: str, width: int, alone: Alone) -> None:
    jobs, stops, expected = alone
    engine = open_engine(kernels, spec)
    _core._testing.force_width(engine, width)
    assert texts(engine, jobs, stops) == expected
    assert int(engine.stats()["accepted_tokens"]) > 0
    engine.close()


SPECS = ("ngram", "mtp", "dflash")


@pytest.mark.parametrize("spec", SPECS)
def test_drafts_and_company_change_no_text(kernels: str, few: Alone, spec: str) -> None:
    check_drafts(kernels, spec, _core._testing.MOST_WIDTH, few)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3, _core._testing.MOST_WIDTH])
@pytest.mark.parametrize("spec", SPECS)
def test_no_width_of_drafts_changes_a_text(
    kernels: str, many: Alone, spec: str, width: int
) -> None:
    check_drafts(kernels, spec, width, many)


@pytest.mark.parametrize("n_prompt", [1, 300])
def test_what_texts_hold_outgrows_every_array(kernels: str, n_prompt: int) -> None:
    """Thousands of biases and words, also while a prompt takes several passes."""
    engine = open_engine(kernels, "off")
    before = engine.stats()
    prompt = [1000 + i % 700 for i in range(n_prompt)]
    options = Options(
        logit_bias={i: 0.01 * (i % 7) for i in range(5000)},
        bad_words=[[i, i + 1, i + 2] for i in range(3000)],
        frequency_penalty=0.3,
    )
    run = submit(engine, prompt, options, [], n_tokens=8)
    run_all(engine, [run], logits=True)
    check(run, prompt, options, [])
    grown = engine.stats()
    assert int(grown["arena_bytes"]) > int(before["arena_bytes"])
    parts = ("weights_copied_bytes", "arena_bytes", "pool_bytes")
    more = [sum(int(stats[part]) for part in parts) for stats in (before, grown)]
    assert int(grown["memory_bytes"]) - int(before["memory_bytes"]) == more[1] - more[0]
    plain = submit(engine, prompt, Options(), [], n_tokens=8)
    run_all(engine, [plain])
    engine.close()
    again = open_engine(kernels, "off")
    alone = submit(again, prompt, Options(), [], n_tokens=8)
    run_all(again, [alone])
    assert alone.token_ids == plain.token_ids
    again.close()


def test_a_device_without_memory_for_what_they_hold_ends_that_pass(
    kernels: str, prompts: list[list[int]]
) -> None:
    prompt, biased = prompts[0], Options(logit_bias=dict.fromkeys(range(0, 6000, 2), -2.0))
    engine = open_engine(kernels, "off")
    jobs = [(prompt, Options()), (prompt, biased)]
    expected = texts(engine, jobs, [])
    engine.close()
    engine = open_engine(kernels, "off")
    failing = [submit(engine, *job, []) for job in jobs]
    _core._testing.inject_fault("allocation", 2)  # the first is a heap for the states
    with pytest.raises(DeviceError, match="edits of logits: the device refused a buffer"):
        engine.step()
    engine.check_integrity()
    for run in failing:
        with pytest.raises(DeviceError, match="edits of logits"):
            engine.poll(run.sequence)
        engine.release(run.sequence)
    assert texts(engine, jobs, []) == expected
    engine.close()


def test_padding_of_the_vocabulary_is_no_token(kernels: str, tmp_path: Path) -> None:
    model = random_model(Geometry(layers="ga", heads=4, kv_heads=4, vocab=320, eos_id=258))
    path = write_gguf(tmp_path / "padded.gguf", model, tokenizer=True)
    engine = _core.Engine(str(path), kernels=kernels)
    options = Options(allowed_ids=[258, 260])
    run = submit(engine, [1, 2], options, [])
    run_all(engine, [run])
    assert set(run.token_ids) <= {258, 260}
    refused: dict[str, Any] = {
        "allowed_ids": [261],
        "logit_bias": [(300, 1.0)],
        "bad_words": [[1, 319]],
    }
    for name, value in refused.items():
        padding: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match="want 0 to 260"):
            engine.submit([1], max_tokens=1, temperature=0.0, seed=0, stop_ids=[], **padding)
    engine.close()


REFUSED: dict[str, dict[str, Any]] = {
    "top_p": {"top_p": 0.0},
    "min_p": {"min_p": 1.5},
    "presence_penalty": {"presence_penalty": float("nan")},
    "repetition_penalty": {"repetition_penalty": 0.0},
    "logit_bias: token id": {"logit_bias": [(-1, 1.0)]},
    "logit_bias: out of range": {"logit_bias": [(1, 3e38)]},
    "allowed_token_ids": {"allowed_ids": [10**6]},
    "bad_words": {"bad_words": [[]]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_nonsense_is_refused(kernels: str, name: str) -> None:
    engine = open_engine(kernels, "off")
    with pytest.raises(ValueError, match=name):
        engine.submit([1], max_tokens=1, temperature=0.0, seed=0, stop_ids=[], **REFUSED[name])
    engine.close()
