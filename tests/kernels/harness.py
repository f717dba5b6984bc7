"""How a kernel is run and compared: launches on one device, then elementwise bounds and NMSE.

Knows nothing of any kernel. Cases come from the `cases*` modules and serve the tests and `bench`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Buffer = NDArray[np.generic]
Float64 = NDArray[np.float64]

UNIT = 2.0**-24  # unit roundoff of float32


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One dispatch. The buffers stand in [[buffer]] order and are updated in place."""

    kernel: str
    buffers: list[Buffer]
    groups: tuple[int, int]
    threads: int = 32
    threadgroup_bytes: int = 0
    constants: Mapping[int, bool | int | float] = field(default_factory=dict)


class Runner(Protocol):
    """`mtlqwen._core._testing.KernelRunner`."""

    gpu_seconds: float  # of the last run
    kernel_names: list[str]

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
        """Copy the buffers in, dispatch `repeat` times with barriers between, copy them out."""


def open_runner(kernels: str) -> Runner:
    """A device with the library `kernels` open; what is missing raises, nothing is skipped."""
    from mtlqwen._core import _testing

    runner: Runner = _testing.KernelRunner(kernels)
    return runner


def run(runner: Runner, launches: Sequence[Launch], repeat: int = 1) -> float:
    """Run the launches in order; returns the seconds that the device took."""
    seconds = 0.0
    for launch in launches:
        # Bytes: the device knows neither structs nor which float a buffer holds.
        as_bytes = [buffer.reshape(-1).view(np.uint8) for buffer in launch.buffers]
        runner.run(
            launch.kernel,
            dict(launch.constants),
            as_bytes,
            (*launch.groups, 1),
            launch.threads,
            launch.threadgroup_bytes,
            repeat,
        )
        seconds += runner.gpu_seconds
    return seconds


def nmse(got: Buffer, expected: Float64, scale: Float64 | None = None) -> float:
    """Mean squared error over the mean square of `scale`, by default of the expected values."""
    error = got.astype(np.float64) - expected
    power = float(np.mean(np.square(expected if scale is None else scale)))
    return float(np.mean(np.square(error))) / power


def check(got: Buffer, expected: Float64, bound: Float64 | float) -> None:
    """Fail unless every |got - expected| <= bound, NaN standing exactly where NaN is expected."""
    assert got.shape == expected.shape, f"shape {got.shape}, want {expected.shape}"
    values = got.astype(np.float64)
    both_nan = np.isnan(values) & np.isnan(expected)
    error = np.where(both_nan, 0.0, np.abs(values - expected))
    wrong = ~(error <= bound)  # also where the error is NaN
    if wrong.any():
        excess = np.where(wrong, np.nan_to_num(error, nan=np.inf, posinf=np.inf), -1.0)
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        at = tuple(int(i) for i in worst)
        limit = float(np.broadcast_to(bound, error.shape)[worst])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} values out of bounds; worst at {at}: "
            f"got {values[worst]!r}, want {expected[worst]!r} +- {limit:.3g}"
        )
