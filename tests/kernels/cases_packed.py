"""Cases of the kernels that the packed formats share: a few shapes of each format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cases import SPLIT, TILE, EmbedCase, LinearCase, LinearKernel
from cases_int16 import MLP_PANEL, MLP_ROW, PANEL, ROW, Int16Case
from packed_weights import FORMATS, kernel_format

MOST_ROWS = 128
BLOCK = 256  # a multiple of every format's qblock
# One or two scales of 32 elements, with offsets or without.
KINDS = ("q4_0", "q4_k", "q6_k", "q2_k")


@dataclass(frozen=True)
class WholeKernel(LinearKernel):
    """`linear_packed_whole`: 64 outputs of all rows."""

    @property
    def outputs_per_group(self) -> int:
        """Outputs of one threadgroup."""
        return self.outputs

    def name(self, fmt: str) -> str:
        """Of the kernel of a format."""
        return f"linear_{kernel_format(fmt)}_whole"

    def chain(self, k: int) -> int:
        """Four sums at least, folded; one rounding of a weight."""
        return k // 4 + 3


WHOLE = WholeKernel("whole", MOST_ROWS, 64)


def chain(k: int) -> int:
    """Roundings of the longest path to the result of an int16 kernel.

    Two for each 16 elements at most, their product's and their offset's; four where 16 sums are
    folded, two in the terms.
    """
    return 2 * k // 16 + 4 + 2


def embed_cases() -> Iterator[EmbedCase]:
    """Rows that begin and end at each part of a page."""
    for fmt in FORMATS:
        yield EmbedCase(fmt=fmt, rows=5, dim=3 * BLOCK)


def linear_cases() -> Iterator[LinearCase]:
    """The narrowest and the widest kernels, with ragged rows and outputs."""
    for fmt in FORMATS:
        for kernel, rows, n, k in (
            (SPLIT[1], 1, 13, 3 * BLOCK),
            (SPLIT[4], 3, 7, BLOCK),
            (TILE[8], 5, 69, BLOCK),
            (TILE[32], 33, 37, 2 * BLOCK),
            (WHOLE, 1, 69, 3 * BLOCK),
            (WHOLE, 7, 3, BLOCK),
        ):
            yield LinearCase(fmt=fmt, kernel=kernel, rows=rows, n=n, k=k, accumulate=n % 2 == 0)
    yield LinearCase(fmt="q4_k", kernel=SPLIT[2], rows=2, n=9, k=BLOCK)
    yield LinearCase(fmt="q4_k", kernel=SPLIT[8], rows=9, n=9, k=BLOCK)
    yield LinearCase(fmt="q4_k", kernel=TILE[16], rows=17, n=9, k=BLOCK)
    yield LinearCase(fmt="q6_k", kernel=WHOLE, rows=MOST_ROWS + 1, n=65, k=BLOCK)


def int16_cases() -> Iterator[Int16Case]:
    """Edges of rows, of outputs and of k: fewer qblocks than a panel holds, and more."""
    for fmt in FORMATS:
        for rows in (1, 2, 9, 17):
            yield Int16Case(fmt=fmt, kernel=PANEL, rows=rows, n=69, k=BLOCK)
        yield Int16Case(fmt=fmt, kernel=PANEL, rows=3, n=16, k=3 * BLOCK, accumulate=True)
        yield Int16Case(fmt=fmt, kernel=PANEL, rows=2, n=7, k=BLOCK)
        yield Int16Case(fmt=fmt, kernel=ROW, rows=1, n=69, k=3 * BLOCK, accumulate=True)
        yield Int16Case(fmt=fmt, kernel=ROW, rows=3, n=5, k=BLOCK)
    for fmt in KINDS:
        for rows in (3, 4, 5, 6, 7, 8, 15, 16, 127, MOST_ROWS, MOST_ROWS + 1):
            yield Int16Case(fmt=fmt, kernel=PANEL, rows=rows, n=33, k=2 * BLOCK)


@dataclass(frozen=True, kw_only=True)
class MlpCase(Int16Case):
    """A fused MLP; `up` is the second matrix's format."""

    up: str

    def __str__(self) -> str:
        """Name in test ids."""
        return f"{super().__str__()}-{self.up}"


def mlp_cases() -> Iterator[MlpCase]:
    """Two formats of each kind, both ways."""
    for fmt, up in (("q4_k", "q6_k"), ("q6_k", "q4_0"), ("q2_k", "q4_k"), ("q4_0", "q2_k")):
        for kernel, rows in ((MLP_ROW, 2), (MLP_PANEL, 5), (MLP_PANEL, MOST_ROWS + 1)):
            yield MlpCase(fmt=fmt, up=up, kernel=kernel, rows=rows, n=96, k=BLOCK)
