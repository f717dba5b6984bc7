"""Shadow builds, each made once: of the project's kernels and of the planted mistakes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from long import thin
from msl.watcher import ShadowLibrary

if TYPE_CHECKING:
    from harness import Runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A third of the cases that run on other devices as they stand."""
    thin(config, items, Path(__file__).with_name("test_kernel_tests.py"), 3)


@pytest.fixture(scope="session")
def shadow_output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the project's kernels are built."""
    return tmp_path_factory.mktemp("shadow")


@pytest.fixture(scope="session")
def library(shadow_output: Path) -> ShadowLibrary:
    """Every metal/*.metal."""
    return ShadowLibrary.build(shadow_output)


@pytest.fixture(scope="session")
def runner(library: ShadowLibrary) -> Runner:
    """In the place of the device that tests/kernels use."""
    from shadow.table import ShadowRunner

    return ShadowRunner(library)


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> ShadowLibrary:
    """The kernels beside these tests."""
    return ShadowLibrary.build(
        tmp_path_factory.mktemp("planted"), metal_dir=Path(__file__).parent / "kernels"
    )
