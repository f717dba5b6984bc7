"""House rules that can be read off the sources: order of the rooms, sizes, forbidden words."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from house import (
    C_SUFFIXES,
    ROOT,
    SOURCE_SUFFIXES,
    TEXT_SUFFIXES,
    Function,
    c_functions,
    files,
    imports,
    includes,
    py_functions,
    relative,
    without_comments,
)

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80
MAX_KERNEL_LINES = 120
MAX_SHARE_OVER_40 = 0.05

# A room may include itself and what stands to its right.
ROOMS = ("engine", "model", "cache", "gpu", "io", "base")
RUNTIME_DEPENDENCIES = {"numpy", "tokenizers", "huggingface_hub", "jinja2"}
# Never imported at import time.
OPTIONAL_DEPENDENCIES = {
    "IPython",
    "llguidance",
    "markdown_it",
    "pydantic",
    "rich",
}
METAL_HEADER = re.compile(r"<(Metal|Foundation|QuartzCore)/")
METAL_NAME = re.compile(r"\b(?:NS|MTL4?|CA)::")


def quoted(path: Path) -> list[str]:
    """Names that a file includes in quotes."""
    return [name[1:-1] for name in includes(path) if name.startswith('"')]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_includes_only_what_stands_to_its_right(room: str) -> None:
    allowed = set(ROOMS[ROOMS.index(room) :])
    wrong = [
        f"{relative(path)} includes {name}"
        for path in files(C_SUFFIXES, f"csrc/{room}")
        for name in quoted(path)
        if name != "kernel_args.h" and name.split("/")[0] not in allowed
    ]
    assert not wrong


def test_base_includes_only_the_standard_library() -> None:
    names = [name for path in files(C_SUFFIXES, "csrc/base") for name in includes(path)]
    assert [name for name in names if not re.fullmatch(r"<[a-z_]+>|\"base/\w+\.hpp\"", name)] == []


def test_hostmetal_knows_of_the_runtime_only_what_it_implements() -> None:
    wrong = [
        f"{relative(path)} includes {name}"
        for path in files(C_SUFFIXES, "csrc/hostmetal")
        for name in quoted(path)
        if name.split("/")[0] in ROOMS[:-1] and name != "gpu/platform.hpp"
    ]
    assert not wrong


def test_nobody_reaches_into_hostmetal() -> None:
    outside = [
        path for path in files(C_SUFFIXES, "csrc", "src", "metal") if "hostmetal" not in path.parts
    ]
    assert [
        relative(path) for path in outside if any("hostmetal" in name for name in includes(path))
    ] == []


def test_metal_names_stay_in_gpu() -> None:
    wrong = []
    for path in [*files(C_SUFFIXES, "csrc"), *files(C_SUFFIXES, "src")]:
        if "hostmetal" in path.parts or "gpu" in path.parts:
            continue
        text = without_comments(path.read_text(encoding="utf-8"))
        if METAL_NAME.search(text) or any(METAL_HEADER.match(name) for name in includes(path)):
            wrong.append(relative(path))
    assert not wrong


def test_no_platform_conditionals_above_hostmetal() -> None:
    conditional = re.compile(r"#\s*if.*\b(?:__APPLE__|__linux__|__x86_64__|__aarch64__|__AVX)")
    above = [p for p in files(C_SUFFIXES, "csrc", "src", "metal") if "hostmetal" not in p.parts]
    assert [relative(p) for p in above if conditional.search(p.read_text(encoding="utf-8"))] == []


def test_nanobind_stays_in_src() -> None:
    others = files(C_SUFFIXES, "csrc", "metal", "tests")
    assert [relative(p) for p in others if any("nanobind" in name for name in includes(p))] == []


def test_kernels_include_only_metal_and_each_other() -> None:
    wrong = [
        f"{relative(path)} includes {name}"
        for path in files(C_SUFFIXES, "metal")
        for name in includes(path)
        if not re.fullmatch(r"<metal_\w+>|<stdint\.h>", name)
        and not (ROOT / "metal" / name[1:-1]).is_file()
    ]
    assert not wrong


def package() -> dict[str, Path]:
    """Modules of the Python package by their dotted names."""
    root = ROOT / "python"
    paths = files({".py"}, "python/mtlqwen")
    return {
        ".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): p
        for p in paths
    }


def test_package_modules_import_each_other_one_way() -> None:
    modules = package()
    graph = {name: imports(path, at_import=True) & modules.keys() for name, path in modules.items()}
    for edges in graph.values():
        edges.discard("mtlqwen")  # the package itself; importing a part imports it anyway
    done: set[str] = set()
    while rest := graph.keys() - done:
        free = {name for name in rest if not graph[name] - done - {name}}
        assert free, f"modules that import each other in a circle: {sorted(rest)}"
        done |= free


def test_package_imports_only_what_it_declares() -> None:
    wrong = []
    for name, path in package().items():
        outside = {found.split(".")[0] for found in imports(path)} - sys.stdlib_module_names
        if not imports(path, at_import=True) & {"typing_extensions"}:
            outside -= {"typing_extensions"}  # type checkers bring it
        if not imports(path, at_import=True) & OPTIONAL_DEPENDENCIES:
            outside -= OPTIONAL_DEPENDENCIES
        wrong += [
            f"{name} imports {found}" for found in outside - RUNTIME_DEPENDENCIES - {"mtlqwen"}
        ]
    assert not wrong


def test_no_source_file_is_longer_than_the_cap() -> None:
    sources = [
        *files(SOURCE_SUFFIXES),
        ROOT / "Makefile",
        ROOT / "CMakeLists.txt",
        ROOT / ".ci/run",
    ]
    lengths = {relative(p): len(p.read_text(encoding="utf-8").splitlines()) for p in sources}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def functions() -> list[Function]:
    """Every function of the project, tests included."""
    found = [function for path in files(C_SUFFIXES) for function in c_functions(path)]
    return found + [function for path in files({".py"}) for function in py_functions(path)]


def test_no_function_is_longer_than_its_cap() -> None:
    wrong = []
    for function in functions():
        cap = MAX_KERNEL_LINES if function.file.suffix == ".metal" else MAX_FUNCTION_LINES
        if function.lines > cap:
            wrong.append(
                f"{relative(function.file)}:{function.line} {function.name}: {function.lines}"
            )
    assert not wrong


def test_long_functions_are_rare() -> None:
    found = [function for function in functions() if function.file.suffix != ".metal"]
    long = [function for function in found if function.lines > 40]
    assert len(long) <= MAX_SHARE_OVER_40 * len(found), [f.name for f in long]


def test_no_file_names_private_places() -> None:
    # Spelled in two halves, so that this file passes its own test.
    words = ["../sha" + "red", "/wo" + "rk/", "/tmp/te" + "am", "/ro" + "ot/", "pypi" + ".org"]
    texts = [*files(TEXT_SUFFIXES), ROOT / "Makefile", ROOT / ".ci/run"]
    wrong = [
        f"{relative(path)}: {word}"
        for path in texts
        for word in words
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert not wrong


def test_environment_table_is_complete() -> None:
    table = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(MTLQWEN_\w+)` \|", table, re.MULTILINE))
    sources = [*files(C_SUFFIXES, "csrc", "src"), *files({".py"}, "python")]
    read = {n for p in sources for n in re.findall(r"\"(MTLQWEN_[A-Z_]+)\"", p.read_text("utf-8"))}
    assert documented == read


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int f() {\n  return 1;\n}\n", [("f", 1, 3)]),
        ("struct A {\n  A(int x)\n      : x_{x} {\n  }\n  int x_ = 0;\n};\n", [("A", 2, 3)]),
        ("namespace n {\nvoid g(int a) { if (a) { a = 0; } }\n}\n", [("g", 2, 1)]),
        ("// void x() {\nint t[] = {1, 2};\n", []),
        ('void h() { const char* s = "}"; }\n', [("h", 1, 1)]),
        ("enum E { kA, kB };\nvoid k(E e) {\n  switch (e) {\n  }\n}\n", [("k", 2, 4)]),
    ],
)
def test_functions_are_measured(
    tmp_path: Path, source: str, expected: list[tuple[str, int, int]]
) -> None:
    path = tmp_path / "a.cpp"
    path.write_text(source)
    assert [(f.name, f.line, f.lines) for f in c_functions(path)] == expected
