"""Reads the sources as text: files, includes, imports, lengths of functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("csrc", "metal", "src", "python", "tests", "tools", "examples", "bench", "cmake", "docs")
SOURCE_SUFFIXES = {".cpp", ".hpp", ".h", ".metal", ".inc", ".py", ".pyi", ".cmake", ".sh"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".md", ".toml", ".txt", ".json", ".cfg", ".yml"}
C_SUFFIXES = {".cpp", ".hpp", ".h", ".metal"}

_COMMENT_OR_STRING = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\((?:.*?)\)\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_NOT_A_FUNCTION = re.compile(r"^\s*(?:namespace|struct|class|enum|union|extern\s*\"\")\b|=\s*$")


@dataclass(frozen=True)
class Function:
    """One function of a source file, `lines` from its first line to its closing brace."""

    file: Path
    name: str
    line: int
    lines: int


def files(suffixes: set[str], *folders: str) -> list[Path]:
    """Files with one of the suffixes, in the folders or else in the whole project."""
    found = [] if folders else [path for path in ROOT.iterdir() if path.suffix in suffixes]
    for folder in folders or FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return sorted(path for path in found if path.is_file())


def relative(path: Path) -> str:
    """The path as the project's own files spell it."""
    return path.relative_to(ROOT).as_posix()


def without_comments(text: str) -> str:
    """C++ text with comments dropped and strings emptied; line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        return ('""' if match[0][0] in "\"'R" else "") + "\n" * match[0].count("\n")

    return _COMMENT_OR_STRING.sub(blank, text)


def includes(path: Path) -> list[str]:
    """Included names in their delimiters, e.g. `<vector>` or `"base/error.hpp"`."""
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^\s*#\s*include\s*([<\"][^>\"]+[>\"])", text, re.MULTILINE)


def c_functions(path: Path) -> Iterator[Function]:
    """Functions and kernels: outermost braces behind a parameter list, in our formatting."""
    text = without_comments(path.read_text(encoding="utf-8"))
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", text, flags=re.MULTILINE)
    depth = inside = 0  # braces open; depth of the body being read
    head, head_line = "", 1  # text since the last statement, and where it starts
    line = 1
    for before, character in zip(" " + text, text, strict=False):
        if character == "{":
            depth += 1
            value = bool(re.match(r"[\w>]", before))  # x{1}, not a body
            if not inside and not value and ")" in head and not _NOT_A_FUNCTION.search(head):
                inside, start, name = depth, head_line, head
            head = head if value else ""
        elif character == "}":
            if inside == depth:
                match = re.search(r"(operator\W+|[\w:~]+)\s*\(", name)
                yield Function(path, match[1] if match else "?", start, line - start + 1)
                inside = 0
            depth -= 1
            head = head if before != " " and head.strip() else ""
        elif character == ";":
            head = ""
        else:
            if not head.strip():
                head, head_line = "", line
            head += character
        line += character == "\n"


def py_functions(path: Path) -> Iterator[Function]:
    """All functions and methods of a Python file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(path, node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1)


def imports(path: Path, *, at_import: bool = False) -> set[str]:
    """Dotted names that a Python file imports; at_import: only what importing it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in _statements_at_import(tree) if at_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = (("mtlqwen." if node.level else "") + (node.module or "")).rstrip(".")
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def _statements_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported: no function bodies, no `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _statements_at_import(node)
