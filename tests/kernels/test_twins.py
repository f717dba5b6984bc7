"""Which kernels have twins, and that a device runs the form that the environment asks for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from cases_small import CASES
from harness import Launch, Runner, open_runner, run
from levels import DOT_FILES, TWIN_FILES, TWINS, Level, levels, twin_names
from msl.runner import DOT_TWIN, MSL, KernelLibrary
from mtlqwen import DeviceError
from mtlqwen._core import _testing
from packed_weights import FORMATS as PACKED
from reference import FORMATS

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="kernels run on the GPU there")

# Kernels that need none, and why.
WITHOUT_TWIN = {
    r"linear_\w+_decode_whole_\d": "written in vectors of the host already (metal/wide.h)",
    r"linear_\w+_decode_split_\d": "launched on GPUs alone",
    r"linear_\w+_tile_\d+": "launched on GPUs alone",
}

LEVELS = levels()
CORE = [level for level in LEVELS if level.is_core]


def library_of(kernels: str, level: Level) -> KernelLibrary:
    isa = level.isa.partition("+")[0]
    return KernelLibrary(Path(kernels).with_name(f"kernels.{isa}.so"))


def device_of(kernels: str, level: Level) -> Runner:
    with pytest.MonkeyPatch.context() as patch:
        level.select(patch)
        return open_runner(kernels)


def test_every_kernel_has_a_twin_or_a_reason(kernels: str) -> None:
    without = set(library_of(kernels, LEVELS[0]).names) - TWINS
    reasons = {name: [p for p in WITHOUT_TWIN if re.fullmatch(p, name)] for name in without}
    assert [name for name, patterns in reasons.items() if not patterns] == []
    needed = {pattern for patterns in reasons.values() for pattern in patterns}
    assert needed == set(WITHOUT_TWIN)
    assert [n for n in TWINS if any(re.fullmatch(p, n) for p in WITHOUT_TWIN)] == []


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_every_library_has_all_twins(kernels: str, level: Level) -> None:
    library = library_of(kernels, level)
    forms = {name: library.form(name, twins=True, dot=True) for name in library.names}
    assert {name for name, form in forms.items() if form != MSL} == TWINS
    dot_files = (file for file in TWIN_FILES if file.dot and file.is_for(library.isa))
    dot_twins = {name for file in dot_files for name in twin_names(file)}
    assert {name for name, form in forms.items() if form == DOT_TWIN} == dot_twins


def test_files_to_be_compiled_for_dot_products_exist() -> None:
    assert {file.source.name for file in TWIN_FILES if file.dot} == DOT_FILES


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("fmt", [*FORMATS, *PACKED])
def test_what_is_left_to_gpus_is_never_chosen_here(fmt: str, deterministic: bool) -> None:
    for rows in (1, 2, 3, 4, 7, 8, 9, 16, 33, 128):
        for n in (8, 48, 512, 4096):
            chosen = _testing.choose_linear(fmt, n, 512, rows, True, deterministic)["kernel"]
            assert not re.search("split|tile", chosen)


def results(launches: list[Launch]) -> list[bytes]:
    return [buffer.tobytes() for launch in launches for buffer in launch.buffers]


def ran_by_device(device: Runner, name: str) -> list[bytes]:
    launches = CASES[name]()
    run(device, launches)
    return results(launches)


def ran_directly(library: KernelLibrary, name: str, level: Level) -> list[bytes]:
    launches = CASES[name]()
    for launch in launches:
        library.run(
            launch.kernel,
            launch.constants,
            launch.buffers,
            (*launch.groups, 1),
            launch.threads,
            launch.threadgroup_bytes,
            form=library.form(launch.kernel, twins=level.kernels == "twin", dot="+" in level.isa),
        )
    return results(launches)


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_a_device_runs_the_form_that_was_asked_for(kernels: str, level: Level) -> None:
    library, device = library_of(kernels, level), device_of(kernels, level)
    for name in CASES:
        assert ran_by_device(device, name) == ran_directly(library, name, level), name


def test_the_forms_can_be_told_apart(kernels: str) -> None:
    """By sums in other orders; else the test above would not see a device run the wrong one."""
    msl, twins = (device_of(kernels, level) for level in CORE)
    assert any(ran_by_device(msl, name) != ran_by_device(twins, name) for name in CASES)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MTLQWEN_HOST_KERNELS", "MSL", r"got 'MSL', want auto or msl"),
        ("MTLQWEN_HOST_KERNELS", "twin", r"got 'twin', want auto or msl"),
        ("MTLQWEN_HOST_ISA", "avx3", r"got 'avx3', want avx2, .* or neon"),
        ("MTLQWEN_HOST_ISA", "avx2,vnni", r"got 'avx2,vnni', want avx2"),
    ],
)
def test_unknown_values_are_refused_by_name(
    kernels: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(DeviceError, match=f"{variable}: unknown value \\({message}"):
        open_runner(kernels)


def test_an_instruction_set_of_other_machines_is_refused(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "avx2" if LEVELS[0].isa == "neon" else "neon"
    monkeypatch.setenv("MTLQWEN_HOST_ISA", other)
    with pytest.raises(DeviceError, match=f"MTLQWEN_HOST_ISA: this CPU lacks it \\(got {other}, "):
        open_runner(kernels)
