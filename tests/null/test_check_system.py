"""The check that runs before anything is built."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

V3 = "flags\t\t: fpu sse2 avx avx2 bmi1 bmi2 f16c fma movbe\n"


@pytest.fixture(scope="module")
def check(root: Path) -> ModuleType:
    """tools/check_system.py as a module."""
    spec = importlib.util.spec_from_file_location("check_system", root / "tools/check_system.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_cpu_without_avx2_is_told_so(check: ModuleType) -> None:
    problem = check.cpu_problem("x86_64", V3.replace(" avx2", ""))
    assert "without avx2" in problem
    assert "want AVX2" in problem


@pytest.mark.parametrize(
    ("machine", "cpuinfo"), [("x86_64", V3), ("aarch64", "Features\t: fp asimd\n")]
)
def test_supported_cpus_pass(check: ModuleType, machine: str, cpuinfo: str) -> None:
    assert check.cpu_problem(machine, cpuinfo) is None


def test_other_machines_are_named(check: ModuleType) -> None:
    assert "riscv64" in check.cpu_problem("riscv64", "")


def test_missing_packages_come_with_their_apt_line(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(check, "output", lambda *_command: None)
    monkeypatch.setattr(check.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    assert check.main() == 1
    assert "apt-get install python3-venv python3-dev make g++" in capsys.readouterr().err


def test_an_old_compiler_counts_as_missing(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "output", lambda *command: "11" if "-dumpversion" in command else "")
    assert "g++" in check.missing_packages()


def test_an_old_python_is_named(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    assert "want 3.10" in check.problems()[0]
