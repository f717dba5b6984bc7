"""The comparison with a peer, which a small script stands in for: no network, no time looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAKE = Path(__file__).with_name("fake_peer.py")
SMALL = [
    *("--prompt", "8", "--tokens", "3", "--sequences", "2", "--rounds", "2"),
    *("--busy", "0", "1", "--busy-tokens", "2", "--busy-rounds", "1"),
]


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    peer = ["--peer-python", sys.executable, "--peer-worker", str(FAKE)]
    return subprocess.run(
        [sys.executable, "-m", "bench", "peers", *peer, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    written = tmp_path_factory.mktemp("peers") / "peers.json"
    said = run(root, *SMALL, "--json", str(written))
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    return found


def test_each_work_has_a_line_idle_and_busy(report: dict[str, Any]) -> None:
    assert [(row["work"], row["busy"]) for row in report["rows"]] == [
        (work, busy)
        for busy in (0, 1)
        for work in (
            "prefill 8, tokens/s",
            "decode alone, tokens/s",
            "decode, 2 together, tokens/s",
            "2 rows against 1, time",
        )
    ]


def test_lines_hold_both_sides_and_their_ratio(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        n_rounds = 1 if row["busy"] else 2
        assert row["mtlqwen"]["n"] == row["fake"]["n"] == n_rounds
        assert row["mtlqwen"]["median"] > 0
        if row["ratio"]:
            low = row["mtlqwen"]["low"] / row["fake"]["high"]
            high = row["mtlqwen"]["high"] / row["fake"]["low"]
            assert low * 0.999 <= row["ratio"]["median"] <= high * 1.001


def test_passes_and_rows_are_what_the_rates_are_made_of(report: dict[str, Any]) -> None:
    prefill, alone, together, _ = (row["fake"]["high"] for row in report["rows"][:4])
    # A pass of the fake sleeps for a millisecond at least: 8 prompt tokens, 1 row, 2 rows.
    assert prefill <= 8000
    assert alone <= 1000
    assert 1.0 < together <= 2000


def test_first_tokens_are_compared(report: dict[str, Any]) -> None:
    counts = {row["work"]: row["same first tokens"] for row in report["rows"] if not row["busy"]}
    assert counts["prefill 8, tokens/s"] == "0/2"  # the fake chooses token 0
    assert counts["decode, 2 together, tokens/s"] == "0/4"


def test_the_peer_and_the_model_are_named(report: dict[str, Any]) -> None:
    assert report["peer"] == "fake 1.0"
    assert report["model"] == "tiny-qwen3.5-Q8_0.gguf"


def test_what_a_worker_says_is_wrong_reaches_the_terminal(root: Path, tmp_path: Path) -> None:
    from bench.drive import TINY

    broken = tmp_path / "broken"
    broken.symlink_to(TINY)
    said = run(root, *SMALL, "--model", str(broken))
    assert said.returncode != 0
    assert "RuntimeError: no such model" in said.stderr


def test_a_worker_that_is_missing_is_an_error(root: Path) -> None:
    said = run(root, *SMALL, "--peer-worker", "no_such_file.py")
    assert said.returncode != 0
    assert "the process has ended" in said.stderr
