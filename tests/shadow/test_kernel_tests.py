"""The tests of tests/kernels once more, in the shadow build: same values, no report.

Those of the linear kernels are too large; test_kernels.py has smaller ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import test_attention
import test_embed
import test_gdn
import test_norm
import test_sample

pytestmark = pytest.mark.slow

MODULES = (test_attention, test_embed, test_gdn, test_norm, test_sample)


def on_a_device() -> dict[str, Callable[..., None]]:
    """Tests that want a device, by names that no two modules share."""
    return {
        f"{name}_of_{module.__name__.removeprefix('test_')}": test
        for module in MODULES
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and "runner" in inspect.signature(test).parameters
    }


globals().update(on_a_device())
