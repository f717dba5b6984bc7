"""Cases of the kernels between the passes of a draft. They move numbers and never round them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cases_layers import Floats, LayerCase, exact, floats, nans, size
from harness import Buffer, Launch
from int16_rows import empty_rows
from layer_args import (
    PLACE,
    SEED,
    VERIFY,
    Query,
    pass_struct,
    query_arrays,
    record,
    write_array,
)
from reference_draft import accepted
from reference_layers import Array


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Proposals of one query, and what the target says behind each of its rows."""

    proposals: tuple[int, ...]
    sampled: tuple[int, ...]
    stops: tuple[int, ...] = ()
    anchor: int = 1


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """Where the seed stands in a bank: at its end, behind what the layers keep."""

    dim: int
    offset: int = 32

    @property
    def bank_floats(self) -> int:
        """Of one bank."""
        return self.offset + self.dim

    def args(self) -> Buffer:
        """SeedArgs."""
        return record(SEED, dim=self.dim, bank_floats=self.bank_floats, seed_offset=self.offset)

    def of(self, banks: Floats, bank: int) -> Floats:
        """The seed of one bank; assigned to, it changes."""
        return banks[bank, self.offset :]


def unchanged(got: Buffer, expected: Floats) -> tuple[Buffer, Array, Array]:
    """A check of LayerCase: the same numbers."""
    return got, exact(expected), np.zeros(expected.shape)


def place_case(rows: int, parts: int, dim: int, *, int16: bool = False) -> LayerCase:
    """place_columns, or place_columns_int16: every part of the columns in turn, the last first."""
    rng = np.random.default_rng(rows + dim)
    whole = floats(rng, rows, parts * dim)
    out = empty_rows(rows, parts * dim) if int16 else nans(rows, parts * dim)
    kernel = "place_columns_int16" if int16 else "place_columns"
    pass_ = pass_struct([Query(count=rows)])
    launches = []
    for first in reversed(range(0, parts * dim, dim)):
        part = np.ascontiguousarray(whole[:, first : first + dim])
        args = record(PLACE, dim=dim, stride=parts * dim, first=first)
        launches.append(Launch(kernel=kernel, buffers=[out, part, args, pass_], groups=(1, rows)))
    check = unchanged(out, whole)
    return LayerCase(
        name=f"{kernel}-{rows}x{parts}x{dim}",
        launches=launches,
        checks=[] if int16 else [check],
        int16_checks=[check] if int16 else [],
        moved_bytes=size(out, whole),
        arrays={"whole": whole},
    )


def shift_case(seeds: Seeds, queries: Sequence[Query]) -> LayerCase:
    """shift_rows; banks that no query reads are NaN."""
    rng = np.random.default_rng(len(queries))
    rows = sum(query.count for query in queries)
    x = floats(rng, rows, seeds.dim)
    banks = nans(1 + max(query.bank for query in queries), seeds.bank_floats)
    for bank in {query.bank for query in queries if query.kv_valid}:
        seeds.of(banks, bank)[:] = floats(rng, seeds.dim)
    expected = np.zeros_like(x)
    row = 0
    for query in queries:
        if query.kv_valid:
            expected[row] = seeds.of(banks, query.bank)
        expected[row + 1 : row + query.count] = x[row : row + query.count - 1]
        row += query.count
    out = nans(rows, seeds.dim)
    packed, row_query = query_arrays(queries)
    launch = Launch(
        kernel="shift_rows",
        buffers=[out, x, banks, packed, row_query, seeds.args(), pass_struct(queries)],
        groups=(1, rows),
    )
    return LayerCase(
        name=f"shift_rows-{rows}x{seeds.dim}-{len(queries)}queries",
        launches=[launch],
        checks=[unchanged(out, expected)],
        moved_bytes=size(out, x),
    )


def keep_case(seeds: Seeds, queries: Sequence[Query]) -> LayerCase:
    """keep_seeds: nothing else of the banks changes."""
    rng = np.random.default_rng(len(queries))
    rows = sum(query.count for query in queries)
    x = floats(rng, rows, seeds.dim)
    writes = write_array(queries)
    banks = floats(
        rng, 1 + max(bank for query in queries for _, bank in query.writes), seeds.bank_floats
    )
    packed, _ = query_arrays(queries)
    expected = banks.copy()
    first_row = 0
    for query in queries:
        for kept_rows, bank in query.writes:
            seeds.of(expected, bank)[:] = x[first_row + kept_rows - 1]
        first_row += query.count
    launch = Launch(
        kernel="keep_seeds",
        buffers=[banks, x, packed, writes, seeds.args(), pass_struct(queries)],
        groups=(1, len(writes)),
    )
    return LayerCase(
        name=f"keep_seeds-{len(writes)}x{seeds.dim}",
        launches=[launch],
        checks=[unchanged(banks, expected)],
        moved_bytes=2 * len(writes) * seeds.dim * 4,
    )


