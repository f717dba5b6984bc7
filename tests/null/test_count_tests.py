"""The line that closes `make test` and the continuous integration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CASES = {
    "good": "<testsuites><testsuite><testcase/><testcase/></testsuite></testsuites>",
    "bad": "<testsuite><testcase><failure/></testcase><testcase><skipped/></testcase></testsuite>",
    "broken": "<testsuite><testcase><error/></testcase></testsuite>",
    "none": "<testsuite/>",
}


def count(root: Path, tmp_path: Path, *names: str) -> tuple[str, int]:
    """Last line and exit status of tools/count_tests.py for the named reports."""
    reports = []
    for name in names:
        reports.append(str(tmp_path / f"{name}.xml"))
        Path(reports[-1]).write_text(CASES[name])
    command = [sys.executable, str(root / "tools/count_tests.py"), *reports]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1], done.returncode


def test_passes_are_a_success(root: Path, tmp_path: Path) -> None:
    assert count(root, tmp_path, "good") == ("2 passed, 0 failed, 0 skipped", 0)


def test_failures_and_errors_are_no_success(root: Path, tmp_path: Path) -> None:
    expected = ("2 passed, 2 failed, 1 skipped", 1)
    assert count(root, tmp_path, "good", "bad", "broken") == expected


def test_no_test_is_no_success(root: Path, tmp_path: Path) -> None:
    assert count(root, tmp_path, "none") == ("0 passed, 0 failed, 0 skipped", 1)
