"""Cases of the tape: what verified rows leave there becomes a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import reference_layers as ref
from cases_gdn import GdnShape, unit_heads
from cases_layers import Floats, LayerCase, exact, floats, nans
from harness import Buffer, Launch
from layer_args import REPLAY, VERIFY, Query, pass_struct, query_arrays, record


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What became of a query's draft."""

    query: int  # index of the query
    accepted: int
    bank: int  # for the state


def replay_args(shape: GdnShape, tape_rows: int) -> Buffer:
    """GdnReplayArgs of layers with so many tape rows."""
    return record(
        REPLAY,
        layer=shape.args()[0],
        state_stride=shape.state_stride,
        conv_stride=shape.conv_stride,
        tape_stride=tape_rows * shape.tape_row_floats,
        n_layers=shape.n_layers,
    )


def replay_launch(
    shape: GdnShape,
    banks: Buffer,
    tape: Buffer,
    queries: Sequence[Query],
    verified: Sequence[Verified],
) -> Launch:
    """gdn_replay of a tape (layers, rows, tape_row_floats)."""
    verifies = np.zeros(len(verified), VERIFY)
    verifies["query"] = [v.query for v in verified]
    verifies["bank"] = [v.bank for v in verified]
    accepted = np.array([v.accepted for v in verified], np.uint32)
    packed, _ = query_arrays(queries)
    args, pass_ = replay_args(shape, tape.shape[1]), pass_struct(queries)
    layer_groups = shape.n_v_heads * shape.head_dim // 8 + shape.channels // shape.head_dim
    return Launch(
        kernel="gdn_replay",
        buffers=[banks, tape, packed, verifies, accepted, args, pass_],
        groups=(shape.n_layers * layer_groups, len(verified)),
    )


def random_tape(
    shape: GdnShape,
    rng: np.random.Generator,
    queries: Sequence[Query],
    verified: Sequence[Verified],
) -> Floats:
    """A tape that holds NaN where no accepted row is."""
    rows = max(query.taped.stop for query in queries) + 1
    tape = nans(shape.n_layers, rows, shape.tape_row_floats)
    for v in verified:
        for row in queries[v.query].taped[: 1 + v.accepted]:
            for layer in range(shape.n_layers):
                qkv, k, delta, decay = shape.tape_parts(tape[layer, row])
                qkv[:] = floats(rng, *qkv.shape)
                k[:] = unit_heads(rng, 1, *k.shape)[0]
                delta[:] = floats(rng, *delta.shape)
                decay[:] = rng.uniform(0.5, 1, decay.shape)
    return tape


def replay_case(
    shape: GdnShape, queries: Sequence[Query], verified: Sequence[Verified]
) -> LayerCase:
    """gdn_replay; banks of verified queries are written, no others."""
    rng = np.random.default_rng(shape.channels * 3 + len(verified))
    banks = shape.banks(rng, queries, [v.bank for v in verified])
    tape = random_tape(shape, rng, queries, verified)
    launch = replay_launch(shape, banks, tape, queries, verified)
    new_banks, bank_bound = exact(banks), np.zeros(banks.shape)
    heads = shape.k_heads()
    for v in verified:
        query = queries[v.query]
        for layer in range(shape.n_layers):
            state = np.zeros((shape.n_v_heads, shape.head_dim, shape.head_dim))
            conv = np.zeros((3, shape.channels))
            if query.kv_valid:
                state = exact(shape.state(banks[query.bank], layer))
                conv = exact(shape.conv_state(banks[query.bank], layer))
            rows = [shape.tape_parts(tape[layer, row]) for row in query.taped[: 1 + v.accepted]]
            qkv, k, delta, decay = (exact(np.stack(part)) for part in zip(*rows, strict=True))
            new, bound = ref.replayed(k[:, heads], delta, decay, state)
            shape.state(new_banks[v.bank], layer)[:] = new
            shape.state(bank_bound[v.bank], layer)[:] = bound
            shape.conv_state(new_banks[v.bank], layer)[:] = np.concatenate([conv, qkv])[-3:]
    counts = [1 + v.accepted for v in verified]
    state_floats = shape.state_floats + 3 * shape.channels
    moved = 2 * len(counts) * state_floats + sum(counts) * (shape.tape_row_floats - shape.gap)
    return LayerCase(
        name=f"gdn_replay-{shape}-{shape.n_layers}layers-{'+'.join(map(str, counts))}rows",
        launches=[launch],
        checks=[(banks, new_banks, bank_bound)],
        moved_bytes=4 * shape.n_layers * moved,
    )
