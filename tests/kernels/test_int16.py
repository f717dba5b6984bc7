"""The kernels that take int16 rows, against float64: of quantised rows, and of what they were."""

from __future__ import annotations

import numpy as np
import pytest
from cases_int16 import (
    FORMATS,
    MLP_PANEL,
    MLP_ROW,
    PANEL,
    ROW,
    Int16Case,
    Int16Kernel,
    chain,
    int16_buffers,
    linear_cases,
    mlp_cases,
)
from harness import UNIT, Buffer, Float64, Launch, Runner, check, run
from int16_rows import (
    LEAST,
    QBLOCK,
    Floats,
    check_int16,
    empty_rows,
    join_rows,
    quantise,
    split_rows,
)
from linear_checks import check_int16_linear, random_rows
from reference import Weights, chain_bound, linear, random_weights
from reference_int16 import dequantise, silu


def linear_result(runner: Runner, kernel: Int16Kernel, x: Buffer, weights: Weights) -> Buffer:
    """What a Q8_0 linear computes of x."""
    n, k = weights.values.shape
    out = np.full((len(x), n), np.nan, np.float32)
    buffers = int16_buffers(out, x, [weights.stored], n, k)
    run(runner, [kernel.launch("q8_0", buffers, len(out), n)])
    return out


def mlp_result(
    runner: Runner, kernel: Int16Kernel, x: Buffer, gate: Weights, up: Weights
) -> Buffer:
    """The rows that a Q8_0 MLP makes of x."""
    n, k = gate.values.shape
    out = empty_rows(len(x), n)
    buffers = int16_buffers(out, x, [gate.stored, up.stored], n, k)
    run(runner, [kernel.launch("q8_0", buffers, len(out), n)])
    return out


@pytest.mark.parametrize("case", list(linear_cases()), ids=str)
def test_linear_agrees_with_float64(runner: Runner, case: Int16Case) -> None:
    check_int16_linear(runner, case, chain(case.k))


@pytest.mark.parametrize("case", list(mlp_cases()), ids=str)
def test_mlp_agrees_with_float64(runner: Runner, case: Int16Case) -> None:
    rng = np.random.default_rng(case.rows * 1009 + case.n * 31 + case.k)
    x = quantise(random_rows(rng, case.rows, case.k))
    # Products of the size of one, where silu bends.
    values = dequantise(x, case.k)
    size = 1 / np.sqrt(np.mean(np.square(values)) * case.k)
    gate = random_weights(rng, case.fmt, case.n, case.k, size)
    up = random_weights(rng, case.fmt, case.n, case.k, size)
    got = mlp_result(runner, case.kernel, x, gate, up)

    g, g_norms = linear(values, gate)
    u, u_norms = linear(values, up)
    expected = silu(g) * u
    g_error, u_error = (chain_bound(norms, chain(case.k)) for norms in (g_norms, u_norms))
    # The slope of silu is at most 1.1. Exp and the four operations around it round by 8u at most.
    error = 1.1 * g_error * (np.abs(u) + u_error) + np.abs(silu(g)) * u_error
    error += 8 * UNIT * np.abs(expected)
    check_int16(got, expected, error)


def rows_that_pass_through(values: Floats) -> tuple[Buffer, Weights, Weights]:
    """Rows and weights of an MLP whose result before quantising is `values`, exactly.

    A row of one block of 32 outputs: the gate's products are 64, where silu is the identity, and
    up's are a half times a scale of the row.
    """
    quants = np.zeros((1, 2, QBLOCK), np.int16)
    quants[0, :, 0] = 1
    gate, up = (np.zeros((QBLOCK, 2, 34), np.uint8) for _ in range(2))
    gate[:, 0, :2] = np.array([1], np.float16).view(np.uint8)
    gate[:, 0, 2] = 64
    scale = np.exp2(np.floor(np.log2(np.abs(values).max()))).astype(np.float32)
    halves = (values / scale).astype(np.float16)
    assert np.array_equal(halves, values / scale)
    up[:, 1, :2] = halves[:, None].view(np.uint8)
    up[:, 1, 2] = 1
    x = join_rows(quants, np.array([[1, scale / 64]], np.float32))
    nobody_asks = np.zeros((QBLOCK, 64))
    return (
        x,
        Weights(gate.reshape(QBLOCK, -1), nobody_asks),
        Weights(up.reshape(QBLOCK, -1), nobody_asks),
    )


