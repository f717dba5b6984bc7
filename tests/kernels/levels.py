"""The ways in which kernels can run, and which cases each of them needs.

Knows of the tests only the parameters called `runner` and `case`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from msl.runner import MSL_FOLDER, best_isa

sys.path.insert(0, str(MSL_FOLDER))

from twins import DOT_FILES as DOT_FILES
from twins import TWIN_DIR, twin_files
from twins import twin_names as twin_names

TWIN_FILES = twin_files(TWIN_DIR)
TWINS = frozenset(name for file in TWIN_FILES for name in twin_names(file))

# Of a linear case, everywhere but on the best levels of the machine: it costs an emulator a second,
# and its edges are those of smaller ones.
MOST_PRODUCTS = 8_000_000


@dataclass(frozen=True)
class Level:
    """MSL or twins, for one instruction set."""

    kernels: str  # msl, twin; gpu on a machine that has no other choice
    isa: str  # as MTLQWEN_HOST_ISA spells it
    is_core: bool = False  # the best of its kind on this machine

    def __str__(self) -> str:
        """Name in test ids."""
        return f"{self.kernels}-{self.isa}" if self.isa else self.kernels

    def select(self, patch: pytest.MonkeyPatch) -> None:
        """Devices opened from now on run kernels so."""
        if self.isa:
            patch.setenv("MTLQWEN_HOST_KERNELS", "msl" if self.kernels == "msl" else "auto")
            patch.setenv("MTLQWEN_HOST_ISA", self.isa)


def isas() -> list[str]:
    """Values of MTLQWEN_HOST_ISA that this CPU can run, the best first."""
    has = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    best = best_isa()
    if best == "neon":
        return ["neon"]
    vnni = {"avx512": "avx512_vnni", "avx2": "avx_vnni"}
    found = []
    for isa in ("avx512", "avx2") if best == "avx512" else ("avx2",):
        found += [f"{isa}+vnni", isa] if vnni[isa] in has else [isa]
    return found


def levels() -> list[Level]:
    """All of this machine."""
    if sys.platform == "darwin":
        return [Level("gpu", "", True)]
    twins = isas()
    msl = [isa for isa in twins if "+" not in isa]
    return [
        *(Level("msl", isa, isa == msl[0]) for isa in msl),
        *(Level("twin", isa, isa == twins[0]) for isa in twins),
    ]


def is_needed(item: pytest.Item) -> bool:
    """Whether a test shows anything on its level that it does not show on another."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    level, case = params.get("runner"), params.get("case")
    if not isinstance(level, Level) or case is None:
        return True
    kernel = str(case).partition("-")[0]
    if level.kernels == "twin" and kernel not in TWINS:
        return False
    products = case.rows * getattr(case, "n", 1) * getattr(case, "k", 1)
    return level.is_core or products <= MOST_PRODUCTS


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not needed: what a hook of a conftest.py does."""
    kept = [item for item in items if is_needed(item)]
    dropped = [item for item in items if not is_needed(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
