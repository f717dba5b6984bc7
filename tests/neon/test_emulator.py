"""The emulator itself: which CPUs it shows, and that a wrong access is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from neon.conftest import CPUS, Open
from neon.emulator import why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_the_cpus_differ_in_dotprod(open_library: Open, kernel_library: Path) -> None:
    found = {isa: open_library(kernel_library, isa).isas for isa in CPUS}
    assert found == {"neon": ["neon"], "neon+dotprod": ["neon", "neon+dotprod"]}
