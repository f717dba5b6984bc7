"""The hash kernels move numbers and see keys as those do that they stand in for."""

from __future__ import annotations

import sys
from dataclasses import replace
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
from cases_edit import edit_run, expected_saved, random_edit
from cases_filter import filter_run
from cases_gdn import conv_case
from cases_layers import Floats, check_case
from cases_logprob import Want, logprob_run
from cases_sample import Draw, pack_masks, sample_run
from engine.hash_model import build_hash_kernels
from engine.hash_oracle import Words, digest, index, mix, odd, total, words
from harness import Runner, check, open_runner, run
from layer_args import KEPT, NO_INDEX
from reference_edit import edited
from reference_filter import Filter
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


def test_edits_change_and_keep_what_they_do(stand_in: Runner) -> None:
    rng = np.random.default_rng(1)
    raw = rng.standard_normal((3, 300)).astype(np.float32)
    for n_drafted in (0, 5, 15):
        edits = [
            replace(random_edit(rng, 60, 300, row=row, n_drafted=n_drafted), presence=1.5)
            for row in (2, 0)
        ]
        case = edit_run(raw.copy(), edits, n_valid=290)
        run(stand_in, [case.edit])
        for edit in edits:
            changed = edited(raw[edit.row], edit, 290)[0] != raw[edit.row]
            assert np.array_equal(
                case.logits[edit.row].view("u4") != raw[edit.row].view("u4"), changed
            )
        assert np.array_equal(case.saved, expected_saved(edits, raw, 290), equal_nan=True)
        run(stand_in, [case.restore])
        assert case.logits.tobytes() == raw.tobytes()


def test_logprobs_are_hashes_of_the_row(stand_in: Runner) -> None:
    logits = np.random.default_rng(2).standard_normal((2, 50)).astype(np.float32)
    case = logprob_run(logits, [-1, 7], [Want(row=1, n_top=3), Want(row=0)], n_valid=40)
    run(stand_in, case.launches)
    seen = digest(logits[1, :40].view(np.uint32))
    ids = np.concatenate([words(7), mix(seen, index(3)) % words(40)])
    expected = -(mix(seen, ids) >> words(8)).astype(np.float64) / 2**24
    got = np.concatenate([case.chosen[:1], case.tops_of(0)])
    assert np.array_equal(got["id"], ids)
    assert np.array_equal(got["logprob"], expected)
    assert case.chosen[1].item() == (-1, 0.0)
    told = logprob_run(logits, [-1, 8], [Want(row=1, told=7)], n_valid=40)
    run(stand_in, told.launches)
    assert told.chosen[0] == case.chosen[0]


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


def test_thresholds_tell_what_they_are_made_of(stand_in: Runner) -> None:
    values = np.random.default_rng(0).standard_normal((2, 300)).astype(np.float32)
    changed, other_row = values.copy(), values.copy()
    changed[0, 299] += 1
    other_row[1] = 0
    allowed = np.ones((2, 300), np.bool_)
    allowed[1, 7] = False
    by = Filter(top_k=5, top_p=0.5, min_p=0.1)

    def kept(values: Floats, by: Filter, temperature: float = 1.0, mask: int = NO_INDEX) -> bytes:
        draws = [Draw(temperature=temperature, mask=mask), Draw()]
        case = filter_run(values, draws, [(0, by)], allowed=allowed)
        run(stand_in, case.launches)
        return case.kept.tobytes()

    results = [
        kept(values, by),
        kept(changed, by),
        kept(values, Filter(top_k=6, top_p=0.5, min_p=0.1)),
        kept(values, Filter(top_k=5, top_p=0.6, min_p=0.1)),
        kept(values, Filter(top_k=5, top_p=0.5, min_p=0.2)),
        kept(values, by, temperature=2.0),
        kept(values, by, mask=0),
        kept(values, by, mask=1),
    ]
    assert len(set(results)) == len(results)
    assert kept(other_row, by) == results[0]


def test_samples_tell_thresholds_and_masks(stand_in: Runner) -> None:
    kept = np.array([(1.0, 5), (1.0, 6), (2.0, 5)], KEPT)
    masks = pack_masks(np.arange(600).reshape(2, 300) != 299)

    def chosen(filtered: int = NO_INDEX, mask: int = NO_INDEX) -> int:
        values = np.zeros((1, 300), np.float32)
        sampling = sample_run(values, [Draw(filter=filtered, mask=mask)], kept=kept, masks=masks)
        run(stand_in, sampling.launches)
        return int(sampling.ids[0])

    results = [chosen(), *(chosen(filtered) for filtered in range(3)), chosen(mask=0), chosen(0, 1)]
    results.append(chosen(mask=1))
    assert len(set(results)) == len(results)
