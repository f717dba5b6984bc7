"""The long mode: MTLQWEN_TEST_LONG=1 makes slow tests of drawn cases draw many more of them."""

from __future__ import annotations

import os

LONG = os.environ.get("MTLQWEN_TEST_LONG", "") == "1"


def draws(usual: int, long: int) -> int:
    """How many cases a slow test draws: `usual`, or `long` in the long mode."""
    return long if LONG else usual
