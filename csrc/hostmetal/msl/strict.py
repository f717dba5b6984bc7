"""Checks a kernel file for what Apple's compiler would reject, without that compiler.

The rewritten file is compiled, syntax only, as C++ for OpenCL: device, constant, threadgroup and
thread become four address spaces that do not convert into each other. What that language allows and
Metal does not is found in the rewriter (signatures, threadgroup arrays, literals) and in the syntax
tree (lint.py).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from build_kernels import HERE, PREPROCESS
from lint import lint_tree
from rewriter import UNIT_PREFIX, Rewriter
from tokens import MslError
from toolchain import Toolchain, ToolError

STRICT = [
    "-x", "clcpp", "-cl-std=CLC++2021", "-fsyntax-only", "-fdeclspec", "-ferror-limit=0", "-w",
    "-nostdinc", "-cl-no-stdinc", "-Xclang",
    "-cl-ext=+cl_khr_fp16,-cl_khr_fp64,-__opencl_c_fp64",  # half, and no double
    "-Xclang", "-ast-dump", "-Xclang", f"-ast-dump-filter={UNIT_PREFIX}",
    "-fno-color-diagnostics",
    "-I", str(HERE / "shim"),
]  # fmt: skip
# Where this check is stricter than Apple's compiler.
_HINTS = {
    "incompatible operand types": "(c ? a : b of a variable and a temporary: write select() or if)"
}
_ERROR = re.compile(r"^(.*?): (?:fatal )?error: (.*)$")


def check_kernel_file(
    tools: Toolchain, path: Path, scratch: Path, *, options: Sequence[str] = ()
) -> list[str]:
    """Return the problems of a kernel file, each as `file:line: what`.

    `options` go to the preprocessor. Raises ToolError where the compiler itself does not work.
    """
    said = _run(tools, [*PREPROCESS, *options, str(path)])
    if said.returncode != 0:
        return _errors(said, path)
    try:
        unit = Rewriter(path.stem, strict=True).rewrite(said.stdout, str(path))
    except MslError as error:
        return [str(error)]
    rewritten = scratch / f"{path.stem}.clcpp"
    rewritten.write_text(unit.text)
    said = _run(tools, [*STRICT, str(rewritten)])
    if said.returncode != 0:
        return _errors(said, path)
    return lint_tree(said.stdout, str(path))


def _run(tools: Toolchain, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*tools.compiler, *arguments], capture_output=True, text=True, check=False
    )


def _errors(said: subprocess.CompletedProcess[str], path: Path) -> list[str]:
    """Return the error lines; a compiler that fails without one is broken."""
    errors = []
    for line in said.stderr.splitlines():
        match = _ERROR.match(line)
        if match:
            place = re.sub(r":[0-9]+$", "", match[1])
            hints = [hint for part, hint in _HINTS.items() if part in match[2]]
            errors.append(" ".join([f"{place}: {match[2]}", *hints]))
    located = [error for error in errors if re.match(r".+:\d+: ", error)]
    if not located:
        raise ToolError(
            f"[msl] {path.name}: the compiler failed without a diagnostic\n{said.stderr}"
        )
    return located
