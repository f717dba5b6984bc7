"""Writes python/mtlqwen/_core.pyi from the built extension, or checks the committed one."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path

from nanobind.stubgen import StubGen, load_pattern_file

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "python/mtlqwen/_core.pyi"


def generate() -> str:
    """Text of the stub that the installed extension asks for."""
    module = importlib.import_module("mtlqwen._core")
    generator = StubGen(
        module=module, quiet=True, patterns=load_pattern_file(str(ROOT / "src/stub_patterns.txt"))
    )
    generator.put(module)
    lines = [line.rstrip() for line in generator.get().splitlines()]
    return "\n".join(lines).strip() + "\n"


def difference() -> str:
    """Committed stub against the one generated now, as a unified difference; empty where equal."""
    committed = STUB.read_text(encoding="utf-8") if STUB.exists() else ""
    return "".join(
        difflib.unified_diff(
            committed.splitlines(keepends=True),
            generate().splitlines(keepends=True),
            "python/mtlqwen/_core.pyi",
            "generated",
        )
    )


def main(arguments: list[str]) -> int:
    """Writes the stub; with --check prints the difference and fails where there is one."""
    if arguments != ["--check"]:
        STUB.write_text(generate(), encoding="utf-8")
        return 0
    found = difference()
    print(found + "run `make stub` and commit" if found else "stub: current")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
