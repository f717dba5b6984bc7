"""The kernels of the packed formats: unpacking as the gguf package does, products in float64."""

from __future__ import annotations

import numpy as np
import pytest
from cases import (
    SPLIT,
    TILE,
    EmbedCase,
    LinearCase,
    LinearKernel,
)
from cases_int16 import MLP_PANEL, MLP_ROW, PANEL, ROW, Int16Case, Int16Kernel, int16_buffers
from cases_packed import (
    BLOCK,
    KINDS,
    MOST_ROWS,
    WHOLE,
    MlpCase,
    chain,
    embed_cases,
    int16_cases,
    linear_cases,
    mlp_cases,
)  # fmt: skip
from harness import UNIT, Buffer, Runner, check, run
from int16_rows import check_int16, empty_rows, quantise
from linear_checks import check_int16_linear, check_linear, chosen_result, random_rows, result
from packed_weights import (
    EXPONENTS,
    FORMATS,
    HALVES,
    PackedFormat,
    put_halves,
    random_packed,
)
from reference import Weights, chain_bound, linear, random_weights
from reference_int16 import dequantise, silu


def unpacked(runner: Runner, fmt: str, stored: Buffer, dim: int) -> Buffer:
    """All rows of a table."""
    case = EmbedCase(fmt=fmt, rows=len(stored), dim=dim, n_tokens=len(stored))
    out = np.full((len(stored), dim), 7, np.float32)
    run(runner, [case.launch(out, np.arange(len(stored), dtype=np.int32), stored)])
    return out


@pytest.mark.parametrize("case", list(embed_cases()), ids=str)
def test_unpacking_gives_the_bits_of_the_gguf_package(runner: Runner, case: EmbedCase) -> None:
    rng = np.random.default_rng(3)
    stored = random_packed(rng, case.fmt, 40, case.dim, 1.0)
    expected = PackedFormat(case.fmt).values(stored)
    assert np.array_equal(
        unpacked(runner, case.fmt, stored, case.dim).view(np.uint32), expected.view(np.uint32)
    )


@pytest.mark.parametrize("fmt", HALVES)
def test_scales_of_every_kind(runner: Runner, fmt: str) -> None:
    kinds = np.array([0, -0.0, 6e-8, -6e-8, 6.1e-5, -1, 65504, -65504, 1, 3.3])
    form = PackedFormat(fmt)
    rng = np.random.default_rng(4)
    stored = rng.integers(0, 256, (len(kinds) ** 2, form.n_bytes), dtype=np.uint8)
    both = np.stack([np.repeat(kinds, len(kinds)), np.tile(kinds, len(kinds))], axis=1)
    put_halves(fmt, stored, both)
    expected = form.values(stored)
    check(unpacked(runner, fmt, stored, form.elements), expected.astype(np.float64), 0.0)


