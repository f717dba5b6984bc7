"""The tests of tests/kernels once more, on aarch64: MSL and twins."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from again import taking

pytestmark = pytest.mark.slow

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
MODULES = [import_module(path.stem) for path in sorted(KERNELS.glob("test_*.py"))]

globals().update(taking("runner", MODULES))
