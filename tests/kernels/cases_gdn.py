"""Cases of the Gated DeltaNet kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import reference_layers as ref
from cases_layers import EPS, Floats, LayerCase, exact, floats, nans, size
from harness import Buffer, Launch
from int16_rows import empty_rows
from layer_args import GDN, Query, pass_struct, query_arrays, record, write_array

NEVER_CHUNKED = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class GdnShape:
    """Heads of a GDN layer, and where layers stand in a bank that holds more than them."""

    n_k_heads: int
    n_v_heads: int
    head_dim: int = 128
    tiled: bool = False
    state_offset: int = 64
    gap: int = 32  # behind a state, a conv state, all of them, and a tape row
    n_layers: int = 1

    @property
    def channels(self) -> int:
        """Of qkv."""
        return (2 * self.n_k_heads + self.n_v_heads) * self.head_dim

    @property
    def state_floats(self) -> int:
        """Of the recurrent state."""
        return self.n_v_heads * self.head_dim * self.head_dim

    @property
    def state_stride(self) -> int:
        """From the state of one layer to the next."""
        return self.state_floats + self.gap

    @property
    def conv_offset(self) -> int:
        """Of the conv state."""
        return self.state_offset + self.n_layers * self.state_stride

    @property
    def conv_stride(self) -> int:
        """From the conv state of one layer to the next."""
        return 3 * self.channels + self.gap

    @property
    def bank_floats(self) -> int:
        """Of one bank."""
        return self.conv_offset + self.n_layers * self.conv_stride

    @property
    def tape_row_floats(self) -> int:
        """Of one row of the tape of a layer."""
        values = self.channels + (self.n_k_heads + self.n_v_heads) * self.head_dim + self.n_v_heads
        return -(-values // 4) * 4 + self.gap

    def k_heads(self) -> Buffer:
        """K head of each v head."""
        v_heads = np.arange(self.n_v_heads)
        if self.tiled:
            return v_heads % self.n_k_heads
        return v_heads // (self.n_v_heads // self.n_k_heads)

    def args(self, chunk_rows: int = NEVER_CHUNKED) -> Buffer:
        """GdnArgs; queries of `chunk_rows` rows and more are left to gdn_chunk."""
        return record(
            GDN,
            n_k_heads=self.n_k_heads,
            n_v_heads=self.n_v_heads,
            head_dim=self.head_dim,
            k_head_tiled=int(self.tiled),
            bank_floats=self.bank_floats,
            state_offset=self.state_offset,
            conv_offset=self.conv_offset,
            eps=EPS,
            chunk_rows=chunk_rows,
            tape_row_floats=self.tape_row_floats,
        )

    def banks(
        self, rng: np.random.Generator, queries: Sequence[Query], others: Sequence[int] = ()
    ) -> Floats:
        """Banks (n, bank_floats) that hold NaN where no query with kv_valid reads."""
        written = [bank for query in queries for _, bank in query.writes]
        last = max([*others, *written, *(query.bank for query in queries)])
        banks = nans(1 + last, self.bank_floats)
        for query in queries:
            if query.kv_valid:
                banks[query.bank] = floats(rng, self.bank_floats)
        return banks

    def tape(self, queries: Sequence[Query]) -> Floats:
        """Tape (rows, tape_row_floats) of a layer that nobody has written yet, and a row more."""
        ends = (query.taped.stop for query in queries)
        return nans(1 + max(ends), self.tape_row_floats)

    def state(self, bank: Floats, layer: int = 0) -> Floats:
        """Recurrent state (Hv, Dv, Dk) of a bank."""
        first = self.state_offset + layer * self.state_stride
        flat = bank[first : first + self.state_floats]
        return flat.reshape(self.n_v_heads, self.head_dim, self.head_dim)

    def conv_state(self, bank: Floats, layer: int = 0) -> Floats:
        """Conv state (3, C) of a bank."""
        first = self.conv_offset + layer * self.conv_stride
        return bank[first : first + 3 * self.channels].reshape(3, self.channels)

    def tape_parts(self, row: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Of a tape row: qkv (C), k (Hk, D), delta (Hv, D), decay (Hv)."""
        dim, n_k, n_v = self.head_dim, self.n_k_heads, self.n_v_heads
        ends = np.cumsum([self.channels, n_k * dim, n_v * dim, n_v])
        qkv, k, delta, decay, _ = np.split(row, ends)
        return qkv, k.reshape(n_k, dim), delta.reshape(n_v, dim), decay

    def __str__(self) -> str:
        """Name in test ids."""
        return f"k{self.n_k_heads}v{self.n_v_heads}D{self.head_dim}{'t' if self.tiled else 'g'}"


