"""The emulator itself: that the CPU is taken for what it is, and that an access too far is seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases_layers import norm_case
from harness import run
from neon.conftest import Open
from neon.emulator import EmulatedRunner, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_the_cpu_is_known(open_library: Open, kernel_library: Path) -> None:
    assert open_library(kernel_library).isa == "neon"


@pytest.mark.parametrize("twins", [False, True], ids=["msl", "twin"])
def test_an_access_out_of_bounds_is_seen(
    open_library: Open, kernel_library: Path, twins: bool
) -> None:
    runner = EmulatedRunner(open_library(kernel_library), twins=twins)
    launch = norm_case(40, 1024).launches[0]
    launch.buffers[1] = np.zeros((8, 1024), np.float32)
    with pytest.raises(RuntimeError, match="the emulated driver ended with status -11"):
        run(runner, [launch])
