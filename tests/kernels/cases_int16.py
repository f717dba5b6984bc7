"""Cases of the kernels that take int16 rows: linears, and the fused gate and up of the MLP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cases import ACCUMULATE, SIZES, pass_of
from harness import Buffer, Launch
from int16_rows import QBLOCK, empty_rows, quantise
from packed_weights import UP_FORMAT, format_constants, kernel_format
from reference import random_weights

FORMATS = ("q8_0",)
EDGE_ROWS = (*range(1, 18), 31, 127, 128, 129)
RAGGED = (1, 8, 31, 33, 64, 250)  # outputs


@dataclass(frozen=True)
class Int16Kernel:
    """What a grid must know of one kernel."""

    role: str  # linear, mlp
    family: str  # row, panel
    rows: int  # of a threadgroup
    outputs: int

    def __str__(self) -> str:
        """Name in test ids."""
        return f"{self.role}_{self.family}"

    def name(self, fmt: str) -> str:
        """Of the kernel of a format."""
        return f"{self.role}_{kernel_format(fmt)}_int16_{self.family}"

    def launch(
        self,
        fmt: str,
        buffers: list[Buffer],
        rows: int,
        n: int,
        accumulate: bool = False,
        up: str = "",
    ) -> Launch:
        """The dispatch over (rows, n) outputs; `up` is the second format where it differs."""
        constants = format_constants(fmt) | format_constants(up or fmt, UP_FORMAT)
        return Launch(
            kernel=self.name(fmt),
            buffers=buffers,
            groups=(-(-n // self.outputs), -(-rows // self.rows)),
            constants={ACCUMULATE: accumulate, **constants} if self.role == "linear" else constants,
        )


ROW = Int16Kernel("linear", "row", 1, 64)
PANEL = Int16Kernel("linear", "panel", 128, 32)
MLP_ROW = Int16Kernel("mlp", "row", 1, QBLOCK)
MLP_PANEL = Int16Kernel("mlp", "panel", 128, QBLOCK)


def chain(k: int) -> int:
    """Roundings of the longest path from a qblock's product to the result.

    One of the product, one for each qblock at most, four where 16 sums are folded. The dot of a
    qblock's bytes is exact.
    """
    return k // QBLOCK + 1 + 4


@dataclass(frozen=True, kw_only=True)
class Int16Case:
    """One linear layer, or one fused MLP, with int16 rows."""

    fmt: str
    kernel: Int16Kernel
    rows: int
    n: int
    k: int
    accumulate: bool = False

    def __str__(self) -> str:
        """Name in test ids and benchmark tables."""
        name = f"{self.kernel.name(self.fmt)}-{self.fmt}"
        return f"{name}-{self.rows}x{self.n}x{self.k}" + ("-add" if self.accumulate else "")


def int16_buffers(out: Buffer, x: Buffer, weights: list[Buffer], n: int, k: int) -> list[Buffer]:
    """Buffers of every kernel here; x are int16 rows."""
    return [out, x, *weights, np.array([k, n], np.uint32), pass_of(len(x))]


def linear_cases() -> Iterator[Int16Case]:
    """Edges of rows, of outputs and of k: an odd number of qblocks, more than a panel holds."""
    for fmt in FORMATS:
        for rows in EDGE_ROWS:
            yield Int16Case(fmt=fmt, kernel=PANEL, rows=rows, n=69, k=512)
        for kernel in (ROW, PANEL):
            for n in RAGGED:
                for k in (32, 96, 1056, 2048 + 32):
                    yield Int16Case(fmt=fmt, kernel=kernel, rows=3, n=n, k=k, accumulate=n % 2 == 0)
        for hidden, intermediate, *_ in SIZES.values():
            for k in (hidden, intermediate):
                yield Int16Case(fmt=fmt, kernel=ROW, rows=1, n=77, k=k, accumulate=True)
                yield Int16Case(fmt=fmt, kernel=PANEL, rows=11, n=45, k=k)


def mlp_cases() -> Iterator[Int16Case]:
    """Edges of rows and of k; one block of outputs and several."""
    for fmt in FORMATS:
        for rows in (1, 2, 7, 8, 9, 128, 129):
            yield Int16Case(fmt=fmt, kernel=MLP_PANEL, rows=rows, n=96, k=256)
        for kernel in (MLP_ROW, MLP_PANEL):
            for k in (32, 96, 512, 1056):
                for n in (32, 160):
                    yield Int16Case(fmt=fmt, kernel=kernel, rows=3, n=n, k=k)


def random_launch(case: Int16Case, seed: int = 0) -> Launch:
    """A case with random weights and rows, and an output that nobody wrote."""
    rng = np.random.default_rng(seed)
    x = quantise(rng.standard_normal((case.rows, case.k)).astype(np.float32))
    is_mlp = case.kernel.role == "mlp"
    weights = [random_weights(rng, case.fmt, case.n, case.k).stored for _ in range(1 + is_mlp)]
    out: Buffer = np.full((case.rows, case.n), np.nan, np.float32)
    if is_mlp:
        out = empty_rows(case.rows, case.n)
    buffers = int16_buffers(out, x, weights, case.n, case.k)
    return case.kernel.launch(case.fmt, buffers, case.rows, case.n, case.accumulate)
