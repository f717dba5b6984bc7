"""Fixtures that every test may use, and the profiles of hypothesis."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of Ctrl-C
# need Python's own handler, here and in the processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """Top level of the project."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def kernels() -> str:
    """Path of the kernel library as `_core.Engine` takes it, beside the extension."""
    from mtlqwen import _core

    assert _core.__file__
    return str(Path(_core.__file__).parent / "kernels.metallib")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest slow tests first: towards the end processes take short ones from each other."""

    def limit(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout") if item.get_closest_marker("slow") else None
        return float(mark.args[0]) if mark else 0.0

    items.sort(key=limit, reverse=True)
