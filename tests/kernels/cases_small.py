"""One small case of every layer kernel: ragged sizes, several queries, more than one block of keys.

For the tests that watch how a kernel runs, not what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from cases import LinearCase, linear_buffers, random_linear
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
from cases_edit import edit_run, random_edit
from cases_filter import filter_run
from cases_gdn import GdnShape, conv_case, gated_norm_case, gates_case, recurrent_case
from cases_int16 import MLP_PANEL, MLP_ROW, PANEL, ROW, Int16Case, Int16Kernel, random_launch
from cases_layers import (
    gather_case,
    norm_case,
    swiglu_case,
)
from cases_logprob import Want, logprob_run
from cases_packed import WHOLE
from cases_sample import Draw, pack_masks, sample_run
from cases_tape import Verified, replay_case
from harness import Launch
from layer_args import KEPT, Query
from reference_filter import Filter

QUERIES = [
    Query(count=2, kv_valid=130, slot=1, bank=2, kept=((1, 3), (2, 1))),
    Query(count=3, kept=((3, 0),)),
]
TAPED = [
    Query(count=3, kv_valid=130, bank=1, tape=2),
    Query(count=1, bank=2),
    Query(count=2, kv_valid=9, bank=0, tape=0),
]
VERIFIED = [Verified(query=0, accepted=0, bank=4), Verified(query=2, accepted=1, bank=3)]
LONG = Query(count=35, kv_valid=9, bank=1, kept=((2, 3), (34, 0), (35, 2)))
ATTENTION = AttentionShape(n_heads=6, n_kv_heads=2, head_dim=64, rotary_dim=16)
WIDE = AttentionShape(n_heads=8, n_kv_heads=1)
# A drafter's: a window that begins inside a block, and that later rows see from a later block on.
BLOCK = AttentionShape(
    n_heads=4, n_kv_heads=2, head_dim=128, rotary_dim=128,
    window=132, causal=False, gated=False, one_plane=True,
)  # fmt: skip
LATE = replace(ATTENTION, window=132, first_key=1)
BEHIND = [Query(count=3, kv_valid=257, slot=1), Query(count=2)]
GDN = GdnShape(n_k_heads=2, n_v_heads=4, head_dim=64)
LOGITS = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)
SEEDS = Seeds(dim=160)
DRAFTS = [
    Draft(proposals=(5, 6, 7), sampled=(5, 6, 8, 9)),
    Draft(proposals=(), sampled=(3,)),
    Draft(proposals=(4, 4), sampled=(4, 4, 4), stops=(2, 4)),
]
# The last of them at the end of the logits.
EDITS = [
    replace(one, biases={**one.biases, 2999: 1.0})
    for row in (1, 0)
    for one in [random_edit(np.random.default_rng(row), 40 * row, 3000, row=row, n_drafted=7)]
]
WANTED = [Want(row=1, n_top=5), Want(row=0)]
DRAWS = [Draw(temperature=1.0, seed=1), Draw()]
# With equals that a filter parts; the second row has one mask of two.
LEVELS = np.rint(LOGITS)
FILTERED = [
    Draw(temperature=1.0, seed=1, filter=1),
    Draw(temperature=0.8, seed=2, filter=0, mask=1),
]
FILTERS = [(1, Filter(top_k=50, top_p=0.9)), (0, Filter(top_k=2000, min_p=0.01))]
ALLOWED = np.arange(6000).reshape(2, 3000) % 3 > 0


def int16_case(kernel: Int16Kernel, n: int, fmt: str = "q8_0", k: int = 96) -> list[Launch]:
    """Three rows; of `row` kernels two groups of outputs."""
    return [random_launch(Int16Case(fmt=fmt, kernel=kernel, rows=3, n=n, k=k))]


def whole_case() -> list[Launch]:
    """Three rows, two groups of outputs."""
    x, stored, out = random_linear(LinearCase(fmt="q5_k", kernel=WHOLE, rows=3, n=69, k=256))
    return [WHOLE.launch("q5_k", linear_buffers(out, x, stored, 69, 256), 3, 69, accumulate=False)]


CASES: dict[str, Callable[[], list[Launch]]] = {
    "rms_norm": lambda: norm_case(3, 512).launches,
    "rms_norm_int16": lambda: norm_case(3, 544, int16=True).launches,
    "gather_rows": lambda: gather_case(5, 512, (4, 0)).launches,
    "swiglu": lambda: swiglu_case(2, 384).launches,
    "attention_prepare": lambda: prepare_case(ATTENTION, QUERIES, 256).launches,
    "attention_prepare into one plane": lambda: prepare_case(BLOCK, QUERIES, 256).launches,
    "keys and values alone": lambda: prepare_case(BLOCK, QUERIES, 256, keys_only=True).launches,
    "attention": lambda: attention_case(ATTENTION, QUERIES, 1).launches,
    "attention to int16": lambda: attention_case(ATTENTION, QUERIES, 1, int16=True).launches,
    "attention of one group": lambda: attention_case(WIDE, QUERIES, 2).launches,
    "attention in tiles": lambda: attention_case(ATTENTION, QUERIES, 1, tile=16).launches,
    "attention in tiles of 8": lambda: attention_case(ATTENTION, QUERIES, 1, tile=8).launches,
    "attention of a block": lambda: attention_case(BLOCK, BEHIND, 1).launches,
    "attention of a block to int16": lambda: attention_case(BLOCK, BEHIND, 1, int16=True).launches,
    "attention of a block in tiles": lambda: attention_case(BLOCK, BEHIND, 2, tile=16).launches,
    "attention in a window": lambda: attention_case(LATE, BEHIND, 1, tile=8).launches,
    "gdn_conv": lambda: conv_case(GDN, QUERIES).launches,
    "gdn_conv to the tape": lambda: conv_case(GDN, TAPED).launches,
    "gdn_gates": lambda: gates_case(2, 48).launches,
    "gdn_recurrent": lambda: recurrent_case(GDN, QUERIES).launches,
    "gdn_recurrent to the tape": lambda: recurrent_case(GDN, TAPED).launches,
    "gdn_replay": lambda: replay_case(replace(GDN, n_layers=2), TAPED, VERIFIED).launches,
    "gdn_chunk": lambda: recurrent_case(GDN, [LONG], 1).launches,
    "gdn_norm": lambda: gated_norm_case(GDN, 3).launches,
    "gdn_norm_int16": lambda: gated_norm_case(GDN, 3, int16=True).launches,
    "linear_int16_row": lambda: int16_case(ROW, 69),
    "linear_int16_panel": lambda: int16_case(PANEL, 37),
    "mlp_int16_row": lambda: int16_case(MLP_ROW, 64),
    "mlp_int16_panel": lambda: int16_case(MLP_PANEL, 64),
    "linear_packed_whole": whole_case,
    "linear_packed_int16_row": lambda: int16_case(ROW, 69, "q4_k", 256),
    "linear_packed_int16_panel": lambda: int16_case(PANEL, 37, "q6_k", 256),
    "mlp_packed_int16_row": lambda: int16_case(MLP_ROW, 64, "q2_k", 256),
    "mlp_packed_int16_panel": lambda: int16_case(MLP_PANEL, 64, "q4_0", 256),
    "place_columns": lambda: place_case(3, 2, 160).launches,
    "place_columns_int16": lambda: place_case(3, 2, 160, int16=True).launches,
    "shift_rows": lambda: shift_case(SEEDS, QUERIES).launches,
    "keep_seeds": lambda: keep_case(SEEDS, QUERIES).launches,
    "keep_taped_seeds": lambda: keep_verified_case(SEEDS, DRAFTS).launches,
    "scatter_ids": lambda: scatter_case((4, 0, 7)).launches,
    "verify": lambda: verify_case(DRAFTS).launches,
    "edit_logits": lambda: edit_run(LOGITS.copy(), EDITS).launches,
    "logprob_rows": lambda: logprob_run(LOGITS, (7, 2999), WANTED, threads=128).launches,
    "sample": lambda: sample_run(LOGITS, DRAWS, chunk=512).launches,
    "sample of some ids": lambda: (
        sample_run(
            LEVELS,
            FILTERED,
            chunk=512,
            kept=np.array([(1.0, 2000), (0.0, 1500)], KEPT),
            masks=pack_masks(ALLOWED),
        ).launches
    ),
    "filter_rows": lambda: filter_run(LEVELS, FILTERED, FILTERS, allowed=ALLOWED).launches,
}
