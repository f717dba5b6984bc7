"""Cases of the kernels between the linears: launches, expected values, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import reference_layers as ref
from harness import Buffer, Launch, Runner, check, run
from int16_rows import check_int16, empty_rows
from layer_args import (
    ATTENTION,
    NORM,
    ROWS,
    Query,
    pass_struct,
    query_arrays,
    record,
    split_count,
)
from numpy.typing import NDArray

Floats = NDArray[np.float32]
EPS = 1e-6
EDGE_ROWS = (1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 128)


@dataclass(frozen=True, kw_only=True)
class LayerCase:
    """Launches in order; then each array must equal its reference within its bound.

    int16_checks: the same for int16 rows.
    """

    name: str
    launches: list[Launch]
    checks: list[tuple[Buffer, ref.Array, ref.Array]]
    moved_bytes: int  # what the launches must read and write, each once
    int16_checks: list[tuple[Buffer, ref.Array, ref.Array]] = field(default_factory=list)
    arrays: dict[str, Floats] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name in test ids and benchmark tables."""
        return self.name


def check_case(runner: Runner, case: LayerCase) -> None:
    """Run a case and compare everything that it names."""
    run(runner, case.launches)
    for got, expected, bound in case.checks:
        check(got.reshape(expected.shape), expected, bound)
    for got, expected, bound in case.int16_checks:
        check_int16(got, expected, bound)


