"""The device that the kernel tests share."""

from __future__ import annotations

import os

import pytest
from harness import Runner, open_runner


@pytest.fixture(scope="session")
def runner(kernels: str) -> Runner:
    """One device for all kernel tests; it holds nothing between runs but pipelines.

    MTLQWEN_TEST_KERNELS names another library than the one beside the extension.
    """
    return open_runner(os.environ.get("MTLQWEN_TEST_KERNELS", kernels))
