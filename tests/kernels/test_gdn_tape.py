"""What verified rows leave on the tape, and the states that are made of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases_gdn import GdnShape, conv_case, recurrent_case
from cases_layers import check_case, nans
from cases_tape import Verified, replay_case, replay_launch
from harness import Buffer, Launch, Runner, run
from layer_args import Query
from test_gdn import DENSE, SHAPES, SMALL, keeping

# Verified and other queries in one pass; two of the verified read one bank, one has no bank yet.
MIXED = (
    Query(count=5, kv_valid=40, bank=1, tape=4),
    Query(count=3, bank=5),
    Query(count=16, kv_valid=7, bank=2, tape=9),
    Query(count=2, kv_valid=40, bank=1, tape=0),
    Query(count=2, tape=2),
)
VERIFIED = (
    Verified(query=2, accepted=15, bank=8),
    Verified(query=0, accepted=0, bank=3),
    Verified(query=4, accepted=1, bank=6),
    Verified(query=3, accepted=1, bank=7),
)
ROWS = 16


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_tape(runner: Runner, shape: GdnShape) -> None:
    check_case(runner, conv_case(shape, MIXED))
    check_case(runner, recurrent_case(shape, MIXED, 17))


@pytest.mark.parametrize("shape", [*SHAPES, *DENSE], ids=str)
def test_replay(runner: Runner, shape: GdnShape) -> None:
    check_case(runner, replay_case(replace(shape, n_layers=2), MIXED, VERIFIED))


@pytest.mark.parametrize("rows", range(1, ROWS + 1))
@pytest.mark.parametrize("kv_valid", [0, 9])
def test_replay_rows(runner: Runner, rows: int, kv_valid: int) -> None:
    query = Query(count=ROWS, kv_valid=kv_valid, tape=0)
    case = replay_case(SMALL, [query], [Verified(query=0, accepted=rows - 1, bank=1)])
    check_case(runner, case)


def layer(shape: GdnShape, query: Query) -> tuple[list[Launch], Buffer, Buffer, Buffer]:
    """Launches of one layer, each reading what the one before it wrote; out, banks and tape.

    What goes in depends on the shape alone.
    """
    conv, *conv_state = conv_case(shape, [query]).launches
    (delta,) = recurrent_case(shape, [query]).launches
    act, tape, _, _, banks, *_ = conv.buffers
    out, _, _, _, gates, _, *metadata = delta.buffers
    buffers = [out, banks, tape, act, gates, banks.copy(), *metadata]
    return [conv, *conv_state, replace(delta, buffers=buffers)], out, banks, tape


@pytest.mark.parametrize("shape", [SMALL, DENSE[0], replace(SMALL, state_offset=68)], ids=str)
@pytest.mark.parametrize("kv_valid", [0, 3])
def test_replay_gives_what_a_pass_keeps(runner: Runner, shape: GdnShape, kv_valid: int) -> None:
    """Bit for bit, after any number of rows; and verified rows have the outputs of all others."""
    kept = Query(count=ROWS, kv_valid=kv_valid, kept=keeping(range(1, ROWS + 1)))
    launches, expected_out, expected, _ = layer(shape, kept)
    run(runner, launches)
    taped = Query(count=ROWS, kv_valid=kv_valid, tape=1)
    launches, out, banks, tape = layer(shape, taped)
    before = banks.tobytes()
    run(runner, launches)
    assert out.tobytes() == expected_out.tobytes()
    assert banks.tobytes() == before
    for rows, bank in kept.kept:
        both = np.concatenate([banks, nans(*banks.shape)])
        verified = Verified(query=0, accepted=rows - 1, bank=1)
        run(runner, [replay_launch(shape, both, tape[None], [taped], [verified])])
        for part in (shape.state, shape.conv_state):
            assert part(both[1]).tobytes() == part(expected[bank]).tobytes(), rows
