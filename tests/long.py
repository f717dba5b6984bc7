"""The long mode: MTLQWEN_TEST_LONG=1 makes slow tests of drawn cases draw many more of them."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

LONG = os.environ.get("MTLQWEN_TEST_LONG", "") == "1"


def draws(usual: int, long: int) -> int:
    """How many cases a slow test draws: `usual`, or `long` in the long mode."""
    return long if LONG else usual


def thin(config: pytest.Config, items: list[pytest.Item], where: Path, one_in: int) -> None:
    """Of each function's cases in a folder or file keep one in so many; the long mode keeps all.

    Which ones depends on their names alone. Elsewhere the same cases run on other devices.
    """
    if LONG:
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if where in (item.path, *item.path.parents):
            cases[item.nodeid.split("[")[0]].append(item)
    dropped = []
    for of_one in cases.values():
        ranked = sorted(of_one, key=lambda item: crc32(item.name.encode()))
        dropped += ranked[-(-len(ranked) // one_in) :]
    gone = set(map(id, dropped))
    items[:] = [item for item in items if id(item) not in gone]
    config.hook.pytest_deselected(items=dropped)
