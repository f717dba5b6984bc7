"""The structs of metal/kernel_args.h that the layer kernels take, as NumPy records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from harness import Buffer

PASS = np.dtype(
    [(name, "u4") for name in ("rows", "n_queries", "n_logit_rows", "n_splits", "blocks_per_split")]
    + [("n_writes", "u4"), ("reserved", "u4", 2)]
)
QUERY = np.dtype(
    [(name, "u4") for name in ("first_row", "count", "kv_valid", "slot", "bank")]
    + [(name, "u4") for name in ("first_write", "n_writes", "first_tape")]
)
WRITE = np.dtype([(name, "u4") for name in ("query", "rows", "bank", "reserved")])
VERIFY = np.dtype(
    [(name, "u4") for name in ("query", "first_logit", "width", "bank", "first_stop", "n_stops")]
    + [("reserved", "u4", 2)]
)
SAMPLE = np.dtype(
    [("temperature", "f4")]
    + [(name, "u4") for name in ("seed_low", "seed_high", "position", "sample_index")]
    + [(name, "u4") for name in ("filter", "mask", "reserved")]
)
EDIT = np.dtype(
    [(name, "u4") for name in ("row", "first_entry", "n_entries", "first_input", "n_drafted")]
    + [(name, "u4") for name in ("first_saved", "first_tail", "n_tail")]
    + [(name, "f4") for name in ("presence", "frequency", "repetition")]
    + [("forbid_stops", "u4"), ("reserved", "u4", 4)]
)
TOKEN_EDIT = np.dtype(
    [("id", "u4"), ("count", "u4"), ("bias", "f4")]
    + [(name, "u4") for name in ("first_word", "n_words", "is_stop")]
)
BAD_WORD = np.dtype([("first", "u4"), ("n", "u4")])
FILTER = np.dtype([("row", "u4"), ("top_k", "u4"), ("top_p", "f4"), ("min_p", "f4")])
KEPT = np.dtype([("lowest", "f4"), ("last_id", "u4")])
LOGPROB = np.dtype([("row", "u4"), ("n_top", "u4"), ("first_top", "u4"), ("told", "i4")])
TOKEN_LOGPROB = np.dtype([("id", "i4"), ("logprob", "f4")])
NO_INDEX = 0xFFFFFFFF
NORM = np.dtype([("dim", "u4"), ("eps", "f4"), ("place", "u4"), ("reserved", "u4")])
ROWS = np.dtype([("dim", "u4")])
ATTENTION = np.dtype(
    [(name, "u4") for name in ("n_heads", "n_kv_heads", "head_dim", "rotary_dim", "slot_tokens")]
    + [("eps", "f4"), ("scale", "f4")]
    + [(name, "u4") for name in ("token_halves", "first_key", "window", "causal", "gated", "place")]
    + [("reserved", "u4", 3)]
)
GDN = np.dtype(
    [(name, "u4") for name in ("n_k_heads", "n_v_heads", "head_dim", "k_head_tiled")]
    + [(name, "u8") for name in ("bank_floats", "state_offset", "conv_offset")]
    + [("eps", "f4"), ("chunk_rows", "u4"), ("tape_row_floats", "u8")]
)
REPLAY = np.dtype(
    [("layer", GDN)]
    + [(name, "u8") for name in ("state_stride", "conv_stride", "tape_stride")]
    + [("n_layers", "u4"), ("reserved", "u4")]
)
PLACE = np.dtype([(name, "u4") for name in ("dim", "stride", "first", "reserved")])
SEED = np.dtype([("dim", "u4"), ("reserved", "u4"), ("bank_floats", "u8"), ("seed_offset", "u8")])
SCAN = np.dtype(
    [(name, "u4") for name in ("vocab", "n_valid", "chunk", "n_chunks", "mask_words", "reserved")]
)
CANDIDATE = np.dtype([("score", "f4"), ("id", "u4")])


def record(dtype: np.dtype[np.void], **fields: object) -> Buffer:
    """One struct; fields not named are zero."""
    value = np.zeros(1, dtype)
    for name, field in fields.items():
        value[name] = field
    return value


@dataclass(frozen=True, kw_only=True)
class Query:
    """Rows of one sequence in a pass."""

    count: int
    kv_valid: int = 0
    slot: int = 0
    bank: int = 0
    kept: tuple[tuple[int, int], ...] = ()
    tape: int | None = None  # its first tape row; no state is kept

    @property
    def writes(self) -> tuple[tuple[int, int], ...]:
        """(rows, bank) of each state that is kept: `kept`, or the last into the other of two."""
        if self.tape is not None:
            return ()
        return self.kept or ((self.count, self.bank ^ 1),)

    @property
    def taped(self) -> range:
        """Its tape rows."""
        return range(0) if self.tape is None else range(self.tape, self.tape + self.count)


def query_arrays(queries: Sequence[Query]) -> tuple[Buffer, Buffer]:
    """Pack queries whose rows follow each other: (n_queries,) structs, (rows,) query indices."""
    packed = np.zeros(len(queries), QUERY)
    for i, query in enumerate(queries):
        first_row = sum(q.count for q in queries[:i])
        first_write = sum(len(q.writes) for q in queries[:i])
        place = (first_row, query.count, query.kv_valid, query.slot)
        packed[i] = (*place, query.bank, first_write, len(query.writes), query.tape or 0)
    counts = [query.count for query in queries]
    return packed, np.repeat(np.arange(len(queries), dtype=np.uint32), counts)


def write_array(queries: Sequence[Query]) -> Buffer:
    """(n_writes,) structs, those of a query after those of the query before it."""
    writes = [(i, *write, 0) for i, query in enumerate(queries) for write in query.writes]
    return np.array(writes or [(0, 0, 0, 0)], WRITE)  # there are no empty buffers


def split_count(queries: Sequence[Query], blocks_per_split: int) -> int:
    """Attention splits of the longest context."""
    longest = max(query.kv_valid + query.count for query in queries)
    return -(-longest // (128 * blocks_per_split))


def pass_struct(queries: Sequence[Query], blocks_per_split: int = 1) -> Buffer:
    """Pass of these queries."""
    return record(
        PASS,
        rows=sum(query.count for query in queries),
        n_queries=len(queries),
        n_splits=split_count(queries, blocks_per_split),
        blocks_per_split=blocks_per_split,
        n_writes=sum(len(query.writes) for query in queries),
    )
