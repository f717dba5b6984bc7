"""The twins of csrc/hostmetal/twins: which kernels have one, and how their files are compiled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TWIN_DIR = Path(__file__).resolve().parents[1] / "twins"

# Files that multiply integers: compiled once more for CPUs with instructions for that.
DOT_FILES = frozenset({"linear_int16.cpp", "linear_packed.cpp"})
# clang splits vpdpwssd into a product and an addition on CPUs that it knows no better of.
FAST_DOT = ["-Xclang", "-target-feature", "-Xclang", "+fast-dpwssd"]
DOT_FLAGS = {
    "avx2": ["-mavxvnni", *FAST_DOT],
    "avx512": ["-mavx512vnni", *FAST_DOT],
}

_DECLARED = re.compile(r"^MTLQWEN_TWIN\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TwinFile:
    """One source file, for one of its compilations."""

    source: Path
    dot: bool

    @property
    def label(self) -> str:
        """Part of the name of the object file."""
        return f"twin-{self.source.stem}{'-dot' if self.dot else ''}"

    def is_for(self, isa: str) -> bool:
        """Whether a library of the CPU level holds it."""
        return not self.dot or isa in DOT_FLAGS

    def flags(self, isa: str) -> list[str]:
        """What the compiler gets beyond the flags of the CPU level."""
        dot = ["-DMTLQWEN_DOT", *DOT_FLAGS[isa]] if self.dot else []
        return ["-std=c++20", *dot]  # as the rest of csrc; the last one counts


def twin_files(folder: Path) -> list[TwinFile]:
    """Every file of `folder`, those of DOT_FILES twice."""
    files = []
    for source in sorted(folder.glob("*.cpp")):
        files.append(TwinFile(source, dot=False))
        if source.name in DOT_FILES:
            files.append(TwinFile(source, dot=True))
    return files


def twin_names(file: TwinFile) -> list[str]:
    """Kernels that the file has a twin of."""
    return _DECLARED.findall(file.source.read_text(encoding="utf-8"))
