"""Cases of the embedding and linear kernels: one table for the tests and for `bench`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from harness import Buffer, Launch
from packed_weights import format_constants, kernel_format
from reference import FORMATS, random_weights

SIMDGROUPS = 0  # function constants of metal/linear_*.metal
ACCUMULATE = 1
EDGE_ROWS = (1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129)
TILE_OUTPUTS, TILE_BYTES = 32, 4608  # of a simdgroup


@dataclass(frozen=True)
class LinearKernel:
    """What a grid must know of one kernel, and the longest chain of its additions."""

    family: str  # decode_whole, decode_split, tile
    width: int  # rows of a threadgroup
    outputs: int  # of a thread (whole), a simdgroup (split, tile)
    threads: int = 32

    @property
    def outputs_per_group(self) -> int:
        """Outputs of one threadgroup."""
        per_simdgroup = {"decode_whole": self.threads, "decode_split": 1, "tile": self.simdgroups}
        return self.outputs * per_simdgroup[self.family]

    @property
    def simdgroups(self) -> int:
        """Of a threadgroup."""
        return -(-self.threads // 32)

    def name(self, fmt: str) -> str:
        """Of the kernel of a format."""
        return f"linear_{kernel_format(fmt)}_{self.family}_{self.width}"

    def chain(self, k: int) -> int:
        """Roundings of the longest path from a product to the result."""
        if self.family == "decode_whole":
            return k // 8 + 3  # 8 running sums, folded in halves
        if self.family == "decode_split":
            return -(-k // 512) * 4 + 2 + 5  # 4 sums in each of 32 lanes, folded; simd_sum
        return k  # fragment products: 8 terms each, in any order

    def launch(
        self, fmt: str, buffers: list[Buffer], rows: int, n: int, accumulate: bool
    ) -> Launch:
        """The dispatch over (rows, n) outputs."""
        groups = (-(-n // self.outputs_per_group), -(-rows // self.width))
        return Launch(
            kernel=self.name(fmt),
            buffers=buffers,
            groups=groups,
            threads=self.threads,
            threadgroup_bytes=TILE_BYTES * self.simdgroups if self.family == "tile" else 0,
            constants={
                SIMDGROUPS: self.simdgroups, ACCUMULATE: accumulate, **format_constants(fmt)
            },
        )  # fmt: skip


WHOLE = {w: LinearKernel("decode_whole", w, o) for w, o in ((1, 8), (2, 4), (4, 4), (8, 2))}
SPLIT = {w: LinearKernel("decode_split", w, o) for w, o in ((1, 4), (2, 4), (4, 2), (8, 1))}
TILE = {w: LinearKernel("tile", w, TILE_OUTPUTS, threads=64) for w in (8, 16, 32)}
FAMILIES = {"decode_whole": WHOLE, "decode_split": SPLIT, "tile": TILE}


@dataclass(frozen=True, kw_only=True)
class LinearCase:
    """One linear layer."""

    fmt: str
    kernel: LinearKernel
    rows: int
    n: int
    k: int
    accumulate: bool = False

    def __str__(self) -> str:
        """Name in test ids and benchmark tables."""
        name = f"{self.kernel.name(self.fmt)}-{self.fmt}"
        return f"{name}-{self.rows}x{self.n}x{self.k}" + ("-add" if self.accumulate else "")


def linear_buffers(out: Buffer, x: Buffer, stored: Buffer, n: int, k: int) -> list[Buffer]:
    """Buffers of every linear kernel; the rows of the pass are those of x."""
    args = np.array([k, n], np.uint32)
    return [out, x, stored, args, pass_of(len(x))]


def pass_of(rows: int) -> Buffer:
    """A Pass with this many rows."""
    return np.array([rows, 0, 0, 0, 0, 0, 0, 0], np.uint32)


# hidden size, intermediate size, attention heads of 256, GDN v heads of 128
SIZES = {
    "tiny": (512, 1536, 4, 8),
    "0.8B": (1024, 3584, 8, 16),
    "2B": (2048, 6144, 8, 16),
    "4B": (2560, 9216, 16, 32),
    "9B": (4096, 12288, 16, 32),
    "27B": (5120, 17408, 24, 48),
}


def size_shapes(size: str) -> Iterator[tuple[int, int]]:
    """(n, k) of a size's projections: the real k; n cut to three tiles and a ragged one."""
    hidden, intermediate, heads, v_heads = SIZES[size]
    ragged = 3 * 2 * TILE_OUTPUTS + 13
    yield ragged, hidden
    yield ragged, intermediate
    yield ragged, heads * 256  # o_proj; equals the k of the GDN layers' out_proj
    yield v_heads, hidden  # in_proj_a, in_proj_b: their real n


