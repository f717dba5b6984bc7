"""The layer kernels with lanes and threadgroups in random order, on poisoned threadgroup memory.

A missing barrier, a read of what nobody wrote, or a cross-lane operation that not all lanes reach
shows as other bits or as an error. Needs the CPU library and its C interface.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cases_small import CASES
from harness import Buffer, Launch
from msl.runner import CHECK_DIVERGENCE, CHECK_POISON, CHECK_SHUFFLE, KernelLibrary, best_isa

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="kernels run on the GPU there")


@pytest.fixture(scope="module")
def library(kernels: str) -> KernelLibrary:
    """The library that the package ships."""
    return KernelLibrary(Path(kernels).with_name(f"kernels.{best_isa()}.so"))


def results(library: KernelLibrary, launches: list[Launch], check: int, seed: int) -> list[Buffer]:
    """Every buffer after the launches."""
    for launch in launches:
        library.run(
            launch.kernel,
            launch.constants,
            launch.buffers,
            (*launch.groups, 1),
            launch.threads,
            launch.threadgroup_bytes,
            check=check,
            seed=seed,
        )
    return [buffer for launch in launches for buffer in launch.buffers]


@pytest.mark.parametrize("name", CASES)
def test_any_order_gives_the_same_bits(library: KernelLibrary, name: str) -> None:
    expected = results(library, CASES[name](), 0, 0)
    every_check = CHECK_DIVERGENCE | CHECK_POISON | CHECK_SHUFFLE
    for seed in range(8):
        for i, got in enumerate(results(library, CASES[name](), every_check, seed)):
            assert got.tobytes() == expected[i].tobytes(), f"buffer {i}, seed {seed}"
