"""Every benchmark runs and writes what it prints; none of these tests looks at a time."""

from __future__ import annotations

import json
import os
import re
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
    "cache": [
        *("--prompt", "200", "--rounds", "1", "--steps", "0.01"),
        *("--intervals", "64", "--block-tokens", "64"),
    ],
    "rows": ["--rows", "1", "3", "--rounds", "1", "--by-kernel", "1"],
    "overhead": ["--sequences", "1", "3", "--passes", "2", "--rounds", "1"],
    "load": ["--rounds", "1"],
    "spec": ["--kinds", "facts", "--together", "1", "--rounds", "1", "--max-tokens", "9"],
    "ceilings": ["--threads", "1", "2", "--rounds", "1"],
}
N_ROWS = {
    "spec": 5,
    "decode": 1,
    "rows": 2,
    "prefill": 2,
    "batch": 4,
    "overhead": 4,
    "load": 4,
    "ceilings": 2,
}
FAKE_VALGRIND = """#!/bin/sh
# The arguments: two options, Python, the driver, the model, the number of tokens.
test "$MTLQWEN_HOST_ISA" = avx2 || exit 1
echo "==1== Collected : $((7000000 + 3000000 * $6))" >&2
"""


def run(root: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=root,
        env=os.environ | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
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
    assert report["benchmark"].split()[0] == name
    assert {"machine", "commit", "versions", "time"} <= report.keys()
    assert report["machine"]["cores"] >= 1
    if name in N_ROWS:
        assert len(report["rows"]) == N_ROWS[name]
    assert report["rows"]
    spreads = [cell for row in report["rows"] for cell in row.values() if isinstance(cell, dict)]
    assert all(cell["low"] <= cell["median"] <= cell["high"] for cell in spreads)
    assert spreads or name == "kernels"


@pytest.mark.parametrize("part", ["kinds", "idle", "acceptance", "widths", "texts", "sampling"])
def test_every_part_of_spec_runs(part: str, root: Path, tmp_path: Path) -> None:
    written = tmp_path / "bench.json"
    settings = ["--kinds", "facts", "--together", "1", "--rounds", "1", "--max-tokens", "9"]
    said = run(root, "spec", "--part", part, *settings, "--json", str(written))
    assert said.returncode == 0, said.stderr
    report = json.loads(written.read_text(encoding="utf-8"))
    assert report["benchmark"] == f"spec {part}"
    assert report["rows"]


def test_unknown_name_is_refused_with_the_names(root: Path) -> None:
    said = run(root, "speed")
    assert said.returncode == 2
    assert all(name in said.stderr for name in TINY_SETTINGS)


def test_instructions_are_the_difference_of_two_runs(root: Path, tmp_path: Path) -> None:
    valgrind = tmp_path / "valgrind"
    valgrind.write_text(FAKE_VALGRIND)
    valgrind.chmod(0o755)
    written = tmp_path / "instructions.json"
    said = run(root, "instructions", "--tokens", "4", "--json", str(written), path=str(tmp_path))
    assert said.returncode == 0, said.stderr
    rows = json.loads(written.read_text(encoding="utf-8"))["rows"]
    assert [row["kernels"] for row in rows] == ["msl", "auto"]
    assert [row["million instructions/token"] for row in rows] == [3.0, 3.0]


def test_what_callgrind_would_count_decodes_so_many_tokens(root: Path) -> None:
    from bench.drive import TINY

    driver = root / "bench/workers/decode.py"
    command = [sys.executable, str(driver), str(TINY), "5"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert len(said.stdout.split()) == 1 + 5  # the first one ends the prompt


def test_results_are_made_from_the_files(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "json"
    folder.mkdir()
    for number, rounds in enumerate(("1", "2")):
        settings = ["--threads", "1", "--rounds", rounds, "--json", f"{folder}/{number}.json"]
        assert run(root, "ceilings", *settings).returncode == 0
    made = tmp_path / "RESULTS.md"
    said = run(root, "results", "--folder", str(folder), "--output", str(made))
    assert said.returncode == 0, said.stderr
    text = made.read_text(encoding="utf-8")
    assert text.count("| threads | read GB/s |") == 2
    assert len(re.findall(r"^\| 1 \| [\d.]+ \([\d.]+ to [\d.]+\) \|$", text, re.MULTILINE)) == 2


def test_the_committed_results_are_those_of_the_committed_files(root: Path, tmp_path: Path) -> None:
    made = tmp_path / "RESULTS.md"
    assert run(root, "results", "--output", str(made)).returncode == 0
    assert made.read_bytes() == (root / "bench/RESULTS.md").read_bytes()


def test_results_of_an_empty_folder_are_refused(root: Path, tmp_path: Path) -> None:
    said = run(root, "results", "--folder", str(tmp_path))
    assert said.returncode == 2
    assert "no JSON file" in said.stderr


def test_make_runs_every_benchmark(root: Path) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    line = next(line for line in makefile.splitlines() if "-m bench" in line)
    assert all(name in line for name in TINY_SETTINGS)
