"""sample_scan and sample_pick: the reference generator, the choice, its distribution, its edges."""

from __future__ import annotations

import numpy as np
import pytest
from cases_layers import Floats
from cases_sample import Draw, SampleRun, pack_masks, sample_run
from harness import Buffer, Runner, open_runner, run
from layer_args import KEPT, NO_INDEX
from noise import philox, uniforms
from reference_edit import FORBIDDEN

# Known answers of Random123, https://github.com/DEShawResearch/random123, tests/kat_vectors.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def choose(runner: Runner, sampling: SampleRun) -> Buffer:
    run(runner, sampling.launches)
    return sampling.ids


def logits(rows: int, vocab: int) -> Floats:
    return (np.random.default_rng(0).standard_normal((rows, vocab)) * 3).astype(np.float32)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_reference_philox(
    counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    assert tuple(philox(np.array([counter], np.uint32), key)[0]) == words


def test_uniforms_are_strictly_inside() -> None:
    ends = np.array([0, 0xFFFFFFFF], np.uint32)
    u = ((ends >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2**-23)
    assert 0 < u[0] < u[1] < 1


@pytest.mark.parametrize("vocab", [1, 3, 31, 127, 128, 1000, 4097, 8192, 248320])
@pytest.mark.parametrize("temperature", [0.0, 1e-3, 0.7, 1.0, 1.5, 100.0])
def test_choice_is_the_best_score(runner: Runner, vocab: int, temperature: float) -> None:
    draws = [
        Draw(temperature=temperature, seed=seed, position=position, sample_index=index)
        for seed, position, index in ((0, 0, 0), (2**40 + 5, 9, 0), (7, 262143, 3))
    ]
    sampling = sample_run(logits(3, vocab), draws, chunk=4096)
    for row, choice in enumerate(choose(runner, sampling)):
        scores, bound = sampling.best(row)
        assert scores.max() - scores[choice] <= bound


def test_choice_does_not_depend_on_chunks_or_company(runner: Runner) -> None:
    values = logits(5, 3001)
    draws = [Draw(temperature=0.5 * row, seed=row, position=row) for row in range(5)]
    whole = choose(runner, sample_run(values, draws, chunk=4096)).copy()
    for chunk in (1, 37, 128, 1024):
        assert np.array_equal(choose(runner, sample_run(values, draws, chunk=chunk)), whole)
    for row in range(5):
        alone = sample_run(values[row : row + 1].copy(), [draws[row]], chunk=128)
        assert choose(runner, alone)[0] == whole[row]


def test_each_name_of_a_draw_matters(runner: Runner) -> None:
    """Seed (both halves), position and sample index each change most of many flat draws."""
    base = Draw(temperature=1.0, seed=1, position=1, sample_index=1)
    draws = [
        base,
        Draw(temperature=1.0, seed=2, position=1, sample_index=1),
        Draw(temperature=1.0, seed=1 + 2**32, position=1, sample_index=1),
        Draw(temperature=1.0, seed=1, position=2, sample_index=1),
        Draw(temperature=1.0, seed=1, position=1, sample_index=2),
    ]
    ids = choose(runner, sample_run(np.zeros((5, 4096), np.float32), draws))
    assert len(set(ids.tolist())) == 5


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_distribution(runner: Runner, temperature: float) -> None:
    """Chi-square of 4000 draws over 8 ids; fixed seeds, so the outcome is one number."""
    values = np.array([2.0, 1.5, 0.0, -1.0, 1.0, 0.5, -0.5, 2.5], np.float32)
    n = 4000
    draws = [
        Draw(temperature=temperature, seed=7 + i % 2, position=i // 2, sample_index=i % 3)
        for i in range(n)
    ]
    ids = choose(runner, sample_run(np.tile(values, (n, 1)), draws))
    p = np.exp(values.astype(np.float64) / temperature)
    expected = n * p / p.sum()
    chi_square = np.sum((np.bincount(ids, minlength=8) - expected) ** 2 / expected)
    assert chi_square < 24.3  # 7 degrees of freedom: exceeded with probability 0.001


def test_ties_go_to_the_lowest_id(runner: Runner) -> None:
    values = np.zeros((4, 5000), np.float32)
    values[1, [4999, 777, 778]] = 1
    values[2, [40, 33]] = 1
    values[3, [4998, 4097]] = 3.4e38
    for chunk in (37, 1024, 8192):
        sampling = sample_run(values, [Draw()] * 4, chunk=chunk)
        assert choose(runner, sampling).tolist() == [0, 777, 33, 4097]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e30])
def test_what_is_forbidden_never_wins(runner: Runner, temperature: float) -> None:
    values = np.full((3, 300), FORBIDDEN, np.float32)
    values[0, 299] = -3e38
    values[2, [5, 6]] = (-100.0, -3e38)
    draws = [Draw(temperature=temperature, seed=3)] * 3
    chosen = choose(runner, sample_run(values, draws, chunk=64)).tolist()
    assert chosen[:2] == [299, -1]
    assert chosen[2] == 5 or (temperature > 1 and chosen[2] == 6)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_logits_that_are_spoilt(runner: Runner, odd: float, temperature: float) -> None:
    """One is enough, wherever it stands, masked, filtered out or not; past n_valid none counts."""
    ids = [0, 63, 64, 200, 298]
    values = logits(7, 300)
    values[range(5), ids] = odd
    values[5, 299] = odd
    allowed = np.ones((1, 299), np.bool_)
    allowed[0, ids] = False
    kept = np.array([(1.0, NO_INDEX)], KEPT)
    for mask, by in ((NO_INDEX, NO_INDEX), (0, NO_INDEX), (NO_INDEX, 0), (0, 0)):
        draws = [Draw(temperature=temperature, seed=1, mask=mask, filter=by)] * 7
        masks = pack_masks(allowed)
        sampling = sample_run(values, draws, n_valid=299, chunk=64, kept=kept, masks=masks)
        chosen = choose(runner, sampling)
        assert chosen[:5].tolist() == [-2] * 5
        assert min(chosen[5:].tolist()) >= 0


@pytest.mark.parametrize("n_valid", [1, 2, 63, 64, 65, 255])
def test_ids_past_n_valid_are_never_chosen(runner: Runner, n_valid: int) -> None:
    values = logits(2, 256)
    values[:, n_valid:] = 1e6
    draws = [Draw(), Draw(temperature=5.0, seed=1)]
    sampling = sample_run(values, draws, n_valid=n_valid, chunk=64)
    for row, choice in enumerate(choose(runner, sampling)):
        scores, bound = sampling.best(row)
        assert 0 <= choice < n_valid
        assert scores.max() - scores[choice] <= bound


def test_extreme_temperatures(runner: Runner) -> None:
    values = logits(3, 1000)
    values[1] *= np.float32(1e37)
    draws = [Draw(temperature=t, seed=11) for t in (1e-38, 1e-38, 3e38)]
    ids = choose(runner, sample_run(values, draws))
    # The smallest temperature is greedy; the largest leaves the noise alone.
    assert ids.tolist()[:2] == values[:2].argmax(axis=1).tolist()
    assert ids[2] == uniforms(1000, 11, 0, 0).argmax()


def odd_logits(rng: np.random.Generator, rows: int, vocab: int, spoilt: float = 1.0) -> Floats:
    """Ties, zeros of both signs, infinities, NaN, tiny and huge numbers: some of them."""
    scale = float(rng.choice([1e-39, 1, 3, 1e37]))
    values: Floats = (rng.standard_normal((rows, vocab)) * scale).astype(np.float32)
    if rng.random() < 0.5:
        values = np.rint(values)
    infinite = (np.nan, np.inf, -np.inf) if rng.random() < spoilt else ()
    odd = np.array([*infinite, FORBIDDEN, 0.0, -0.0, 3.4e38, -3.4e38], np.float32)
    share = rng.choice([0.0, 0.0, 0.01, 0.9])
    some = rng.random(values.shape) < share
    values[some] = rng.choice(odd, int(some.sum()))
    return values


def test_twins_choose_the_same_ids(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels themselves, whatever the logits: a seed means one text on every machine."""
    runners = []
    for choice in ("auto", "msl"):
        monkeypatch.setenv("MTLQWEN_HOST_KERNELS", choice)
        runners.append(open_runner(kernels))
    rng = np.random.default_rng(5)
    for _ in range(200):
        vocab = int(rng.integers(1, 3000))
        draws = [
            Draw(
                temperature=float(rng.choice([0.0, 1e-38, 0.3, 0.7, 1.0, 1.5, 1e30])),
                seed=int(rng.integers(2**63)),
                position=int(rng.integers(2**18)),
            )
            for _ in range(3)
        ]
        values = odd_logits(rng, 3, vocab, spoilt=0.2)
        chunk = int(rng.choice([5, 64, 1000, 4096]))
        n_valid = int(rng.integers(1, vocab + 1))
        ids = [
            choose(one, sample_run(values, draws, n_valid=n_valid, chunk=chunk)).tolist()
            for one in runners
        ]
        assert ids[0] == ids[1]
