"""Faults of kernels and of dispatches that the runtime must name."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from msl.runner import (
    CHECK_DIVERGENCE,
    CHECK_POISON,
    CHECK_SHUFFLE,
    Aborted,
    KernelError,
    KernelLibrary,
)

FAULTS = (Path(__file__).parent / "kernels" / "faults.metal").read_text().splitlines()


def line_of(text: str) -> int:
    """Return the number of the only line that contains `text`."""
    (number,) = [i for i, line in enumerate(FAULTS, 1) if text in line]
    return number


def test_lanes_at_different_operations_are_an_error(library: KernelLibrary) -> None:
    first, second = line_of("simd_sum(1.0f)"), line_of("simd_max(float(lane))")
    with pytest.raises(KernelError, match="divergent_sum, threadgroup") as caught:
        library.run("divergent_sum", {}, [np.zeros(32, np.float32)], (1, 1, 1), 32)
    assert f"lines {first} and {second}" in str(caught.value)


def test_lanes_that_returned_take_no_part(library: KernelLibrary) -> None:
    out = np.zeros(32, np.float32)
    library.run("sum_after_return", {}, [out], (1, 1, 1), 32)
    assert out.tolist() == [210.0] * 20 + [0.0] * 12


def test_divergence_check_wants_all_lanes(library: KernelLibrary) -> None:
    with pytest.raises(KernelError, match="reached by only 20 of the 32 lanes of simdgroup 0"):
        library.run(
            "sum_after_return",
            {},
            [np.zeros(32, np.float32)],
            (1, 1, 1),
            32,
            check=CHECK_DIVERGENCE,
        )
    out = np.zeros(64, np.float32)
    library.run("barrier_after_return", {}, [out], (1, 1, 1), 64)
    assert out.sum() == 32
    with pytest.raises(KernelError, match="not reached by the threads that returned"):
        library.run("barrier_after_return", {}, [out], (1, 1, 1), 64, check=CHECK_DIVERGENCE)


def test_simdgroups_at_different_barriers_are_an_error(library: KernelLibrary) -> None:
    with pytest.raises(KernelError, match="simdgroups 0 and 1 wait at different barriers"):
        library.run("two_barriers", {}, [np.zeros(2, np.float32)], (1, 1, 1), 64)


def test_a_failed_dispatch_leaves_the_library_usable(library: KernelLibrary) -> None:
    for _ in range(50):
        with pytest.raises(KernelError, match="lines"):
            library.run("divergent_sum", {}, [np.zeros(32, np.float32)], (4, 1, 1), 32)
        out = np.zeros(32, np.float32)
        library.run("hand_over_fenced", {}, [out], (1, 1, 1), 32)
        assert out.tolist() == [31.0, *range(31)]


def test_shuffle_finds_a_missing_barrier(library: KernelLibrary) -> None:
    expected = [31.0, *map(float, range(31))]
    wrong = 0
    for seed in range(8):
        check = CHECK_SHUFFLE | CHECK_POISON
        out = np.zeros(32, np.float32)
        library.run("hand_over_unfenced", {}, [out], (1, 1, 1), 32, check=check, seed=seed)
        wrong += out.tolist() != expected
        library.run("hand_over_fenced", {}, [out], (1, 1, 1), 32, check=check, seed=seed)
        assert out.tolist() == expected
    assert wrong == 8


def test_shuffle_reorders_lanes_and_simdgroups(library: KernelLibrary) -> None:
    orders = set()
    for seed in range(4):
        out, ticket = np.zeros(256, np.uint32), np.zeros(1, np.uint32)
        library.run("order", {}, [out, ticket], (1, 1, 1), 256, check=CHECK_SHUFFLE, seed=seed)
        assert sorted(out) == list(range(256))
        orders.add(out.tobytes())
        simdgroup_starts = out.reshape(8, 32).min(axis=1)
        assert simdgroup_starts.tolist() != sorted(simdgroup_starts)
    assert len(orders) == 4
    plain, ticket = np.zeros(256, np.uint32), np.zeros(1, np.uint32)
    library.run("order", {}, [plain, ticket], (1, 1, 1), 256)
    assert plain.tolist() == list(range(256))


def test_shuffle_reorders_threadgroups(library: KernelLibrary) -> None:
    for seed in range(4):
        out, ticket = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
        library.run("order", {}, [out, ticket], (64, 1, 1), 1, check=CHECK_SHUFFLE, seed=seed)
        assert sorted(out) == list(range(64))
        assert out.tolist() != list(range(64))


def test_poison_shows_uninitialised_threadgroup_memory(library: KernelLibrary) -> None:
    out = np.zeros(32, np.uint32)
    library.run("uninitialised", {}, [out], (1, 1, 1), 32, check=CHECK_POISON)
    assert out.tolist() == [0] * 31 + [0xFFFFFFFF]


def test_threadgroup_memory_has_a_limit(library: KernelLibrary) -> None:
    out = np.zeros(32, np.uint32)
    library.run("threadgroup_bytes", {}, [out], (1, 1, 1), 32, [8192, 8192])
    assert out.tolist() == [6 * (31 - i) for i in range(32)]
    with pytest.raises(KernelError, match=r"threadgroup_bytes.*32784 bytes of threadgroup memory"):
        library.run("threadgroup_bytes", {}, [out], (1, 1, 1), 32, [8192, 8208])
    with pytest.raises(KernelError, match="more than 32768 bytes"):
        library.run("threadgroup_bytes", {}, [out], (1, 1, 1), 32, [8192, 2**32 - 16])


def test_abort_before_the_first_threadgroup(library: KernelLibrary) -> None:
    out = np.zeros(4, np.uint32)
    with pytest.raises(Aborted):
        library.run("slow", {}, [out], (4, 1, 1), 32, abort=ctypes.c_uint32(1))
    assert not out.any()


def test_abort_takes_effect_between_threadgroups(library: KernelLibrary) -> None:
    n = 100_000  # some 10 s of work
    out = np.zeros(n, np.uint32)
    flag = ctypes.c_uint32(0)

    def stop() -> None:
        while not out[2]:
            time.sleep(0.001)
        flag.value = 1

    stopper = threading.Thread(target=stop)
    stopper.start()
    begin = time.monotonic()
    with pytest.raises(Aborted):
        library.run("slow", {}, [out], (n, 1, 1), 32, abort=flag)
    stopper.join()
    assert time.monotonic() - begin < 2
    done = int((out != 0).sum())
    assert 3 <= done < n
    assert out[:done].all()


def test_a_range_of_threadgroups(library: KernelLibrary) -> None:
    out = np.zeros(8, np.uint32)
    library.run("slow", {}, [out], (4, 2, 1), 32, first=3, count=2)
    assert np.flatnonzero(out.reshape(2, 4)[0]).tolist() == [0, 3]
    for first, count in [(7, 2), (9, 0), (2**64 - 1, 2)]:
        with pytest.raises(KernelError, match="slow: the grid has fewer threadgroups"):
            library.run("slow", {}, [out], (4, 2, 1), 32, first=first, count=count)


def test_a_thread_that_ends_gives_back_its_stacks(library: KernelLibrary) -> None:
    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    def run_in_thread() -> None:
        out = np.zeros(64, np.float32)
        thread = threading.Thread(
            target=library.run, args=("barrier_after_return", {}, [out], (1, 1, 1), 64)
        )
        thread.start()
        thread.join()

    before = mappings()
    for _ in range(10):
        run_in_thread()
    # Joined is not yet ended: the destructors of a thread run a moment later.
    deadline = time.monotonic() + 5
    while mappings() > before + 20 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert mappings() <= before + 20  # one thread needs 132
