"""The hash kernels move numbers and see keys as those do that they stand in for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cases_attention import AttentionShape, attention_case, seen_planes
from cases_draft import (
    Seeds,
    keep_case,
    keep_verified_case,
    place_case,
    scatter_case,
    shift_case,
    verify_case,
)
from cases_gdn import conv_case
from cases_layers import check_case
from engine.hash_model import build_hash_kernels
from engine.hash_oracle import Words, index, mix, odd, total, words
from harness import Runner, check, open_runner, run
from test_attention import OTHERS, SEEING, SIGHTS
from test_draft import DRAFTS, SHARED
from test_gdn import LISTED, LISTS, SMALL
from test_gdn import test_recurrent_does_not_depend_on_what_is_kept as check_bits
from test_gdn_tape import test_replay_gives_what_a_pass_keeps as check_replay

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="built for the CPU")


@pytest.fixture(scope="module")
def stand_in(root: Path) -> Runner:
    """A device that runs tests/hash_kernels."""
    return open_runner(build_hash_kernels(root))


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)
def test_states_of_listed_rows(stand_in: Runner, rows: tuple[int, ...]) -> None:
    check_bits(stand_in, rows)


def test_conv_states_of_listed_rows(stand_in: Runner) -> None:
    case = conv_case(SMALL, LISTED)
    run(stand_in, case.launches[1:])
    _, (banks, expected, bound), _ = case.checks
    check(banks, expected, bound)


def test_drafts_move_as_they_do(stand_in: Runner) -> None:
    seeds = Seeds(dim=96)
    for case in (
        place_case(3, 2, 96),
        shift_case(seeds, SHARED),
        keep_case(seeds, SHARED),
        keep_verified_case(seeds, list(DRAFTS.values())),
        scatter_case((4, 0, 7)),
        verify_case(list(DRAFTS.values())),
    ):
        check_case(stand_in, case)


@pytest.mark.parametrize("kv_valid", [0, 3])
def test_states_of_verified_rows(stand_in: Runner, kv_valid: int) -> None:
    check_replay(stand_in, SMALL, kv_valid)


def attended(shape: AttentionShape, q: Words, qg: Words) -> Words:
    """(rows, H, D) of SEEING: sums over what a row sees, with its query, then with its gate."""
    slot_tokens = max(query.kv_valid + query.count for query in SEEING)
    k, v = (plane.astype(np.float16) for plane in seen_planes(shape, SEEING, slot_tokens))
    both = (k.view(np.uint16).astype(np.uint32) << words(16)) | v.view(np.uint16)
    places = mix(index(slot_tokens)[:, None, None], index(shape.head_dim))
    out = np.empty_like(q)
    rows = ((query.slot, seen) for query in SEEING for seen in shape.seen(query))
    for row, (slot, seen) in enumerate(rows):
        sums = total((both[slot] * odd(places))[: seen.size][seen], axis=0)
        heads = np.repeat(sums, shape.n_heads // shape.n_kv_heads, axis=0)
        out[row] = heads * odd(q[row]) + words(int(seen.sum()))
    return mix(out, qg[..., shape.head_dim :]) if shape.gated else out


@pytest.mark.parametrize("tile", [0, 16])
@pytest.mark.parametrize("shape", [*SIGHTS, *OTHERS], ids=str)
def test_sights(stand_in: Runner, shape: AttentionShape, tile: int) -> None:
    case = attention_case(shape, SEEING, 1, tile=tile)
    run(stand_in, case.launches)
    q, qg, out = (case.arrays[name].view(np.uint32) for name in ("q", "qg", "out"))
    assert np.array_equal(out.reshape(q.shape), attended(shape, q, qg))
