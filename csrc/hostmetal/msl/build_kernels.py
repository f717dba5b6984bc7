"""Builds the kernel libraries: every metal/*.metal for each CPU level, one shared object per level.

python csrc/hostmetal/msl/build_kernels.py --output DIR [--metal-dir DIR] [--override NAME=FILE]
[--isa avx2] [--shadow]

Writes DIR/kernels.<isa>.so. Only what changed is compiled again. A library exports one function,
msl_library() of abi.h.

--shadow writes DIR/kernels.<isa>.shadow.so: the same kernels, each access to memory preceded by a
call into shadow/, which finds races, uninitialised reads and accesses out of bounds. Slow; for
tests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewriter import Rewriter
from table import add_twins, kernel_record, kernel_table, reject_duplicates, reject_strangers
from tokens import MslError
from toolchain import Toolchain, ToolError, find_toolchain, run
from twins import TWIN_DIR, TwinFile, twin_files, twin_names

HERE = Path(__file__).resolve().parent
METAL_DIR = HERE.parents[2] / "metal"

ISAS = {
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4"],
    "neon": ["-march=armv8-a"],
}
PREPROCESS = [
    "-x", "c++", "-std=c++17", "-E", "-nostdinc", "-nostdinc++",
    "-isystem", str(HERE / "include"), "-D__METAL__=1", "-D__METAL_MACOS__=1",
    "-D__METAL_VERSION__=400",
]  # fmt: skip
# Lets metal/wide.h use vectors that Metal does not have; the strict check goes without.
HOST_VECTORS = "-DMTLQWEN_HOST_VECTORS"
# Its sums_at_once, of 16 floats each. Eight fill the registers of AVX2 and cost less than weights
# unpacked twice.
HOST_SUMS = {"avx2": 8, "avx512": 16, "neon": 4}
COMPILE = [
    "-x", "c++", "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fdeclspec", "-c",
    "-fno-strict-aliasing",  # kernels read quantised blocks through pointers of other types
    "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fsigned-char", "-fno-stack-protector",
    "-ffp-contract=fast",  # as Metal does with fast math off
    "-Wall", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-pass-failed",
]  # fmt: skip
# x86 evaluates half and bfloat in float by default; Metal rounds after every operation.
X86_ONLY = [
    "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none",
]  # fmt: skip

# Accesses of more than 16 bytes are not instrumented: no vectoriser, no host vectors. Atomics are
# announced by the shim, because the compiler leaves some of them out. Reports count on each call of
# a function being one, unless it must be inlined.
SHADOW = ["-gline-tables-only", "-gdwarf-4", "-DMSL_SHADOW"]
INSTRUMENT = [
    "-O1", "-fno-vectorize", "-fno-slp-vectorize", "-fno-inline", "-fsanitize=thread",
    "-mllvm", "-tsan-instrument-atomics=0", "-mllvm", "-tsan-instrument-read-before-write=1",
]  # fmt: skip

# Threads that have run kernels leave through a destructor of the library: it must stay loaded.
LINK = ["-shared", "-nodefaultlibs", "-Wl,--no-undefined", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"]
LIBRARIES = ["-lm", "-lpthread", "-lc", "-lgcc"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One object file to be made."""

    source: Path
    isa: str
    folder: Path
    shadow: bool
    twin: TwinFile | None = None

    @property
    def level(self) -> str:
        """What the names of its products say of it: the CPU level, and the shadow build."""
        return f"{self.isa}.shadow" if self.shadow else self.isa

    @property
    def is_kernel(self) -> bool:
        """A file of metal/, not of the runtime."""
        return self.source.suffix == ".metal"

    @property
    def base(self) -> Path:
        """Path of the products, without suffix."""
        stem = self.source.stem
        label = stem if self.is_kernel else self.twin.label if self.twin else f"runtime-{stem}"
        return self.folder / f"{label}.{self.level}"


def _host_sums(isa: str) -> str:
    return f"-DMTLQWEN_HOST_SUMS={HOST_SUMS[isa]}"