def verify_arrays(drafts: Sequence[Draft], gap: int) -> dict[str, Buffer]:
    """Arrays of a pass that checks drafts; before each query stands one of `gap` rows without."""
    queries = []
    verifies = np.zeros(len(drafts), VERIFY)
    ids: list[int] = []
    sampled: list[int] = []
    stops: list[int] = []
    for i, draft in enumerate(drafts):
        queries += [Query(count=gap, kv_valid=9)] * (gap > 0)
        ids += [7] * gap
        sampled += [7] * (gap > 0)
        fields = (len(queries), len(sampled), len(draft.proposals), 1 + i, len(stops))
        verifies[i] = (*fields, len(draft.stops), 0)
        queries.append(Query(count=1 + len(draft.proposals), kv_valid=9))
        ids += [draft.anchor, *draft.proposals]
        sampled += draft.sampled
        stops += draft.stops
    return {
        "queries": query_arrays(queries)[0],
        "verifies": verifies,
        "ids": np.array(ids, np.int32),
        "sampled": np.array(sampled, np.int32),
        "stops": np.array(stops or [-9], np.int32),
        "accepted": np.array([accepted(d.proposals, d.sampled, d.stops) for d in drafts], "u4"),
    }


def keep_verified_case(seeds: Seeds, drafts: Sequence[Draft], gap: int = 2) -> LayerCase:
    """keep_taped_seeds: nothing else of the banks changes."""
    arrays = verify_arrays(drafts, gap)
    rng = np.random.default_rng(len(drafts))
    x = floats(rng, len(arrays["ids"]), seeds.dim)
    banks = floats(rng, 1 + len(drafts), seeds.bank_floats)
    expected = banks.copy()
    row = 0
    for i, draft in enumerate(drafts):
        count = accepted(draft.proposals, draft.sampled, draft.stops)
        seeds.of(expected, 1 + i)[:] = x[row + gap + count]
        row += gap + 1 + len(draft.proposals)
    pass_ = pass_struct([Query(count=len(x))])
    names = ("queries", "verifies", "accepted")
    launch = Launch(
        kernel="keep_taped_seeds",
        buffers=[banks, x, *(arrays[name] for name in names), seeds.args(), pass_],
        groups=(1, len(drafts)),
    )
    return LayerCase(
        name=f"keep_taped_seeds-{len(drafts)}x{seeds.dim}",
        launches=[launch],
        checks=[unchanged(banks, expected)],
        moved_bytes=2 * len(drafts) * seeds.dim * 4,
    )


def scatter_case(places: Sequence[int]) -> LayerCase:
    """scatter_ids: what no place names stays as it was."""
    ids = np.arange(100, 100 + len(places), dtype=np.int32)
    out = np.full(1 + max(places), -7, np.int32)
    expected = out.copy()
    expected[list(places)] = ids
    launch = Launch(
        kernel="scatter_ids",
        buffers=[out, ids, np.array(places, np.uint32)],
        groups=(1, len(places)),
    )
    return LayerCase(
        name=f"scatter_ids-{len(places)}",
        launches=[launch],
        checks=[(out, expected.astype(np.float64), np.zeros(len(out)))],
        moved_bytes=3 * ids.nbytes,
    )


def verify_case(drafts: Sequence[Draft], gap: int = 2) -> LayerCase:
    """Verify, beside queries that are not checked."""
    arrays = verify_arrays(drafts, gap)
    out = np.full(len(drafts), 99, np.uint32)
    names = ("ids", "sampled", "queries", "verifies", "stops")
    launch = Launch(
        kernel="verify", buffers=[out, *(arrays[name] for name in names)], groups=(1, len(drafts))
    )
    return LayerCase(
        name=f"verify-{len(drafts)}",
        launches=[launch],
        checks=[(out, arrays["accepted"].astype(np.float64), np.zeros(len(drafts)))],
        moved_bytes=size(out, *(arrays[name] for name in names)),
    )
