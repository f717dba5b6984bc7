"""attention_prepare, _split, _merge and _merge_int16 against float64, and row by row."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from cases_attention import PLACE, AttentionShape, attention_case, prepare_case
from cases_layers import EDGE_ROWS, Floats, check_case
from harness import UNIT, Runner, run
from int16_rows import quantise, split_rows
from layer_args import NO_INDEX, Query

TINY = AttentionShape(n_heads=4, n_kv_heads=2)
# 0.8B and 2B, 4B and 9B, 27B; then the bundled model.
DENSE = (
    AttentionShape(n_heads=8, n_kv_heads=2),
    AttentionShape(n_heads=16, n_kv_heads=4),
    AttentionShape(n_heads=24, n_kv_heads=4),
    TINY,
)
RATIOS = [
    AttentionShape(n_heads=ratio * n_kv, n_kv_heads=n_kv, head_dim=dim, rotary_dim=dim // 4)
    for ratio, n_kv, dim in (
        (1, 3, 64), (2, 1, 128), (3, 2, 256), (4, 1, 64), (5, 1, 128), (6, 1, 64), (7, 1, 256),
        (8, 2, 128), (8, 1, 256),
    )
]  # fmt: skip
ROTATIONS = [
    AttentionShape(n_heads=2, n_kv_heads=1, head_dim=dim, rotary_dim=rotary)
    for dim, rotary in ((32, 32), (64, 2), (96, 30), (128, 128), (160, 66), (256, 64))
]
# The bundled drafter's heads.
DRAFTER = AttentionShape(
    n_heads=8, n_kv_heads=2, head_dim=128, rotary_dim=128, gated=False, one_plane=True
)
# What rows may see. The window of 1 is a row alone; from 130 on, some rows see nothing.
SIGHTS = [
    AttentionShape(
        n_heads=4, n_kv_heads=2, head_dim=64, first_key=first_key, window=window, causal=causal
    )
    for first_key, window, causal in product((0, 1, 130), (0, 1, 100, 300), (True, False))
]
OTHERS = [
    *(
        replace(DRAFTER, window=window, causal=causal)
        for window, causal in product((0, 200), (False, True))
    ),
    replace(TINY, gated=False),
    replace(TINY, one_plane=True, first_key=1),
    replace(RATIOS[6], window=150, gated=False),
]
MIXED = (
    Query(count=1, kv_valid=128, slot=2),
    Query(count=3, slot=0),
    Query(count=2, kv_valid=254, slot=1),
    Query(count=1, kv_valid=700, slot=4),
)


@pytest.mark.parametrize("shape", [*DENSE, *RATIOS, *ROTATIONS], ids=str)
def test_prepare(runner: Runner, shape: AttentionShape) -> None:
    queries = [
        Query(count=1, kv_valid=40, slot=2),
        Query(count=3),
        Query(count=2, kv_valid=7, slot=1),
    ]
    check_case(runner, prepare_case(shape, queries, 128))


@pytest.mark.parametrize("keys_only", [False, True])
@pytest.mark.parametrize("shape", [TINY, *OTHERS], ids=str)
def test_prepare_into_other_planes(runner: Runner, shape: AttentionShape, keys_only: bool) -> None:
    queries = [Query(count=1, kv_valid=40, slot=2), Query(count=3, slot=1)]
    check_case(runner, prepare_case(shape, queries, 64, keys_only))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_prepare_rows(runner: Runner, rows: int) -> None:
    check_case(runner, prepare_case(TINY, [Query(count=rows, kv_valid=3)], 256))


def test_prepare_reaches_far_planes(runner: Runner) -> None:
    """An element index past 2^32 would need 8 GiB here; the position and slot terms are enough."""
    check_case(runner, prepare_case(TINY, [Query(count=2, kv_valid=4094, slot=3)], 4096))


@pytest.mark.parametrize("shape", [*DENSE, *RATIOS], ids=str)
def test_attention(runner: Runner, shape: AttentionShape) -> None:
    check_case(runner, attention_case(shape, MIXED, 2))


@pytest.mark.parametrize("shape", [*DENSE, *RATIOS], ids=str)
def test_attention_to_int16(runner: Runner, shape: AttentionShape) -> None:
    check_case(runner, attention_case(shape, MIXED, 2, int16=True))


@pytest.mark.parametrize("shape", [TINY, RATIOS[0]], ids=str)
def test_int16_is_the_merged_row(runner: Runner, shape: AttentionShape) -> None:
    """A quant is off by one at most: the two kernels may round their floats differently."""
    case = attention_case(shape, MIXED, 1)
    other = attention_case(shape, MIXED, 1, int16=True)
    run(runner, [*case.launches, *other.launches])
    rows = case.arrays["out"]
    k = rows.shape[1]
    wanted, got = split_rows(quantise(rows), k), split_rows(other.launches[1].buffers[0], k)
    assert np.abs(got[0].astype(int) - wanted[0].astype(int)).max() <= 1
    assert np.allclose(got[1], wanted[1], rtol=16 * UNIT, atol=0)


LONG = (
    Query(count=1, kv_valid=128, slot=2),
    Query(count=19, kv_valid=120, slot=0),
    Query(count=2, kv_valid=254, slot=1),
    Query(count=5, slot=4),
)


@pytest.mark.parametrize("tile", [8, 16])
@pytest.mark.parametrize("shape", [*DENSE, *RATIOS], ids=str)
def test_tiles_give_the_same_bits(runner: Runner, shape: AttentionShape, tile: int) -> None:
    """As one row at a time, whatever shares a tile; and that is right."""
    one = attention_case(shape, LONG, 1)
    check_case(runner, one)
    tiles = attention_case(shape, LONG, 1, tile=tile)
    run(runner, tiles.launches)
    for name in ("out", "partial", "stats"):
        same = np.array_equal(one.arrays[name], tiles.arrays[name], equal_nan=True)
        assert same, name


@pytest.mark.parametrize("tile", [8, 16])
@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_tile_rows(runner: Runner, rows: int, tile: int) -> None:
    queries = [Query(count=rows, kv_valid=100)]
    one, tiles = attention_case(TINY, queries, 1), attention_case(TINY, queries, 1, tile=tile)
    run(runner, one.launches)
    check_case(runner, tiles)
    assert np.array_equal(one.arrays["out"], tiles.arrays["out"])


# Rows at the start, over a block's and a split's edge, far behind both.
SEEING = (
    Query(count=3, slot=1),
    Query(count=19, kv_valid=120, slot=0),
    Query(count=16, kv_valid=500, slot=3),
    Query(count=1, kv_valid=640, slot=2),
)


@pytest.mark.parametrize("blocks_per_split", [1, 2])
@pytest.mark.parametrize("shape", [*SIGHTS, *OTHERS], ids=str)
def test_sights(runner: Runner, shape: AttentionShape, blocks_per_split: int) -> None:
    """A row sees what it should, with the same bits in every kernel."""
    one = attention_case(shape, SEEING, blocks_per_split)
    check_case(runner, one)
    for tile in (8, 16):
        tiles = attention_case(shape, SEEING, blocks_per_split, tile=tile)
        run(runner, tiles.launches)
        for name in ("out", "partial", "stats"):
            same = np.array_equal(one.arrays[name], tiles.arrays[name], equal_nan=True)
            assert same, (tile, name)
    check_case(runner, attention_case(shape, SEEING, blocks_per_split, int16=True))


@pytest.mark.parametrize("tile", [0, 16])
@pytest.mark.parametrize("shape", [*SIGHTS, *OTHERS], ids=str)
def test_a_query_is_independent_of_its_company(
    runner: Runner, shape: AttentionShape, tile: int
) -> None:
    alone = attention_case(shape, SEEING[1:2], 1, tile=tile)
    rows = slice(5, 5 + SEEING[1].count)
    others = [replace(SEEING[3], slot=1), SEEING[1], Query(count=2, kv_valid=900, slot=2)]
    together = attention_case(shape, [Query(count=4, slot=3), *others], 1, seed=1, tile=tile)
    for name in ("q", "qg"):
        together.arrays[name][rows] = alone.arrays[name]
    run(runner, [*alone.launches, *together.launches])
    assert np.array_equal(alone.arrays["out"], together.arrays["out"][rows])


def test_a_causal_window_does_not_see_how_rows_are_cut(runner: Runner) -> None:
    """The last row of a chunk, and the same row by itself."""
    shape = replace(TINY, window=70, first_key=1)
    chunk = attention_case(shape, [Query(count=40, kv_valid=100)], 1, tile=16)
    single = attention_case(shape, [Query(count=1, kv_valid=139)], 1)
    for name in ("q", "qg"):
        single.arrays[name][:] = chunk.arrays[name][-1:]
    run(runner, [*chunk.launches, *single.launches])
    assert np.array_equal(chunk.arrays["out"][-1:], single.arrays["out"])


@pytest.mark.parametrize("keys", [1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000])
@pytest.mark.parametrize("blocks_per_split", [1, 2, 16])
def test_attention_contexts(runner: Runner, keys: int, blocks_per_split: int) -> None:
    check_case(runner, attention_case(TINY, [Query(count=1, kv_valid=keys - 1)], blocks_per_split))


@pytest.mark.parametrize("rows", EDGE_ROWS)
def test_attention_rows(runner: Runner, rows: int) -> None:
    """The causal limit is each row's own position."""
    shape = AttentionShape(n_heads=2, n_kv_heads=1, head_dim=64, rotary_dim=16)
    check_case(runner, attention_case(shape, [Query(count=rows, kv_valid=100)], 1))


