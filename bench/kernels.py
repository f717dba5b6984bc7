"""Speed of every kernel: bytes moved, time, bandwidth, and its share of measured ceilings.

The cases are those of `tests/kernels`. The copy runs on the same device through the same path, the
read is a plain loop; both move more than a cache holds, so a case that stays within a cache, as
most do, may exceed them. --from-memory adds linears over more weights than a cache holds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from mtlqwen import _core

from bench.ceilings import read_gb_per_s
from bench.report import cores, environment

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kernels"))

from bench_layers import SIZES as LAYER_SIZES
from bench_layers import choice_bench, layer_bench
from bench_linear import copy_bench, int16_case, linear_bench, linear_case
from cases import SIZES
from harness import Launch, Runner, open_runner, run
from packed_weights import FORMATS as PACKED
from reference import FORMATS

ROUNDS = 7  # the best one counts
MEMORY_WEIGHTS = 256 << 20  # of a linear that no cache holds
MIN_ROUND_S = 2e-3  # a round repeats its launches until it takes this long


class Bench(Protocol):
    """What the case tables offer."""

    @property
    def launches(self) -> list[Launch]:
        """In order."""

    @property
    def moved_bytes(self) -> int:
        """What the launches must read and write, each once."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One line of the table."""

    case: str
    moved_bytes: int
    microseconds: float
    gb_per_s: float
    copy_fraction: float
    read_fraction: float
    gmac_per_s: float  # 0 where not counted


def seconds(runner: Runner, launches: Sequence[Launch]) -> float:
    """Best time of the launches, barriers included."""
    once = run(runner, launches)
    repeat = max(1, int(MIN_ROUND_S / max(once, 1e-7)))
    return min(run(runner, launches, repeat) / repeat for _ in range(ROUNDS))


def measure(runner: Runner, case: Bench, copy_gb_per_s: float, read: float) -> Measured:
    """Time one case."""
    time_s = seconds(runner, case.launches)
    gb_per_s = case.moved_bytes / time_s / 1e9
    return Measured(
        case=str(case),
        moved_bytes=case.moved_bytes,
        microseconds=round(time_s * 1e6, 2),
        gb_per_s=round(gb_per_s, 2),
        copy_fraction=round(gb_per_s / copy_gb_per_s, 3),
        read_fraction=round(gb_per_s / read, 3),
        gmac_per_s=round(getattr(case, "macs", 0) / time_s / 1e9, 2),
    )


def memory_bench(size: str, fmt: str, software: bool) -> Iterator[Bench]:
    """What linears of decoding reach where the weights come from memory."""
    hidden = SIZES[size][0]
    outputs = MEMORY_WEIGHTS // hidden // 128 * 128
    for rows in (1, 2, 4, 8):
        yield linear_case(fmt, rows, outputs, hidden, software)
        if software and (case := int16_case(fmt, rows, outputs, hidden)):
            yield case


def cases(size: str, fmt: str, gpu_launches: bool, from_memory: bool) -> Iterator[Bench]:
    """All of one size; layer kernels have cases of two sizes only."""
    if size in LAYER_SIZES:
        yield from choice_bench(size)
    yield from linear_bench(size, fmt, software=not gpu_launches)
    if size in LAYER_SIZES:
        yield from layer_bench(size)
    if from_memory:
        yield from memory_bench(size, fmt, software=not gpu_launches)


def main() -> None:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    parser.add_argument("--format", choices=(*FORMATS, *PACKED), default="q8_0")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--gpu-launches", action="store_true", help="the table's rows for GPUs")
    parser.add_argument("--from-memory", action="store_true", help="add cases beyond the caches")
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()

    runner = open_runner(str(Path(str(_core.__file__)).with_name("kernels.metallib")))
    copy = copy_bench()
    copy_gb_per_s = copy.moved_bytes / seconds(runner, copy.launches) / 1e9
    read = read_gb_per_s(cores()).high
    print(f"copy bandwidth: {copy_gb_per_s:.1f} GB/s (read and written)")
    print(f"read bandwidth: {read:.1f} GB/s")
    print(f"{'case':52} {'KiB':>9} {'us':>10} {'GB/s':>7} {'copy':>6} {'read':>6} {'GMAC/s':>7}")
    results = []
    for case in cases(options.size, options.format, options.gpu_launches, options.from_memory):
        if options.only not in str(case):
            continue
        line = measure(runner, case, copy_gb_per_s, read)
        results.append(line)
        macs = f"{line.gmac_per_s:7.2f}" if line.gmac_per_s else " " * 7
        print(
            f"{line.case:52} {line.moved_bytes / 1024:9.1f} {line.microseconds:10.2f} "
            f"{line.gb_per_s:7.2f} {line.copy_fraction:6.1%} "
            f"{line.read_fraction:6.1%} {macs}",
            flush=True,
        )
    if options.json:
        report = {
            "benchmark": "kernels",
            **environment(),
            "copy_gb_per_s": copy_gb_per_s,
            "read_gb_per_s": read,
            "model": f"{options.size} {options.format}",
            "rows": [asdict(line) for line in results],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
