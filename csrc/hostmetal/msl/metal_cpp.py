"""Compiles the runtime, syntax only, against Apple's unmodified metal-cpp.

What hostmetal offers must be what Apple offers. The headers (Apache-2.0) come from the wheel of the
PyPI package mlx-metal, downloaded once into the build folder. The system headers that they mention
are the stubs of apple_stubs/.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from build_kernels import HERE
from toolchain import Toolchain, ToolError, run

ROOT = HERE.parents[2]
PACKAGE = "mlx-metal==0.32.4"
ROOMS = ("base", "io", "gpu", "cache", "model", "engine")
_INSIDE = "mlx/include/metal_cpp/"
_FLAGS = ["-x", "c++", "-std=c++20", "-fblocks", "-fsyntax-only", "-fno-color-diagnostics"]


def fetch_headers(folder: Path) -> Path:
    """Return the folder of Metal/Metal.hpp, downloading it if it is not there."""
    headers = folder / "metal_cpp"
    if (headers / "Metal" / "Metal.hpp").exists():
        return headers
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
               "--no-deps", "--platform", "macosx_26_0_arm64", "--only-binary", ":all:",
               "--dest", str(wheels), PACKAGE]  # fmt: skip
    run(command, what=f"download of {PACKAGE}")
    for wheel in wheels.glob("*.whl"):
        _unpack(wheel, headers)
        wheel.unlink()
    if not (headers / "Metal" / "Metal.hpp").exists():
        raise ToolError(f"[msl] {PACKAGE}: the wheel has no {_INSIDE}Metal/Metal.hpp")
    return headers


def _unpack(wheel: Path, headers: Path) -> None:
    """Extract the headers; Metal.hpp comes last: where it is, all are."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(_INSIDE)]
        for name in sorted(names, key=lambda name: name.endswith("Metal/Metal.hpp")):
            target = headers / name[len(_INSIDE) :]
            if name.endswith("/"):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def runtime_sources() -> list[Path]:
    """Return the .cpp files that a Mac compiles."""
    return [path for room in ROOMS for path in sorted((ROOT / "csrc" / room).glob("*.cpp"))]


def check_runtime_file(tools: Toolchain, source: Path, headers: Path) -> list[str]:
    """Return the errors of one file."""
    includes = ["-isystem", str(HERE / "apple_stubs"), "-isystem", str(headers)]
    own = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'metal'}"]
    command = [*tools.compiler, *_FLAGS, *includes, *own, str(source)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode == 0:
        return []
    return list(_error_lines(said.stderr.splitlines())) or [f"{source}: {said.stderr.strip()}"]


def _error_lines(lines: Iterable[str]) -> Iterable[str]:
    return (line for line in lines if re.search(r": (fatal )?error: ", line))
