"""The device that the kernel tests share."""

from __future__ import annotations

import os

import pytest
from harness import Runner, open_runner


@pytest.fixture(scope="session")
def library(kernels: str) -> str:
    """Path of the kernels: those beside the extension, or those MTLQWEN_TEST_KERNELS names."""
    return os.environ.get("MTLQWEN_TEST_KERNELS", kernels)


@pytest.fixture(scope="session")
def runner(library: str) -> Runner:
    """One device for all kernel tests; it holds nothing between runs but pipelines."""
    return open_runner(library)
