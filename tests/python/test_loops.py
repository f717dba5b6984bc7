"""The loop detector: when a text goes round in circles, and when it does not."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtlqwen.loops import MAX_PHRASE, LoopDetector


def found(tokens: list[int], limit: int) -> int | None:
    """Return after how many tokens the detector speaks."""
    loops = LoopDetector(limit)
    return next((at for at, token in enumerate(tokens, 1) if loops.feed(token)), None)


def repeats(tail: list[int], limit: int) -> bool:
    """The definition: an end with some period, three phrases and `limit` tokens long."""
    for period in range(1, len(tail) // 3 + 1):
        length = max(limit, 3 * period)
        end = tail[-length:]
        if len(end) == length and end[period:] == end[:-period]:
            return True
    return False


@pytest.mark.parametrize(
    ("tokens", "limit", "want"),
    [
        ([1, 2] * 5, 6, 6),
        ([1, 2] * 5, 7, 7),  # a phrase that has begun again counts
        ([1, 2] * 5, 3, 6),  # three phrases at least
        ([5] * 9, 3, 3),
        ([5] * 9, 8, 8),
        ([9, 8, 7, *[1, 2, 3] * 4], 9, 12),
        ([1, 2, 1, 3] * 3, 10, 12),  # a phrase that holds a token twice
        ([1, 1, 2, 1, 1, 2, 1, 1, 2], 9, 9),
        ([1, 2, 3, 1, 2, 4] * 2, 3, None),  # two are no loop
        ([1, 2, 3] * 2 + [4] + [1, 2, 3] * 2, 6, None),
        (list(range(50)), 3, None),
    ],
)
def test_a_loop_is_found_at_the_token_that_completes_it(
    tokens: list[int], limit: int, want: int | None
) -> None:
    assert found(tokens, limit) == want


@given(
    st.lists(st.integers(0, 2), max_size=8),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.integers(1, 6),
    st.lists(st.integers(0, 2), max_size=12),
    st.integers(3, 20),
)
def test_the_detector_follows_the_definition(
    before: list[int], phrase: list[int], times: int, after: list[int], limit: int
) -> None:
    tokens = before + phrase * times + after
    ends = [n for n in range(1, len(tokens) + 1) if repeats(tokens[:n], limit)]
    assert found(tokens, limit) == (ends[0] if ends else None)


@pytest.mark.parametrize("length", [MAX_PHRASE, MAX_PHRASE + 1])
def test_long_phrases_are_found_up_to_a_length(length: int) -> None:
    phrase = [0, *range(2, length + 1)]
    want = 3 * length if length <= MAX_PHRASE else None
    assert found([1, *phrase * 4], 3) == (None if want is None else want + 1)


def test_earlier_tokens_are_forgotten_beyond_a_phrase() -> None:
    loops = LoopDetector(10**6)
    for token in range(6 * MAX_PHRASE):
        assert not loops.feed(0)
        assert len(loops._seen[0]) <= 2 * MAX_PHRASE, token
    assert len(loops._runs) == MAX_PHRASE


def test_a_token_now_and_then_costs_little() -> None:
    loops, fresh = LoopDetector(3), count(1)
    for _ in range(200):
        assert not loops.feed(0)
        assert not any(loops.feed(next(fresh)) for _ in range(2000))
        assert not loops._runs
