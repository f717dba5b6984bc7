"""The embedding and linear kernels' part of the benchmark, launched as the launch table says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cases import SIZES, EmbedCase, linear_buffers
from cases_int16 import Int16Case, Int16Kernel, random_launch
from harness import Launch
from packed_weights import format_constants
from reference import random_weights

COPY_BYTES = 128 << 20  # more than the caches of any machine we know
ROWS = (1, 2, 4, 8, 32, 128)


@dataclass(frozen=True, kw_only=True)
class LinearBench:
    """Launches with what they move and compute."""

    name: str
    launches: list[Launch]
    moved_bytes: int
    macs: int = 0

    def __str__(self) -> str:
        """Name in benchmark tables."""
        return self.name


def linear_case(fmt: str, rows: int, n: int, k: int, software: bool) -> LinearBench:
    """One linear layer as the runtime would launch it."""
    from mtlqwen._core import _testing

    choice = _testing.choose_linear(fmt, n, k, rows, software)
    rng = np.random.default_rng(rows + n + k)
    stored = random_weights(rng, fmt, n, k).stored
    x = rng.standard_normal((rows, k)).astype(np.float32)
    out = np.zeros((rows, n), np.float32)
    launch = Launch(
        kernel=choice["kernel"],
        buffers=linear_buffers(out, x, stored, n, k),
        groups=(-(-n // choice["outputs_per_group"]), -(-rows // choice["rows_per_group"])),
        threads=choice["threads"],
        threadgroup_bytes=choice["threadgroup_bytes"],
        constants={0: choice["simdgroups"], 1: False, **format_constants(fmt)},
    )
    return LinearBench(
        name=f"{choice['kernel']}-{fmt}-{rows}x{n}x{k}",
        launches=[launch],
        moved_bytes=out.nbytes + x.nbytes + stored.nbytes,
        macs=rows * n * k,
    )


def int16_case(fmt: str, rows: int, n: int, k: int, mlp: bool = False) -> LinearBench | None:
    """One linear, or gate and up of the MLP, over int16 rows; none where there is no kernel."""
    from mtlqwen._core import _testing

    choose = _testing.choose_mlp if mlp else _testing.choose_linear
    choice = choose(fmt, n, k, rows, software=True, int16=True)
    if not choice or not choice["int16"]:
        return None
    role, family = ("mlp" if mlp else "linear"), choice["kernel"].rpartition("_")[2]
    kernel = Int16Kernel(role, family, choice["rows_per_group"], choice["outputs_per_group"])
    launch = random_launch(Int16Case(fmt=fmt, kernel=kernel, rows=rows, n=n, k=k))
    return LinearBench(
        name=f"{choice['kernel']}-{fmt}-{rows}x{n}x{k}",
        launches=[launch],
        moved_bytes=sum(buffer.nbytes for buffer in launch.buffers),
        macs=rows * n * k * (2 if mlp else 1),
    )


def embed_bench(fmt: str, rows: int, dim: int) -> LinearBench:
    """A look-up of `rows` different rows."""
    case = EmbedCase(fmt=fmt, rows=rows, dim=dim, n_tokens=rows)
    stored = random_weights(np.random.default_rng(0), fmt, rows, dim).stored
    ids = np.random.default_rng(1).permutation(rows).astype(np.int32)
    out = np.zeros((rows, dim), np.float32)
    launch = case.launch(out, ids, stored)
    return LinearBench(
        name=str(case), launches=[launch], moved_bytes=out.nbytes + stored.nbytes + ids.nbytes
    )


def copy_bench() -> LinearBench:
    """The yardstick of bandwidth: the float embedding copies a table that no cache holds."""
    dim = 4096
    return embed_bench("f32", COPY_BYTES // 2 // (4 * dim), dim)


def linear_bench(size: str, fmt: str, software: bool) -> Iterator[LinearBench]:
    """The embedding and the different shapes of a size's projections."""
    hidden, intermediate, _, _ = SIZES[size]
    yield embed_bench(fmt, 128, hidden)
    for n, k in ((hidden, hidden), (4 * hidden, hidden), (hidden, intermediate)):
        for rows in ROWS:
            yield linear_case(fmt, rows, n, k, software)
            if software and (case := int16_case(fmt, rows, n, k)):
                yield case
    for rows in ROWS:
        if software and (case := int16_case(fmt, rows, intermediate, hidden, mlp=True)):
            yield case
