"""No report over the cases of all kernels; and each barrier, each length is there for a reason."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from harness import Launch
from house import ROOT
from msl.watcher import Kind, Report, ShadowLibrary
from shadow.table import all_cases, as_the_engine_binds, watch

pytestmark = pytest.mark.slow

METAL = ROOT / "metal"
BARRIER = re.compile(r"\b((?:threadgroup|simdgroup)_barrier)\([^()]*\);")
# Kernels whose first buffer goes on behind what they touch: the bank, the splits of a short row.
ENDS_LATER = ("gdn_conv_state", "gdn_replay", "attention_split")


def barriers() -> list[tuple[str, int]]:
    """File and line of every barrier in metal/."""
    return [
        (path.name, number)
        for path in sorted([*METAL.glob("*.metal"), *METAL.glob("*.h")])
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"_barrier\s*\(", line.split("//")[0])
    ]


def reports_of(library: ShadowLibrary, launches: list[Launch]) -> list[Report]:
    """Of launches that follow each other, those whose kernels the library has."""
    known = [launch for launch in launches if launch.kernel in library.names]
    return [report for launch in known for report in watch(library, launch)]


@pytest.mark.parametrize("name", all_cases())
def test_no_report(library: ShadowLibrary, name: str) -> None:
    reports = reports_of(library, as_the_engine_binds(all_cases()[name]()))
    assert not reports, "\n".join(map(str, reports))


def test_every_kernel_has_a_case(library: ShadowLibrary) -> None:
    named = {launch.kernel for case in all_cases().values() for launch in case()}
    assert named == set(library.names)


def test_one_byte_less_is_out_of_bounds(library: ShadowLibrary) -> None:
    """So every kernel's accesses are watched: none is of a width that the compiler leaves out."""
    found: dict[str, set[int]] = defaultdict(set)
    for case in all_cases().values():
        for launch in case():
            if launch.kernel in found:
                continue
            for index, buffer in enumerate(launch.buffers):
                flat = buffer.reshape(-1).view("u1")
                launch.buffers[index] = flat[:-1].copy()
                reports = watch(library, launch)
                launch.buffers[index] = buffer
                assert {(r.kind, r.buffer) for r in reports} <= {(Kind.OUT_OF_BOUNDS, index)}
                found[launch.kernel] |= {report.buffer for report in reports}
    assert found.keys() == set(library.names)
    for kernel, buffers in found.items():
        assert (0 in buffers) != kernel.startswith(ENDS_LATER), kernel
    assert all(found.values())
    assert all(2 in buffers for kernel, buffers in found.items() if kernel.startswith("linear_"))


def mutant(file: str, line: int, barrier: str, folder: Path) -> Path:
    """A copy of metal/ with another barrier in one line; of the .metal files only what has it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wanted = "*.h" if file.endswith(".metal") else "*"
    for path in [*METAL.glob(wanted), METAL / file]:
        shutil.copy(path, folder)
    lines = (METAL / file).read_text().splitlines()
    lines[line - 1], count = BARRIER.subn(barrier, lines[line - 1])
    assert count == 1
    (folder / file).write_text("\n".join(lines) + "\n")
    return folder


# What stands in place of a barrier, and what the shadow build may call that.
CHANGES = {
    "removed": ("", {Kind.RACE, Kind.SIMDGROUP_RACE, Kind.MEM_FLAGS, Kind.UNINITIALISED}),
    "without flags": (r"\1(mem_flags::mem_none);", {Kind.MEM_FLAGS}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("file", "line"), barriers())
def test_a_barrier_is_missed(
    shadow_output: Path, tmp_path: Path, file: str, line: int, change: str
) -> None:
    barrier, kinds = CHANGES[change]
    # One folder for all: the runtime is compiled once.
    metal = mutant(file, line, barrier, shadow_output / "mutant")
    built = shadow_output / "mutants"
    ShadowLibrary.build(built, metal_dir=metal)
    # The loader knows a library by its path.
    (path,) = built.glob("kernels.*.so")
    library = ShadowLibrary(path.rename(tmp_path / path.name))
    for case in all_cases().values():
        if any(report.kind in kinds for report in reports_of(library, case())):
            return
    pytest.fail(f"the cases do not show what the barrier of {file}:{line} is for")