def attended(
    runner: Runner,
    queries: list[Query],
    blocks_per_split: int,
    first: int,
    source: Floats,
    gate: Floats,
) -> Floats:
    """Result of the rows from `first` on, whose q and gate are given."""
    rows = slice(first, first + len(source))
    case = attention_case(TINY, queries, blocks_per_split, seed=5)
    case.arrays["q"][rows], case.arrays["qg"][rows] = source, gate
    run(runner, case.launches)
    out: Floats = case.arrays["out"]
    return out[rows]


def test_row_is_independent_of_its_company(runner: Runner) -> None:
    rng = np.random.default_rng(3)
    q = rng.standard_normal((2, 4, 256)).astype(np.float32)
    gate = rng.standard_normal((2, 4, 512)).astype(np.float32)
    mine = Query(count=2, kv_valid=200, slot=1)
    alone = attended(runner, [mine], 1, 0, q, gate)
    # Other rows before and after, and a longer context that raises the number of splits.
    others = [Query(count=5, kv_valid=9, slot=0), mine, Query(count=1, kv_valid=900, slot=2)]
    together = attended(runner, others, 1, 5, q, gate)
    assert np.array_equal(alone, together)
    # As the last row of a longer chunk.
    chunked = attended(runner, [Query(count=102, kv_valid=100, slot=1)], 1, 100, q, gate)
    assert np.array_equal(alone, chunked)


