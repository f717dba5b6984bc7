"""Says, before anything is built, what this machine lacks and the command that installs it.

Runs under the Python that will make the virtual environment, which may be too old to build: only
the standard library and the syntax of Python 3.7.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

MIN_PYTHON = (3, 10)
MIN_GXX = 12
CPU_FLAGS = ("avx2", "bmi2", "f16c", "fma")  # what the smallest kernel library, x86-64-v3, uses


def output(*command: str) -> str | None:
    """Standard output of a command, or None where it is missing or fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def missing_packages() -> list[str]:
    """Debian's names of the packages that are missing."""
    missing = []
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        missing.append("python3-venv")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        missing.append("python3-dev")
    if output("make", "--version") is None:
        missing.append("make")
    version = output(os.environ.get("CXX", "g++"), "-dumpversion")
    if version is None or int(version.split(".")[0]) < MIN_GXX:
        missing.append("g++")
    return missing


def cpu_problem(machine: str, cpuinfo: str) -> str | None:
    """A sentence where this CPU cannot run the kernels, else None.

    Args:
        machine: As platform.machine() spells it.
        cpuinfo: Text of /proc/cpuinfo.
    """
    if machine not in ("x86_64", "aarch64"):
        return f"[machine] {machine}: not supported (want x86_64 or aarch64)"
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    if machine == "x86_64" and flags:
        lacking = [flag for flag in CPU_FLAGS if flag not in flags.group(1).split()]
        if lacking:
            return (
                f"[machine] this CPU: without {', '.join(lacking)} (want AVX2, x86-64-v3); "
                "use a CPU of 2015 or later, or give the virtual machine its host's CPU model"
            )
    return None


def problems() -> list[str]:
    """Sentences, none where this machine can build and run mtlqwen."""
    if sys.version_info < MIN_PYTHON:
        return [
            f"[python] {sys.executable}: too old (got {platform.python_version()}, want 3.10 or "
            "newer); name another: make PYTHON=python3.11"
        ]
    if sys.platform == "darwin":
        if output("xcrun", "-sdk", "macosx", "--find", "metal") is None:
            return ["[xcrun] metal: no Metal compiler; install Xcode 26"]
        return []
    found = []
    missing = missing_packages()
    if missing:
        found.append(
            f"[packages] missing: {', '.join(missing)}; apt-get install {' '.join(missing)}"
        )
    if "g++" in missing:
        found.append(f"[packages] g++: want {MIN_GXX} or newer; CXX=name names another compiler")
    problem = cpu_problem(platform.machine(), Path("/proc/cpuinfo").read_text())
    return [*found, problem] if problem else found


def main() -> int:
    """Prints the problems; the exit status says whether there are any."""
    found = problems()
    for line in found:
        print(f"mtlqwen: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
