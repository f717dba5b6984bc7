"""kill -9 while checkpoints are written, often: nothing wrong is ever found."""

from __future__ import annotations

import subprocess

import pytest
from house import ROOT

ROUNDS = 200


@pytest.mark.slow
def test_writers_killed_two_hundred_times() -> None:
    program = ROOT / "build/editable/cpp_test_disk_store_kill"  # `make` builds it
    run = subprocess.run([program, "", str(ROUNDS)], capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{ROUNDS} rounds:" in run.stdout
