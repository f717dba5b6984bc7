"""Adds up JUnit reports and prints one line, `N passed, N failed, N skipped`."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count(reports: list[Path]) -> tuple[int, int, int]:
    """Passed, failed and skipped test cases of all reports."""
    passed = failed = skipped = 0
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped


def main(arguments: list[str]) -> int:
    """Counts the reports named; a report that is missing, or no test at all, is a failure."""
    passed, failed, skipped = count([Path(argument) for argument in arguments])
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
