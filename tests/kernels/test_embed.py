"""The embedding kernels: every format unpacks without rounding."""

from __future__ import annotations

import numpy as np
import pytest
from cases import EmbedCase, embed_cases
from harness import Runner, check, run
from reference import FORMATS, random_weights


@pytest.mark.parametrize("case", list(embed_cases()), ids=str)
def test_embedding_is_exact(runner: Runner, case: EmbedCase) -> None:
    rng = np.random.default_rng(case.rows)
    table = random_weights(rng, case.fmt, case.n_tokens, case.dim)
    ids = rng.integers(0, case.n_tokens, case.rows, dtype=np.int32)
    ids[0], ids[-1] = case.n_tokens - 1, 0
    out = np.full((case.rows + 1, case.dim), 7.0, np.float32)
    run(runner, [case.launch(out, ids, table.stored)])
    check(out[: case.rows], table.values[ids], 0.0)
    assert (out[case.rows] == 7.0).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_id_outside_the_table_gives_a_row_of_nan(runner: Runner, fmt: str) -> None:
    case = EmbedCase(fmt=fmt, rows=4, dim=64)
    table = random_weights(np.random.default_rng(1), fmt, case.n_tokens, case.dim)
    ids = np.array([-1, 3, case.n_tokens, 2**31 - 1], np.int32)
    out = np.zeros((case.rows, case.dim), np.float32)
    run(runner, [case.launch(out, ids, table.stored)])
    assert np.isnan(out[[0, 2, 3]]).all()
    check(out[1], table.values[3], 0.0)
