"""Cases of the kernels between the linears: launches, expected values, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reference_layers as ref
from harness import Buffer, Launch, Runner, check, run
from int16_rows import check_int16, empty_rows
from layer_args import NO_INDEX, NORM, ROWS, Query, pass_struct, record
from numpy.typing import NDArray

Floats = NDArray[np.float32]
EPS = 1e-6
EDGE_ROWS = (1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 128)


@dataclass(frozen=True, kw_only=True)
class LayerCase:
    """Launches in order; then each array must equal its reference within its bound.

    int16_checks: the same for int16 rows.
    """

    name: str
    launches: list[Launch]
    checks: list[tuple[Buffer, ref.Array, ref.Array]]
    moved_bytes: int  # what the launches must read and write, each once
    int16_checks: list[tuple[Buffer, ref.Array, ref.Array]] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name in test ids and benchmark tables."""
        return self.name


def check_case(runner: Runner, case: LayerCase) -> None:
    """Run a case and compare everything that it names."""
    run(runner, case.launches)
    for got, expected, bound in case.checks:
        check(got.reshape(expected.shape), expected, bound)
    for got, expected, bound in case.int16_checks:
        check_int16(got, expected, bound)


def floats(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Floats:
    """Normal float32 numbers."""
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def size(*buffers: Buffer) -> int:
    """Bytes of the buffers together."""
    return sum(buffer.nbytes for buffer in buffers)


def nans(*shape: int) -> Floats:
    """An output nobody has written yet."""
    return np.full(shape, np.nan, np.float32)


def exact(values: Buffer) -> ref.Array:
    """The same numbers in float64."""
    return values.astype(np.float64)


def sound(rows: int) -> Buffer:
    """What `spoilt` holds before a pass."""
    return np.full(rows, NO_INDEX, np.uint32)


def norm_case(rows: int, dim: int, *, int16: bool = False, place: int = 5) -> LayerCase:
    """rms_norm, or rms_norm_int16; row 0 is tiny, so that eps matters."""
    rng = np.random.default_rng(rows * 10007 + dim)
    x, weight = floats(rng, rows, dim), floats(rng, dim) + 1
    x[0] *= 1e-4
    out = nans(rows, dim)
    outs = [out, empty_rows(rows, dim)] if int16 else [out]
    spoilt = sound(rows)
    args = record(NORM, dim=dim, eps=EPS, place=place)
    pass_ = pass_struct([Query(count=rows)])
    kernel = "rms_norm_int16" if int16 else "rms_norm"
    launch = Launch(
        kernel=kernel, buffers=[*outs, x, weight, spoilt, args, pass_], groups=(1, rows)
    )
    expected = ref.rms_norm(exact(x), exact(weight), EPS)
    return LayerCase(
        name=f"{kernel}-{rows}x{dim}",
        launches=[launch],
        checks=[(out, *expected), (spoilt, exact(spoilt), np.zeros(rows))],
        int16_checks=[(outs[1], *expected)] if int16 else [],
        moved_bytes=size(*outs, x, weight),
        arrays={"x": x, "weight": weight, "spoilt": spoilt},
    )


def gather_case(rows: int, dim: int, logit_rows: Sequence[int]) -> LayerCase:
    """gather_rows, exact."""
    rng = np.random.default_rng(rows)
    x = floats(rng, rows, dim)
    chosen = np.array(logit_rows, np.uint32)
    out = nans(len(logit_rows), dim)
    args = record(ROWS, dim=dim)
    pass_ = pass_struct([Query(count=rows)])
    launch = Launch(
        kernel="gather_rows", buffers=[out, x, chosen, args, pass_], groups=(1, len(logit_rows))
    )
    expected = exact(x[chosen])
    return LayerCase(
        name=f"gather_rows-{len(logit_rows)}of{rows}x{dim}",
        launches=[launch],
        checks=[(out, expected, np.zeros_like(expected))],
        moved_bytes=2 * size(out),
    )


def swiglu_case(rows: int, dim: int) -> LayerCase:
    """Swiglu, with gates far outside the range of exp."""
    rng = np.random.default_rng(rows + dim)
    gate, up = floats(rng, rows, dim, scale=3), floats(rng, rows, dim)
    gate[0, :4] = (200.0, -200.0, 3e38, -3e38)
    up[0, :4] = (1.0, 1.0, 1.0, 1.0)
    out = nans(rows, dim)
    args = record(ROWS, dim=dim)
    pass_ = pass_struct([Query(count=rows)])
    launch = Launch(kernel="swiglu", buffers=[out, gate, up, args, pass_], groups=(1, rows))
    expected = ref.swiglu(exact(gate), exact(up))
    return LayerCase(
        name=f"swiglu-{rows}x{dim}",
        launches=[launch],
        checks=[(out, *expected)],
        moved_bytes=size(out, gate, up),
    )
