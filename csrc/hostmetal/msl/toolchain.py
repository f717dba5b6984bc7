"""Finds the compiler for kernels.

A clang of version 19 or later, else the one inside the PyPI package ziglang.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MINIMUM = 19
NEWEST = 25  # clang++-25 .. clang++-19 are tried by name before a plain clang++


class ToolError(Exception):
    """A tool is missing or failed."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How to call the compiler and the linker."""

    compiler: tuple[str, ...]  # a clang driver in C++ mode needs -x c++ to be given
    linker: tuple[str, ...]
    description: str

    def compile(self, arguments: list[str], *, what: str) -> str:
        """Run the compiler, return its standard output."""
        return run([*self.compiler, *arguments], what=what)


def run(command: list[str], *, what: str) -> str:
    """Run `command`; a failure becomes one ToolError with what the tool said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"[msl] {what}: cannot start {command[0]} ({error})") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise ToolError(f"[msl] {what}: {Path(command[0]).name} failed\n{said}")
    return done.stdout


def find_toolchain(machine: str = "") -> Toolchain:
    """Return the first compiler that will do.

    Args:
        machine: What the products run on, as platform.machine() spells it; else this machine.
    """
    here = platform.machine()
    triple = f"{machine or here}-linux-gnu"
    is_cross = machine not in ("", here)
    linker = _linker(f"{triple}-" if is_cross else "")
    target = f"--target={triple}"
    for name in [*(f"clang++-{n}" for n in range(NEWEST, MINIMUM - 1, -1)), "clang++"]:
        path = shutil.which(name)
        if path and _version(path) >= MINIMUM:
            clang = (path, target) if is_cross else (path,)
            return Toolchain(clang, (linker,), f"{name} {_version(path)}")
    zig = _zig()
    if not zig:
        raise ToolError(
            f"[msl] compiler: no clang >= {MINIMUM} on PATH and no package ziglang; "
            "pip install ziglang"
        )
    headers = str(zig.parent / "lib" / "include")
    command = (str(zig), "clang", target, "-isystem", headers)
    return Toolchain(command, (linker,), f"ziglang clang ({zig})")


def _linker(prefix: str) -> str:
    for name in ("g++", "c++"):
        path = shutil.which(prefix + name)
        if path:
            return path
    package = f"g++-{prefix[:-1]}" if prefix else "g++ 12 or later"
    raise ToolError(f"[msl] linker: no {prefix}g++ on PATH; install {package}")


def _version(path: str) -> int:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"clang version (\d+)", said)
    # Apple numbers its clang differently, and no kernel library is built there.
    return int(match[1]) if match and "Apple" not in said else 0


def _zig() -> Path | None:
    spec = importlib.util.find_spec("ziglang")
    if not spec or not spec.submodule_search_locations:
        return None
    for location in spec.submodule_search_locations:
        path = Path(location) / "zig"
        if os.access(path, os.X_OK):
            return path
    return None
