"""What chooses drafts, piece by piece: n-gram look-up, acceptance, times of passes, widths."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtlqwen import _core

testing: Any = _core._testing
MOST_WIDTH: int = testing.MOST_WIDTH
NGRAM_LEAST, NGRAM_MOST, NGRAM_LOOKED = testing.NGRAM_LIMITS


def longest_match(text: Sequence[int]) -> tuple[int, int]:
    """Tokens shared with the best earlier occurrence of the end, and where that ends."""
    ends = [
        end
        for end in range(len(text) - 1, NGRAM_LEAST - 1, -1)
        if text[end - NGRAM_LEAST : end] == text[-NGRAM_LEAST:]
    ]
    best = (0, 0)
    for end in ends[:NGRAM_LOOKED]:
        shared = NGRAM_LEAST
        while shared < min(end, NGRAM_MOST) and text[end - 1 - shared] == text[-1 - shared]:
            shared += 1
        if shared > best[0]:
            best = (shared, end)
    return best


def follow(text: Sequence[int], most: int) -> list[int]:
    """What followed the best match, going on in itself."""
    length, end = longest_match(text)
    longer = list(text)
    for i in range(most if length else 0):
        longer.append(longer[end + i])
    return longer[len(text) :]


@given(st.lists(st.lists(st.integers(0, 3), max_size=30), max_size=20), st.integers(0, 40))
def test_the_longest_recent_match_is_proposed(pieces: list[list[int]], most: int) -> None:
    index = testing.NgramIndex()
    text: list[int] = []
    for piece in pieces:
        index.append(piece)
        text += piece
        assert index.match_length == longest_match(text)[0]
        assert index.propose(most) == follow(text, most)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_texts_that_repeat_earlier_stretches_are_followed(seed: int, n_tokens: int) -> None:
    rng = random.Random(seed)
    index = testing.NgramIndex()
    text: list[int] = []
    for _ in range(40):
        if text and rng.random() < 0.7:
            begin = rng.randrange(len(text))
            piece = text[begin : begin + rng.randrange(1, 25)]
        else:
            piece = [rng.randrange(10**n_tokens) for _ in range(rng.randrange(1, 9))]
        index.append(piece)
        text += piece
        assert index.propose(MOST_WIDTH) == follow(text, MOST_WIDTH)


def test_a_period_goes_on_beyond_the_end_of_the_text() -> None:
    index = testing.NgramIndex()
    index.append([7, 8, 9] * 3)
    assert index.match_length == 6
    assert index.propose(7) == [7, 8, 9, 7, 8, 9, 7]


def test_the_index_takes_as_much_memory_as_it_says() -> None:
    index = testing.NgramIndex()
    n_tokens = 0
    for _ in range(200):
        piece = [hash((n_tokens, i)) % 250_000 for i in range(173)]
        index.append(piece)
        n_tokens += len(piece)
        assert 16 * n_tokens <= index.bytes <= 32 * n_tokens + 512


def drafted(rng: random.Random, conditionals: Sequence[float], width: int) -> int:
    """Proposals accepted of a draft."""
    accepted = 0
    while accepted < width and rng.random() < conditionals[accepted]:
        accepted += 1
    return accepted


@given(
    st.lists(st.tuples(st.integers(0, MOST_WIDTH), st.integers(0, MOST_WIDTH)), max_size=60),
    st.floats(0.05, 0.95),
)
def test_a_chain_is_a_law_whatever_was_seen(passes: list[tuple[int, int]], prior: float) -> None:
    profile, sequence = testing.AcceptanceProfile(prior), testing.Acceptance()
    for width, accepted in passes:
        sequence.observe(profile, width, min(width, accepted))
        profile.observe(width, min(width, accepted))
        chain = sequence.chain(profile)
        assert len(chain) == MOST_WIDTH
        assert all(0 < later < earlier < 1 for earlier, later in itertools.pairwise(chain))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("width", [1, 4, 15])
def test_acceptance_is_learned(rate: float, width: int) -> None:
    rng = random.Random(17)
    profile, sequence = testing.AcceptanceProfile(0.8), testing.Acceptance()
    estimates = []
    for at in range(600):
        accepted = drafted(rng, [rate] * MOST_WIDTH, width)
        sequence.observe(profile, width, accepted)
        profile.observe(width, accepted)
        if at >= 200:
            estimates.append(sequence.chain(profile)[0])
    assert sum(estimates) / len(estimates) == pytest.approx(rate, abs=0.06)


def test_a_new_sequence_is_taken_to_be_like_the_others() -> None:
    rng = random.Random(5)
    profile = testing.AcceptanceProfile(0.8)
    conditionals = [0.9] * 3 + [0.3] * 12
    for _ in range(100):
        sequence = testing.Acceptance()
        for _ in range(5):
            accepted = drafted(rng, conditionals, MOST_WIDTH)
            sequence.observe(profile, MOST_WIDTH, accepted)
            profile.observe(MOST_WIDTH, accepted)
    chain = testing.Acceptance().chain(profile)
    assert chain[0] == pytest.approx(0.9, abs=0.05)
    assert chain[2] == pytest.approx(0.9**3, abs=0.08)
    assert chain[4] == pytest.approx(0.9**3 * 0.3**2, abs=0.05)


def test_one_lucky_draft_after_a_long_idle_time_is_evidence_of_another_text() -> None:
    profile, sequence = testing.AcceptanceProfile(0.8), testing.Acceptance()
    for _ in range(60):
        sequence.observe(profile, 4, 0)
        profile.observe(4, 0)
    hopeless = sequence.chain(profile)[0]
    for _ in range(40):
        sequence.observe(profile, 0, 0)
    sequence.observe(profile, 2, 2)
    assert hopeless < 0.1
    assert sequence.chain(profile)[0] > 0.25


def test_times_that_were_measured_are_given_back() -> None:
    cost = testing.PassCost()
    times = {rows: 1e-3 * (1 + 0.2 * rows + (rows > 4)) for rows in range(1, 9)}
    for _ in range(30):
        for rows, seconds in times.items():
            cost.observe("ngram", 1, rows, seconds)
    for rows, seconds in times.items():
        assert cost.estimate("off", 1, rows) == pytest.approx(seconds, rel=0.02)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["off", "ngram", "mtp", "dflash"]),
            st.integers(1, 32),
            st.integers(0, 32),
            st.floats(1e-4, 10),
            st.integers(1, 4),
        ),
        max_size=2,
    )
)
def test_estimates_rise_with_rows_where_nothing_else_was_measured(
    seen: list[tuple[str, int, int, float, int]],
) -> None:
    cost = testing.PassCost()
    for kind, n, more, seconds, steps in seen:
        cost.observe(kind, n, n + more, seconds, steps)
    for kind, n in itertools.product(["off", "mtp", "dflash"], [1, 3, 8, 32]):
        estimates = [cost.estimate(kind, n, n + i, 2) for i in range(33)]
        assert all(seconds > 0 for seconds in estimates)
        assert all(a <= b for a, b in itertools.pairwise(estimates))


def test_what_lies_between_and_beyond_is_guessed_from_what_was_seen() -> None:
    cost = testing.PassCost()
    for _ in range(10):
        for rows in (1, 2, 4, 16):
            cost.observe("off", 1, rows, 1e-3 * (1 + 0.5 * (rows - 1)))
    for rows in (3, 8, 12, 24):
        assert cost.estimate("off", 1, rows) == pytest.approx(
            1e-3 * (1 + 0.5 * (rows - 1)), rel=0.35
        )
    assert cost.estimate("dflash", 1, 4) > cost.estimate("off", 1, 4)


def test_one_pass_among_other_work_changes_little_and_a_slower_machine_all() -> None:
    cost = testing.PassCost()
    for _ in range(30):
        cost.observe("off", 1, 1, 1e-3)
        cost.observe("ngram", 1, 8, 2e-3)
    cost.observe("off", 1, 1, 9e-3)
    assert cost.estimate("off", 1, 1) == pytest.approx(1e-3, rel=0.05)
    for _ in range(60):
        cost.observe("off", 1, 1, 2e-3)
    assert cost.estimate("off", 1, 1) == pytest.approx(2e-3, rel=0.05)
    assert cost.estimate("ngram", 1, 8) > 2.2e-3


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[float], int]:
    """A chain and how many proposals of it are wanted."""
    conditionals = draw(st.lists(st.floats(0, 1), min_size=MOST_WIDTH, max_size=MOST_WIDTH))
    most = draw(st.integers(0, 4))
    return list(itertools.accumulate(conditionals, lambda all_, next_: all_ * next_)), most


@given(
    st.lists(chains(), min_size=1, max_size=4),
    st.lists(st.floats(0.1, 10), min_size=1, max_size=17),
)
def test_no_other_widths_promise_more_tokens_a_second(
    candidates: list[tuple[list[float], int]], seconds: list[float]
) -> None:
    widths, tokens, time = testing.choose_widths(candidates, seconds)
    assert all(width <= most for width, (_, most) in zip(widths, candidates, strict=True))
    assert sum(widths) < len(seconds)
    assert time == seconds[sum(widths)]
    best = max(
        (len(candidates) + sum(sum(c[:w]) for (c, _), w in zip(candidates, tried, strict=True)))
        / seconds[sum(tried)]
        for tried in itertools.product(*(range(most + 1) for _, most in candidates))
        if sum(tried) < len(seconds)
    )
    assert tokens / time == pytest.approx(best, rel=1e-5)
