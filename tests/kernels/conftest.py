"""The device that the kernel tests share."""

from __future__ import annotations

import pytest
from harness import Runner, open_runner


@pytest.fixture(scope="session")
def runner(kernels: str) -> Runner:
    """One device for all kernel tests; it holds nothing between runs but pipelines."""
    return open_runner(kernels)