def taped(queries: Sequence[Query]) -> str:
    """Part of a name: whether a query has a tape."""
    return "" if all(query.tape is None for query in queries) else "-taped"


def written_bytes(tape: ref.Array) -> int:
    """Bytes of the floats of a tape, as it must become, that somebody writes."""
    return 4 * int(np.count_nonzero(~np.isnan(tape)))


def conv_case(shape: GdnShape, queries: Sequence[Query]) -> LayerCase:
    """gdn_conv and gdn_conv_state."""
    rng = np.random.default_rng(shape.channels + len(queries))
    rows = sum(query.count for query in queries)
    qkv, weight = floats(rng, rows, shape.channels), floats(rng, shape.channels, 4)
    # A head of zeros: eps alone keeps its norm finite.
    qkv[0, : shape.head_dim] = 0
    banks = shape.banks(rng, queries)
    act, tape = nans(rows, shape.channels), shape.tape(queries)
    packed, row_query = query_arrays(queries)
    args, pass_ = shape.args(), pass_struct(queries)
    heads = shape.channels // shape.head_dim
    conv = Launch(
        kernel="gdn_conv",
        buffers=[act, tape, qkv, weight, banks, packed, row_query, args, pass_],
        groups=(heads, rows),
    )
    conv_state = Launch(
        kernel="gdn_conv_state",
        buffers=[banks, qkv, packed, write_array(queries), args, pass_],
        groups=(heads, sum(len(query.writes) for query in queries)),
    )
    expected, bound = np.empty(act.shape), np.empty(act.shape)
    new_banks, bank_bound = exact(banks), np.zeros(banks.shape)
    new_tape, tape_bound = exact(tape), np.zeros(tape.shape)
    k_heads = slice(shape.n_k_heads, 2 * shape.n_k_heads)
    row = 0
    for query in queries:
        before = np.zeros((3, shape.channels), np.float32)
        if query.kv_valid:
            before = shape.conv_state(banks[query.bank])
        history = np.concatenate([before, qkv[row : row + query.count]])
        rows_of = slice(row, row + query.count)
        expected[rows_of], bound[rows_of] = ref.conv(
            exact(history), exact(weight), shape.n_k_heads, shape.head_dim
        )
        for n_rows, bank in query.writes:
            shape.conv_state(new_banks[bank])[:] = history[n_rows : n_rows + 3]
        for taped_row in query.taped:
            raw, k, *_ = shape.tape_parts(new_tape[taped_row])
            _, k_bound, *_ = shape.tape_parts(tape_bound[taped_row])
            raw[:] = qkv[row]
            k[:] = expected[row].reshape(-1, shape.head_dim)[k_heads]
            k_bound[:] = bound[row].reshape(-1, shape.head_dim)[k_heads]
            row += 1
        row += query.count - len(query.taped)
    return LayerCase(
        name=f"gdn_conv-{shape}-{rows}rows-{len(queries)}queries{taped(queries)}",
        launches=[conv, conv_state] if any(query.writes for query in queries) else [conv],
        checks=[
            (act, expected, bound),
            (banks, new_banks, bank_bound),
            (tape, new_tape, tape_bound),
        ],
        moved_bytes=size(act, qkv, weight) + written_bytes(new_tape),
    )