def test_splits_change_rounding_only(runner: Runner) -> None:
    rng = np.random.default_rng(4)
    q = rng.standard_normal((1, 4, 256)).astype(np.float32) * 0.2
    gate = rng.standard_normal((1, 4, 512)).astype(np.float32)
    mine = [Query(count=1, kv_valid=999, slot=1)]
    results = [attended(runner, mine, blocks, 0, q, gate) for blocks in (1, 3, 8, 100)]
    # All blocks in one split: the same order of the same operations, whatever the split could hold.
    assert np.array_equal(results[2], results[3])
    # Values are below 5; 1000 roundings of a running sum are a random walk of sqrt(1000) steps.
    for result in results:
        assert np.abs(result - results[0]).max() < 5 * 1000**0.5 * UNIT


def test_one_loud_key_does_not_overflow(runner: Runner) -> None:
    """Scores of +-2e6 beside ordinary ones: softmax picks the loud key exactly."""
    case = attention_case(TINY, [Query(count=1, kv_valid=299)], 1)
    (split, merge), q = case.launches, case.arrays["q"]
    k_plane, v_plane, gate = split.buffers[3], split.buffers[4], merge.buffers[3]
    keys = k_plane.reshape(-1, TINY.token_halves)
    keys[:300] = 0.01
    keys[140] = 65504.0
    keys[20] = -65504.0
    q[:] = 0.125
    gate[:] = 100.0
    run(runner, case.launches)
    loud = v_plane.reshape(-1, 2, 256)[140].astype(np.float32)
    expected = np.repeat(loud, 2, axis=0).reshape(1, -1)
    assert np.array_equal(case.arrays["out"], expected)


@pytest.mark.parametrize("keys_only", [False, True])
def test_planes_hold_finite_numbers_alone(runner: Runner, keys_only: bool) -> None:
    """A row that would give others is spoilt; its queries are seen when they are norms' input."""
    shape = replace(TINY, head_dim=96, rotary_dim=32)
    case = prepare_case(shape, [Query(count=7)], 16, keys_only)
    arrays = case.arrays
    q, k, v, spoilt = (arrays[name] for name in ("q", "k", "v", "spoilt"))
    k[0, 0, 95] = np.nan
    k[1, 1, 0] = np.inf
    k[2, 0, 40] = 1e20  # its square is infinite
    v[3, 1, 50] = -np.inf
    v[4, 0, [0, 95]] = (np.nan, 1e30)
    q[5, 0] = np.nan
    run(runner, case.launches)
    assert spoilt.tolist() == [PLACE] * 5 + [NO_INDEX] * 2
    keys, values = (plane.reshape(16, 2, 96)[:7] for plane in arrays["planes"])
    assert np.isfinite(keys).all()
    assert np.isfinite(values).all()
    assert values[3, 1, 50] == values[4, 0, 0] == 0
    assert values[4, 0, 95] == 65504
    arrays["k_norm"][95] = np.inf
    run(runner, case.launches)
    assert spoilt.tolist() == [PLACE] * 7