def floats(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Floats:
    """Normal float32 numbers."""
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def size(*buffers: Buffer) -> int:
    """Bytes of the buffers together."""
    return sum(buffer.nbytes for buffer in buffers)


def nans(*shape: int) -> Floats:
    """An output nobody has written yet."""
    return np.full(shape, np.nan, np.float32)


def exact(values: Buffer) -> ref.Array:
    """The same numbers in float64."""
    return values.astype(np.float64)


def norm_case(rows: int, dim: int, *, int16: bool = False) -> LayerCase:
    """rms_norm, or rms_norm_int16; row 0 is tiny, so that eps matters."""
    rng = np.random.default_rng(rows * 10007 + dim)
    x, weight = floats(rng, rows, dim), floats(rng, dim) + 1
    x[0] *= 1e-4
    out = nans(rows, dim)
    outs = [out, empty_rows(rows, dim)] if int16 else [out]
    args = record(NORM, dim=dim, eps=EPS)
    pass_ = pass_struct([Query(count=rows)])
    kernel = "rms_norm_int16" if int16 else "rms_norm"
    launch = Launch(kernel=kernel, buffers=[*outs, x, weight, args, pass_], groups=(1, rows))
    expected = ref.rms_norm(exact(x), exact(weight), EPS)
    return LayerCase(
        name=f"{kernel}-{rows}x{dim}",
        launches=[launch],
        checks=[(out, *expected)],
        int16_checks=[(outs[1], *expected)] if int16 else [],
        moved_bytes=size(*outs, x, weight),
    )


def gather_case(rows: int, dim: int, logit_rows: Sequence[int]) -> LayerCase:
    """gather_rows, exact."""
    rng = np.random.default_rng(rows)
    x = floats(rng, rows, dim)
    chosen = np.array(logit_rows, np.uint32)
    out = nans(len(logit_rows), dim)
    args = record(ROWS, dim=dim)
    pass_ = pass_struct([Query(count=rows)])
    launch = Launch(
        kernel="gather_rows", buffers=[out, x, chosen, args, pass_], groups=(1, len(logit_rows))
    )
    expected = exact(x[chosen])
    return LayerCase(
        name=f"gather_rows-{len(logit_rows)}of{rows}x{dim}",
        launches=[launch],
        checks=[(out, expected, np.zeros_like(expected))],
        moved_bytes=2 * size(out),
    )


def swiglu_case(rows: int, dim: int) -> LayerCase:
    """Swiglu, with gates far outside the range of exp."""
    rng = np.random.default_rng(rows + dim)
    gate, up = floats(rng, rows, dim, scale=3), floats(rng, rows, dim)
    gate[0, :4] = (200.0, -200.0, 3e38, -3e38)
    up[0, :4] = (1.0, 1.0, 1.0, 1.0)
    out = nans(rows, dim)
    args = record(ROWS, dim=dim)
    pass_ = pass_struct([Query(count=rows)])
    launch = Launch(kernel="swiglu", buffers=[out, gate, up, args, pass_], groups=(1, rows))
    expected = ref.swiglu(exact(gate), exact(up))
    return LayerCase(
        name=f"swiglu-{rows}x{dim}",
        launches=[launch],
        checks=[(out, *expected)],
        moved_bytes=size(out, gate, up),
    )


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """Heads of one attention layer."""

    n_heads: int
    n_kv_heads: int
    head_dim: int = 256
    rotary_dim: int = 64

    def args(self, slot_tokens: int) -> Buffer:
        """AttentionArgs."""
        return record(
            ATTENTION,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            slot_tokens=slot_tokens,
            eps=EPS,
            scale=self.head_dim**-0.5,
        )

    def __str__(self) -> str:
        """Name in test ids."""
        return f"H{self.n_heads}kv{self.n_kv_heads}D{self.head_dim}r{self.rotary_dim}"


def rope_table(context: int, rotary_dim: int) -> Floats:
    """Cosines and sines (context, rotary_dim / 2, 2)."""
    inverse = 1e7 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    angles = np.arange(context)[:, None] * inverse
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def prepare_case(shape: AttentionShape, queries: Sequence[Query], slot_tokens: int) -> LayerCase:
    """attention_prepare; one value overflows half, one head is tiny."""
    rng = np.random.default_rng(len(queries) + shape.n_heads)
    rows = sum(query.count for query in queries)
    heads, n_kv, dim = shape.n_heads, shape.n_kv_heads, shape.head_dim
    qg = floats(rng, rows, heads, 2 * dim)
    k, v = floats(rng, rows, n_kv, dim), floats(rng, rows, n_kv, dim)
    v[0, 0, :2] = (1e6, -1e6)
    k[-1, -1] *= 1e-4
    q_norm, k_norm = floats(rng, dim) + 1, floats(rng, dim) + 1
    k_norm[dim - 1] = 1e6
    table = rope_table(slot_tokens, shape.rotary_dim)
    slots = 1 + max(query.slot for query in queries)
    planes = [np.full((slots, slot_tokens, n_kv, dim), -7.0, np.float16) for _ in range(2)]
    q = nans(rows, heads, dim)
    packed, row_query = query_arrays(queries)
    launch = Launch(
        kernel="attention_prepare",
        buffers=[
            q, *planes, qg, k, v, q_norm, k_norm, table, packed, row_query,
            shape.args(slot_tokens), pass_struct(queries),
        ],
        groups=(heads + n_kv, rows),
    )  # fmt: skip

    expected_q, bound_q = np.empty((rows, heads, dim)), np.empty((rows, heads, dim))
    expected = [np.full(planes[0].shape, -7.0) for _ in range(2)]
    bounds = [np.zeros(planes[0].shape) for _ in range(2)]
    scale = float(np.float32(dim**-0.5))
    row = 0
    for query in queries:
        for position in range(query.kv_valid, query.kv_valid + query.count):
            turns = exact(table[position])
            y, bound = ref.prepare_head(
                exact(qg[row, :, :dim]), exact(q_norm), turns, shape.rotary_dim, EPS
            )
            expected_q[row], bound_q[row] = y * scale, (bound + ref.U * np.abs(y)) * scale
            y, bound = ref.prepare_head(exact(k[row]), exact(k_norm), turns, shape.rotary_dim, EPS)
            place = (query.slot, position)
            expected[0][place], bounds[0][place] = ref.to_half(y, bound)
            expected[1][place], bounds[1][place] = ref.to_half(exact(v[row]), np.zeros_like(y))
            row += 1
    return LayerCase(
        name=f"attention_prepare-{shape}-{rows}rows-{len(queries)}queries",
        launches=[launch],
        checks=[
            (q, expected_q, bound_q),
            (planes[0], expected[0], bounds[0]),
            (planes[1], expected[1], bounds[1]),
        ],
        # Halves are stored, floats of the same count read; of qg the q half.
        moved_bytes=2 * size(q) + size(k, v) * 3 // 2,
    )


def attention_case(
    shape: AttentionShape,
    queries: Sequence[Query],
    blocks_per_split: int,
    seed: int = 0,
    tile: int = 0,
    int16: bool = False,
) -> LayerCase:
    """attention_split and attention_merge; what a query must not read is NaN.

    tile: (row, head) pairs of a threadgroup, 8 or 16; 0: one row. int16: attention_merge_int16.
    """
    rng = np.random.default_rng(seed)
    rows = sum(query.count for query in queries)
    heads, n_kv, dim = shape.n_heads, shape.n_kv_heads, shape.head_dim
    longest = max(query.kv_valid + query.count for query in queries)
    slot_tokens = -(-longest // 128) * 128
    slots = 1 + max(query.slot for query in queries)
    k_plane = np.full((slots, slot_tokens, n_kv, dim), np.nan, np.float16)
    v_plane = k_plane.copy()
    for query in queries:
        end = query.kv_valid + query.count
        # Each slot has its own numbers, so that its contents do not depend on the other queries.
        for i, plane in enumerate((k_plane, v_plane)):
            slot_rng = np.random.default_rng(1000 + 2 * query.slot + i)
            plane[query.slot, :end] = slot_rng.standard_normal((end, n_kv, dim))
    # Scores of a normed q and k have a deviation near 1; the factor makes some rows peaked.
    q = floats(rng, rows, heads, dim, scale=3 * dim**-0.5)
    qg = floats(rng, rows, heads, 2 * dim, scale=2)
    packed, row_query = query_arrays(queries)
    pass_ = pass_struct(queries, blocks_per_split)
    n_splits = split_count(queries, blocks_per_split)
    partial, stats = nans(rows, heads, n_splits, dim), nans(rows, heads, n_splits, 2)
    out = nans(rows, heads * dim)
    out16 = empty_rows(rows, heads * dim)
    args = shape.args(slot_tokens)
    tile_rows = max(tile // (heads // n_kv), 1)
    split = Launch(
        kernel=f"attention_split_tile_{tile}" if tile else "attention_split",
        buffers=[partial, stats, q, k_plane, v_plane, packed, row_query, args, pass_],
        groups=(n_kv * n_splits, -(-rows // tile_rows)),
    )
    merge = Launch(
        kernel="attention_merge_int16" if int16 else "attention_merge",
        buffers=[out16 if int16 else out, partial, stats, qg, packed, row_query, args, pass_],
        groups=(heads, rows),
    )
    expected, bounds = np.empty((rows, heads * dim)), np.empty((rows, heads * dim))
    row, keys = 0, 0
    for query in queries:
        for length in range(query.kv_valid + 1, query.kv_valid + query.count + 1):
            y, bound = ref.attend(
                exact(q[row]),
                exact(k_plane[query.slot, :length]),
                exact(v_plane[query.slot, :length]),
                exact(qg[row, :, dim:]),
            )
            expected[row], bounds[row] = y.reshape(-1), bound.reshape(-1)
            row, keys = row + 1, keys + length
    return LayerCase(
        name=f"{split.kernel}-{shape}-{rows}rows-{longest}keys-{blocks_per_split}blocks"
        + ("-int16" if int16 else ""),
        launches=[split, merge],
        checks=[] if int16 else [(out, expected, bounds)],
        int16_checks=[(out16, expected, bounds)] if int16 else [],
        # K and V of every row's keys, once for all heads that share them.
        moved_bytes=4 * keys * n_kv * dim + 2 * size(partial, out) + size(q),
        arrays={"q": q, "qg": qg, "out": out, "partial": partial, "stats": stats},
    )