def gates_case(rows: int, n_v_heads: int) -> LayerCase:
    """gdn_gates, with inputs on both sides where exp overflows."""
    rng = np.random.default_rng(rows + n_v_heads)
    a, b = floats(rng, rows, n_v_heads, scale=4), floats(rng, rows, n_v_heads, scale=4)
    a[0, 0], b[0, 0] = 500.0, 500.0
    a[-1, -1], b[-1, -1] = -500.0, -80.0
    rate = -rng.uniform(1e-3, 16, n_v_heads).astype(np.float32)
    dt_bias = floats(rng, n_v_heads)
    gates = nans(rows, n_v_heads, 2)
    shape = GdnShape(n_k_heads=1, n_v_heads=n_v_heads)
    pass_ = pass_struct([Query(count=rows)])
    launch = Launch(
        kernel="gdn_gates",
        buffers=[gates, a, b, rate, dt_bias, shape.args(), pass_],
        groups=(1, rows),
    )
    expected = ref.gates(exact(a), exact(b), exact(rate), exact(dt_bias))
    return LayerCase(
        name=f"gdn_gates-{rows}x{n_v_heads}",
        launches=[launch],
        checks=[(gates, *expected)],
        moved_bytes=size(gates, a, b),
    )


def unit_heads(rng: np.random.Generator, rows: int, heads: int, dim: int) -> Floats:
    """Heads of length 1."""
    x = floats(rng, rows, heads, dim)
    unit: Floats = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return unit


