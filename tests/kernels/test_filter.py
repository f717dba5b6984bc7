"""filter_rows: the threshold to the bit, what it keeps in float64, and what is sampled then."""

from __future__ import annotations

import numpy as np
import pytest
from cases_filter import FilterRun, filter_run
from cases_layers import Floats
from cases_sample import Draw, pack_masks, sample_run
from harness import Buffer, Runner, open_runner, run
from layer_args import NO_INDEX
from numpy.typing import NDArray
from reference_edit import FORBIDDEN
from reference_filter import Filter
from test_sample import choose, odd_logits

VOCABS = [1, 3, 31, 127, 128, 1000, 4097, 248320]
TEMPERATURES = (1e-3, 0.7, 1.0, 100.0)
LAST = float(np.float32(1 - 1e-7))
FILTERS = [
    Filter(),
    Filter(top_k=1),
    Filter(top_k=20),
    Filter(top_k=5000),  # more than a twin has blocks
    Filter(top_k=2**31),
    Filter(top_p=1e-9),
    Filter(top_p=0.5),
    Filter(top_p=0.95),
    Filter(top_p=LAST),
    Filter(min_p=0.05),
    Filter(min_p=1.0),
    Filter(top_k=20, top_p=0.95),
    Filter(top_k=20, top_p=0.8, min_p=0.1),
    Filter(top_k=9000, top_p=0.999, min_p=1e-4),
]


def check_filters(runner: Runner, case: FilterRun) -> None:
    """Each Kept is the reference's, to the bit, and keeps what float64 keeps but for near-ties."""
    run(runner, case.launches)
    references = {row: case.reference(row) for row, _ in case.filters}
    for (row, by), kept in zip(case.filters, case.kept, strict=True):
        reference = references[row]
        assert kept == reference.kept(by)[0], (case.draws[row], by)
        chosen = reference.chosen(*kept.tolist())
        assert np.array_equal(chosen, reference.order[: chosen.size])
        if not np.isposinf(reference.scores[:1]).any():
            least, most = reference.counts(by)
            assert least <= chosen.size <= most, (case.draws[row], by)


def normal(rows: int, vocab: int) -> Floats:
    values = np.random.default_rng(vocab).standard_normal((rows, vocab)) * 3
    return values.astype(np.float32)


def every_filter(rows: int) -> list[tuple[int, Filter]]:
    return [(row, by) for row in range(rows) for by in FILTERS]


@pytest.mark.parametrize("vocab", VOCABS)
def test_kept_is_the_reference(runner: Runner, vocab: int) -> None:
    draws = [Draw(temperature=t) for t in TEMPERATURES]
    check_filters(runner, filter_run(normal(4, vocab), draws, every_filter(4)))


@pytest.mark.parametrize("vocab", [127, 4097])
@pytest.mark.parametrize("n_valid", [1, 63, 65, 126])
def test_ids_past_n_valid_do_not_count(runner: Runner, vocab: int, n_valid: int) -> None:
    values = normal(2, vocab)
    values[:, n_valid:] = 1e6
    draws = [Draw(temperature=1.0), Draw(temperature=2.0)]
    check_filters(runner, filter_run(values, draws, every_filter(2), n_valid=n_valid))


def test_equals_are_kept_by_ascending_id(runner: Runner) -> None:
    """All equal; few levels, cut at a level; zeros of both signs and tiny numbers are one."""
    rng = np.random.default_rng(1)
    values = np.zeros((4, 20000), np.float32)
    values[1] = np.rint(rng.standard_normal(20000) * 2)
    values[2] = rng.choice(np.array([0.0, -0.0, 1e-40, -1e-40], np.float32), 20000)
    values[2, 7000:] -= 1
    values[3, 15000:15003] = 40
    draws = [Draw(temperature=1.0)] * 4
    case = filter_run(values, draws, every_filter(4))
    check_filters(runner, case)
    assert case.kept[1].tolist() == (0.0, 0)
    assert case.kept[2].tolist() == (0.0, 19)


