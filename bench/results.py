"""Makes bench/RESULTS.md from the JSON files in bench/results: `python -m bench results`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.report import ROOT, Spread

INTRODUCTION = """\
# Results of the benchmarks

Made from the JSON files in `bench/results` by `python -m bench results`; `docs/performance.md` says
what the figures mean and how to measure. A cell is a median with its range over the rounds. Where
a machine is shared with others, compare figures of one table only.
"""
COMMON = {"benchmark", "time", "machine", "commit", "versions", "rows"}  # of every file


def cell(value: object) -> str:
    """Text of one figure."""
    if isinstance(value, dict):
        return str(Spread(**value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(rows: Sequence[dict[str, object]]) -> Iterator[str]:
    """Lines of a table; the rows have the same keys."""
    yield "| " + " | ".join(rows[0]) + " |"
    yield "|" + "---|" * len(rows[0])
    for row in rows:
        yield "| " + " | ".join(map(cell, row.values())) + " |"


def section(report: dict[str, Any]) -> Iterator[str]:
    """Lines about one file: where and when, what stands beside the table, the table."""
    machine = report["machine"]
    model = report.get("model")
    yield f"## {report['benchmark']}" + (f": {model}" if model else "")
    yield ""
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load'][0]:g}; "
        f"commit {report['commit'] or 'unknown'}, {report['time']}, "
        + ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    )
    yield ""
    facts = {key: value for key, value in report.items() if key not in COMMON | {"model"}}
    if facts:
        yield "; ".join(f"{key}: {cell(value)}" for key, value in facts.items())
        yield ""
    yield from table(report["rows"])


def document(reports: Sequence[dict[str, Any]]) -> str:
    """The whole file."""
    parts = [INTRODUCTION] + ["\n".join(section(report)) + "\n" for report in reports]
    return "\n".join(parts)


def main() -> None:
    """Write the file anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "bench/results", help="JSON files in reading order"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "bench/RESULTS.md")
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.json"))
    if not paths:
        parser.error(f"{options.folder} holds no JSON file")
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    options.output.write_text(document(reports), encoding="utf-8")


if __name__ == "__main__":
    main()
