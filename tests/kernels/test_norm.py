"""rms_norm, rms_norm_int16, gather_rows and swiglu against float64."""

from __future__ import annotations

import numpy as np
import pytest
from cases_layers import EDGE_ROWS, check_case, gather_case, norm_case, swiglu_case
from harness import Runner, run
from int16_rows import QBLOCK, quantise, split_rows
from layer_args import NO_INDEX

HIDDEN = (512, 1024, 2048, 2560, 4096, 5120)  # the bundled model, 0.8B, 2B, 4B, 9B, 27B
INTERMEDIATE = (1536, 3584, 6144, 9216, 12288, 17408)


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_rms_norm_rows(runner: Runner, rows: int) -> None:
    check_case(runner, norm_case(rows, 512))


@pytest.mark.parametrize("dim", [4, 36, 124, *HIDDEN])
def test_rms_norm_dims(runner: Runner, dim: int) -> None:
    check_case(runner, norm_case(2, dim))


def test_rms_norm_row_is_independent_of_its_company(runner: Runner) -> None:
    whole = norm_case(33, 1024).launches[0]
    run(runner, [whole])
    out, x, *rest = whole.buffers
    alone = np.zeros((1, 1024), np.float32)
    launch = norm_case(1, 1024).launches[0]
    launch.buffers[:4] = [alone, np.ascontiguousarray(x[17:18]), *rest[:2]]
    run(runner, [launch])
    assert np.array_equal(alone[0], out[17])


def test_rms_norm_of_zeros_is_zero(runner: Runner) -> None:
    launch = norm_case(1, 512).launches[0]
    launch.buffers[1][:] = 0
    run(runner, [launch])
    assert not launch.buffers[0].any()


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_rms_norm_int16_rows(runner: Runner, rows: int) -> None:
    check_case(runner, norm_case(rows, 512, int16=True))


@pytest.mark.parametrize("dim", [32, 96, 544, *HIDDEN])
def test_rms_norm_int16_dims(runner: Runner, dim: int) -> None:
    """The int16 row is that of the floats beside it, byte for byte; those are rms_norm's."""
    case = norm_case(3, dim, int16=True)
    check_case(runner, case)
    out, out16, *_ = case.launches[0].buffers
    assert np.array_equal(out16, quantise(out.astype(np.float32)))
    plain = norm_case(3, dim)
    run(runner, plain.launches)
    assert np.array_equal(plain.launches[0].buffers[0], out)


def test_int16_of_zeros_nans_and_infinities(runner: Runner) -> None:
    """A qblock that cannot be scaled is zero or NaN, and no other one notices."""
    launch = norm_case(4, 128, int16=True).launches[0]
    out, out16, x, weight, *_ = launch.buffers
    x[:] = np.arange(1, 129)
    weight[:] = 1
    weight[:QBLOCK] = 0
    weight[QBLOCK] = 1e-30
    weight[2 * QBLOCK - 1] = np.inf
    x[2, 5] = np.nan
    x[3] = 0
    run(runner, [launch])
    quants, scales = split_rows(out16, 128)
    assert np.array_equal(out16, quantise(out.astype(np.float32)))
    assert np.isnan(scales).tolist()[:3] == [[False, True, False, False]] * 2 + [[True] * 4]
    assert not quants[:2, :2].any()
    assert quants[:2, 2:].all()
    assert not quants[3].any()


@pytest.mark.parametrize("int16", [False, True])
@pytest.mark.parametrize("place", [0, 5, NO_INDEX])
def test_rows_that_are_spoilt(runner: Runner, int16: bool, place: int) -> None:
    """Each by itself, wherever the number stands; what was spoilt earlier stays so."""
    case = norm_case(9, 544, int16=int16, place=place)
    x, spoilt = case.arrays["x"], case.arrays["spoilt"]
    x[1, 0] = np.nan
    x[2, 543] = np.inf
    x[3, 300] = -np.inf
    x[4, 17] = 1e20  # its square is infinite
    x[5] = 1e17
    x[6, [3, 4]] = (np.inf, -np.inf)
    x[7] = np.nan
    spoilt[7] = 3
    x[8, :] = 0
    run(runner, case.launches)
    expected = [place if row in (1, 2, 3, 4, 6) else NO_INDEX for row in range(9)]
    expected[7] = min(place, 3)
    assert spoilt.tolist() == expected


@pytest.mark.parametrize("logit_rows", [(0,), (4, 0, 2), (1, 1), tuple(range(5))])
def test_gather_rows(runner: Runner, logit_rows: tuple[int, ...]) -> None:
    check_case(runner, gather_case(5, 512, logit_rows))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_swiglu_rows(runner: Runner, rows: int) -> None:
    check_case(runner, swiglu_case(rows, 384))


@pytest.mark.parametrize("dim", [4, 132, *INTERMEDIATE])
def test_swiglu_dims(runner: Runner, dim: int) -> None:
    check_case(runner, swiglu_case(1, dim))
