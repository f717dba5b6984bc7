"""Cases of the attention kernels: heads and what they see, expected values, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import reference_layers as ref
from cases_layers import EPS, Floats, LayerCase, exact, floats, nans, size, sound
from harness import Buffer, Launch
from int16_rows import empty_rows
from layer_args import ATTENTION, Query, pass_struct, query_arrays, record, split_count
from numpy.typing import NDArray

Halves = NDArray[np.float16]
PLACE = 7  # of the layer in a model


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """Heads of one attention layer, what its rows see, and where its keys and values lie."""

    n_heads: int
    n_kv_heads: int
    head_dim: int = 256
    rotary_dim: int = 64
    first_key: int = 0
    window: int = 0
    causal: bool = True
    gated: bool = True
    one_plane: bool = False  # each position has its values behind its keys

    @property
    def token_halves(self) -> int:
        """From one position of a plane to the next."""
        return (2 if self.one_plane else 1) * self.n_kv_heads * self.head_dim

    @property
    def query_cols(self) -> int:
        """Of a head's query, with its gate."""
        return (2 if self.gated else 1) * self.head_dim

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
            token_halves=self.token_halves,
            first_key=self.first_key,
            window=self.window,
            causal=self.causal,
            gated=self.gated,
            place=PLACE,
        )

    def seen(self, query: Query) -> NDArray[np.bool_]:
        """(query.count, positions): which positions each row sees."""
        keys = np.arange(query.kv_valid + query.count)[None]
        rows = keys[:, query.kv_valid :].T
        seen = keys >= self.first_key
        if self.causal:
            seen = seen & (keys <= rows)
        if self.window:
            seen = seen & (np.abs(rows - keys) < self.window)
        return np.broadcast_to(seen, (query.count, keys.size))

    def planes(self, slots: int, slot_tokens: int, fill: float) -> list[Halves]:
        """K and V as the kernels take them: V begins where its first value lies."""
        values_at = self.n_kv_heads * self.head_dim if self.one_plane else 0
        whole = np.full(slots * slot_tokens * self.token_halves, fill, np.float16)
        return [whole, whole[values_at:].copy()]

    def in_plane(self, values: NDArray[np.generic], fill: float) -> ref.Array:
        """Numbers (slots, positions, Hkv, D) in the places of a plane of planes()."""
        parts = np.full((*values.shape[:2], self.token_halves), fill)
        n = self.n_kv_heads * self.head_dim
        parts[..., :n] = values.reshape(*values.shape[:2], n)
        return parts.reshape(-1)

    def __str__(self) -> str:
        """Name in test ids."""
        sight = [f"from{self.first_key}"] if self.first_key else []
        sight += [f"window{self.window}"] if self.window else []
        flags = {"block": not self.causal, "ungated": not self.gated, "plane": self.one_plane}
        sight += [name for name, is_set in flags.items() if is_set]
        heads = f"H{self.n_heads}kv{self.n_kv_heads}D{self.head_dim}r{self.rotary_dim}"
        return "-".join([heads, *sight])


