"""Every call of a chat and of an agent computes what is new in it, and gives what it gives cold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from long import draws
from mtlqwen import Engine
from replays import SHARED_SYSTEM, Answered, Replay, agent, ask, long_chat, n_shared, play

CONTEXT = 8192  # of the bundled model
SPARE = 128  # tokens that a call may compute beyond those that are new


def cold_tokens(answered: Sequence[Answered], *, deterministic: bool) -> list[list[int]]:
    """What the same calls give without a cache."""
    tokens: list[list[int]] = []
    with Engine("tiny", deterministic=deterministic, cache_memory=0) as engine:
        for i in range(0, len(answered), engine.slots):
            results = ask(engine, [one.call for one in answered[i : i + engine.slots]])
            assert not any(result.usage.cached_tokens for result in results)
            tokens += [result.token_ids for result in results]
    return tokens


def check_spared(answered: Sequence[Answered]) -> None:
    for i, one in enumerate(answered):
        assert one.result.usage.prompt_tokens == one.prompt.size
        assert one.computed <= one.new + SPARE, f"call {i}, {one.call.kind}"
    # The replay is one that a cache is good for, and nearly all of what is shared is spared.
    prompts = sum(one.prompt.size for one in answered)
    new = sum(one.new for one in answered)
    assert new < prompts / 3
    assert sum(one.computed for one in answered) < new + prompts / 20


def check_tokens(answered: Sequence[Answered], *, deterministic: bool) -> None:
    """The same bits, or by default nearly always the same tokens.

    A prompt that is recalled is cut into other passes than a cold one, and other kernels serve
    those: by default sums are rounded otherwise, so that tokens of almost equal logits may change
    places, and with them what follows.
    """
    cold = cold_tokens(answered, deterministic=deterministic)
    warm = [one.result.token_ids for one in answered]
    different = [i for i, pair in enumerate(zip(warm, cold, strict=True)) if pair[0] != pair[1]]
    print(f"{len(different)} of {len(answered)} texts differ: {different}")
    if deterministic:
        assert not different
    else:
        same = sum(n_shared(np.array(a), np.array(b)) for a, b in zip(warm, cold, strict=True))
        assert same >= 0.95 * sum(map(len, cold))


def replayed(replay: Replay, *, deterministic: bool) -> list[Answered]:
    with Engine("tiny", deterministic=deterministic) as engine:
        assert engine.context == CONTEXT
        answered = list(play(engine, replay))
        engine.check_integrity()
        assert engine.stats()["live"] == 0
    print(sum(one.computed for one in answered), "of", sum(one.prompt.size for one in answered))
    return answered


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_chat_computes_what_is_new_in_each_turn(deterministic: bool) -> None:
    answered = replayed(long_chat(10, max_tokens=12), deterministic=deterministic)
    assert len(answered) == 10
    check_spared(answered)
    check_tokens(answered, deterministic=deterministic)


def test_an_agent_computes_what_is_new_in_each_step() -> None:
    answered = replayed(
        agent(16, max_tokens=6, n_rules=2, n_tools=1, limit=600), deterministic=True
    )
    assert len(answered) == 15 + SHARED_SYSTEM
    check_spared(answered)
    check_tokens(answered, deterministic=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_chat_of_many_turns(deterministic: bool) -> None:
    n = 50 if deterministic else draws(25, 50)
    answered = replayed(long_chat(n), deterministic=deterministic)
    assert len(answered) == n
    check_spared(answered)
    check_tokens(answered, deterministic=deterministic)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
@pytest.mark.parametrize("deterministic", [True, False])
def test_an_agent_of_many_steps(deterministic: bool) -> None:
    n = draws(100 if deterministic else 60, 200)
    answered = replayed(agent(n), deterministic=deterministic)
    kinds = Counter(one.call.kind for one in answered)
    assert kinds["together"] == -(-n // 40) * SHARED_SYSTEM
    assert min(kinds[kind] for kind in ("task", "result", "edit", "rewind")) >= n // 20
    check_spared(answered)
    check_tokens(answered, deterministic=deterministic)
