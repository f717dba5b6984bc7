"""Where the hash kernels move numbers, they move them as the kernels that they stand in for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
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
from harness import Runner, check, open_runner, run
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
