"""Emulated devices: the kernels of metal/ and of tests/msl, on an aarch64 CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from long import thin
from neon.emulator import (
    EmulatedLibrary,
    EmulatedRunner,
    build_driver,
    build_library,
    why_not,
)

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "kernels"))

from levels import Level, deselect  # noqa: E402

# What needs an emulator is not collected without one; test_emulator.py says why.
collect_ignore_glob = ["test_neon_*.py"] if why_not() else []

CPU = "cortex-a53"  # armv8-a and nothing beyond, which is what the kernels are compiled for
LEVELS = [Level("msl", "neon"), Level("twin", "neon")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases run once where their kernel has no twin, and half of those that are not too large."""
    deselect(config, items)
    thin(config, items, Path(__file__).parent, 2)


Open = Callable[[Path], EmulatedLibrary]


@pytest.fixture(scope="session")
def open_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens a library; all are closed in the end."""
    driver = build_driver(tmp_path_factory.mktemp("driver"))
    opened: list[EmulatedLibrary] = []

    def open_one(library: Path) -> EmulatedLibrary:
        opened.append(EmulatedLibrary(driver, library, CPU))
        return opened[-1]

    yield open_one
    for library in opened:
        library.close()


@pytest.fixture(scope="session")
def kernel_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every metal/*.metal and every twin."""
    return build_library(tmp_path_factory.mktemp("neon"))


@pytest.fixture(scope="session", params=LEVELS, ids=str)
def runner(
    request: pytest.FixtureRequest, open_library: Open, kernel_library: Path
) -> EmulatedRunner:
    """In the place of the device that tests/kernels use."""
    level: Level = request.param
    return EmulatedRunner(open_library(kernel_library), twins=level.kernels == "twin")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, open_library: Open) -> EmulatedLibrary:
    """In the place of the library that tests/msl use."""
    folder = tmp_path_factory.mktemp("msl")
    return open_library(build_library(folder, TESTS / "msl" / "kernels"))
