"""What every benchmark shares: where it ran, medians with their spread, a table and a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mtlqwen import __version__

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Spread:
    """Measured several times: the median counts, the rest tells how far to trust it."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        """Median and range, with three digits that count."""
        return f"{self.median:.4g} ({self.low:.4g} to {self.high:.4g})"


Cell = str | int | float | Spread


@dataclass
class Report:
    """A table that grows line by line on the terminal, and is a JSON file at the end."""

    name: str
    columns: tuple[str, ...]
    rows: list[dict[str, Cell]] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)  # beside the table, in the file only

    def add(self, *cells: Cell) -> None:
        """Append and print one line, in the order of the columns."""
        if not self.rows:
            print("  ".join(f"{column:>24}" for column in self.columns))
        self.rows.append(dict(zip(self.columns, cells, strict=True)))
        print("  ".join(f"{_text(cell):>24}" for cell in cells), flush=True)

    def write(self, path: Path | None) -> None:
        """Write all of it where a path is given."""
        if path is None:
            return
        rows = [plain(row) for row in self.rows]
        report = {"benchmark": self.name, **environment(), **plain(self.facts), "rows": rows}
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def plain(cells: Mapping[str, object]) -> dict[str, object]:
    """What JSON can hold."""
    return {key: asdict(cell) if isinstance(cell, Spread) else cell for key, cell in cells.items()}


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def environment() -> dict[str, object]:
    """Machine, commit and versions."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cpu": _cpu(),
            "cores": cores(),
            "system": platform.platform(),
            "load": [round(load, 2) for load in os.getloadavg()],
        },
        "commit": _commit(),
        "versions": {"mtlqwen": __version__, "python": platform.python_version()},
    }


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Commit of the working copy, with a plus where files differ; empty outside of one."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return said.stdout.strip()


Option = str | int | float | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]


def parse(doc: str | None, **options: Option) -> argparse.Namespace:
    """Parse the command line of a benchmark: its own options with their defaults, and --json.

    Args:
        doc: docstring of the benchmark.
        options: default of each option; a tuple of defaults is an option with several values.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    for name, default in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, tuple):
            shown = " ".join(map(str, default))
            kind = type(default[0])
            parser.add_argument(
                flag, type=kind, nargs="+", default=default, help=f"default: {shown}"
            )
        else:
            shown = f"default: {default!r}"
            parser.add_argument(flag, type=type(default), default=default, help=shown)
    parser.add_argument("--json", type=Path, help="also write the results here")
    return parser.parse_args()


@contextmanager
def reported(name: str, columns: tuple[str, ...], path: Path | None) -> Iterator[Report]:
    """A report that is written when the block ends well."""
    report = Report(name, columns)
    yield report
    report.write(path)
