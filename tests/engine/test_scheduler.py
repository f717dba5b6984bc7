"""The scheduler's pure functions: who is admitted next, and who gets how many rows of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mtlqwen import _core

plan_rows: Callable[[list[int], int, int], list[int]] = _core._testing.plan_rows
choose_next: Callable[[list[tuple[int, int]]], int | None] = _core._testing.choose_next
PASSES_PER_PRIORITY: int = _core._testing.PASSES_PER_PRIORITY

MAX_SLOTS = 32


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Tokens pending of each live sequence, rows of the pass, rows that prefill may take."""
    pending = draw(
        st.lists(
            st.one_of(st.just(1), st.integers(1, 200), st.integers(1, 70_000)),
            min_size=1,
            max_size=MAX_SLOTS,
        )
    )
    rows = draw(st.one_of(st.just(128), st.integers(len(pending), 128)))
    return pending, rows, draw(st.integers(0, 128))


def prefill_limit(pending: list[int], rows: int, prefill_rows: int) -> int:
    """Rows that the prefilling sequences may take together."""
    decoding = pending.count(1)
    prefilling = len(pending) - decoding
    left = rows - decoding
    return left if decoding == 0 else max(prefilling, min(left, prefill_rows))


@given(passes())
def test_every_live_sequence_advances(case: tuple[list[int], int, int]) -> None:
    counts = plan_rows(*case)
    assert len(counts) == len(case[0])
    assert min(counts) >= 1


@given(passes())
def test_a_decoding_sequence_gets_one_row_and_nobody_more_than_pending(
    case: tuple[list[int], int, int],
) -> None:
    for count, pending in zip(plan_rows(*case), case[0], strict=True):
        assert count <= pending


@given(passes())
def test_a_pass_is_never_overfull(case: tuple[list[int], int, int]) -> None:
    assert sum(plan_rows(*case)) <= case[1]


@given(passes())
def test_prefill_keeps_to_its_share_while_others_decode(case: tuple[list[int], int, int]) -> None:
    pending = case[0]
    prefill = sum(c for c, p in zip(plan_rows(*case), pending, strict=True) if p > 1)
    assert prefill <= prefill_limit(*case)


@given(passes())
def test_no_row_stays_idle_that_somebody_could_use(case: tuple[list[int], int, int]) -> None:
    pending = case[0]
    prefill = sum(c for c, p in zip(plan_rows(*case), pending, strict=True) if p > 1)
    wanted = sum(p for p in pending if p > 1)
    assert prefill == min(wanted, prefill_limit(*case))


@given(passes())
def test_shares_are_equal_to_one_row_and_odd_rows_go_to_the_earliest(
    case: tuple[list[int], int, int],
) -> None:
    counts = plan_rows(*case)
    capped = [c for c, p in zip(counts, case[0], strict=True) if p > 1 and c < p]
    if not capped:
        return
    assert max(capped) - min(capped) <= 1
    assert capped == sorted(capped, reverse=True)
    # Who got all that it asked for asked for no more than the others got, or had an odd row.
    full = [c for c, p in zip(counts, case[0], strict=True) if p > 1 and c == p]
    assert all(count <= min(capped) + 1 for count in full)


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1))))
def test_the_next_is_the_earliest_of_the_highest_aged_priority(
    line: list[tuple[int, int]],
) -> None:
    aged = [priority + passed // PASSES_PER_PRIORITY for priority, passed in line]
    assert choose_next(line) == (aged.index(max(aged)) if aged else None)


class Queue:
    """A waiting line as the engine keeps it."""

    def __init__(self) -> None:
        self.line: list[dict[str, Any]] = []

    def join(self, name: int, priority: int) -> None:
        self.line.append({"name": name, "priority": priority, "passed_over": 0})

    def admit(self) -> int | None:
        chosen = choose_next([(w["priority"], w["passed_over"]) for w in self.line])
        if chosen is None:
            return None
        for waiting in self.line[:chosen]:
            waiting["passed_over"] += 1
        name: int = self.line.pop(chosen)["name"]
        return name


@given(
    low=st.integers(-20, 20),
    above=st.integers(1, 20),
    ahead=st.lists(st.integers(-20, 20), max_size=8),
    crowd=st.integers(1, 4),
)
def test_nobody_starves_however_many_more_important_ones_keep_coming(
    low: int, above: int, ahead: list[int], crowd: int
) -> None:
    queue = Queue()
    for name, priority in enumerate(ahead):
        queue.join(name, priority)
    patient = len(ahead)
    queue.join(patient, low)
    # Each admission of a later one ages it; those ahead of it are finite, and so is the crowd that
    # is there at any time.
    limit = PASSES_PER_PRIORITY * (above + 1) + len(ahead) + crowd
    name = patient
    for _ in range(limit):
        for _ in range(crowd):
            name += 1
            queue.join(name, low + above)
        if queue.admit() == patient:
            return
    raise AssertionError(f"still waiting after {limit} admissions")


@given(st.lists(st.integers(1, 300), min_size=1, max_size=MAX_SLOTS))
def test_every_prompt_is_done_after_as_many_passes_as_its_smallest_share_needs(
    prompts: list[int],
) -> None:
    pending = list(prompts)
    passes = 0
    while any(pending):
        live = [i for i, tokens in enumerate(pending) if tokens]
        counts = plan_rows([pending[i] for i in live], 128, 128)
        for i, count in zip(live, counts, strict=True):
            pending[i] -= count
        passes += 1
    least_share = 128 // len(prompts)
    assert passes <= -(-max(prompts) // least_share)
