"""Where a request leaves checkpoints: pure functions."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from mtlqwen import _core

choose: Callable[[int, list[int], int, int], list[int]] = _core._testing.choose_boundaries
between: Callable[[list[int], int, int, int, int], list[int]] = _core._testing.boundaries_between


@st.composite
def wishes(draw: st.DrawFn) -> tuple[int, list[int], int, int]:
    """Tokens of a request, likely positions, where it diverges, tokens of a block."""
    n_tokens = draw(st.integers(1, 5000))
    likely = sorted(draw(st.sets(st.integers(1, n_tokens), max_size=40)))
    return n_tokens, likely, draw(st.integers(0, n_tokens)), draw(st.sampled_from([64, 128, 256]))


@given(wishes())
def test_boundaries_are_ascending_and_inside(wishes: tuple[int, list[int], int, int]) -> None:
    n_tokens = wishes[0]
    chosen = choose(*wishes)
    assert chosen == sorted(set(chosen))
    assert all(1 <= position <= n_tokens for position in chosen)


@given(wishes())
def test_nothing_likely_is_a_block_or_more_behind_a_boundary(
    wishes: tuple[int, list[int], int, int],
) -> None:
    n_tokens, likely, diverges, block = wishes
    chosen = choose(*wishes)
    for position in [*likely, diverges, n_tokens]:
        before = max((c for c in chosen if c <= position), default=0)
        assert position - before <= block


@given(wishes())
def test_every_boundary_has_its_reason(wishes: tuple[int, list[int], int, int]) -> None:
    n_tokens, likely, diverges, block = wishes
    last_block = (n_tokens - 1) // block * block
    assert set(choose(*wishes)) <= {*likely, diverges, last_block}
    assert not likely or {likely[0], likely[-1]} <= set(choose(*wishes))


def test_likely_ones_that_stand_close_are_thinned() -> None:
    assert choose(1000, [10, 50, 137, 138, 500, 620, 990], 0, 128) == [10, 138, 500, 990]


def test_a_prompt_without_hints_keeps_its_last_whole_block() -> None:
    assert choose(2000, [], 0, 128) == [1920]
    assert choose(1921, [], 0, 128) == [1920]
    assert choose(1920, [], 0, 128) == [1792]
    assert choose(128, [], 0, 128) == []


def test_where_requests_part_there_is_a_boundary() -> None:
    assert choose(700, [], 333, 128) == [333, 640]


@given(
    st.sets(st.integers(1, 3000), max_size=20),
    st.integers(0, 600),
    st.integers(0, 3000),
    st.integers(1, 128),
    st.integers(1, 6),
)
def test_those_of_a_chunk_are_the_earliest_of_list_and_interval(
    positions: set[int], interval: int, start: int, count: int, most: int
) -> None:
    inside = range(start + 1, start + count + 1)
    wanted = [p for p in inside if p in positions or (interval and p % interval == 0)]
    assert between(sorted(positions), interval, start, start + count, most) == wanted[:most]