def rope_table(context: int, rotary_dim: int) -> Floats:
    """Cosines and sines (context, rotary_dim / 2, 2)."""
    inverse = 1e7 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    angles = np.arange(context)[:, None] * inverse
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def prepare_case(
    shape: AttentionShape, queries: Sequence[Query], slot_tokens: int, keys_only: bool = False
) -> LayerCase:
    """attention_prepare; one value overflows half, one head is tiny. keys_only: without queries."""
    rng = np.random.default_rng(len(queries) + shape.n_heads)
    rows = sum(query.count for query in queries)
    heads, n_kv, dim = shape.n_heads, shape.n_kv_heads, shape.head_dim
    qg = floats(rng, rows, heads, shape.query_cols)
    k, v = floats(rng, rows, n_kv, dim), floats(rng, rows, n_kv, dim)
    v[0, 0, :2] = (1e6, -1e6)
    k[-1, -1] *= 1e-4
    q_norm, k_norm = floats(rng, dim) + 1, floats(rng, dim) + 1
    k_norm[dim - 1] = 1e6
    table = rope_table(slot_tokens, shape.rotary_dim)
    slots = 1 + max(query.slot for query in queries)
    planes = shape.planes(slots, slot_tokens, -7.0)
    q = nans(rows, heads, dim)
    packed, row_query = query_arrays(queries)
    spoilt = sound(rows)
    written_heads = 0 if keys_only else heads
    launch = Launch(
        kernel="attention_prepare",
        buffers=[
            q, *planes, qg, k, v, q_norm, k_norm, table, packed, row_query, spoilt,
            replace(shape, n_heads=written_heads).args(slot_tokens), pass_struct(queries),
        ],
        groups=(written_heads + n_kv, rows),
    )  # fmt: skip

    expected_q, bound_q = np.full((rows, heads, dim), np.nan), np.zeros((rows, heads, dim))
    expected = [np.full((slots, slot_tokens, n_kv, dim), -7.0) for _ in range(2)]
    bounds = [np.zeros((slots, slot_tokens, n_kv, dim)) for _ in range(2)]
    scale = float(np.float32(dim**-0.5))
    row = 0
    for query in queries:
        for position in range(query.kv_valid, query.kv_valid + query.count):
            turns = exact(table[position])
            if not keys_only:
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
        name=f"attention_prepare-{shape}-{rows}rows-{len(queries)}queries"
        + ("-keys" if keys_only else ""),
        launches=[launch],
        checks=[
            (q, expected_q, bound_q),
            (spoilt, exact(spoilt), np.zeros(rows)),
            *(
                (plane, shape.in_plane(y, -7.0)[: plane.size], shape.in_plane(b, 0.0)[: plane.size])
                for plane, y, b in zip(planes, expected, bounds, strict=True)
            ),
        ],
        # Halves are stored, floats of the same count read; of qg the q half.
        moved_bytes=(0 if keys_only else 2 * size(q)) + size(k, v) * 3 // 2,
        arrays={"q": qg, "k": k, "v": v, "k_norm": k_norm, "planes": planes, "spoilt": spoilt},
    )


def seen_planes(
    shape: AttentionShape, queries: Sequence[Query], slot_tokens: int
) -> tuple[ref.Array, ref.Array]:
    """K and V (slots, slot_tokens, Hkv, D); what no row of its query sees is NaN."""
    slots = 1 + max(query.slot for query in queries)
    full = (slots, slot_tokens, shape.n_kv_heads, shape.head_dim)
    k, v = np.full(full, np.nan), np.full(full, np.nan)
    for query in queries:
        seen = shape.seen(query).any(axis=0)
        # Each slot has its own numbers, so that its contents do not depend on the other queries.
        for i, plane in enumerate((k, v)):
            slot_rng = np.random.default_rng(1000 + 2 * query.slot + i)
            numbers = slot_rng.standard_normal((seen.size, *full[2:])).astype(np.float16)
            plane[query.slot, : seen.size][seen] = numbers[seen]
    return k, v


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
    keys, values = seen_planes(shape, queries, slot_tokens)
    planes = shape.planes(len(keys), slot_tokens, np.nan)
    for plane, numbers in zip(planes, (keys, values), strict=True):
        plane[:] = shape.in_plane(numbers, np.nan)[: plane.size]
    # Scores of a normed q and k have a deviation near 1; the factor makes some rows peaked.
    q = floats(rng, rows, heads, dim, scale=3 * dim**-0.5)
    qg = floats(rng, rows, heads, shape.query_cols, scale=2)
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
        buffers=[partial, stats, q, *planes, packed, row_query, args, pass_],
        groups=(n_kv * n_splits, -(-rows // tile_rows)),
    )
    merge = Launch(
        kernel="attention_merge_int16" if int16 else "attention_merge",
        buffers=[out16 if int16 else out, partial, stats, qg, packed, row_query, args, pass_],
        groups=(heads, rows),
    )
    expected, bounds = np.empty((rows, heads * dim)), np.empty((rows, heads * dim))
    for row, (slot, seen) in enumerate(
        (query.slot, seen) for query in queries for seen in shape.seen(query)
    ):
        y, bound = ref.attend(
            exact(q[row]),
            keys[slot, : seen.size][seen],
            values[slot, : seen.size][seen],
            exact(qg[row, :, dim:]) if shape.gated else None,
        )
        expected[row], bounds[row] = y.reshape(-1), bound.reshape(-1)
    n_seen = sum(int(shape.seen(query).sum()) for query in queries)
    return LayerCase(
        name=f"{split.kernel}-{shape}-{rows}rows-{longest}keys-{blocks_per_split}blocks"
        + ("-int16" if int16 else ""),
        launches=[split, merge],
        checks=[] if int16 else [(out, expected, bounds)],
        int16_checks=[(out16, expected, bounds)] if int16 else [],
        # K and V of every row's keys, once for all heads that share them.
        moved_bytes=4 * n_seen * n_kv * dim + 2 * size(partial, out) + size(q),
        arrays={"q": q, "qg": qg, "out": out, "partial": partial, "stats": stats},
    )
