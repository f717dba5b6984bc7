"""The test of tests/kernels/test_schedules.py once more: fibers in random order on aarch64."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_schedules
from again import taking
from neon.conftest import Open
from neon.emulator import EmulatedLibrary

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(open_library: Open, kernel_library: Path) -> EmulatedLibrary:
    """In the place of the library that the package ships."""
    return open_library(kernel_library)


globals().update(taking("library", [test_schedules]))
