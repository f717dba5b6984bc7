"""The gate for what only a Mac could compile: python csrc/hostmetal/msl/check_metal.py.

1. Every good kernel file (metal/*.metal, tests/strict/good/*.metal) is accepted by the strict
   build.
2. Every wrong one (tests/strict/*.metal) is rejected, and for the reason that its first line
   states: each reported problem must contain the words after `// expect:`. With FIXED defined the
   same file must be accepted, so nothing else is wrong with it.
3. The runtime compiles against Apple's metal-cpp.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_kernels import HERE
from metal_cpp import check_runtime_file, fetch_headers, runtime_sources
from strict import check_kernel_file
from toolchain import Toolchain, ToolError, find_toolchain

ROOT = HERE.parents[2]
EXPECT = "// expect: "
MINIMUM_WRONG = 24  # fewer means that the gate looks in the wrong place


class Gate:
    """Runs the checks of one checkout, two files at a time."""

    def __init__(self, tools: Toolchain, scratch: Path, jobs: int) -> None:
        """Prepare the folder for intermediate files."""
        self._tools = tools
        self._scratch = scratch
        self._jobs = jobs
        scratch.mkdir(parents=True, exist_ok=True)

    def good(self, paths: Iterable[Path]) -> list[str]:
        """Check files that must be accepted."""
        return self._each(paths, self._problems)

    def wrong(self, paths: Iterable[Path]) -> list[str]:
        """Check files that must be rejected, each for its own reason."""
        return self._each(paths, self._wrong_one)

    def runtime(self, paths: Iterable[Path], headers: Path) -> list[str]:
        """Check the C++ of the runtime."""
        return self._each(paths, lambda path: check_runtime_file(self._tools, path, headers))

    def _each(self, paths: Iterable[Path], check: Callable[[Path], list[str]]) -> list[str]:
        with ThreadPoolExecutor(self._jobs) as pool:
            return [problem for found in pool.map(check, paths) for problem in found]

    def _problems(self, path: Path, *options: str) -> list[str]:
        scratch = self._scratch / ("fixed" if options else path.parent.name)
        scratch.mkdir(exist_ok=True)
        includes = [f"-I{ROOT / 'metal'}"]
        return check_kernel_file(self._tools, path, scratch, options=[*includes, *options])

    def _wrong_one(self, path: Path) -> list[str]:
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        if not first.startswith(EXPECT):
            return [f"{path}:1: a wrong kernel begins with '{EXPECT}' and a part of its message"]
        expected = first[len(EXPECT) :].strip()
        problems = self._problems(path)
        if not problems:
            return [f"{path}: accepted, want: {expected}"]
        others = [f"{path}: rejected, but not for '{expected}': {problem}" for problem in problems
                  if expected not in problem]  # fmt: skip
        unfixed = self._problems(path, "-DFIXED")
        return others + [f"{path}: still wrong when FIXED: {problem}" for problem in unfixed]


def _report(what: str, n: int, problems: list[str]) -> bool:
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{what}: {n} files, {len(problems)} problems")
    return not problems


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Check what only a Mac could compile.")
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "check-metal")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--kernels-only", action="store_true", help="skip metal-cpp, needs no download"
    )
    options = parser.parse_args()
    try:
        return 0 if _run(options.scratch, options.jobs, options.kernels_only) else 1
    except ToolError as error:
        print(error, file=sys.stderr)
        return 2


def _run(scratch: Path, jobs: int, kernels_only: bool) -> bool:
    gate = Gate(find_toolchain(), scratch, jobs)
    strict = ROOT / "tests" / "strict"
    good = [*sorted((ROOT / "metal").glob("*.metal")), *sorted((strict / "good").glob("*.metal"))]
    wrong = sorted(strict.glob("*.metal"))
    if not good or len(wrong) < MINIMUM_WRONG:
        raise ToolError(f"[msl] {strict}: {len(good)} good and {len(wrong)} wrong kernels found")
    passed = _report("kernels accepted", len(good), gate.good(good))
    passed &= _report("wrong kernels rejected", len(wrong), gate.wrong(wrong))
    if not kernels_only:
        sources = runtime_sources()
        problems = gate.runtime(sources, fetch_headers(scratch))
        passed &= _report("runtime against metal-cpp", len(sources), problems)
    return passed


if __name__ == "__main__":
    sys.exit(main())