def edge_cases() -> Iterator[LinearCase]:
    """Every kernel at every edge of its row tiles; three groups of outputs and a ragged one."""
    for fmt in FORMATS:
        for kernels in FAMILIES.values():
            for kernel in kernels.values():
                widest = max(kernels)
                rows = [r for r in EDGE_ROWS if kernel.width == widest or r <= 2 * kernel.width + 1]
                for count in rows:
                    n = 3 * kernel.outputs_per_group + 5
                    yield LinearCase(fmt=fmt, kernel=kernel, rows=count, n=n, k=512)


def size_cases() -> Iterator[LinearCase]:
    """The widest kernels at the real k of every size, few and many rows."""
    for size in SIZES:
        for n, k in dict.fromkeys(size_shapes(size)):
            for fmt in ("bf16", "q8_0"):
                yield LinearCase(fmt=fmt, kernel=WHOLE[1], rows=1, n=n, k=k)
                yield LinearCase(fmt=fmt, kernel=WHOLE[8], rows=11, n=n, k=k, accumulate=True)
                yield LinearCase(fmt=fmt, kernel=SPLIT[1], rows=1, n=n, k=k, accumulate=True)
                yield LinearCase(fmt=fmt, kernel=SPLIT[4], rows=3, n=n, k=k)
                yield LinearCase(fmt=fmt, kernel=TILE[8], rows=5, n=n, k=k, accumulate=True)
                yield LinearCase(fmt=fmt, kernel=TILE[32], rows=33, n=n, k=k)


def small_k_cases() -> Iterator[LinearCase]:
    """The smallest k, fewer chunks than lanes, and fewer outputs than one thread sums."""
    for fmt in FORMATS:
        for k in (32, 96, 544):
            for kernel in (WHOLE[1], WHOLE[8], SPLIT[1], SPLIT[8], TILE[8], TILE[32]):
                for n in (1, 8):
                    yield LinearCase(fmt=fmt, kernel=kernel, rows=kernel.width + 1, n=n, k=k)


@dataclass(frozen=True, kw_only=True)
class EmbedCase:
    """One look-up of rows in a table."""

    fmt: str
    rows: int
    dim: int
    n_tokens: int = 37

    def __str__(self) -> str:
        """Name in test ids and benchmark tables."""
        return f"embed_{kernel_format(self.fmt)}-{self.fmt}-{self.rows}x{self.dim}"

    def launch(self, out: Buffer, ids: Buffer, stored: Buffer) -> Launch:
        """The dispatch over all rows."""
        args = np.array([self.dim, self.n_tokens], np.uint32)
        buffers = [out, ids, stored, args, pass_of(self.rows)]
        return Launch(
            kernel=f"embed_{kernel_format(self.fmt)}",
            buffers=buffers,
            groups=(1, self.rows),
            constants=format_constants(self.fmt),
        )


def embed_cases() -> Iterator[EmbedCase]:
    """Edge rows at one width, and every size's width."""
    for fmt in FORMATS:
        for rows in EDGE_ROWS:
            yield EmbedCase(fmt=fmt, rows=rows, dim=512)
        for hidden, *_ in SIZES.values():
            yield EmbedCase(fmt=fmt, rows=3, dim=hidden)
        yield EmbedCase(fmt=fmt, rows=2, dim=32)


def random_linear(case: LinearCase, seed: int = 0) -> tuple[Buffer, Buffer, Buffer]:
    """Input, stored weights and an output that nobody wrote, for timing."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((case.rows, case.k)).astype(np.float32)
    stored = random_weights(rng, case.fmt, case.n, case.k).stored
    return x, stored, np.full((case.rows, case.n), np.nan, np.float32)
