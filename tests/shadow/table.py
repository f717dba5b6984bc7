"""Launches of every kernel of the library at small shapes, from the cases of tests/kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import ParamSpec

import numpy as np
from cases import (
    FAMILIES,
    EmbedCase,
    LinearCase,
    edge_cases,
    linear_buffers,
    random_linear,
    small_k_cases,
)
from cases_gdn import GdnShape, conv_case, gated_norm_case, recurrent_case
from cases_layers import AttentionShape, LayerCase, attention_case, prepare_case
from cases_small import CASES, QUERIES
from harness import Launch
from msl.runner import CHECK_DIVERGENCE
from msl.watcher import Report, ShadowLibrary
from reference import FORMATS, random_weights

P = ParamSpec("P")
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
    for case in (*small_k_cases(), *edge_cases()):
        if case.rows * case.n * case.k <= MOST_PRODUCTS:
            yield case


def embed_launches(fmt: str) -> list[Launch]:
    """The last token of the table, the first, and one that is not in it."""
    case = EmbedCase(fmt=fmt, rows=3, dim=160)
    ids = np.array([case.n_tokens - 1, 0, case.n_tokens], np.int32)
    stored = random_weights(np.random.default_rng(0), fmt, case.n_tokens, case.dim).stored
    return [case.launch(np.empty((case.rows, case.dim), np.float32), ids, stored)]


def later(make: Callable[P, LayerCase], *args: P.args, **kwargs: P.kwargs) -> Case:
    """A case that is made when it is run."""
    return lambda: make(*args, **kwargs).launches


def shapes() -> Iterator[tuple[str, Case]]:
    """Every number of heads that share a K/V head, the head sizes of GDN, ratios of its heads."""
    for heads in range(1, 9):
        shape = AttentionShape(n_heads=2 * heads, n_kv_heads=2, head_dim=64, rotary_dim=32)
        yield f"attention {shape}", later(attention_case, shape, QUERIES, 1)
    for dim, rotary in ((32, 32), (96, 30), (256, 64)):
        shape = AttentionShape(n_heads=2, n_kv_heads=1, head_dim=dim, rotary_dim=rotary)
        yield f"prepare {shape}", later(prepare_case, shape, QUERIES, 256)
    for k_heads, v_heads, dim in ((1, 1, 128), (1, 3, 128), (2, 4, 64)):
        for tiled in (False, True):
            gdn = GdnShape(n_k_heads=k_heads, n_v_heads=v_heads, head_dim=dim, tiled=tiled)
            yield f"recurrent {gdn}", later(recurrent_case, gdn, QUERIES)
            yield f"conv {gdn}", later(conv_case, gdn, QUERIES)
            yield f"gated norm {gdn}", later(gated_norm_case, gdn, 2)


@cache
def all_cases() -> dict[str, Case]:
    """Launches in order, by the name of the case."""
    cases = {**CASES, **dict(shapes())}
    for fmt in FORMATS:
        cases[f"embed_{fmt}"] = partial(embed_launches, fmt)
    for linear in linear_cases():
        cases[str(linear)] = partial(linear_launches, linear)
    return cases


def as_the_engine_binds(launches: list[Launch]) -> list[Launch]:
    """The cases of gdn_recurrent read a copy of the banks; the engine has one buffer."""
    for launch in launches:
        if launch.kernel == "gdn_recurrent":
            launch.buffers[4] = launch.buffers[1]
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
