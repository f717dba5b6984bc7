"""Every benchmark runs and writes what it prints; none of these tests looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TINY_SETTINGS = {
    "kernels": ["--only", "rms_norm"],
    "decode": ["--tokens", "3", "--rounds", "1"],
    "prefill": ["--prompts", "8", "130", "--rounds", "1"],
    "batch": [
        *("--sequences", "1", "3", "--prompt", "4", "--tokens", "3", "--rounds", "1"),
        *("--arriving-prompt", "140", "--arriving", "1", "--prefill-shares", "1.0", "0.125"),
    ],
    "overhead": ["--sequences", "1", "3", "--passes", "2", "--rounds", "1"],
}
N_ROWS = {"decode": 1, "prefill": 2, "batch": 4, "overhead": 4}


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", TINY_SETTINGS)
def test_benchmark_runs_and_writes_json(name: str, root: Path, tmp_path: Path) -> None:
    written = tmp_path / "bench.json"
    said = run(root, name, *TINY_SETTINGS[name], "--json", str(written))
    assert said.returncode == 0, said.stderr
    report = json.loads(written.read_text(encoding="utf-8"))
    assert report["benchmark"] == name
    assert {"machine", "commit", "versions", "time"} <= report.keys()
    assert report["machine"]["cores"] >= 1
    if name in N_ROWS:
        assert len(report["rows"]) == N_ROWS[name]
    assert report["rows"]
    spreads = [cell for row in report["rows"] for cell in row.values() if isinstance(cell, dict)]
    assert all(cell["low"] <= cell["median"] <= cell["high"] for cell in spreads)
    assert spreads or name == "kernels"


def test_unknown_name_is_refused_with_the_names(root: Path) -> None:
    said = run(root, "speed")
    assert said.returncode == 2
    assert all(name in said.stderr for name in TINY_SETTINGS)


def test_make_runs_every_benchmark(root: Path) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    line = next(line for line in makefile.splitlines() if "-m bench" in line)
    assert all(name in line for name in TINY_SETTINGS)
