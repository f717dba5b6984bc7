"""Files of real shapes with random weights, and the bytes that a pass of them moves."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from mtlqwen import _core

from bench.drive import TINY, drain, submit
from bench.traffic import Traffic
from tools.make_shape_gguf import SHAPES, Shape, tensors, write

SMALL = Shape(hidden=64, layers=4, intermediate=96, heads=2, kv_heads=1, gdn_v_heads=32)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shapes") / "small.gguf"
    write(path, "small", SMALL, seed=3)
    return path


def test_the_file_runs(small: Path, kernels: str) -> None:
    engine = _core.Engine(str(small), kernels=kernels, context=256)
    sequence = submit(engine, 20, 6)
    drain(engine)
    tokens = engine.poll(sequence).token_ids
    logits = np.asarray(_core._testing.last_logits(engine, sequence))
    engine.close()
    assert len(tokens) == 6
    assert len(set(tokens)) > 1
    assert np.isfinite(logits).all()


def test_a_seed_makes_the_same_file_again(small: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.gguf"
    write(again, "small", SMALL, seed=3)
    first, second = (hashlib.sha256(p.read_bytes()).digest() for p in (small, again))
    assert first == second


@pytest.mark.parametrize(
    ("name", "n_weights"), [("0.8b", 0.752e9), ("2b", 1.882e9), ("4b", 4.206e9)]
)
def test_shapes_have_the_weights_of_the_models(name: str, n_weights: float) -> None:
    total = sum(math.prod(tensor.shape) for tensor in tensors(SHAPES[name]))
    assert total == pytest.approx(n_weights, rel=1e-3)


def test_a_pass_moves_the_weights_and_the_state() -> None:
    traffic = Traffic.of(str(TINY))
    file_bytes = TINY.stat().st_size
    # The bundled model has an MTP block, which takes no part, and 0.3 MB of metadata.
    assert 0.8 * file_bytes < traffic.weights < 0.97 * file_bytes
    # 6 GDN layers, 8 V heads of 128 x 128 and 3 rows of 2048 channels, read and written as float.
    assert traffic.state == 2 * 4 * 6 * (8 * 128 * 128 + 3 * 2048)
    assert traffic.decode_bytes(8, 100) - traffic.decode_bytes(1, 100) == pytest.approx(
        7 * (traffic.state + 100 * traffic.kv)
    )
