"""Launches of every kernel of the library at small shapes, from the cases of tests/kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np
from cases import (
    FAMILIES,
    SPLIT,
    TILE,
    EmbedCase,
    LinearCase,
    edge_cases,
    linear_buffers,
    random_linear,
    small_k_cases,
)
from cases_small import CASES
from harness import Buffer, Launch
from msl.runner import CHECK_DIVERGENCE
from msl.watcher import Report, ShadowLibrary
from packed_weights import FORMATS as PACKED
from reference import FORMATS, random_weights

Case = Callable[[], list[Launch]]

MOST_PRODUCTS = 1_000_000  # of a linear case: some 0.1 s


def linear_launches(case: LinearCase) -> list[Launch]:
    """`out` is read, too."""
    x, stored, out = random_linear(case)
    buffers = linear_buffers(out, x, stored, case.n, case.k)
    return [case.kernel.launch(case.fmt, buffers, case.rows, case.n, accumulate=True)]


def linear_cases() -> Iterator[LinearCase]:
    """Two groups each way, both ragged, and three tiles of k; then what is small elsewhere."""
    for fmt in FORMATS:
        for kernels in FAMILIES.values():
            for kernel in kernels.values():
                n = kernel.outputs_per_group + 5
                yield LinearCase(fmt=fmt, kernel=kernel, rows=kernel.width + 1, n=n, k=96)
    for kernel in (*SPLIT.values(), *TILE.values()):
        n = kernel.outputs_per_group + 5
        yield LinearCase(fmt="q5_k", kernel=kernel, rows=kernel.width + 1, n=n, k=256)
    for case in (*small_k_cases(), *edge_cases()):
        if case.rows * case.n * case.k <= MOST_PRODUCTS:
            yield case


def embed_launches(fmt: str) -> list[Launch]:
    """The last token of the table, the first, and one that is not in it."""
    case = EmbedCase(fmt=fmt, rows=3, dim=256 if fmt in PACKED else 160)
    ids = np.array([case.n_tokens - 1, 0, case.n_tokens], np.int32)
    stored = random_weights(np.random.default_rng(0), fmt, case.n_tokens, case.dim).stored
    return [case.launch(np.empty((case.rows, case.dim), np.float32), ids, stored)]


@cache
def all_cases() -> dict[str, Case]:
    """Launches in order, by the name of the case."""
    cases = dict(CASES)
    for fmt in (*FORMATS, *PACKED):
        cases[f"embed_{fmt}"] = partial(embed_launches, fmt)
    for linear in linear_cases():
        cases[str(linear)] = partial(linear_launches, linear)
    return cases


def as_the_engine_binds(launches: list[Launch]) -> list[Launch]:
    """The cases of the delta rule read a copy of the banks; the engine has one buffer."""
    for launch in launches:
        if launch.kernel in ("gdn_recurrent", "gdn_chunk"):
            first_in = 3 if launch.kernel == "gdn_recurrent" else 2
            launch.buffers[first_in + 2] = launch.buffers[1]
    return launches


def watch(library: ShadowLibrary, launch: Launch) -> list[Report]:
    """What is wrong with a launch."""
    return library.watch(
        launch.kernel,
        launch.constants,
        launch.buffers,
        (*launch.groups, 1),
        launch.threads,
        launch.threadgroup_bytes,
        check=CHECK_DIVERGENCE,
    )


class ShadowRunner:
    """A device of the kernel tests on which every report is a failure."""

    gpu_seconds = 0.0

    def __init__(self, library: ShadowLibrary) -> None:
        self._library = library
        self.kernel_names = library.names

    def run(
        self,
        name: str,
        constants: dict[int, bool | int | float],
        buffers: Sequence[Buffer],
        groups: tuple[int, int, int],
        threads: int,
        threadgroup_bytes: int = 0,
        repeat: int = 1,
    ) -> None:
        """Dispatch as harness.Runner does."""
        for _ in range(repeat):
            reports = self._library.watch(
                name, constants, buffers, groups, threads, threadgroup_bytes, check=CHECK_DIVERGENCE
            )
            assert not reports, "\n".join(map(str, reports))
