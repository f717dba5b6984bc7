"""The tests of tests/msl once more: fibers, lanes and number formats on aarch64."""

from __future__ import annotations

import pytest
from again import taking
from msl import test_faults, test_lanes, test_values

pytestmark = pytest.mark.slow

# They need the library in their own process.
LEFT_OUT = {
    "test_abort_takes_effect_between_threadgroups_of_faults",
    "test_a_thread_that_ends_gives_back_its_stacks_of_faults",
}

TESTS = taking("library", (test_faults, test_lanes, test_values))
globals().update({name: test for name, test in TESTS.items() if name not in LEFT_OUT})
