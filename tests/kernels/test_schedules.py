"""The layer kernels with lanes and threadgroups in random order, on poisoned threadgroup memory.

A missing barrier, a read of what nobody wrote, or a cross-lane operation that not all lanes reach
shows as other bits or as an error. Needs the CPU library and its C interface.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases_gdn import GdnShape, conv_case, gated_norm_case, gates_case, recurrent_case
from cases_layers import (
    AttentionShape,
    attention_case,
    gather_case,
    norm_case,
    prepare_case,
    swiglu_case,
)
from cases_sample import Draw, sample_run
from harness import Buffer, Launch
from layer_args import Query
from msl.runner import CHECK_DIVERGENCE, CHECK_POISON, CHECK_SHUFFLE, KernelLibrary, best_isa

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="kernels run on the GPU there")

QUERIES = [Query(count=2, kv_valid=130, slot=1), Query(count=3, bank=1)]
ATTENTION = AttentionShape(n_heads=6, n_kv_heads=2, head_dim=64, rotary_dim=16)
WIDE = AttentionShape(n_heads=8, n_kv_heads=1)
GDN = GdnShape(n_k_heads=2, n_v_heads=4, head_dim=64)
LOGITS = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)
DRAWS = [Draw(temperature=1.0, seed=1), Draw()]

CASES: dict[str, Callable[[], list[Launch]]] = {
    "rms_norm": lambda: norm_case(3, 512).launches,
    "gather_rows": lambda: gather_case(5, 512, (4, 0)).launches,
    "swiglu": lambda: swiglu_case(2, 384).launches,
    "attention_prepare": lambda: prepare_case(ATTENTION, QUERIES, 256).launches,
    "attention": lambda: attention_case(ATTENTION, QUERIES, 1).launches,
    "attention of one group": lambda: attention_case(WIDE, QUERIES, 2).launches,
    "gdn_conv": lambda: conv_case(GDN, QUERIES).launches,
    "gdn_gates": lambda: gates_case(2, 48).launches,
    "gdn_recurrent": lambda: recurrent_case(GDN, QUERIES).launches,
    "gdn_norm": lambda: gated_norm_case(GDN, 3).launches,
    "sample": lambda: sample_run(LOGITS, DRAWS, chunk=512).launches,
}


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
