"""The build driver: what it builds again, and how it reports what goes wrong."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest
from msl.runner import MSL_FOLDER, KernelLibrary

sys.path.insert(0, str(MSL_FOLDER))

import toolchain
from build_kernels import build
from check_metal import Gate
from strict import check_kernel_file
from tokens import MslError
from toolchain import Toolchain, ToolError, find_toolchain

KERNEL = """#include <metal_stdlib>
#include "value.h"
using namespace metal;
kernel void fill(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = VALUE;
}
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with one kernel file and a header."""
    folder = tmp_path / "metal"
    folder.mkdir()
    (folder / "fill.metal").write_text(KERNEL)
    (folder / "value.h").write_text("#define VALUE 1.0f\n")
    return folder


def filled(library: KernelLibrary) -> float:
    out = np.zeros(1, np.float32)
    library.run("fill", {}, [out], (1, 1, 1), 1)
    return float(out[0])


def test_only_what_changed_is_built_again(sources: Path, tmp_path: Path) -> None:
    output = tmp_path / "one"
    assert filled(KernelLibrary.build(output, metal_dir=sources)) == 1.0
    times = {path: path.stat().st_mtime_ns for path in output.rglob("*.o")}
    KernelLibrary.build(output, metal_dir=sources)
    assert times == {path: path.stat().st_mtime_ns for path in output.rglob("*.o")}
    (sources / "value.h").write_text("#define VALUE 2.0f\n")
    # The loader knows the first library by its path: copy the second elsewhere.
    KernelLibrary.build(output, metal_dir=sources)
    (library,) = output.glob("kernels.*.so")
    assert filled(KernelLibrary(library.rename(tmp_path / "second.so"))) == 2.0
    changed = [path.name for path in times if path.stat().st_mtime_ns != times[path]]
    assert {name.split(".")[0] for name in changed} == {"fill", "runtime-table"}


def test_a_file_can_be_overridden(sources: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.metal"
    wrong.write_text(KERNEL.replace("VALUE", "VALUE + 40.0f"))
    output = tmp_path / "two"
    library = KernelLibrary.build(output, metal_dir=sources, overrides=[f"fill.metal={wrong}"])
    assert filled(library) == 41.0
    with pytest.raises(ToolError, match="want NAME=FILE"):
        build(output, metal_dir=sources, overrides=["other.metal=x"])


def test_one_symbol_is_exported(library: KernelLibrary, built: Path) -> None:
    (path,) = built.glob("kernels.*.so")
    handle = ctypes.CDLL(str(path))
    assert callable(handle.msl_library)
    for name in ("msl_kernels", "msl_entry_values_0"):
        with pytest.raises(AttributeError):
            getattr(handle, name)
    assert library.names == sorted(library.names)


def test_errors_have_the_lines_of_the_kernel_file(sources: Path, tmp_path: Path) -> None:
    (sources / "fill.metal").write_text(KERNEL.replace("VALUE", "nothing"))
    with pytest.raises(ToolError, match=r"(?s)fill\.metal.*fill\.metal:5:\d+: error: .*nothing"):
        build(tmp_path / "three", metal_dir=sources)
    (sources / "fill.metal").write_text(KERNEL.replace("VALUE", "1.0"))
    with pytest.raises(MslError, match=r"fill\.metal:5: float literal 1\.0"):
        build(tmp_path / "three", metal_dir=sources)


def test_two_files_cannot_define_one_kernel(sources: Path, tmp_path: Path) -> None:
    (sources / "again.metal").write_text(KERNEL)
    with pytest.raises(MslError, match="kernel fill is defined in two files"):
        build(tmp_path / "four", metal_dir=sources)


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "clang++"
    old.write_text("#!/bin/sh\necho clang version 18.1.8\n")
    old.chmod(0o755)
    (tmp_path / "g++").symlink_to(old)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_zig", lambda: None)
    with pytest.raises(ToolError, match=r"no clang >= 19 on PATH .* pip install ziglang"):
        find_toolchain()
    old.write_text("#!/bin/sh\necho clang version 19.1.7\n")
    assert find_toolchain().compiler == (str(old),)


# The gate of check_metal.py must not take a failure of its own for a rejection.

GOOD = KERNEL.replace('#include "value.h"\n', "").replace("VALUE", "1.0f")


def test_a_wrong_kernel_must_fail_for_its_reason(tmp_path: Path) -> None:
    gate = Gate(find_toolchain(), tmp_path / "scratch", 1)
    wrong = tmp_path / "wrong.metal"
    body = "#ifdef FIXED\n" + GOOD + "#else\n" + GOOD.replace("1.0f", "missing") + "#endif\n"
    wrong.write_text("// expect: undeclared identifier 'missing'\n" + body)
    assert gate.wrong([wrong]) == []
    wrong.write_text("// expect: a lambda\n" + body)
    (problem,) = gate.wrong([wrong])
    assert "rejected, but not for 'a lambda'" in problem
    wrong.write_text("// expect: undeclared\n" + GOOD)
    (problem,) = gate.wrong([wrong])
    assert "accepted, want" in problem
    wrong.write_text("// expect: undeclared\n" + GOOD.replace("1.0f", "missing"))
    (problem,) = gate.wrong([wrong])
    assert "still wrong when FIXED" in problem
    wrong.write_text(GOOD)
    (problem,) = gate.wrong([wrong])
    assert "begins with '// expect: '" in problem


def test_a_compiler_that_cannot_check_is_an_error(tmp_path: Path) -> None:
    good = tmp_path / "good.metal"
    good.write_text(GOOD)
    assert check_kernel_file(find_toolchain(), good, tmp_path) == []
    # As `ziglang c++` does: preprocesses, then knows no such language.
    broken = tmp_path / "broken"
    real = " ".join(find_toolchain().compiler)
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *clcpp*) echo "error: no such language" >&2; exit 1;; esac\n'
        f'exec {real} "$@"\n'
    )
    broken.chmod(0o755)
    tools = Toolchain((str(broken),), ("g++",), "broken")
    with pytest.raises(ToolError, match="failed without a diagnostic"):
        check_kernel_file(tools, good, tmp_path)
