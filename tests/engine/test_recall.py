"""What a request does not compute: checkpoints left, found, missed, and why."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Geometry, random_model, write_gguf
from mtlqwen import _core

GEOMETRY = Geometry(layers="ga", heads=2, kv_heads=2, vocab=288, context=2048)
N_TOKENS = 6

Open = Callable[..., _core.Engine]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recall") / "model.gguf"
    return str(write_gguf(path, random_model(GEOMETRY, seed=6)))


@pytest.fixture
def open_engine(kernels: str, model: str) -> Iterator[Open]:
    engines: list[_core.Engine] = []

    def open_one(**options: Any) -> _core.Engine:
        engines.append(_core.Engine(model, kernels=kernels, deterministic=True, **options))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


def text(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(GEOMETRY.vocab) for _ in range(length)]


def run(
    engine: _core.Engine, prompt: Sequence[int], *, max_tokens: int = N_TOKENS, **options: Any
) -> tuple[list[int], int]:
    """The tokens behind a prompt, and how many of the prompt were cached."""
    sequence = engine.submit(
        list(prompt), max_tokens=max_tokens, temperature=0.0, seed=0, stop_ids=[], **options
    )
    token_ids: list[int] = []
    while True:
        engine.step()
        poll = engine.poll(sequence)
        token_ids += poll.token_ids
        if poll.finish_reason is not None:
            break
    engine.check_integrity()
    engine.release(sequence)
    return token_ids, poll.cached_tokens


def test_a_prompt_again_computes_little_more_than_a_block(open_engine: Open) -> None:
    engine, prompt = open_engine(), text(1000, 1)
    expected, cached = run(engine, prompt)
    assert cached == 0
    assert run(engine, prompt) == (expected, 896)
    stats = engine.stats()
    assert (stats["cache_hits"], stats["cache_misses"], stats["cached_tokens"]) == (1, 1, 896)
    assert stats["cache_checkpoints"] == 2, "at 512 and 896; the end is less than a block further"
    assert stats["prefill_rows"] == 1000 + (1000 - 896)


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 512, 513, 640, 1025])
def test_any_length_gives_the_tokens_of_a_cold_engine(open_engine: Open, length: int) -> None:
    warm, cold, prompt = open_engine(), open_engine(cache_memory=0), text(length, 2)
    expected, _ = run(cold, prompt)
    first, _ = run(warm, prompt)
    again, cached = run(warm, prompt)
    assert first == again == expected
    assert length - 129 <= cached < length


def test_a_prompt_goes_on_from_likely_positions_inside_blocks(open_engine: Open) -> None:
    warm, cold, prompt = open_engine(), open_engine(cache_memory=0), text(400, 3)
    run(warm, prompt, checkpoint_at=[333, 77])  # in any order
    for shared, cached in ((76, 0), (77, 77), (300, 77), (333, 333), (399, 333)):
        other = prompt[:shared] + text(50, shared)
        assert other[shared] != prompt[shared]
        assert run(warm, other)[1] == cached
        assert run(warm, other)[0] == run(cold, other)[0]


@pytest.mark.parametrize("position", [0, 401])
def test_likely_positions_stand_in_the_prompt(open_engine: Open, position: int) -> None:
    with pytest.raises(ValueError, match=rf"checkpoint_at: .*\(got {position}, want 1 to 400\)"):
        run(open_engine(), text(400, 3), checkpoint_at=[position])


def test_where_two_prompts_part_the_third_goes_on(open_engine: Open) -> None:
    engine, shared = open_engine(), text(300, 4)
    assert run(engine, shared + text(100, 5))[1] == 0
    assert run(engine, shared + text(100, 6))[1] == 0, "the first left none between 0 and 384"
    assert run(engine, shared + text(100, 7))[1] == 300
    assert engine.stats()["uncovered_tokens"] == 300


def test_what_was_generated_is_known_as_well(open_engine: Open) -> None:
    engine, prompt = open_engine(), text(100, 8)
    token_ids, _ = run(engine, prompt, max_tokens=200)
    longer = prompt + token_ids + text(30, 9)
    assert run(engine, longer)[1] == 100 + 200 - 1, "the last token was never run"


def test_a_long_answer_leaves_checkpoints_by_the_interval(open_engine: Open) -> None:
    engine, prompt = open_engine(checkpoint_interval=64), text(10, 10)
    token_ids, _ = run(engine, prompt, max_tokens=300)
    assert run(engine, (prompt + token_ids)[:200])[1] == 192


def test_whoever_is_cancelled_leaves_what_it_computed(open_engine: Open) -> None:
    engine, prompt = open_engine(checkpoint_interval=0), text(1000, 11)
    sequence = engine.submit(prompt, max_tokens=5, temperature=0.0, seed=0, stop_ids=[])
    for _ in range(3):
        engine.step()
    engine.cancel(sequence)
    engine.step()
    assert run(engine, prompt)[1] == 3 * 128


def test_who_wants_no_recall_computes_all_and_leaves_the_same(open_engine: Open) -> None:
    engine, prompt = open_engine(), text(600, 12)
    expected, _ = run(engine, prompt, recall=False)
    assert run(engine, prompt, recall=False) == (expected, 0)
    assert run(engine, prompt) == (expected, 512)


def test_without_memory_for_it_there_is_no_cache(open_engine: Open) -> None:
    engine, prompt = open_engine(cache_memory=0), text(600, 13)
    assert run(engine, prompt)[1] == run(engine, prompt)[1] == 0
    stats = engine.stats()
    assert {value for key, value in stats.items() if key.startswith("cache")} == {0}


def test_the_cache_keeps_its_bytes_and_evicts(open_engine: Open) -> None:
    engine = open_engine()
    run(engine, text(1000, 0))
    one = int(engine.stats()["cache_bytes"])
    engine = open_engine(cache_memory=4 * one)
    prompts = [text(1000, 20 + i) for i in range(8)]
    for prompt in prompts:
        run(engine, prompt)
        assert int(engine.stats()["cache_bytes"]) <= 4 * one
    assert int(engine.stats()["cache_evictions"]) >= 8
    assert run(engine, prompts[-1])[1] == 896
    assert run(engine, prompts[0])[1] == 0
    assert int(engine.stats()["evicted_tokens"]) == 0, "nothing is known of its text any more"


def recalls(engine: _core.Engine, path: Path, prompts: Sequence[list[int]]) -> list[dict[str, Any]]:
    """The marks of a trace that say what was recalled."""
    engine.start_trace(str(path))
    for prompt in prompts:
        run(engine, prompt)
    engine.stop_trace()
    return [event["args"] for event in json.loads(path.read_text()) if event["name"] == "recall"]


def test_a_trace_says_why_a_prompt_was_computed(open_engine: Open, tmp_path: Path) -> None:
    prompt = text(700, 30)
    other = prompt[:600] + text(200, 31)
    marks = recalls(open_engine(), tmp_path / "t.json", [prompt, prompt, other])
    assert marks == [
        {"request_tokens": 700, "cached_tokens": 0, "known_tokens": 0, "rest": "new text"},
        {"request_tokens": 700, "cached_tokens": 640, "known_tokens": 640, "rest": "new text"},
        {"request_tokens": 800, "cached_tokens": 512, "known_tokens": 600, "rest": "no checkpoint"},
    ]


def test_one_that_does_not_fit_the_pool_evicts_before_others_lose_their_slot(
    kernels: str, model: str
) -> None:
    roomy = _core.Engine(model, kernels=kernels, context=1024, slots=2)
    run(roomy, text(1000, 40))
    used = int(roomy.stats()["memory_bytes"])
    roomy.close()
    engine = _core.Engine(model, kernels=kernels, context=1024, slots=2, memory_budget=used)
    for i in range(12):
        run(engine, text(1000, 41 + i), max_tokens=3)
    stats = engine.stats()
    assert stats["preemptions"] == 0
    assert int(stats["memory_bytes"]) <= used
    engine.close()
