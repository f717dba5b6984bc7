"""The devices that the kernel tests share."""

from __future__ import annotations

import os

import pytest
from harness import Runner, open_runner
from levels import Level, deselect, levels

LEVELS = [
    pytest.param(level, id=str(level), marks=[] if level.is_core else [pytest.mark.slow])
    for level in levels()
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases run once where their kernel has no twin."""
    deselect(config, items)


@pytest.fixture(scope="session")
def kernels(kernels: str) -> str:
    """MTLQWEN_TEST_KERNELS names another library than the one beside the extension."""
    return os.environ.get("MTLQWEN_TEST_KERNELS", kernels)


@pytest.fixture(scope="session", params=LEVELS)
def runner(request: pytest.FixtureRequest, kernels: str) -> Runner:
    """One device for each way to run kernels; it holds nothing between runs but pipelines."""
    level: Level = request.param
    with pytest.MonkeyPatch.context() as patch:
        level.select(patch)
        return open_runner(kernels)
