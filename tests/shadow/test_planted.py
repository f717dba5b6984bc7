"""Mistakes that the shadow build must find, and kernels in which there is none."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from build_kernels import default_isas
from msl.runner import CHECK_SHUFFLE, MSL_FOLDER, KernelLibrary
from msl.watcher import Kind, Report, ShadowLibrary

pytestmark = pytest.mark.slow

KERNELS = Path(__file__).parent / "kernels"
Finds = set[tuple[Kind, int]]


def kernel_names(file: str) -> list[str]:
    """Kernels of a file, in its order."""
    return re.findall(r"^kernel void (\w+)", (KERNELS / file).read_text(), re.MULTILINE)


def wanted() -> dict[str, Finds]:
    """What the comments of bugs.metal say, by kernel."""
    finds: dict[str, Finds] = defaultdict(set)
    kernel = ""
    for number, line in enumerate((KERNELS / "bugs.metal").read_text().splitlines(), 1):
        if match := re.match(r"kernel void (\w+)", line):
            kernel = match[1]
        if match := re.search(r"// found: ([A-Z_ ]+)$", line):
            finds[kernel] |= {(Kind[kind], number) for kind in match[1].split()}
    return finds


def watch(library: ShadowLibrary, kernel: str, seed: int | None = None) -> list[Report]:
    """Run a kernel as its file says; a seed shuffles threads and threadgroups."""
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    return library.watch(
        kernel,
        {},
        [x, y, np.zeros(1, np.uint32)],
        (4, 1, 1),
        64,
        256,
        check=0 if seed is None else CHECK_SHUFFLE,
        seed=seed or 0,
    )


def test_the_planted_mistakes_are_of_every_kind() -> None:
    finds = wanted()
    assert list(finds) == kernel_names("bugs.metal")
    assert {kind for found in finds.values() for kind, _ in found} == set(Kind)


@pytest.mark.parametrize("kernel", kernel_names("bugs.metal"))
def test_a_planted_mistake_is_found(planted: ShadowLibrary, kernel: str) -> None:
    reports = watch(planted, kernel)
    assert {(report.kind, report.line) for report in reports} == wanted()[kernel]


@pytest.mark.parametrize("kernel", kernel_names("bugs.metal"))
def test_a_planted_mistake_is_found_in_any_order(planted: ShadowLibrary, kernel: str) -> None:
    for seed in range(4):
        reports = watch(planted, kernel, seed)
        assert {report.kind for report in reports} & {kind for kind, _ in wanted()[kernel]}


@pytest.mark.parametrize("kernel", kernel_names("controls.metal"))
def test_a_right_kernel_has_no_report(planted: ShadowLibrary, kernel: str) -> None:
    assert watch(planted, kernel) == []
    for seed in range(4):
        assert watch(planted, kernel, seed) == []


def test_what_the_order_hides_is_found(planted: ShadowLibrary) -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    planted.run("hidden_by_order", {}, [x, y, np.zeros(1, np.uint32)], (1, 1, 1), 64)
    assert y.tolist() == [0.0, *x[:-1]]


def test_a_report_names_both_accesses(planted: ShadowLibrary) -> None:
    (report,) = watch(planted, "device_flag_for_threadgroup_memory")
    text = (KERNELS / "bugs.metal").read_text().splitlines()
    assert text[report.line - 1].startswith("  y[i] = s[63 - t];")
    assert text[report.other_line - 1] == "  s[t] = x[i];"
    assert text[report.barrier_line - 1] == "  threadgroup_barrier(mem_flags::mem_device);"
    assert (report.buffer, report.bytes, report.is_write) == (-1, 4, False)
    assert sum(report.threads) == 63
    assert str(report) == (
        f"device_flag_for_threadgroup_memory: bugs.metal:{report.line}: read of 4 bytes, "
        f"threadgroup memory at {report.offset}, thread {report.threads[0]} of threadgroup 0: the "
        f"barrier between two accesses does not name this memory; before: bugs.metal:"
        f"{report.other_line}, thread {report.threads[1]} of threadgroup 0; the barrier stands in "
        f"line {report.barrier_line}"
    )


def test_a_report_names_the_helper_and_its_caller(planted: ShadowLibrary) -> None:
    report = watch(planted, "no_simdgroup_barrier_in_helper")[-1]
    assert [place.file for place in report.where][:2] == ["exchange.h", "bugs.metal"]


def test_where_an_access_out_of_bounds_went(planted: ShadowLibrary) -> None:
    (before,) = watch(planted, "read_before_buffer")
    assert (before.buffer, before.offset, before.bytes, before.is_write) == (0, -4, 4, False)
    (across,) = watch(planted, "vector_beyond_buffer")
    assert (across.buffer, across.offset, across.bytes) == (0, 1020, 16)


def test_results_are_those_of_the_other_builds(planted: ShadowLibrary) -> None:
    x, y, count = (
        np.arange(256, dtype=np.float32),
        np.zeros(256, np.float32),
        np.zeros(1, np.uint32),
    )
    assert planted.watch("reversed", {}, [x, y, count], (4, 1, 1), 64) == []
    assert np.array_equal(y.reshape(4, 64), x.reshape(4, 64)[:, ::-1])
    y[:] = 0
    planted.run("reversed", {}, [x, y, count], (4, 1, 1), 64)  # without being watched
    assert np.array_equal(y.reshape(4, 64), x.reshape(4, 64)[:, ::-1])


def test_both_builds_share_a_folder(tmp_path: Path) -> None:
    sources = tmp_path / "metal"
    sources.mkdir()
    (sources / "one.metal").write_text(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void one(device float* y [[buffer(0)]]) { y[0] = 1.0f; }\n"
    )
    script = MSL_FOLDER / "build_kernels.py"
    command = [sys.executable, str(script), "--output", str(tmp_path), "--metal-dir", str(sources)]
    isa = default_isas()[0]
    for options, name in ([], f"kernels.{isa}.so"), (["--shadow"], f"kernels.{isa}.shadow.so"):
        done = subprocess.run([*command, "--isa", isa, *options], capture_output=True, check=True)
        assert done.stdout.decode().split() == [str(tmp_path / name)]
    fast, watched = np.zeros(1, np.float32), np.zeros(1, np.float32)
    KernelLibrary(tmp_path / f"kernels.{isa}.so").run("one", {}, [fast], (1, 1, 1), 1)
    shadow = ShadowLibrary(tmp_path / f"kernels.{isa}.shadow.so")
    assert [r.kind for r in shadow.watch("one", {}, [watched], (2, 1, 1), 1)] == [Kind.THREADGROUPS]
    assert fast == watched == 1
    with pytest.raises(AttributeError, match="msl_shadow"):
        ShadowLibrary(tmp_path / f"kernels.{isa}.so")
