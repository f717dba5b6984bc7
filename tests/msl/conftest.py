"""The kernel library of these tests, built once from kernels/."""

from __future__ import annotations

from pathlib import Path

import pytest
from msl.runner import KernelLibrary

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the library is built."""
    return tmp_path_factory.mktemp("msl")


@pytest.fixture(scope="session")
def library(built: Path) -> KernelLibrary:
    """The library, for the best CPU level of this machine."""
    return KernelLibrary.build(built, metal_dir=KERNELS)
