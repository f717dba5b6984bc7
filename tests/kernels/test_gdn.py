"""The Gated DeltaNet kernels against float64, and row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from cases_gdn import (
    NEVER_CHUNKED,
    GdnShape,
    alone,
    conv_case,
    gated_norm_case,
    gates_case,
    recurrent_case,
)
from cases_layers import EDGE_ROWS, check_case, exact
from harness import Runner, check, run
from int16_rows import quantise, split_rows
from layer_args import Query, pass_struct, query_arrays, write_array

SMALL = GdnShape(n_k_heads=2, n_v_heads=4, head_dim=64)
SHAPES = [
    GdnShape(n_k_heads=2, n_v_heads=2 * ratio, head_dim=dim, tiled=tiled)
    for ratio in (1, 2, 3)
    for dim in (64, 128)
    for tiled in (False, True)
]
# The bundled model; 0.8B and 2B; 4B and 9B; 27B.
DENSE = [
    GdnShape(n_k_heads=k, n_v_heads=v, tiled=True)
    for k, v in ((4, 8), (16, 16), (16, 32), (16, 48))
]
MIXED = (
    Query(count=1, kv_valid=40, bank=5),
    Query(count=3, bank=1),
    Query(count=2, kv_valid=7, bank=2),
    Query(count=1, bank=6),
)


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_conv(runner: Runner, shape: GdnShape) -> None:
    check_case(runner, conv_case(shape, MIXED))


@pytest.mark.parametrize("rows", EDGE_ROWS)
@pytest.mark.parametrize("kv_valid", [0, 9])
def test_conv_rows(runner: Runner, rows: int, kv_valid: int) -> None:
    check_case(runner, conv_case(SMALL, [Query(count=rows, kv_valid=kv_valid)]))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_gates_rows(runner: Runner, rows: int) -> None:
    check_case(runner, gates_case(rows, 8))


@pytest.mark.parametrize("n_v_heads", [1, 16, 31, 32, 33, 48, 64])
def test_gates_heads(runner: Runner, n_v_heads: int) -> None:
    check_case(runner, gates_case(2, n_v_heads))


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_recurrent(runner: Runner, shape: GdnShape) -> None:
    check_case(runner, recurrent_case(shape, MIXED))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_recurrent_rows(runner: Runner, rows: int) -> None:
    check_case(runner, recurrent_case(SMALL, [Query(count=rows, kv_valid=5)]))


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_chunk(runner: Runner, shape: GdnShape) -> None:
    """Long and short queries in one pass: each kernel leaves the other's rows and banks alone."""
    queries = (
        Query(count=33, kv_valid=40, bank=5),
        Query(count=3, bank=1),
        Query(count=16, kv_valid=7, bank=2),
        Query(count=15, kv_valid=7, bank=6),
    )
    check_case(runner, recurrent_case(shape, queries, 16))


@pytest.mark.parametrize("rows", EDGE_ROWS)
@pytest.mark.parametrize("kv_valid", [0, 5])
def test_chunk_rows(runner: Runner, rows: int, kv_valid: int) -> None:
    check_case(runner, recurrent_case(SMALL, [Query(count=rows, kv_valid=kv_valid)], 1))


EXTREMES = {
    "none": [1.0] * 40,
    "all": [0.0] * 40,
    "one": [1.0] * 9 + [0.0] + [1.0] * 30,
    "denormal": [1e-39, 1.0, 1e-42, 0.5] * 10,
    "underflow of products": [1e-12] * 40,
    "strong, then weak": [1e-30, 0.999, 0.999, 0.999] * 10,
}


@pytest.mark.parametrize("decays", EXTREMES.values(), ids=EXTREMES)
def test_chunk_with_extreme_decays(runner: Runner, decays: list[float]) -> None:
    query = Query(count=40, kv_valid=5)
    check_case(runner, recurrent_case(SMALL, [query], 1, decays=decays))