@pytest.mark.parametrize("seed", range(6))
def test_odd_logits(runner: Runner, seed: int) -> None:
    """NaN, infinities, ties, tiny and huge numbers, with masks and without."""
    rng = np.random.default_rng(seed)
    vocab = int(rng.integers(1, 6000))
    n_valid = int(rng.integers(1, vocab + 1))
    allowed = rng.random((2, n_valid)) < rng.choice([0.01, 0.5, 0.99])
    values = odd_logits(rng, 4, vocab)
    draws = [
        Draw(temperature=float(rng.choice([0.0, 1e-38, 0.3, 1.0, 1e30])), mask=mask)
        for mask in (NO_INDEX, 0, 1, 1)
    ]
    case = filter_run(values, draws, every_filter(4), n_valid=n_valid, allowed=allowed)
    check_filters(runner, case)


def test_nothing_to_filter(runner: Runner) -> None:
    """Greedy rows, and rows in which nothing can be chosen, keep everything."""
    values = np.zeros((4, 300), np.float32)
    values[1] = np.nan
    values[2] = -np.inf
    allowed = np.zeros((1, 300), np.bool_)
    draws = [Draw(), Draw(temperature=1.0), Draw(temperature=1.0), Draw(temperature=1.0, mask=0)]
    case = filter_run(values, draws, every_filter(4), allowed=allowed)
    run(runner, case.launches)
    assert set(case.kept.tolist()) == {(-np.inf, NO_INDEX)}


def test_infinity_is_above_all(runner: Runner) -> None:
    values = normal(1, 1000)
    values[0, [40, 700]] = np.inf
    case = filter_run(values, [Draw(temperature=1.0)], every_filter(1))
    check_filters(runner, case)
    assert case.kept[FILTERS.index(Filter(top_p=0.5))].tolist() == (np.inf, 40)


def test_kept_does_not_depend_on_company_or_threads(runner: Runner) -> None:
    values = normal(5, 3001)
    draws = [Draw(temperature=0.4 * (row + 1)) for row in range(5)]
    filters = [(row, by) for row, by in enumerate(FILTERS[-5:])]
    whole = filter_run(values, draws, filters)
    run(runner, whole.launches)
    for threads in (32, 1024):
        case = filter_run(values, draws, filters[::-1], threads=threads)
        run(runner, case.launches)
        assert case.kept[::-1].tolist() == whole.kept.tolist()
    for row, by in filters:
        alone = filter_run(values[row : row + 1].copy(), [draws[row]], [(0, by)])
        run(runner, alone.launches)
        assert alone.kept[0] == whole.kept[row]


def sampled(runner: Runner, values: Floats, draws: list[Draw], **kwargs: object) -> list[int]:
    ids: list[int] = choose(runner, sample_run(values, draws, **kwargs)).tolist()  # type: ignore[arg-type]
    return ids


@pytest.mark.parametrize("temperature", [0.0, 0.7, 3.0])
def test_sample_is_that_of_what_is_left(runner: Runner, temperature: float) -> None:
    """As if what is not kept, or not allowed, were forbidden."""
    rng = np.random.default_rng(3)
    values = (np.rint(normal(6, 3001) * 4) / 4).astype(np.float32)
    allowed = rng.random((2, 3001)) < 0.3
    draws = [
        Draw(temperature=temperature, seed=row, filter=row if row != 4 else NO_INDEX, mask=mask)
        for row, mask in enumerate((NO_INDEX, 0, 1, NO_INDEX, 0, 1))
    ]
    filters = [(row, by) for row, by in enumerate([*FILTERS[6:8], *FILTERS[-4:]])]
    case = filter_run(values, draws, filters, allowed=allowed)
    run(runner, case.launches)
    left = np.full_like(values, FORBIDDEN)
    for row in range(6):
        reference = case.reference(row)
        ids = reference.order if row == 4 else reference.chosen(*case.kept[row].tolist())
        left[row, ids] = values[row, ids]
    plain = [Draw(temperature=temperature, seed=row) for row in range(6)]
    expected = sampled(runner, left, plain)
    for chunk in (1, 37, 128, 4096):
        masks = pack_masks(allowed)
        got = sampled(runner, values, draws, chunk=chunk, kept=case.kept, masks=masks)
        assert got == expected


