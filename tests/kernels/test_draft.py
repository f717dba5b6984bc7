"""The kernels between the passes of a draft (metal/draft.metal)."""

from __future__ import annotations

import numpy as np
import pytest
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
from cases_layers import check_case
from harness import Runner, run
from int16_rows import quantise
from layer_args import Query

DIMS = (32, 160, 512, 1024, 5120)
SHARED = [
    Query(count=1, kv_valid=40, bank=2, kept=((1, 0),)),
    Query(count=5, kept=((2, 3), (4, 4), (5, 6))),
    Query(count=2, kv_valid=7, bank=2, kept=((2, 7),)),  # the bank of the first, too
]


@pytest.mark.parametrize("int16", [False, True])
@pytest.mark.parametrize("dim", DIMS)
def test_place_columns(runner: Runner, dim: int, int16: bool) -> None:
    check_case(runner, place_case(5, 3, dim, int16=int16))


@pytest.mark.parametrize("dim", [32, 160, 512])
def test_placed_int16_rows_are_those_of_the_whole(runner: Runner, dim: int) -> None:
    case = place_case(3, 4, dim, int16=True)
    check_case(runner, case)
    assert np.array_equal(case.launches[0].buffers[0], quantise(case.arrays["whole"]))


def test_placing_leaves_the_other_columns_alone(runner: Runner) -> None:
    for int16 in (False, True):
        case = place_case(2, 3, 64, int16=int16)
        out = case.launches[1].buffers[0]
        before = out.copy()
        run(runner, [case.launches[1]])
        bytes_of = out.view(np.uint8).reshape(2, -1), before.view(np.uint8).reshape(2, -1)
        changed = np.unique(np.nonzero(bytes_of[0] != bytes_of[1])[1])
        element = 2 if int16 else 4
        quants = changed[changed < 3 * 64 * element] // element
        assert (quants >= 64).all()
        assert (quants < 128).all()


@pytest.mark.parametrize("dim", DIMS)
def test_shift_rows(runner: Runner, dim: int) -> None:
    check_case(runner, shift_case(Seeds(dim=dim), SHARED))


@pytest.mark.parametrize("dim", DIMS)
def test_keep_seeds(runner: Runner, dim: int) -> None:
    check_case(runner, keep_case(Seeds(dim=dim, offset=64), SHARED))


DRAFTS = {
    "all": Draft(proposals=(5, 6, 7), sampled=(5, 6, 7, 8)),
    "none": Draft(proposals=(5, 6, 7), sampled=(4, 6, 7, 8)),
    "some": Draft(proposals=(5, 6, 7), sampled=(5, 6, 8, 9)),
    "agreeing again": Draft(proposals=(5, 6, 7), sampled=(5, 9, 7, 8)),
    "width 0": Draft(proposals=(), sampled=(3,)),
    "widest": Draft(proposals=tuple(range(15)), sampled=tuple(range(16))),
    "wider than a simdgroup": Draft(proposals=tuple(range(40)), sampled=tuple(range(41))),
    "late in a wide one": Draft(proposals=tuple(range(40)), sampled=(*range(37), 1, 2, 3, 4)),
    "a stop": Draft(proposals=(5, 2, 7), sampled=(5, 2, 7, 8), stops=(2,)),
    "the last of the stops": Draft(proposals=(5, 6, 3), sampled=(5, 6, 3, 8), stops=(9, 2, 3)),
    "a stop that is not said": Draft(proposals=(5, 6), sampled=(5, 6, 2), stops=(2,)),
    "no finite logit": Draft(proposals=(5, 6, 7), sampled=(5, -1, 7, 8)),
    "no finite logit on both sides": Draft(proposals=(5, -1, 7), sampled=(5, -1, 7, 8)),
    "the anchor does not count": Draft(proposals=(6,), sampled=(5, 6), anchor=5),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_verify(runner: Runner, name: str) -> None:
    check_case(runner, verify_case([DRAFTS[name]], gap=0))


def test_verify_many(runner: Runner) -> None:
    check_case(runner, verify_case(list(DRAFTS.values())))


def test_verify_random(runner: Runner) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        drafts = []
        for _ in range(int(rng.integers(1, 9))):
            width = int(rng.integers(0, 16))
            sampled = rng.integers(-1, 4, width + 1).tolist()
            same = rng.random(width) < 0.8
            proposals = np.where(same, sampled[:width], rng.integers(-1, 4, width)).tolist()
            stops = rng.choice(8, int(rng.integers(0, 3)), replace=False).tolist()
            drafts.append(
                Draft(proposals=tuple(proposals), sampled=tuple(sampled), stops=tuple(stops))
            )
        check_case(runner, verify_case(drafts, gap=int(rng.integers(0, 3))))


@pytest.mark.parametrize("dim", [32, 1024])
def test_keep_taped_seeds(runner: Runner, dim: int) -> None:
    check_case(runner, keep_verified_case(Seeds(dim=dim), list(DRAFTS.values())))


@pytest.mark.parametrize("places", [(0,), (3, 1, 2), tuple(range(63, -1, -1))])
def test_scatter_ids(runner: Runner, places: tuple[int, ...]) -> None:
    check_case(runner, scatter_case(places))
