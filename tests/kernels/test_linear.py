"""The linear kernels against float64, and a row's independence of all the others."""

from __future__ import annotations

import numpy as np
import pytest
from cases import (
    FAMILIES,
    SPLIT,
    TILE,
    WHOLE,
    LinearCase,
    LinearKernel,
    edge_cases,
    linear_buffers,
    random_linear,
    size_cases,
    small_k_cases,
)
from harness import Runner, check, open_runner, run
from linear_checks import check_linear, chosen_result, result
from reference import FORMATS, chain_bound, linear, random_weights

LINEAR_CASES = [*edge_cases(), *size_cases(), *small_k_cases()]


@pytest.mark.parametrize("case", LINEAR_CASES, ids=str)
def test_linear_agrees_with_float64(runner: Runner, case: LinearCase) -> None:
    check_linear(runner, case)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_the_same_bits_at_every_width_and_place(
    runner: Runner, family: str, fmt: str
) -> None:
    rng = np.random.default_rng(7)
    weights = random_weights(rng, fmt, n=77, k=1088)  # ragged in n and in chunks for each lane
    x = rng.standard_normal((1, 1088)).astype(np.float32)
    kernels = FAMILIES[family]
    alone = result(runner, kernels[min(kernels)], fmt, x, weights)
    for kernel in kernels.values():
        for rows in (1, kernel.width, kernel.width + 3):
            for place in {0, rows // 2, rows - 1}:
                others = rng.standard_normal((rows, 1088)).astype(np.float32)
                others[place] = x
                got = result(runner, kernel, fmt, others, weights)
                assert np.array_equal(got[place], alone[0]), (kernel, rows, place)


@pytest.mark.parametrize("kernel", [*WHOLE.values(), *SPLIT.values(), *TILE.values()], ids=str)
def test_nan_and_infinity_stay_in_their_row(runner: Runner, kernel: LinearKernel) -> None:
    rng = np.random.default_rng(11)
    weights = random_weights(rng, "q8_0", n=40, k=64)
    x = rng.standard_normal((kernel.width + 2, 64)).astype(np.float32)
    clean = result(runner, kernel, "q8_0", x, weights)
    poisoned = x.copy()
    poisoned[0, 5], poisoned[-1, 63] = np.nan, np.inf
    got = result(runner, kernel, "q8_0", poisoned, weights)
    assert np.isnan(got[0]).all()
    assert not np.isfinite(got[-1]).any()
    assert np.array_equal(got[1:-1], clean[1:-1])


def test_q8_0_scales_of_every_kind(runner: Runner) -> None:
    rng = np.random.default_rng(3)
    weights = random_weights(rng, "q8_0", n=9, k=64)
    blocks = weights.stored.reshape(9, 2, 34)
    scales = np.array([0, -0.0, 6e-8, -6e-8, 6.1e-5, -1, 65504, -65504, 1], np.float16)
    blocks[:, 1, :2] = scales[:, None].view(np.uint8)
    quants = blocks[:, 1, 2:].view(np.int8).astype(np.float64)
    weights.values[:, 32:] = scales.astype(np.float64)[:, None] * quants
    x = rng.standard_normal((2, 64)).astype(np.float32)
    expected, norms = linear(x, weights)
    for kernel in (WHOLE[2], SPLIT[2], TILE[8]):
        got = result(runner, kernel, "q8_0", x, weights)
        check(got, expected, chain_bound(norms, kernel.chain(64)))


TABLE_ROWS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 127, 128)


@pytest.mark.parametrize("software", [True, False], ids=["software", "gpu"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_the_launch_table_covers_every_output(runner: Runner, fmt: str, software: bool) -> None:
    rng = np.random.default_rng(5)
    for rows in TABLE_ROWS:
        for n in (8, 48, 199):
            weights = random_weights(rng, fmt, n, 64)
            x = rng.standard_normal((rows, 64)).astype(np.float32)
            got = chosen_result(runner, fmt, x, weights, software, deterministic=False)
            expected, norms = linear(x, weights)
            check(got, expected, chain_bound(norms, 64))


@pytest.mark.parametrize("software", [True, False], ids=["software", "gpu"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_deterministic_choices_agree_in_every_bit(runner: Runner, fmt: str, software: bool) -> None:
    rng = np.random.default_rng(6)
    weights = random_weights(rng, fmt, 77, 544)
    x = rng.standard_normal((max(TABLE_ROWS), 544)).astype(np.float32)
    widest = chosen_result(runner, fmt, x, weights, software, deterministic=True)
    for rows in TABLE_ROWS:
        got = chosen_result(runner, fmt, x[:rows], weights, software, deterministic=True)
        assert np.array_equal(got, widest[:rows]), rows
    one = chosen_result(runner, fmt, x[:1], weights, software, deterministic=False)
    assert np.array_equal(one, widest[:1]) == software  # GPUs pay for it, CPU cores need not


def test_an_unsupported_width_is_refused() -> None:
    from mtlqwen import ModelError
    from mtlqwen._core import _testing

    with pytest.raises(ModelError, match=r"got 8 x 40 of Q8_0, want columns in multiples of 32"):
        _testing.choose_linear("q8_0", 8, 40, 1, True)


@pytest.mark.parametrize("fmt", FORMATS)
def test_software_kernels_are_vectorised(
    kernels: str, monkeypatch: pytest.MonkeyPatch, fmt: str
) -> None:
    """A compiler that leaves them scalar loses a factor of 5 to 10; tiles are the yardstick.

    Tiles spend their time on switches and 8-wide products whatever the compiler does: 3 GMAC/s
    where the whole kernel has 27 to 50.
    """
    monkeypatch.setenv("MTLQWEN_HOST_KERNELS", "msl")
    runner = open_runner(kernels)
    seconds = {}
    for kernel in (WHOLE[8], TILE[8]):
        case = LinearCase(fmt=fmt, kernel=kernel, rows=8, n=1024, k=512)
        x, stored, out = random_linear(case)
        buffers = linear_buffers(out, x, stored, case.n, case.k)
        launch = kernel.launch(fmt, buffers, case.rows, case.n, accumulate=False)
        seconds[kernel.family] = min(run(runner, [launch]) for _ in range(5))
    assert seconds["decode_whole"] * 3 < seconds["tile"]