class Builder:
    """Builds one set of sources into one folder."""

    def __init__(
        self,
        toolchain: Toolchain,
        output: Path,
        includes: list[Path],
        *,
        without_twins: set[Path],
        shadow: bool = False,
    ) -> None:
        """Prepare the folder for intermediate files.

        Kernels of the files `without_twins` run as they are written there.
        """
        self._tools = toolchain
        self._output = output
        self._objects = output / "kernels"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._includes = [f"-I{path}" for path in includes]
        self._without_twins = without_twins
        self._shadow = shadow
        self._own = _digest(
            [*sorted(HERE.glob("*.py")), *sorted(HERE.glob("shim/*")), *_sources("runtime", "*"),
             *_sources("shadow", "*"), *sorted(TWIN_DIR.glob("*.h")), HERE / "abi.h"],
            toolchain.description,
        )  # fmt: skip

    def build(
        self, sources: list[Path], twins: list[TwinFile], isas: list[str], jobs: int
    ) -> list[Path]:
        """Build one library for each level; return their paths."""
        runtime = _sources("runtime", "*.cpp")
        if self._shadow:
            runtime += _sources("shadow", "*.cpp")
        units = [
            Unit(source, isa, self._objects, self._shadow)
            for isa in isas
            for source in [*sources, *runtime]
        ]
        units += [
            Unit(twin.source, isa, self._objects, self._shadow, twin)
            for isa in isas
            for twin in twins
            if twin.is_for(isa)
        ]
        with ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(self._build_unit, units))
        libraries = []
        for isa in isas:
            mine = [(u, r) for u, r in zip(units, results, strict=True) if u.isa == isa]
            libraries.append(self._link(isa, mine))
        return libraries

    def _build_unit(self, unit: Unit) -> dict[str, Any]:
        """Compile one file, unless nothing that it was made from has changed."""
        record_path = unit.base.with_name(unit.base.name + ".json")
        record = _read_json(record_path)
        if record and self._key(unit, record["files"]) == record["key"]:
            return record
        made = self._compile_kernel(unit) if unit.is_kernel else self._compile_runtime(unit)
        made["key"] = self._key(unit, made["files"])
        record_path.write_text(json.dumps(made))
        return made

    def _key(self, unit: Unit, files: list[str]) -> str:
        paths = [Path(file) for file in files]
        if not all(path.exists() for path in paths):
            return ""
        return _digest(paths, self._own + unit.level + str(self._includes))

    def _compile_kernel(self, unit: Unit) -> dict[str, Any]:
        what = f"{unit.source.name} ({unit.level})"
        base = str(unit.base)
        depfile = Path(base + ".d")
        source = self._tools.compile(
            [
                *PREPROCESS,
                *([] if unit.shadow else [HOST_VECTORS, _host_sums(unit.isa)]),
                *self._includes,
                "-MD",
                "-MF",
                str(depfile),
                str(unit.source),
            ],
            what=what,
        )
        rewritten = Rewriter(unit.source.stem).rewrite(source, str(unit.source))
        Path(base + ".cpp").write_text(rewritten.text)
        self._compile(unit, base + ".cpp", what)
        return {
            "files": _dependencies(depfile),
            "kernels": [kernel_record(kernel) for kernel in rewritten.kernels],
        }

    def _compile_runtime(self, unit: Unit) -> dict[str, Any]:
        self._compile(unit, str(unit.source), f"{unit.base.name}")
        twins = twin_names(unit.twin) if unit.twin else []
        prefix = "dot_twin_" if unit.twin and unit.twin.dot else "twin_"
        return {
            "files": [str(unit.source)],
            "kernels": [],
            "twins": [[prefix + name, name] for name in twins],
        }

    def _compile(self, unit: Unit, source: str, what: str) -> None:
        flags = [*COMPILE, *ISAS[unit.isa], *(X86_ONLY if unit.isa != "neon" else [])]
        if unit.shadow:
            flags += SHADOW + (INSTRUMENT if unit.is_kernel else [])
        flags += [*unit.twin.flags(unit.isa), *self._includes] if unit.twin else []
        defines = [f'-DMSL_ISA="{unit.isa}"', f"-I{HERE / 'shim'}"]
        self._tools.compile([*flags, *defines, source, "-o", f"{unit.base}.o"], what=what)

    def _link(self, isa: str, parts: list[tuple[Unit, dict[str, Any]]]) -> Path:
        kernels = [kernel for _, record in parts for kernel in record["kernels"]]
        reject_duplicates(kernels)
        twins = dict(twin for _, record in parts for twin in record.get("twins", []))
        reject_strangers(twins, kernels)
        for unit, record in parts:
            if unit.source not in self._without_twins:
                add_twins(record["kernels"], twins)
        table = Unit(self._objects / "table.cpp", isa, self._objects, self._shadow)
        target = self._output / f"kernels.{table.level}.so"
        stamp = self._objects / f"link.{table.level}"
        key = _digest([], json.dumps([[u.source.name, r["key"]] for u, r in parts]) + self._own)
        if target.exists() and stamp.exists() and stamp.read_text() == key:
            return target
        table.source.write_text(kernel_table(kernels))
        self._compile(table, str(table.source), f"kernel table ({table.level})")
        objects = [f"{unit.base}.o" for unit, _ in parts] + [f"{table.base}.o"]
        scratch = target.with_suffix(".new")
        run(
            [*self._tools.linker, *LINK, *objects, "-o", str(scratch), *LIBRARIES],
            what=f"link {target.name}",
        )  # fmt: skip
        # A process that has the old library open keeps it.
        scratch.replace(target)
        stamp.write_text(key)
        return target


