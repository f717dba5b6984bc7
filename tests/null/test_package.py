"""The package as it is installed: version, stub, errors, what importing it loads."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import mtlqwen
import pytest
from mtlqwen import _core

DEPENDENCIES = {"numpy", "tokenizers", "huggingface-hub", "jinja2"}


def test_version_has_one_source(root: Path) -> None:
    header = (root / "csrc/base/version.hpp").read_text(encoding="utf-8")
    match = re.search(r'kVersion\[\] = "([^"]+)"', header)
    assert match
    assert _core.__version__ == match[1]
    assert mtlqwen.__version__ == match[1]
    assert importlib.metadata.version("mtlqwen") == match[1]


def test_runtime_dependencies_are_the_four_declared() -> None:
    lines = importlib.metadata.requires("mtlqwen") or []
    required = [line for line in lines if "extra ==" not in line]
    assert {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in required} == DEPENDENCIES


def test_build_requirements_are_listed_alike(root: Path) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["dependency-groups"]["build"] == project["build-system"]["requires"]


def test_committed_stub_is_current(root: Path) -> None:
    command = [sys.executable, str(root / "tools/make_stub.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_is_typed() -> None:
    assert (Path(mtlqwen.__file__).parent / "py.typed").is_file()


def test_public_names_exist() -> None:
    assert [name for name in mtlqwen.__all__ if not hasattr(mtlqwen, name)] == []
    assert len(set(mtlqwen.__all__)) == len(mtlqwen.__all__)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("FormatError", ValueError),
        ("ModelError", ValueError),
        ("CapacityError", RuntimeError),
        ("DeviceError", RuntimeError),
    ],
)
def test_errors_are_exported(name: str, base: type[Exception]) -> None:
    error = getattr(mtlqwen, name)
    assert name in mtlqwen.__all__
    assert issubclass(error, mtlqwen.MtlqwenError)
    assert issubclass(error, base)


def test_native_errors_take_the_python_class(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"NOPE" * 8)
    with pytest.raises(mtlqwen.FormatError, match=r"^\[gguf\]"):
        _core.read_gguf_metadata(str(path))


def test_import_loads_no_dependency() -> None:
    code = "import sys, mtlqwen; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "mtlqwen" in loaded
    assert loaded.isdisjoint({"numpy", "tokenizers", "huggingface_hub", "jinja2", "httpx"})
    assert loaded.isdisjoint({"llguidance", "pydantic"})