def made_by_mlp(runner: Runner, kernel: Int16Kernel, values: Floats) -> Buffer:
    """The int16 row of `values`, 32 halves times a power of two, as a kernel makes it."""
    x, gate, up = rows_that_pass_through(values.astype(np.float32))
    return mlp_result(runner, kernel, x, gate, up)


@pytest.mark.parametrize("kernel", [MLP_ROW, MLP_PANEL], ids=str)
def test_the_quantiser_is_exact(runner: Runner, kernel: Int16Kernel) -> None:
    rng = np.random.default_rng(1)
    blocks = [
        np.arange(-14, 18) % 15,  # 32767 / 14 ends in .5: every odd number is a tie
        *(np.append(rng.integers(-2047, 2048, 31), 2047) for _ in range(40)),
        *(rng.standard_normal(QBLOCK).astype(np.float16) for _ in range(40)),
        np.append(np.zeros(31), -3.0),
    ]
    for block in blocks:
        for size in (1.0, 2.0**-90, 2.0**100):
            values = np.array(block.astype(np.float64) * size, np.float32)
            assert np.array_equal(made_by_mlp(runner, kernel, values), quantise(values[None]))


@pytest.mark.parametrize("kernel", [MLP_ROW, MLP_PANEL], ids=str)
def test_tiny_blocks_are_zero(runner: Runner, kernel: Int16Kernel) -> None:
    block: Floats = np.arange(QBLOCK, dtype=np.float32) / np.float32(32)
    block[5] = 1
    for largest in (LEAST, np.float32(2.0**-101), np.float32(2.0**-120)):
        got = made_by_mlp(runner, kernel, block * largest)
        assert np.array_equal(got, quantise(block[None] * largest))
        assert got.any() == (largest == LEAST)


