"""logprob_rows: numbers against float64, the order of the likeliest ids, edges."""

from __future__ import annotations

import numpy as np
import pytest
from cases_layers import Floats
from cases_logprob import Want, check_logprobs, logprob_run
from harness import Runner, run

MOST = np.finfo(np.float32).max


def logits(rows: int, vocab: int, scale: float = 3.0) -> Floats:
    values = np.random.default_rng(rows + vocab).standard_normal((rows, vocab)) * scale
    return values.astype(np.float32)


@pytest.mark.parametrize("vocab", [1, 3, 31, 127, 1000, 4097, 8192])
def test_logprobs(runner: Runner, vocab: int) -> None:
    """More of the likeliest ids than there are, too."""
    wanted = [Want(row=2, n_top=20), Want(row=0), Want(row=3, n_top=1), Want(row=1, n_top=5)]
    sampled = [0, vocab - 1, vocab // 2, -1]
    check_logprobs(runner, logprob_run(logits(4, vocab), sampled, wanted))


@pytest.mark.parametrize("n_top", [0, 5, 20])
def test_logprobs_of_a_large_vocabulary(runner: Runner, n_top: int) -> None:
    check_logprobs(runner, logprob_run(logits(1, 248320), [248319], [Want(n_top=n_top)]))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 30.0])
def test_sums_of_a_large_vocabulary(runner: Runner, scale: float) -> None:
    """All terms are alike, or few count."""
    values = logits(1, 248320, scale)
    check_logprobs(runner, logprob_run(values, [7], [Want(n_top=1)]))


def test_ids_that_are_told(runner: Runner) -> None:
    """Of rows that nobody reads the sample of, and of ids that cannot be sampled."""
    values = logits(3, 300)
    wanted = [Want(row=1, n_top=3, told=7), Want(row=0, told=0), Want(row=1), Want(told=289)]
    check_logprobs(runner, logprob_run(values, [5, -2, 9], wanted, n_valid=290))
    run_ = logprob_run(values, [5, 5, 5], [Want(told=299)], n_valid=290)
    run(runner, run_.launches)
    assert run_.chosen[0].item() == (299, -np.inf)


def test_ties_go_by_ascending_id(runner: Runner) -> None:
    values = np.zeros((3, 5000), np.float32)
    values[0, [4999, 1500, 476, 40]] = 1  # two of one column
    values[1, 1024:] = -1
    values[2] = np.arange(5000) % 7
    values[2, ::2] *= -0.0
    check_logprobs(
        runner, logprob_run(values, [40, 4999, 0], [Want(row=r, n_top=20) for r in range(3)])
    )


def test_likeliest_ids_of_one_column(runner: Runner) -> None:
    values = logits(1, 40000)
    values[0, 33::1024] += 100
    check_logprobs(runner, logprob_run(values, [33], [Want(n_top=20)]))


def test_ascending_and_descending_logits(runner: Runner) -> None:
    ascending = np.arange(6000, dtype=np.float32) / np.float32(100)
    values = np.stack([ascending, -ascending])
    wanted = [Want(row=r, n_top=20) for r in range(2)]
    check_logprobs(runner, logprob_run(values, [3, 3], wanted))


def test_nan_and_infinities(runner: Runner) -> None:
    values = np.full((7, 300), np.nan, np.float32)
    values[0, [7, 299]] = (-3e38, 2.0)
    values[1] = -np.inf
    values[2, ::3] = -np.inf
    values[2, 10] = -MOST
    values[3, [4, 9]] = np.inf
    values[3, 5] = 3.0
    values[4] = -np.inf
    values[4, [5, 6]] = (-100.0, np.nan)
    values[5] = -MOST
    sampled = [7, 5, 10, 4, 6, 0, 1]
    wanted = [Want(row=r, n_top=12) for r in range(7)]
    check_logprobs(runner, logprob_run(values, sampled, wanted))


def test_huge_and_tiny_logits(runner: Runner) -> None:
    values = logits(4, 1000)
    values[0] *= np.float32(1e37)
    values[1] *= np.float32(1e-38)
    values[2, [3, 4, 5]] = (MOST, -MOST, MOST)
    values[3] += np.float32(1e6)
    wanted = [Want(row=r, n_top=20) for r in range(4)]
    check_logprobs(runner, logprob_run(values, [1, 1, 4, 1], wanted))


@pytest.mark.parametrize("n_valid", [1, 2, 63, 64, 65, 255])
def test_ids_past_n_valid_do_not_count(runner: Runner, n_valid: int) -> None:
    values = logits(2, 256)
    values[:, n_valid:] = 1e6
    wanted = [Want(row=1, n_top=20), Want(row=0, n_top=2)]
    check_logprobs(runner, logprob_run(values, [n_valid - 1, 0], wanted, n_valid=n_valid))


def test_a_row_does_not_depend_on_company(runner: Runner) -> None:
    values = logits(5, 3001)
    wanted = [Want(row=r, n_top=4 * r) for r in (4, 0, 2, 1, 3)]
    whole = logprob_run(values, [9] * 5, wanted)
    run(runner, whole.launches)
    for i, want in enumerate(wanted):
        alone = logprob_run(values[want.row][None].copy(), [9], [Want(n_top=want.n_top)])
        run(runner, alone.launches)
        assert alone.chosen.tobytes() == whole.chosen[i : i + 1].tobytes()
        assert alone.tops_of(0).tobytes() == whole.tops_of(i).tobytes()
        likeliest = logprob_run(values, [9] * 5, [Want(row=want.row, n_top=20)])
        run(runner, likeliest.launches)
        assert alone.tops_of(0).tobytes() == likeliest.tops_of(0)[: want.n_top].tobytes()


@pytest.mark.parametrize("threads", [32, 64, 512])
def test_smaller_threadgroups(runner: Runner, threads: int) -> None:
    wanted = [Want(row=r, n_top=20) for r in range(2)]
    check_logprobs(runner, logprob_run(logits(2, 4097), [5, 6], wanted, threads=threads))