@pytest.mark.parametrize("cut", [1, 2, 31, 32, 33, 64, 76])
def test_chunks_of_any_split_agree(runner: Runner, cut: int) -> None:
    """Two passes agree with float64 as one pass does: the second starts from the first's bank."""
    whole = recurrent_case(SMALL, [Query(count=77, kv_valid=3, bank=1)], 1)
    (out, expected, bound), (banks, new_banks, bank_bound), _ = whole.checks
    (launch,) = whole.launches
    bank = 1
    for first, last in ((0, cut), (cut, 77)):
        query = Query(count=last - first, kv_valid=3 + first, bank=bank)
        part = np.zeros_like(out[first:last])
        run(runner, [alone(launch, query, slice(first, last), part, banks)])
        # Another cut is another order of the same additions: both passes stay in the bound.
        check(part, expected[first:last], 2 * bound[first:last])
        bank = 1 - bank
    final = exact(SMALL.state(new_banks[0]))
    check(SMALL.state(banks[1]), final, 2 * exact(SMALL.state(bank_bound[0])))


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_gated_norm(runner: Runner, shape: GdnShape) -> None:
    check_case(runner, gated_norm_case(shape, 3))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_gated_norm_rows(runner: Runner, rows: int) -> None:
    check_case(runner, gated_norm_case(SMALL, rows))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_gated_norm_int16_rows(runner: Runner, rows: int) -> None:
    check_case(runner, gated_norm_case(SMALL, rows, int16=True))


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_gated_norm_int16(runner: Runner, shape: GdnShape) -> None:
    """The int16 rows are those of gdn_norm's floats, byte for byte."""
    case, plain = (gated_norm_case(shape, 3, int16=int16) for int16 in (True, False))
    check_case(runner, case)
    run(runner, plain.launches)
    (stored, *_), (out, *_) = case.launches[0].buffers, plain.launches[0].buffers
    assert np.array_equal(stored, quantise(out.astype(np.float32)))


def test_gated_norm_int16_of_a_nan(runner: Runner) -> None:
    """All qblocks of the head are NaN, and none of another."""
    case = gated_norm_case(SMALL, 2, int16=True)
    stored, o, *_ = case.launches[0].buffers
    o[1, 2, 5] = np.nan
    run(runner, case.launches)
    _, scales = split_rows(stored, SMALL.n_v_heads * SMALL.head_dim)
    nan_blocks = np.argwhere(np.isnan(scales)).tolist()
    assert nan_blocks == [[1, 4], [1, 5]]


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 20])
def test_recurrent_is_the_same_in_chunks(runner: Runner, cut: int) -> None:
    """Rows of one query in two passes give the same bits as in one, in out and in state."""
    whole = recurrent_case(SMALL, [Query(count=21, kv_valid=3, bank=1)]).launches[0]
    out, banks, *_ = whole.buffers
    start = banks.copy()
    run(runner, [whole])
    pieces, bank = start.copy(), 1
    for first, last in ((0, cut), (cut, 21)):
        query = Query(count=last - first, kv_valid=3 + first, bank=bank)
        part = np.zeros_like(out[first:last])
        run(runner, [alone(whole, query, slice(first, last), part, pieces)])
        assert np.array_equal(part, out[first:last])
        bank = 1 - bank
    assert bank == 1
    assert np.array_equal(SMALL.state(pieces[1]), SMALL.state(banks[0]))


@pytest.mark.parametrize("cut", [1, 2, 3, 5])
def test_conv_is_the_same_in_chunks(runner: Runner, cut: int) -> None:
    conv, keep = conv_case(SMALL, [Query(count=6)]).launches
    act, tape, qkv, weight, banks, _, _, args, _ = conv.buffers
    pieces = banks.copy()
    run(runner, [conv, keep])
    bank = 0
    for first, last in ((0, cut), (cut, 6)):
        query = Query(count=last - first, kv_valid=first, bank=bank)
        packed, row_query = query_arrays([query])
        part, raw = np.zeros_like(act[first:last]), qkv[first:last].copy()
        pass_ = pass_struct([query])
        conv_buffers = [part, tape, raw, weight, pieces, packed, row_query, args, pass_]
        groups = (conv.groups[0], last - first)
        run(runner, [replace(conv, buffers=conv_buffers, groups=groups)])
        run(
            runner,
            [replace(keep, buffers=[pieces, raw, packed, write_array([query]), args, pass_])],
        )
        assert np.array_equal(part, act[first:last])
        bank = 1 - bank
    assert np.array_equal(SMALL.conv_state(pieces[0]), SMALL.conv_state(banks[1]))