def test_nothing_allowed_gives_no_id(runner: Runner) -> None:
    masks = pack_masks(np.zeros((1, 300), np.bool_))
    draws = [Draw(mask=0), Draw(temperature=1.0, mask=0)]
    assert sampled(runner, normal(2, 300), draws, masks=masks) == [-1, -1]


def chi_square(ids: Buffer, expected: NDArray[np.float64]) -> float:
    """Infinite where an id comes that cannot."""
    counts = np.bincount(ids, minlength=expected.size)
    if counts[expected == 0].any():
        return np.inf
    wanted = expected[expected > 0]
    return float(np.sum((counts[expected > 0] - wanted) ** 2 / wanted))


def test_distribution_of_a_filtered_row(runner: Runner) -> None:
    """Chi-square of 100,000 draws over what is kept; a sampler that is a little off fails."""
    values = np.array([2.0, 1.5, 0.0, -1.0, 1.0, 0.5, -0.5, 2.5, -1.5, 0.25, -3.0, 1.5], np.float32)
    n, temperature = 100_000, 0.9
    by = Filter(top_k=9, top_p=0.97, min_p=0.05)
    case = filter_run(values[None], [Draw(temperature=temperature)], [(0, by)])
    run(runner, case.launches)
    kept = case.reference(0).chosen(*case.kept[0].tolist())
    assert sorted(kept) == [0, 1, 2, 4, 5, 7, 9, 11]
    p = np.zeros(values.size)
    p[kept] = np.exp(values[kept].astype(np.float64) / temperature)
    expected = n * p / p.sum()

    def drawn(temperature: float, filtered: int) -> Buffer:
        sampling = sample_run(
            np.tile(values, (n, 1)),
            [Draw(temperature=temperature, seed=5, position=i, filter=filtered) for i in range(n)],
            kept=case.kept,
        )
        return choose(runner, sampling)

    limit = 24.3  # 7 degrees of freedom: exceeded with probability 0.001
    assert chi_square(drawn(temperature, 0), expected) < limit
    assert chi_square(drawn(1.03 * temperature, 0), expected) > limit
    assert chi_square(drawn(temperature, NO_INDEX), expected) > limit


def test_twins_keep_and_choose_the_same(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels themselves, whatever the logits."""
    runners = []
    for choice in ("auto", "msl"):
        monkeypatch.setenv("MTLQWEN_HOST_KERNELS", choice)
        runners.append(open_runner(kernels))
    rng = np.random.default_rng(6)
    for _ in range(150):
        vocab = int(rng.integers(1, 9000))
        n_valid = int(rng.integers(1, vocab + 1))
        allowed = rng.random((1, n_valid)) < rng.choice([0.1, 0.9])
        values = odd_logits(rng, 3, vocab, spoilt=0.2)
        draws = [
            Draw(
                temperature=float(rng.choice([0.0, 1e-38, 0.3, 0.7, 1.5, 1e30])),
                seed=int(rng.integers(2**63)),
                filter=row,
                mask=int(rng.choice([0, NO_INDEX])),
            )
            for row in range(3)
        ]
        filters = [(row, FILTERS[int(rng.integers(len(FILTERS)))]) for row in range(3)]
        chunk = int(rng.choice([5, 64, 1000, 4096]))
        results = []
        for runner in runners:
            case = filter_run(values, draws, filters, n_valid=n_valid, allowed=allowed)
            run(runner, case.launches)
            ids = sampled(
                runner,
                values,
                draws,
                n_valid=n_valid,
                chunk=chunk,
                kept=case.kept,
                masks=pack_masks(allowed),
            )
            results.append((case.kept.tobytes(), ids))
        assert results[0] == results[1]
