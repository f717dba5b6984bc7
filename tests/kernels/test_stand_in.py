"""The hash kernels keep the states that a pass lists as the kernels do that they stand in for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cases_gdn import conv_case
from engine.hash_model import build_hash_kernels
from harness import Runner, check, open_runner, run
from test_gdn import LISTED, LISTS, SMALL
from test_gdn import test_recurrent_does_not_depend_on_what_is_kept as check_bits

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
    _, (banks, expected, bound) = case.checks
    check(banks, expected, bound)
