"""What C++ for OpenCL allows and Metal does not.

Looks at the syntax tree of one kernel file, as clang prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NODE = re.compile(r"^(?P<tree>[ |`-]*)(?P<kind>[A-Z]\w+) (?P<address>0x[0-9a-f]+)(?P<rest>.*)$")
_PLACE = re.compile(r"(?:\bline|(?P<file>[^\s<>,:]+\.\w+)):(?P<line>\d+):\d+")
_TYPE = re.compile(r"'([^']*)'")
_CALLEE = re.compile(r"\b(?:Function|CXXMethod) (0x[0-9a-f]+)")
_MEMBER = re.compile(r"(?:->|\.)\S+ (0x[0-9a-f]+)")
_PREVIOUS = re.compile(r"\bprev (0x[0-9a-f]+)")

_FORBIDDEN = {
    "LambdaExpr": "a lambda",
    "GotoStmt": "goto",
    "IndirectGotoStmt": "goto",
    "GCCAsmStmt": "inline assembly",
    "CXXTryStmt": "an exception",
    "CXXThrowExpr": "an exception",
    "CXXNewExpr": "new",
    "CXXDeleteExpr": "delete",
    "CXXTypeidExpr": "typeid",
    "CXXDynamicCastExpr": "dynamic_cast",
}
_NOWHERE = 1 << 30
_FUNCTIONS = ("FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXConversionDecl")
_METHODS = ("CXXMethodDecl", "CXXConversionDecl")
_VARIABLES = ("ParmVarDecl", "VarDecl", "FieldDecl")


@dataclass(frozen=True, slots=True)
class Node:
    """One line of the dump."""

    depth: int
    kind: str
    address: str
    rest: str
    place: str  # file:line

    @property
    def types(self) -> list[str]:
        """The quoted types of the line, the node's own first."""
        return _TYPE.findall(self.rest)

    @property
    def implicit(self) -> bool:
        """True for what the compiler added."""
        return bool(re.search(r"\bimplicit\b(?![-_])", self.rest))


def _nodes(tree: str, file: str) -> Iterator[Node]:
    line = "0"
    for row in tree.splitlines():
        match = _NODE.match(row)
        if not match:
            continue
        # The dump names a file or a line only where it differs from what it printed last.
        places = list(_PLACE.finditer(match["rest"].split("'")[0]))
        for place in places[:1]:
            file, line = place["file"] or file, place["line"]
        yield Node(
            len(match["tree"]), match["kind"], match["address"], match["rest"], f"{file}:{line}"
        )
        for place in places[1:]:
            file, line = place["file"] or file, place["line"]


@dataclass(slots=True)
class _Lint:
    problems: list[str] = field(default_factory=list)
    calls: dict[str, set[str]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # redeclaration -> first declaration
    places: dict[str, str] = field(default_factory=dict)

    def report(self, node: Node, what: str) -> None:
        problem = f"{node.place}: {what}"
        if problem not in self.problems:
            self.problems.append(problem)


def lint_tree(tree: str, file: str) -> list[str]:
    """Return the problems in a dump made with -ast-dump."""
    lint = _Lint()
    functions: list[Node] = []  # that enclose the node
    parent_kind = ""
    inside_lambda = (
        _NOWHERE  # depth of the lambda around the node: it is reported, its parts are not
    )
    for node in _nodes(tree, file):
        if node.depth > inside_lambda:
            continue
        inside_lambda = node.depth if node.kind == "LambdaExpr" else _NOWHERE
        while functions and functions[-1].depth >= node.depth:
            functions.pop()
        if node.kind in _FUNCTIONS:
            functions.append(node)
            _note_function(lint, node)
        elif functions:
            _note_call(lint, functions[-1], node)
        if not (node.implicit or (functions and functions[-1].implicit)):
            _check_node(lint, node, parent_kind)
        parent_kind = node.kind
    _check_recursion(lint)
    return lint.problems


def _note_function(lint: _Lint, node: Node) -> None:
    previous = _PREVIOUS.search(node.rest)
    if previous:
        lint.same[node.address] = lint.same.get(previous[1], previous[1])
    address = lint.same.get(node.address, node.address)
    lint.calls.setdefault(address, set())
    lint.places.setdefault(address, node.place)


def _note_call(lint: _Lint, function: Node, node: Node) -> None:
    pattern = _MEMBER if node.kind == "MemberExpr" else _CALLEE
    caller = lint.same.get(function.address, function.address)
    for address in pattern.findall(node.rest):
        lint.calls[caller].add(lint.same.get(address, address))


def _check_node(lint: _Lint, node: Node, parent_kind: str) -> None:
    if node.kind in _FORBIDDEN:
        lint.report(node, f"{_FORBIDDEN[node.kind]} is not allowed in a kernel file")
    if node.kind in _VARIABLES and node.types and "__generic" in node.types[0].split("(")[0]:
        lint.report(node, "a pointer or reference without address space")
    if node.kind == "VarDecl" and parent_kind == "DeclStmt" and re.search(r"' static\b", node.rest):
        lint.report(node, "a static variable in a function")
    if node.kind in _FUNCTIONS and node.types and "__generic" in node.types[0].split("(")[0]:
        lint.report(node, "a pointer or reference without address space is returned")
    if node.kind in _METHODS:
        _check_method(lint, node)
    if node.kind == "ImplicitCastExpr" and node.rest.endswith("<FloatingCast>"):
        lint.report(node, f"an implicit conversion to {_plain(node.types[-1])}")


def _check_method(lint: _Lint, node: Node) -> None:
    if " virtual" in node.rest:
        lint.report(node, "a virtual function")
    # An instantiation does not say that it is static; what it was made from does.
    is_static = re.search(r"' static\b", node.rest) or " instantiated_from " in node.rest
    if not is_static and "__generic" in node.types[0].rsplit(")", 1)[-1]:
        lint.report(
            node, "a member function without address space: write `thread` after its parameters"
        )


def _plain(type_name: str) -> str:
    name = type_name.replace("__private ", "").strip()
    return {"__bf16": "bfloat"}.get(name, name)


def _check_recursion(lint: _Lint) -> None:
    done: set[str] = set()
    for start in lint.calls:
        path: list[str] = []
        _visit(lint, start, path, done)


def _visit(lint: _Lint, address: str, path: list[str], done: set[str]) -> None:
    if address in path:
        problem = f"{lint.places[address]}: a function that calls itself"
        if problem not in lint.problems:
            lint.problems.append(problem)
        return
    if address in done or address not in lint.calls:
        return
    path.append(address)
    for callee in sorted(lint.calls[address]):
        _visit(lint, callee, path, done)
    path.pop()
    done.add(address)