@pytest.mark.parametrize("fmt", EXPONENTS)
def test_every_exponent(runner: Runner, fmt: str) -> None:
    form = PackedFormat(fmt)
    rng = np.random.default_rng(5)
    # 0 and 1 of MXFP4 make subnormal floats, which GPUs take for zero; the last ones infinities.
    known = np.arange(2, 251) if fmt == "mxfp4" else np.arange(256)
    stored = rng.integers(0, 256, (len(known), form.n_bytes), dtype=np.uint8)
    stored[:, : form.elements // 16 if fmt == "nvfp4" else 1] = known[:, None]
    expected = form.values(stored)
    check(unpacked(runner, fmt, stored, form.elements), expected.astype(np.float64), 0.0)


@pytest.mark.parametrize("case", list(linear_cases()), ids=str)
def test_linear_agrees_with_float64(runner: Runner, case: LinearCase) -> None:
    check_linear(runner, case)


@pytest.mark.parametrize("case", list(int16_cases()), ids=str)
def test_int16_linear_agrees_with_float64(runner: Runner, case: Int16Case) -> None:
    check_int16_linear(runner, case, chain(case.k))


@pytest.mark.parametrize("case", list(mlp_cases()), ids=str)
def test_mlp_of_two_formats_agrees_with_float64(runner: Runner, case: MlpCase) -> None:
    rng = np.random.default_rng(case.rows)
    x = quantise(random_rows(rng, case.rows, case.k))
    values = dequantise(x, case.k)
    size = 1 / np.sqrt(np.mean(np.square(values)) * case.k)
    gate, up = (random_weights(rng, fmt, case.n, case.k, size) for fmt in (case.fmt, case.up))
    out = empty_rows(case.rows, case.n)
    buffers = int16_buffers(out, x, [gate.stored, up.stored], case.n, case.k)
    run(runner, [case.kernel.launch(case.fmt, buffers, case.rows, case.n, up=case.up)])

    g, g_norms = linear(values, gate)
    u, u_norms = linear(values, up)
    expected = silu(g) * u
    g_error, u_error = (chain_bound(norms, chain(case.k)) for norms in (g_norms, u_norms))
    error = 1.1 * g_error * (np.abs(u) + u_error) + np.abs(silu(g)) * u_error
    error += 8 * UNIT * np.abs(expected)
    check_int16(out, expected, error)


@pytest.mark.parametrize("fmt", KINDS)
@pytest.mark.parametrize("family", [(WHOLE,), tuple(TILE.values()), tuple(SPLIT.values())])
def test_a_row_is_the_same_bits_at_every_width_and_place(
    runner: Runner, family: tuple[LinearKernel, ...], fmt: str
) -> None:
    rng = np.random.default_rng(7)
    weights = random_weights(rng, fmt, n=21, k=BLOCK)
    x = rng.standard_normal((1, BLOCK)).astype(np.float32)
    alone = result(runner, family[0], fmt, x, weights)
    for kernel in family:
        for rows in (2, 9, 35):
            others = rng.standard_normal((rows, BLOCK)).astype(np.float32)
            others[rows // 2] = x
            got = result(runner, kernel, fmt, others, weights)
            assert np.array_equal(got[rows // 2], alone[0]), (kernel, rows)


@pytest.mark.parametrize("fmt", KINDS)
@pytest.mark.parametrize("kernel", [ROW, PANEL, MLP_ROW, MLP_PANEL], ids=str)
def test_an_int16_row_is_the_same_bits_at_every_place(
    runner: Runner, kernel: Int16Kernel, fmt: str
) -> None:
    rng = np.random.default_rng(8)
    n, k = 64, 3 * BLOCK
    weights = [
        random_weights(rng, fmt, n, k, 0.05).stored for _ in range(1 + (kernel.role == "mlp"))
    ]

    def result(x: Buffer) -> Buffer:
        is_mlp = kernel.role == "mlp"
        out = empty_rows(len(x), n) if is_mlp else np.full((len(x), n), np.nan, np.float32)
        run(runner, [kernel.launch(fmt, int16_buffers(out, x, weights, n, k), len(x), n)])
        return out

    x = random_rows(rng, 1, k)
    alone = result(quantise(x))
    for rows in (*range(2, 10), 17, 130):
        others = random_rows(rng, rows, k)
        others[rows // 2] = x
        assert np.array_equal(result(quantise(others))[rows // 2], alone[0]), rows


@pytest.mark.parametrize("kernel", [ROW, PANEL], ids=str)
@pytest.mark.parametrize("fmt", FORMATS)
def test_the_largest_products_fit(runner: Runner, kernel: Int16Kernel, fmt: str) -> None:
    """No sum of integers leaves its type, whatever the codes are."""
    form = PackedFormat(fmt)
    stored = np.repeat(np.array([[0x00], [0x77], [0x88], [0xFF]], np.uint8), form.n_bytes, axis=1)
    if fmt in HALVES:
        put_halves(fmt, stored, np.ones((4, 2)))
    elif fmt == "mxfp4":
        stored[:, 0] = 127
    else:
        stored[:, :4] = 0x38
    stored = np.tile(stored, (4, BLOCK // form.elements))
    weights = Weights(stored, form.values(stored).astype(np.float64))
    x = np.ones((3, BLOCK), np.float32)
    x[1, ::2], x[2] = -1, -1
    quantised = quantise(x)
    out = np.full((3, 16), np.nan, np.float32)
    buffers = int16_buffers(out, quantised, [stored], 16, BLOCK)
    run(runner, [kernel.launch(fmt, buffers, 3, 16)])
    exact = dequantise(quantised, BLOCK)
    # Terms of one sign: partial sums are as large as the sum of all, and parts may cancel.
    size = np.abs(exact) @ np.abs(weights.values).T + np.abs(weights.values).max() * BLOCK
    check(out, exact @ weights.values.T, chain(BLOCK) * UNIT * 16 * size)


@pytest.mark.parametrize("software", [True, False], ids=["software", "gpu"])
def test_the_launch_table_covers_every_output(runner: Runner, software: bool) -> None:
    rng = np.random.default_rng(6)
    weights = random_weights(rng, "q4_k", 77, BLOCK)
    x = rng.standard_normal((MOST_ROWS, BLOCK)).astype(np.float32)
    expected, norms = linear(x, weights)
    widest = chosen_result(runner, "q4_k", x, weights, software, deterministic=True)
    for rows in (1, 2, 3, 5, 9, 17, MOST_ROWS):
        got = chosen_result(runner, "q4_k", x[:rows], weights, software, deterministic=False)
        check(got, expected[:rows], chain_bound(norms[:rows], BLOCK))
        same = chosen_result(runner, "q4_k", x[:rows], weights, software, deterministic=True)
        assert np.array_equal(same, widest[:rows]), rows


def test_every_format_of_the_engine_is_tested() -> None:
    from mtlqwen._core import _testing

    assert {name.lower() for name in _testing.packed_formats()} == set(FORMATS)


@pytest.mark.parametrize(("fmt", "k", "want"), [("q4_k", 288, 256), ("nvfp4", 96, 64)])
def test_rows_that_do_not_fill_their_qblocks_are_refused(fmt: str, k: int, want: int) -> None:
    from mtlqwen import ModelError
    from mtlqwen._core import _testing

    message = f"got 8 x {k} of {fmt.upper()}, want columns in multiples of {want}"
    with pytest.raises(ModelError, match=message):
        _testing.choose_linear(fmt, 8, k, 1, True)


def test_formats_may_be_mixed_in_the_mlp() -> None:
    from mtlqwen._core import _testing

    for software, int16 in ((True, True), (True, False), (False, True)):
        mlp = _testing.choose_mlp("q5_k", 96, 256, 1, software=software, int16=int16)
        assert bool(mlp) == (software and int16)
        linear = _testing.choose_linear("q5_k", 96, 256, 1, software=software, int16=int16)
        assert linear["int16"] == (software and int16)
