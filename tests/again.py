"""Tests of other folders, to be collected once more under other fixtures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType


def taking(fixture: str, modules: Sequence[ModuleType]) -> dict[str, Callable[..., None]]:
    """Tests that take `fixture`, by names that no two modules share."""
    return {
        f"{name}_of_{module.__name__.rpartition('test_')[2]}": test
        for module in modules
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and fixture in inspect.signature(test).parameters
    }
