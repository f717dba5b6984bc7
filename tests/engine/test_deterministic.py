"""deterministic=True where attention is split: bits do not depend on the cut nor on the company."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import Geometry, random_model, write_gguf
from engine.driving import Run, run_all, submit
from mtlqwen import _core

CONTEXT = 4096  # 32 blocks, four in a split where a pass has 128 rows
# The second attention layer sees what the first has made of every row.
GEOMETRY = Geometry(layers="aga", heads=4, kv_heads=2, vocab=288, context=CONTEXT)
N_TOKENS = 4


def prompt_of(length: int, start: int) -> list[int]:
    return [(start + 11 * i) % GEOMETRY.vocab for i in range(length)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("deterministic") / "model.gguf"
    return str(write_gguf(path, random_model(GEOMETRY, seed=5)))


def run(model: str, kernels: str, prompt: list[int], rows: int, company: int) -> Run:
    """Generate behind a prompt in passes of so many rows, with others beside it."""
    engine = _core.Engine(model, kernels=kernels, slots=company + 1, deterministic=True)
    _core._testing.set_pass_rows(engine, rows)
    others = [submit(engine, prompt_of(30 + i, i), max_tokens=40) for i in range(company)]
    one = submit(engine, prompt, max_tokens=N_TOKENS)
    run_all(engine, [one], logits=True)
    for other in others:
        engine.release(other.sequence)
    engine.close()
    return one


def bits(run: Run) -> npt.NDArray[np.uint32]:
    return np.asarray(run.logits, np.float32).view(np.uint32)


@pytest.mark.parametrize(("rows", "company"), [(128, 3), (40, 0), (7, 2)])
def test_long_contexts_keep_their_bits(model: str, kernels: str, rows: int, company: int) -> None:
    prompt = prompt_of(1300, 3)
    alone = run(model, kernels, prompt, 128, 0)
    other = run(model, kernels, prompt, rows, company)
    assert other.token_ids == alone.token_ids
    assert np.array_equal(bits(other), bits(alone))
