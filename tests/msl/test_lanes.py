"""What the lanes of a simdgroup and of a threadgroup do together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msl.runner import CHECK_DIVERGENCE, CHECK_POISON, CHECK_SHUFFLE, KernelLibrary
from numpy.typing import NDArray

ALL_CHECKS = CHECK_DIVERGENCE | CHECK_POISON | CHECK_SHUFFLE


def tree_sum(values: NDArray[Any]) -> Any:
    """Sum 32 values as the runtime does, rounding in the type of the values."""
    n = len(values)
    while n > 1:
        n //= 2
        values = values[:n] + values[n : 2 * n]
    return values[0]


@pytest.mark.parametrize("check", [0, ALL_CHECKS])
@pytest.mark.parametrize(
    ("name", "dtype"), [("f32", np.float32), ("f16", np.float16), ("i32", np.int32)]
)
def test_reductions(library: KernelLibrary, name: str, dtype: type, check: int) -> None:
    rng = np.random.default_rng(1)
    x: NDArray[Any] = (rng.standard_normal(64) * 100).astype(dtype)
    out: NDArray[Any] = np.zeros((7, 64), dtype)
    library.run(f"reductions_{name}", {}, [out, x], (1, 1, 1), 64, check=check)
    for half in (slice(0, 32), slice(32, 64)):
        part = x[half]
        assert (out[0, half] == tree_sum(part)).all()
        assert (out[1, half] == part.max()).all()
        assert (out[2, half] == part.min()).all()
        inclusive: NDArray[Any] = np.cumsum(part, dtype=dtype)
        assert (out[3, half] == inclusive).all()
        assert out[4, half].tolist() == [0, *inclusive[:-1].tolist()]
        quads = part.reshape(8, 4)
        pairs = quads[:, :2] + quads[:, 2:]
        assert (out[5, half] == np.repeat(pairs[:, 0] + pairs[:, 1], 4)).all()
        assert (out[6, half] == part[0]).all()


@pytest.mark.parametrize("threads", [1, 7, 20, 31])
def test_a_simdgroup_may_be_incomplete(library: KernelLibrary, threads: int) -> None:
    x = np.arange(1, threads + 1, dtype=np.int32)
    out = np.zeros((7, threads), np.int32)
    library.run("reductions_i32", {}, [out, x], (1, 1, 1), threads)
    assert (out[0] == x.sum()).all()
    assert (out[1] == threads).all()
    assert (out[2] == 1).all()
    assert (out[3] == np.cumsum(x)).all()


def test_vectors_cross_lanes_whole(library: KernelLibrary) -> None:
    x = np.random.default_rng(2).standard_normal((32, 4)).astype(np.float32)
    out = np.zeros_like(x)
    library.run("vector_sum", {}, [out, x], (1, 1, 1), 32)
    assert (out == tree_sum(x) + x[np.arange(32) ^ 5]).all()


@pytest.mark.parametrize("check", [0, ALL_CHECKS])
def test_shuffles(library: KernelLibrary, check: int) -> None:
    out = np.zeros((14, 32), np.uint32)
    library.run("shuffles", {}, [out], (1, 1, 1), 32, check=check, seed=3)
    lane = np.arange(32)
    fill_up = np.where(lane >= 3, 3 * (lane - 3), 1000 + (lane - 3) % 32)
    fill_down = np.where(lane < 29, 3 * (lane + 3), 1000 + (lane + 3) % 32)
    ballot = sum(1 << i for i in range(0, 32, 3))
    bitwise = 0xFFFF ^ 8 ^ np.bitwise_xor.reduce(lane)
    expected = [
        3 * (31 - lane),
        3 * (lane ^ 9),
        np.where(lane >= 3, 3 * (lane - 3), 3 * lane),
        np.where(lane < 29, 3 * (lane + 3), 3 * lane),
        3 * ((lane - 3) % 32),
        3 * ((lane + 3) % 32),
        fill_up,
        fill_down,
        np.full(32, 21),
        np.full(32, ballot),
        np.full(32, 3),
        np.full(32, bitwise),
        3 * (lane ^ 1) + 1000 * 3 * (lane // 4 * 4 + 2),
        lane == 0,
    ]
    for row, values in enumerate(expected):
        assert out[row].tolist() == np.asarray(values).astype(np.uint32).tolist(), row


@pytest.mark.parametrize("check", [0, ALL_CHECKS])
@pytest.mark.parametrize("threads", [32, 64, 96, 250, 1024])
def test_barriers_join_simdgroups(library: KernelLibrary, threads: int, check: int) -> None:
    x = np.random.default_rng(4).integers(-9, 9, (3, threads)).astype(np.float32)
    out = np.zeros_like(x)
    library.run("group_sum", {}, [out, x], (3, 1, 1), threads, check=check, seed=threads)
    assert (out == 3 * x.sum(axis=1, keepdims=True)).all()


# Lane, row, column of the first element, from Apple's documentation by example of MLX.
LANE_MAP = {0: (0, 0), 1: (0, 2), 2: (1, 0), 3: (1, 2), 6: (3, 0), 8: (0, 4), 16: (4, 0)}


def test_lane_map_of_matrices(library: KernelLibrary) -> None:
    m = np.arange(64, dtype=np.float32).reshape(8, 8)
    out = np.zeros(256, np.float32)
    library.run("lane_map", {}, [out, m], (1, 1, 1), 32)
    elements = out[:64].reshape(32, 2)
    for lane, (row, column) in [*LANE_MAP.items(), (31, (7, 6))]:
        assert elements[lane].tolist() == m[row, column : column + 2].tolist()
    assert sorted(elements.reshape(-1)) == m.reshape(-1).tolist()
    assert np.array_equal(out[64:128].reshape(8, 8), m.T)
    assert np.array_equal(out[128:256].reshape(8, 16)[:, 8:], np.eye(8))


@pytest.mark.parametrize("depth", [8, 40])
@pytest.mark.parametrize("name", ["f32", "f16_f32", "bf16_f32", "f16"])
def test_matrix_product(library: KernelLibrary, name: str, depth: int) -> None:
    # Small integers: every product and sum is exact in every format.
    rng = np.random.default_rng(depth)
    a = rng.integers(-3, 4, (8, depth)).astype(np.float32)
    b = rng.integers(-3, 4, (depth, 8)).astype(np.float32)
    kinds = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
    source = kinds[name.split("_")[0]]
    result = kinds[name.split("_")[-1]]

    def stored(x: NDArray[np.float32]) -> NDArray[np.generic]:
        if source is np.uint16:
            return (x.view(np.uint32) >> 16).astype(np.uint16)
        return x.astype(source)

    out = np.zeros((8, 8), result)
    size = np.array([depth], np.uint32)
    library.run(f"multiply_{name}", {}, [out, stored(a), stored(b), size], (1, 1, 1), 32)
    assert np.array_equal(out.astype(np.float32), a @ b + 1)


def test_atomics(library: KernelLibrary) -> None:
    total, most = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    library.run("count", {}, [total, most], (7, 1, 1), 48)
    assert (total[0], most[0]) == (7 * 48, 7 * 48 - 1)
