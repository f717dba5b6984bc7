"""The layer kernels' part of the benchmark: one decoded row, chunks of 32 and 128, of two sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from cases_attention import AttentionShape, attention_case, prepare_case
from cases_draft import (
    Draft,
    Seeds,
    keep_case,
    keep_verified_case,
    place_case,
    scatter_case,
    shift_case,
    verify_case,
)
from cases_edit import EditRun, edit_bench
from cases_filter import FilterRun, filter_run
from cases_gdn import (
    NEVER_CHUNKED,
    GdnShape,
    conv_case,
    gated_norm_case,
    gates_case,
    recurrent_case,
)
from cases_layers import (
    LayerCase,
    gather_case,
    norm_case,
    swiglu_case,
)
from cases_logprob import LogprobRun, logprob_bench
from cases_sample import Draw, SampleRun, sample_run
from cases_tape import Verified, replay_case
from layer_args import KEPT, NO_INDEX, Query
from reference_filter import Filter


@dataclass(frozen=True, kw_only=True)
class Size:
    """Widths of one model."""

    hidden: int
    intermediate: int
    attention: AttentionShape
    drafter: AttentionShape
    gdn: GdnShape
    gdn_layers: int
    vocab: int


DRAFTER = AttentionShape(
    n_heads=8, n_kv_heads=2, head_dim=128, rotary_dim=128,
    causal=False, gated=False, one_plane=True,
)  # fmt: skip
SIZES = {
    "tiny": Size(
        hidden=512,
        intermediate=1536,
        attention=AttentionShape(n_heads=4, n_kv_heads=2),
        drafter=replace(DRAFTER, n_heads=8, n_kv_heads=2),
        gdn=GdnShape(n_k_heads=4, n_v_heads=8),
        gdn_layers=6,
        vocab=8192,
    ),
    "9B": Size(
        hidden=4096,
        intermediate=12288,
        attention=AttentionShape(n_heads=16, n_kv_heads=4),
        drafter=replace(DRAFTER, n_heads=32, n_kv_heads=8),
        gdn=GdnShape(n_k_heads=16, n_v_heads=32),
        gdn_layers=24,
        vocab=248320,
    ),
}
CONTEXT = 1000  # keys before the rows
BLOCK = Query(count=16, kv_valid=512)  # what a drafter fills in


def layer_bench(size: str) -> Iterator[LayerCase]:
    """Every kernel of one size but those of linears and of the choice."""
    widths = SIZES[size]
    for rows in (1, 32):
        queries = [Query(count=rows, kv_valid=CONTEXT)]
        yield norm_case(rows, widths.hidden)
        yield norm_case(rows, widths.hidden, int16=True)
        yield gather_case(rows, widths.hidden, range(rows))
        yield swiglu_case(rows, widths.intermediate)
        yield prepare_case(widths.attention, queries, CONTEXT + rows)
        yield attention_case(widths.attention, queries, 8)
        yield attention_case(widths.attention, queries, 8, int16=True)
        yield conv_case(widths.gdn, queries)
        yield gates_case(rows, widths.gdn.n_v_heads)
        yield recurrent_case(widths.gdn, queries)
        yield gated_norm_case(widths.gdn, rows)
        yield gated_norm_case(widths.gdn, rows, int16=True)
    # The kernels of prefill, beside the ones that serve a row at a time.
    queries = [Query(count=128, kv_valid=CONTEXT)]
    for tile in (0, 8, 16):
        yield attention_case(widths.attention, queries, 8, tile=tile)
    # Rows of a draft, for the target and for the drafter, and what the drafter keeps of a pass.
    for tile in (0, 8, 16):
        yield attention_case(widths.attention, [Query(count=8, kv_valid=CONTEXT)], 1, tile=tile)
        yield attention_case(widths.drafter, [BLOCK], 1, tile=tile)
    yield attention_case(replace(widths.drafter, window=256), [BLOCK], 1, tile=16)
    yield prepare_case(widths.drafter, [BLOCK], BLOCK.kv_valid + BLOCK.count)
    yield prepare_case(widths.drafter, queries, CONTEXT + 128, keys_only=True)
    # One state is kept, or one every 32 rows.
    keeping = [replace(queries[0], kept=tuple((32 * i, i) for i in range(1, 5)))]
    for chunk_rows in (NEVER_CHUNKED, 1):
        yield recurrent_case(widths.gdn, queries, chunk_rows)
        yield recurrent_case(widths.gdn, keeping, chunk_rows)
    yield from draft_bench(widths.hidden)
    yield from tape_bench(widths.gdn, widths.gdn_layers)


def choice_bench(size: str) -> Iterator[LayerCase | FilterRun | SampleRun | EditRun | LogprobRun]:
    """What options cost a row: draws, edits, logprobs; each filter, all, the choice behind them."""
    vocab = SIZES[size].vocab
    logits = np.random.default_rng(0).standard_normal((1, vocab)).astype(np.float32) * 3
    for temperature in (0.0, 0.7):
        yield sample_run(logits, [Draw(temperature=temperature)], chunk=4096)
    yield edit_bench(1, 2000, vocab)
    yield edit_bench(16, 200, vocab)
    for n_top in (0, 5, 20):
        yield logprob_bench(n_top, vocab)
    for by in (
        Filter(top_k=20),
        Filter(top_p=0.95),
        Filter(min_p=0.05),
        Filter(top_k=20, top_p=0.95, min_p=0.05),
    ):
        yield filter_run(logits, [Draw(temperature=0.7)], [(0, by)], threads=1024)
    kept = np.array([(np.sort(logits[0])[-20], NO_INDEX)], KEPT)
    yield sample_run(logits, [Draw(temperature=0.7, filter=0)], chunk=4096, kept=kept)


def draft_bench(hidden: int) -> Iterator[LayerCase]:
    """What a draft of 7 tokens adds to a pass, beside the drafter's own linears."""
    width = 7
    queries = [Query(count=1 + width, kv_valid=CONTEXT)]
    seeds = Seeds(dim=hidden)
    drafts = [Draft(proposals=(5,) * width, sampled=(5,) * (width + 1), stops=(2, 3))]
    yield place_case(1 + width, 5, hidden)
    yield place_case(1 + width, 5, hidden, int16=True)
    yield shift_case(seeds, queries)
    yield keep_case(seeds, queries)
    yield keep_verified_case(seeds, drafts)
    yield scatter_case(range(width))
    yield verify_case(drafts)


def tape_bench(shape: GdnShape, n_layers: int) -> Iterator[LayerCase]:
    """What verified rows cost in one layer, beside other rows; what it costs to keep them all."""
    for rows in (1, 4, 16):
        plain = [Query(count=rows, kv_valid=CONTEXT)]
        taped = [replace(plain[0], tape=0)]
        for queries in (plain, taped):
            yield conv_case(shape, queries)
            yield recurrent_case(shape, queries)
        verified = [Verified(query=0, accepted=rows - 1, bank=1)]
        yield replay_case(replace(shape, n_layers=n_layers), taped, verified)