def _sources(folder: str, pattern: str) -> list[Path]:
    return sorted((HERE / folder).glob(pattern))


def _digest(paths: list[Path], seed: str) -> str:
    digest = hashlib.sha256(seed.encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if Path(str(path)[: -len(".json")] + ".o").exists() else None


def _dependencies(depfile: Path) -> list[str]:
    """Return the files that a make rule names after the colon."""
    rule = depfile.read_text().replace("\\\n", " ").split(":", 1)[1]
    return shlex.split(rule)


def default_isas() -> list[str]:
    """Return the CPU levels that libraries are built for on this machine."""
    return ["neon"] if platform.machine() in ("aarch64", "arm64") else ["avx2", "avx512"]


def machine_of(isas: list[str]) -> str:
    """Return the machine that libraries of these CPU levels run on, as platform.machine()."""
    machines = {"aarch64" if isa == "neon" else "x86_64" for isa in isas}
    if len(machines) != 1:
        raise ToolError(f"[msl] --isa: one machine at a time (got {', '.join(isas)})")
    return machines.pop()


def kernel_sources(metal_dir: Path, overrides: list[str]) -> list[Path]:
    """Return the kernel files; `NAME=FILE` puts FILE in the place of metal_dir/NAME."""
    sources = {path.name: path for path in sorted(metal_dir.glob("*.metal"))}
    for override in overrides:
        name, _, file = override.partition("=")
        if name not in sources or not Path(file).is_file():
            raise ToolError(
                f"[msl] --override {override}: want NAME=FILE, NAME one of {sorted(sources)}"
            )
        sources[name] = Path(file).resolve()
    return list(sources.values())


def build(
    output: Path,
    *,
    metal_dir: Path = METAL_DIR,
    overrides: list[str] | None = None,
    isas: list[str] | None = None,
    shadow: bool = False,
    jobs: int = 2,
) -> list[Path]:
    """Build the libraries and return their paths.

    Raises:
        ToolError: a tool is missing or failed; its output is in the message.
        MslError: a kernel file breaks a rule of ours.
    """
    sources = kernel_sources(metal_dir, overrides or [])
    # Twins are written to the kernels of the project, and the shadow build watches MSL.
    has_twins = metal_dir.resolve() == METAL_DIR and not shadow
    own = set(METAL_DIR.glob("*.metal")) if has_twins else set()
    levels = isas or default_isas()[: 1 if shadow else None]
    builder = Builder(
        find_toolchain(machine_of(levels)),
        output,
        [metal_dir],
        without_twins=set(sources) - own,
        shadow=shadow,
    )
    twins = twin_files(TWIN_DIR) if has_twins else []
    return builder.build(sources, twins, levels, jobs)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Compile metal/*.metal for the CPU.")
    parser.add_argument("--output", type=Path, required=True, help="folder of kernels.<isa>.so")
    parser.add_argument("--metal-dir", type=Path, default=METAL_DIR)
    parser.add_argument("--override", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--isa", action="append", choices=sorted(ISAS))
    parser.add_argument("--shadow", action="store_true", help="kernels.<isa>.shadow.so, for tests")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    try:
        libraries = build(
            options.output,
            metal_dir=options.metal_dir.resolve(),
            overrides=options.override,
            isas=options.isa,
            shadow=options.shadow,
            jobs=options.jobs,
        )
    except (ToolError, MslError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(str(library) for library in libraries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