def gdn_inputs(
    shape: GdnShape, rng: np.random.Generator, rows: int, lowest_decay: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Q, k, v and gates of the delta rule."""
    q = unit_heads(rng, rows, shape.n_k_heads, shape.head_dim) * np.float32(shape.head_dim**-0.5)
    k = unit_heads(rng, rows, shape.n_k_heads, shape.head_dim)
    v = floats(rng, rows, shape.n_v_heads, shape.head_dim)
    decay = rng.uniform(lowest_decay, 1, (rows, shape.n_v_heads))
    beta = rng.uniform(0, 1, (rows, shape.n_v_heads))
    return q, k, v, np.stack([decay, beta], axis=-1).astype(np.float32)


def recurrent_case(
    shape: GdnShape,
    queries: Sequence[Query],
    chunk_rows: int = NEVER_CHUNKED,
    *,
    lowest_decay: float = 0.5,
    decays: Sequence[float] = (),
) -> LayerCase:
    """gdn_recurrent, and gdn_chunk for long queries; banks of kept states are written, no others.

    `decays` are those of the first rows.
    """
    rng = np.random.default_rng(shape.channels * 7 + len(queries))
    rows = sum(query.count for query in queries)
    dim, n_v = shape.head_dim, shape.n_v_heads
    q, k, v, gates = gdn_inputs(shape, rng, rows, lowest_decay)
    gates[: len(decays), :, 0] = np.array(decays, np.float32)[:, None]
    act = np.concatenate([x.reshape(rows, -1) for x in (q, k, v)], axis=1)
    banks, tape = shape.banks(rng, queries), shape.tape(queries)
    out = nans(rows, n_v * dim)
    packed, _ = query_arrays(queries)
    args, pass_ = shape.args(chunk_rows), pass_struct(queries)
    # The engine binds one buffer twice; here the bank that is read stands in a copy.
    inputs = [act, gates, banks.copy(), packed, write_array(queries), args, pass_]
    counts = [query.count for query in queries]
    launches = []
    if min(counts) < chunk_rows:
        buffers = [out, banks, tape, *inputs]
        groups = (n_v * dim // 8, len(queries))
        launches.append(Launch(kernel="gdn_recurrent", buffers=buffers, groups=groups))
    if max(counts) >= chunk_rows:
        groups = (n_v * dim // 32, len(queries))
        launches.append(Launch(kernel="gdn_chunk", buffers=[out, banks, *inputs], groups=groups))
    heads = shape.k_heads()
    expected, bound = np.empty((rows, n_v, dim)), np.empty((rows, n_v, dim))
    new_banks, bank_bound = exact(banks), np.zeros(banks.shape)
    new_tape, tape_bound = exact(tape), np.zeros(tape.shape)
    row = 0
    for query in queries:
        state = np.zeros((n_v, dim, dim))
        if query.kv_valid:
            state = exact(shape.state(banks[query.bank]))
        rows_of = slice(row, row + query.count)
        rule = (
            exact(q[rows_of][:, heads]),
            exact(k[rows_of][:, heads]),
            exact(v[rows_of]),
            exact(gates[rows_of]),
            state,
            [n_rows for n_rows, _ in query.writes],
        )
        expected[rows_of], bound[rows_of], kept, deltas = ref.recurrent(*rule)
        if query.count >= chunk_rows:
            bound[rows_of], kept_bounds = ref.chunked_bounds(*rule)
            kept = [(s, b) for (s, _), b in zip(kept, kept_bounds, strict=True)]
        for (_, bank), (new, new_bound) in zip(query.writes, kept, strict=True):
            shape.state(new_banks[bank])[:] = new
            shape.state(bank_bound[bank])[:] = new_bound
        for t, taped_row in enumerate(query.taped):
            *_, delta, decay = shape.tape_parts(new_tape[taped_row])
            *_, delta_bound, _ = shape.tape_parts(tape_bound[taped_row])
            delta[:], delta_bound[:] = deltas[t]
            decay[:] = gates[row + t, :, 0]
        row += query.count
    kernels = "+".join(launch.kernel for launch in launches)
    n_states = sum(len(query.writes) for query in queries)
    states = f"-{n_states}states" if n_states > len(queries) else ""
    return LayerCase(
        name=f"{kernels}-{shape}-{rows}rows-{len(queries)}queries{states}{taped(queries)}",
        launches=launches,
        checks=[
            (out, expected.reshape(rows, -1), bound.reshape(rows, -1)),
            (banks, new_banks, bank_bound),
            (tape, new_tape, tape_bound),
        ],
        moved_bytes=size(out, act, gates)
        + (len(queries) + n_states) * 4 * shape.state_floats
        + written_bytes(new_tape),
    )


def alone(launch: Launch, query: Query, rows: slice, out: Buffer, banks: Buffer) -> Launch:
    """A launch of `recurrent_case` for one query that has these rows of its inputs."""
    outs: list[Buffer] = [out, banks]
    if launch.kernel == "gdn_recurrent":
        outs.append(nans(*launch.buffers[2].shape))
    act, gates, *_, args, _ = launch.buffers[len(outs) :]
    ins = [act[rows].copy(), gates[rows].copy(), banks.copy(), query_arrays([query])[0]]
    metadata = [write_array([query]), args, pass_struct([query])]
    groups = (launch.groups[0], 1)
    return replace(launch, buffers=[*outs, *ins, *metadata], groups=groups)


def gated_norm_case(shape: GdnShape, rows: int, *, int16: bool = False) -> LayerCase:
    """gdn_norm, or gdn_norm_int16; one head is tiny, so that eps matters."""
    rng = np.random.default_rng(shape.channels + rows)
    o, z = (floats(rng, rows, shape.n_v_heads, shape.head_dim) for _ in range(2))
    o[0, 0] *= 1e-4
    z[0, 0, :2] = (300.0, -300.0)
    weight = floats(rng, shape.head_dim)
    values = shape.n_v_heads * shape.head_dim
    out = empty_rows(rows, values) if int16 else nans(rows, values)
    kernel = "gdn_norm_int16" if int16 else "gdn_norm"
    launch = Launch(
        kernel=kernel,
        buffers=[out, o, z, weight, shape.args(), pass_struct([Query(count=rows)])],
        groups=(shape.n_v_heads, rows),
    )
    y, bound = ref.gated_norm(exact(o), exact(z), exact(weight), EPS)
    expected = [(out, y.reshape(rows, -1), bound.reshape(rows, -1))]
    return LayerCase(
        name=f"{kernel}-{shape}-{rows}rows",
        launches=[launch],
        checks=[] if int16 else expected,
        int16_checks=expected if int16 else [],
        moved_bytes=size(out, o, z),
    )