@pytest.mark.parametrize("kernel", [MLP_ROW, MLP_PANEL], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_block_nan(
    runner: Runner, kernel: Int16Kernel, bad: float
) -> None:
    rng = np.random.default_rng(2)
    gate, up = (random_weights(rng, "q8_0", 96, 64) for _ in range(2))
    x = quantise(random_rows(rng, 3, 64))
    clean = mlp_result(runner, kernel, x, gate, up)
    up.stored.reshape(96, 2, 34)[40, 0, :2] = np.array([bad], np.float16).view(np.uint8)
    got, scales = split_rows(mlp_result(runner, kernel, x, gate, up), 96)
    assert np.isnan(scales[:, 1]).all()
    assert not got[:, 1].any()
    quants, before = split_rows(clean, 96)
    assert np.array_equal(scales[:, ::2], before[:, ::2])
    assert np.array_equal(got[:, ::2], quants[:, ::2])


@pytest.mark.parametrize("kernel", [ROW, PANEL, MLP_ROW, MLP_PANEL], ids=str)
def test_nan_stays_in_its_row(runner: Runner, kernel: Int16Kernel) -> None:
    rng = np.random.default_rng(11)
    gate, up = (random_weights(rng, "q8_0", 64, 96) for _ in range(2))
    x = random_rows(rng, 11, 96)
    poisoned = x.copy()
    poisoned[0, 5], poisoned[-1, 95] = np.nan, np.inf

    def result(rows: Floats) -> Float64:
        if kernel.role == "linear":
            return linear_result(runner, kernel, quantise(rows), gate).astype(np.float64)
        return dequantise(mlp_result(runner, kernel, quantise(rows), gate, up), 64)

    got, clean = result(poisoned), result(x)
    assert np.isnan(got[[0, -1]]).all()
    assert np.array_equal(got[1:-1], clean[1:-1])


@pytest.mark.parametrize("kernel", [ROW, PANEL, MLP_ROW, MLP_PANEL], ids=str)
def test_a_row_is_the_same_bits_at_every_place(runner: Runner, kernel: Int16Kernel) -> None:
    rng = np.random.default_rng(7)
    gate, up = (random_weights(rng, "q8_0", 96, 1120) for _ in range(2))  # 35 qblocks

    def result(x: Floats) -> Buffer:
        if kernel.role == "linear":
            return linear_result(runner, kernel, quantise(x), gate)
        return mlp_result(runner, kernel, quantise(x), gate, up)

    x = random_rows(rng, 1, 1120)
    alone = result(x)
    for rows in (*range(1, 18), 31, 130):
        for place in {0, rows // 2, rows - 1}:
            others = random_rows(rng, rows, 1120)
            others[place] = x
            assert np.array_equal(result(others)[place], alone[0]), (rows, place)


@pytest.mark.parametrize("kernel", [ROW, PANEL], ids=str)
def test_q8_0_of_every_kind(runner: Runner, kernel: Int16Kernel) -> None:
    """Scales of every kind, and the largest products: no sum of them leaves its type."""
    rng = np.random.default_rng(3)
    weights = random_weights(rng, "q8_0", n=9, k=64)
    blocks = weights.stored.reshape(9, 2, 34)
    scales = np.array([0, -0.0, 6e-8, -6e-8, 6.1e-5, -1, 65504, -65504, 1], np.float16)
    blocks[:, 1, :2] = scales[:, None].view(np.uint8)
    blocks[-3:, :, 2:] = np.array([-128], np.int8).view(np.uint8)
    quants = blocks[:, :, 2:].view(np.int8).astype(np.float64)
    both = blocks[:, :, :2].copy().view(np.float16).astype(np.float64)
    weights.values[:] = (both * quants).reshape(9, 64)
    x = np.ones((4, 64), np.float32)
    x[1] = -1
    x[2, ::2] = -1
    x[3] = rng.standard_normal(64)
    quantised = quantise(x)
    exact = dequantise(quantised, 64)
    expected, norms = linear(exact, weights)
    # Terms of one sign: partial sums are as large as the sum of all.
    bound = chain_bound(norms, chain(64)) + 4 * UNIT * (np.abs(exact) @ np.abs(weights.values).T)
    check(linear_result(runner, kernel, quantised, weights), expected, bound)


TABLE_ROWS = (1, 2, 3, 8, 9, 127, 128)


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_launch_table_covers_every_output(runner: Runner, fmt: str) -> None:
    from mtlqwen._core import _testing

    rng = np.random.default_rng(5)
    for rows in TABLE_ROWS:
        x = quantise(random_rows(rng, rows, 64))
        for n in (8, 64, 199):
            weights = random_weights(rng, fmt, n, 64)
            choice = _testing.choose_linear(fmt, n, 64, rows, software=True, int16=True)
            out = np.full((rows, n), np.nan, np.float32)
            run(runner, [chosen(choice, int16_buffers(out, x, [weights.stored], n, 64))])
            expected, norms = linear(dequantise(x, 64), weights)
            check(out, expected, chain_bound(norms, chain(64)))
        weights = random_weights(rng, fmt, 96, 64)
        choice = _testing.choose_mlp(fmt, 96, 64, rows, software=True, int16=True)
        made = empty_rows(rows, 96)
        both = [weights.stored, weights.stored]
        run(runner, [chosen(choice, int16_buffers(made, x, both, 96, 64))])
        g, _ = linear(dequantise(x, 64), weights)
        check_int16(made, silu(g) * g, 1e-5 * (1 + g * g))


def chosen(choice: dict[str, int | str], buffers: list[Buffer]) -> Launch:
    """The launch that the table describes."""
    rows, n = len(buffers[0]), int(buffers[-2].view(np.uint32)[1])
    groups = (-(-n // int(choice["outputs_per_group"])), -(-rows // int(choice["rows_per_group"])))
    return Launch(
        kernel=str(choice["kernel"]),
        buffers=buffers,
        groups=groups,
        threads=int(choice["threads"]),
        constants={1: False} if str(choice["kernel"]).startswith("linear") else {},
    )


def test_int16_is_for_software_alone() -> None:
    from mtlqwen._core import _testing

    for fmt in ("f32", "f16", "bf16"):
        assert not _testing.choose_linear(fmt, 64, 64, 1, software=True, int16=True)["int16"]
        assert _testing.choose_mlp(fmt, 64, 64, 1, software=True, int16=True) == {}
    for options in (
        {"software": False, "int16": True},
        {"software": True, "int16": False},
    ):
        for rows in (1, 128):
            assert not _testing.choose_linear("q8_0", 64, 64, rows, **options)["int16"]
    for fmt in ("q8_0", "q4_k"):  # deterministic: one kernel for every number of rows
        one, *more = (
            _testing.choose_linear(fmt, 64, 256, rows, True, True, int16=True)
            for rows in (1, 2, 17, 128)
        )
        assert one["int16"]
        assert all(choice == one for choice in more)
    assert _testing.choose_mlp("q8_0", 64, 64, 1, software=False, int16=True) == {}
    assert _testing.choose_mlp("q8_0", 33, 64, 1, software=True, int16=True) == {}
    assert _testing.choose_linear("q8_0", 33, 64, 1, software=True, int16=True)["int16"]
