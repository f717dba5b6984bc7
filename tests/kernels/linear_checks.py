"""What the tests of linear kernels share, whatever the format: results, and checks in float64."""

from __future__ import annotations

import numpy as np
from cases import ACCUMULATE, SIMDGROUPS, LinearCase, LinearKernel, linear_buffers
from cases_int16 import Int16Case, int16_buffers
from harness import UNIT, Buffer, Launch, Runner, check, nmse, run
from int16_rows import QBLOCK, Floats, quantise
from packed_weights import format_constants
from reference import Weights, chain_bound, chain_nmse, linear, random_weights
from reference_int16 import dequantise, unquantised_bound


def random_rows(rng: np.random.Generator, rows: int, k: int) -> Floats:
    """Rows whose qblocks differ in size, some of them zero."""
    x = rng.standard_normal((rows, k // QBLOCK, QBLOCK))
    sizes = np.exp2(rng.integers(-6, 7, x.shape[:2])) * (rng.random(x.shape[:2]) < 0.95)
    sized: Floats = (x * sizes[..., None]).reshape(rows, k).astype(np.float32)
    return sized


def result(runner: Runner, kernel: LinearKernel, fmt: str, x: Buffer, weights: Weights) -> Buffer:
    """What a kernel computes of x."""
    n, k = weights.values.shape
    out = np.full((len(x), n), np.nan, np.float32)
    buffers = linear_buffers(out, x, weights.stored, n, k)
    run(runner, [kernel.launch(fmt, buffers, len(x), n, accumulate=False)])
    return out


def chosen_result(
    runner: Runner, fmt: str, x: Buffer, weights: Weights, software: bool, deterministic: bool
) -> Buffer:
    """What the kernel that the launch table chooses computes of x, by the table's own grid."""
    from mtlqwen._core import _testing

    rows, (n, k) = len(x), weights.values.shape
    choice = _testing.choose_linear(fmt, n, k, rows, software, deterministic)
    out = np.full((rows, n), np.nan, np.float32)
    launch = Launch(
        kernel=choice["kernel"],
        buffers=linear_buffers(out, x, weights.stored, n, k),
        groups=(-(-n // choice["outputs_per_group"]), -(-rows // choice["rows_per_group"])),
        threads=choice["threads"],
        threadgroup_bytes=choice["threadgroup_bytes"],
        constants={SIMDGROUPS: choice["simdgroups"], ACCUMULATE: False, **format_constants(fmt)},
    )
    run(runner, [launch])
    return out


def check_linear(runner: Runner, case: LinearCase) -> None:
    """Random float rows; two more rows than the pass has: nobody may write them."""
    rng = np.random.default_rng(case.rows * 1009 + case.n * 31 + case.k)
    x = rng.standard_normal((case.rows, case.k)).astype(np.float32)
    weights = random_weights(rng, case.fmt, case.n, case.k)
    out = rng.standard_normal((case.rows + 2, case.n)).astype(np.float32)
    before = out.copy()
    buffers = linear_buffers(out, x, weights.stored, case.n, case.k)
    run(runner, [case.kernel.launch(case.fmt, buffers, case.rows, case.n, case.accumulate)])

    expected, norms = linear(x, weights)
    chain = case.kernel.chain(case.k)
    bound = chain_bound(norms, chain)
    if case.accumulate:
        expected += before[: case.rows]
        bound += UNIT * (np.abs(expected) + bound)  # one more rounding, of the sum
    check(out[: case.rows], expected, bound)
    assert nmse(out[: case.rows], expected, norms) <= chain_nmse(chain + case.accumulate)
    assert np.array_equal(out[case.rows :], before[case.rows :])


def check_int16_linear(runner: Runner, case: Int16Case, chain: int) -> None:
    """Random int16 rows, against those rows and against what they were made of.

    `chain`: roundings of a sum.
    """
    rng = np.random.default_rng(case.rows * 1009 + case.n * 31 + case.k)
    x = random_rows(rng, case.rows, case.k)
    quantised = quantise(x)
    weights = random_weights(rng, case.fmt, case.n, case.k)
    out = rng.standard_normal((case.rows + 2, case.n)).astype(np.float32)
    before = out.copy()
    buffers = int16_buffers(out, quantised, [weights.stored], case.n, case.k)
    run(runner, [case.kernel.launch(case.fmt, buffers, case.rows, case.n, case.accumulate)])

    expected, norms = linear(dequantise(quantised, case.k), weights)
    bound = chain_bound(norms, chain)
    unquantised = x.astype(np.float64) @ weights.values.T
    wide = unquantised_bound(x, weights) + bound
    if case.accumulate:
        expected += before[: case.rows]
        unquantised += before[: case.rows]
        bound += UNIT * (np.abs(expected) + bound)
        wide += UNIT * (np.abs(expected) + bound)
    check(out[: case.rows], expected, bound)
    check(out[: case.rows], unquantised, wide)
    scale = np.where(norms == 0, 1, norms)
    assert nmse(out[: case.rows], expected, scale) <= chain_nmse(chain + case.accumulate)
    assert np.array_equal(out[case.rows :], before[case.rows :])