@pytest.mark.parametrize("offset", [64, 68])
def test_recurrent_is_independent_of_its_company(runner: Runner, offset: int) -> None:
    """Wherever the state stands: 64 floats are cache lines, 68 are not."""
    shape = replace(SMALL, state_offset=offset)
    together = recurrent_case(shape, MIXED).launches[0]
    out, banks, *_ = together.buffers
    fresh = banks.copy()
    run(runner, [together])
    part = np.zeros_like(out[4:6])
    run(runner, [alone(together, MIXED[2], slice(4, 6), part, fresh)])
    assert np.array_equal(part, out[4:6])
    assert np.array_equal(shape.state(fresh[3]), shape.state(banks[3]))


# Rows after which a state is kept: the first, within a block of 32, where blocks end, the last.
LISTS = {
    "the first": (1, 77),
    "within a block": (20, 77),
    "block ends": (32, 64, 77),
    "around block ends": (1, 2, 16, 31, 32, 33, 76, 77),
    "every": tuple(range(1, 78)),
}
# Queries with lists of their own; three of them read one bank.
LISTED = (
    Query(count=33, kv_valid=40, bank=1, kept=((1, 7), (20, 0), (33, 9))),
    Query(count=3, kept=((2, 4), (3, 2))),
    Query(count=5, kv_valid=40, bank=1, kept=((5, 3),)),
    Query(count=40, kv_valid=40, bank=1, kept=((32, 8), (40, 6))),
    Query(count=2, kv_valid=7, bank=5, kept=((1, 10), (2, 11))),
)


def keeping(rows: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Query.kept: into banks behind bank 0, the last state into the first of them."""
    return tuple((n, len(rows) - i) for i, n in enumerate(rows))


@pytest.mark.parametrize("shape", [*SHAPES, DENSE[0]], ids=str)
def test_several_lists_in_one_pass(runner: Runner, shape: GdnShape) -> None:
    check_case(runner, recurrent_case(shape, LISTED, 16))
    check_case(runner, conv_case(shape, LISTED))


@pytest.mark.parametrize("chunk_rows", [NEVER_CHUNKED, 1], ids=["recurrent", "chunk"])
@pytest.mark.parametrize("kv_valid", [0, 3])
@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)
def test_states_of_listed_rows(
    runner: Runner, rows: tuple[int, ...], kv_valid: int, chunk_rows: int
) -> None:
    query = Query(count=77, kv_valid=kv_valid, kept=keeping(rows))
    check_case(runner, recurrent_case(SMALL, [query], chunk_rows))


@pytest.mark.parametrize("rows", [(1, 6), (2, 6), (1, 2, 3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("kv_valid", [0, 9])
def test_conv_states_of_listed_rows(runner: Runner, rows: tuple[int, ...], kv_valid: int) -> None:
    """Those after rows 1 and 2 hold rows that the bank remembers."""
    check_case(runner, conv_case(SMALL, [Query(count=6, kv_valid=kv_valid, kept=keeping(rows))]))


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)
def test_recurrent_does_not_depend_on_what_is_kept(runner: Runner, rows: tuple[int, ...]) -> None:
    """Bit for bit: each state and the rows before it are those of a pass that ends there."""
    listed = recurrent_case(SMALL, [Query(count=77, kv_valid=3, kept=keeping(rows))]).launches[0]
    out, banks, *_ = listed.buffers
    old_banks = banks.copy()
    run(runner, [listed])
    for n, bank in keeping(rows):
        part, pieces = np.zeros_like(out[:n]), old_banks[:2].copy()
        run(runner, [alone(listed, Query(count=n, kv_valid=3), slice(n), part, pieces)])
        assert part.tobytes() == out[:n].tobytes()
        assert SMALL.state(pieces[1]).tobytes() == SMALL.state(banks[bank]).tobytes()


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)
def test_chunk_stays_in_its_bounds_whatever_is_kept(runner: Runner, rows: tuple[int, ...]) -> None:
    """Blocks that end elsewhere add in another order: the bounds are those of whole blocks."""
    listed, plain = (
        recurrent_case(SMALL, [Query(count=77, kv_valid=3, kept=keeping(kept))], 1)
        for kept in (rows, (77,))
    )
    run(runner, listed.launches)
    (out, *_), (banks, *_), _ = listed.checks
    (_, expected, bound), (_, new_banks, bank_bound), _ = plain.checks
    check(out, expected, bound)
    check(
        SMALL.state(banks[1]), exact(SMALL.state(new_banks[1])), exact(SMALL.state(bank_bound[1]))
    )
