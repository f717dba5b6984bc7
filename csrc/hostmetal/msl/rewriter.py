"""Turns preprocessed MSL into C++ for the shim. Works on tokens; every line keeps its number.

What changes: kernel signatures lose their attributes and gain a table of what each parameter is;
explicit instantiations become entries; threadgroup arrays are placed in the threadgroup's arena;
function constants become reads of the running dispatch; `1.0h` becomes a cast. What our conventions
forbid is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from signature import MAX_CONSTANTS, Signature, explicit_number, parameter_list, parse_signature
from swizzle import is_swizzle, swizzle_lists
from tokens import (
    Attribute,
    Declaration,
    Token,
    blanks,
    code,
    matching,
    split_commas,
    split_declarations,
    take_attributes,
    tokenize,
)

# Of the namespace around a file: two files may use one name for different things.
UNIT_PREFIX = "msl_unit_"

# MTL::DataType of the types that a function constant may have.
DATA_TYPES = {
    "float": 3,
    "half": 16,
    "int": 29,
    "uint": 33,
    "short": 37,
    "ushort": 41,
    "char": 45,
    "uchar": 49,
    "bool": 53,
    "long": 81,
    "ulong": 85,
}

# Attributes of kernels that only tune Apple's compiler.
_TUNING = {"max_total_threads_per_threadgroup", "required_threads_per_threadgroup"}
# Names to Metal, keywords to OpenCL.
_OPENCL_WORDS = {"local", "global", "generic", "pipe", "read_only", "write_only", "event_t"}
_HALF_LITERAL = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(h|H|bf|BF)")
_BARE_FLOAT = re.compile(r"(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+")


@dataclass(frozen=True, slots=True)
class Constant:
    """A function constant."""

    name: str
    type: str
    index: int


@dataclass(slots=True)
class Kernel:
    """An entry of the kernel library."""

    name: str
    symbol: str
    signature: Signature
    uses: set[str]  # identifiers in its definition and instantiation
    constants: list[Constant] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Unit:
    """A rewritten file."""

    text: str
    kernels: list[Kernel]


class Rewriter:
    """Rewrites one file. `strict`: for checking, with address spaces and without entries."""

    def __init__(self, stem: str, *, strict: bool = False) -> None:
        """Name the unit; the name becomes part of its symbols."""
        self._stem = re.sub(r"\W", "_", stem)
        self._strict = strict
        self._constants: dict[str, Constant] = {}
        self._signatures: dict[str, Signature] = {}
        self._kernels: list[Kernel] = []
        self._bodies: dict[str, set[str]] = {}  # function or type -> identifiers in it
        self._swizzles: set[str] = set()

    def rewrite(self, preprocessed: str, file: str) -> Unit:
        """Return the C++ of a preprocessed file, and its kernels."""
        tokens = tokenize(preprocessed, file)
        items = split_declarations(tokens)
        for item in items:
            if isinstance(item, Declaration):
                self._note_constant(item)
        body = "".join(
            item.text if isinstance(item, Token) else self._declaration(item) for item in items
        )
        for kernel in self._kernels:
            kernel.constants = self._reachable_constants(kernel.uses)
        return Unit(self._head() + body + "\n}\n", self._kernels)

    # -- declarations

    def _declaration(self, item: Declaration) -> str:
        attributes, rest = take_attributes(item.tokens)
        words = code(rest)
        if any(a.name == "function_constant" for a in attributes) and item.name in self._constants:
            return self._constant_text(item)
        self._note_uses(item)
        if words[0].text == "template" and words[1].text != "<":
            return self._instantiation(attributes, words) + blanks(item.tokens)
        is_kernel = any(a.name == "kernel" for a in attributes) or _has_kernel_word(words)
        if is_kernel:
            return self._kernel(item, attributes)
        if item.kind != "function":
            self._reject_outside_functions(item)
        return self._body(rest, in_kernel=False)

    def _note_uses(self, item: Declaration) -> None:
        names = {token.text for token in item.tokens if token.kind == "word"}
        self._bodies.setdefault(item.name, set()).update(names)

    def _reachable_constants(self, uses: set[str]) -> list[Constant]:
        """Follow names, whatever they mean: too many constants are better than one too few."""
        todo = list(uses | self._bodies.get("operator", set()))
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo.extend(self._bodies.get(name, ()))
        found = [c for c in self._constants.values() if c.name in seen]
        return sorted(found, key=lambda c: c.index)

    # -- function constants

    def _note_constant(self, item: Declaration) -> None:
        attributes, rest = take_attributes(item.tokens)
        marks = [a for a in attributes if a.name == "function_constant"]
        words = code(rest)
        if not marks or item.kind == "function" or words[0].text != "constant":
            return
        if len(words) != 4:
            raise marks[0].token.error(
                "a function constant is declared as: constant T name [[function_constant(n)]];"
            )
        type_name, name = words[1], words[2]
        if type_name.text not in DATA_TYPES:
            raise type_name.error(f"a function constant of type {type_name.text} is not supported")
        index = explicit_number(marks[0], "function_constant", MAX_CONSTANTS - 1)
        for other in self._constants.values():
            if other.index == index:
                raise name.error(f"function constant index {index} is already that of {other.name}")
        self._constants[name.text] = Constant(name.text, type_name.text, index)

    def _constant_text(self, item: Declaration) -> str:
        if not self._strict:
            return blanks(item.tokens)
        constant = self._constants[item.name]
        return f"extern __constant const {constant.type} {constant.name};" + blanks(item.tokens)

    def _reject_outside_functions(self, item: Declaration) -> None:
        for token in item.tokens:
            if token.text in self._constants and item.kind == "other":
                raise token.error(f"function constant {token.text} is used outside a function")

    # -- kernels

    def _kernel(self, item: Declaration, attributes: list[Attribute]) -> str:
        open_paren = parameter_list(item)
        close_paren = matching(item.tokens, open_paren)
        head_attributes, head = take_attributes(item.tokens[:open_paren])
        name = code(head)[-1]
        self._check_head(head, name)
        signature = parse_signature(name, item.tokens[open_paren + 1 : close_paren])
        known = self._signatures.get(name.text)
        if known and known.arguments != signature.arguments:
            raise name.error(f"kernel {name.text} has two signatures")
        self._signatures[name.text] = signature
        text = _without_kernel_word(head) + f"({signature.parameters})"
        body = item.tokens[close_paren + 1 :]
        text += self._body(body, in_kernel=True)
        is_template = code(head)[0].text == "template"
        if code(body)[0].text == "{" and not is_template:
            host_name = _host_name(head_attributes) or name.text
            uses = {t.text for t in item.tokens if t.kind == "word"}
            text += self._entry(name, host_name, signature, name.text, uses)
        return text

    def _check_head(self, head: list[Token], name: Token) -> None:
        words = [token.text for token in code(head)]
        if words[-2] != "void":
            raise name.error(f"kernel {name.text} must return void")

    def _instantiation(self, attributes: list[Attribute], words: list[Token]) -> str:
        """Turn `template [[host_name("n")]] [[kernel]] ... f<...>(...);` into an entry."""
        words = [w for w in words if w.text != "kernel"]
        end = len(words) - 1
        if words[end - 1].text == ")":
            end = _opening(words, end - 1)
        begin = end - 1
        if words[begin].text == ">":
            begin = _opening(words, begin) - 1
        name = words[begin]
        signature = self._signatures.get(name.text)
        if not signature:
            raise name.error(f"{name.text} is not a kernel template defined above")
        host_name = _host_name(attributes)
        if not host_name:
            raise name.error('an instantiated kernel needs [[host_name("...")]]')
        function = "".join(w.text + " " for w in words[begin:end])
        uses = {w.text for w in words if w.kind == "word"}
        return self._entry(name, host_name, signature, function, uses)

    def _entry(
        self, at: Token, host_name: str, signature: Signature, function: str, uses: set[str]
    ) -> str:
        if any(kernel.name == host_name for kernel in self._kernels):
            raise at.error(f"kernel {host_name} is defined twice")
        symbol = f"msl_entry_{self._stem}_{len(self._kernels)}"
        self._kernels.append(Kernel(host_name, symbol, signature, uses))
        if self._strict:
            return f" void {symbol}() {{ auto kernel_ = &{function}; (void)kernel_; }}"
        listed = "".join(f", {{::msl::{kind}, {index}}}" for kind, index in signature.arguments)
        return (
            f" MSL_SIGNATURE({symbol}_signature, {len(signature.arguments)}{listed})"
            f" MSL_ENTRY({symbol}, {symbol}_signature, {function})"
        )

    # -- bodies

    def _body(self, tokens: Sequence[Token], *, in_kernel: bool) -> str:
        parts: list[str] = []
        depth = 0
        previous = ""
        previous_end = "0"
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.text == "{":
                depth += 1
            elif token.text == "}":
                depth -= 1
            if token.text == "threadgroup" and depth > 0 and previous in ("{", "}", ";"):
                end = _statement_end(tokens, index)
                if not _declares_pointer(tokens[index:end]):
                    if not in_kernel or depth != 1:
                        raise token.error("threadgroup variable outside the top level of a kernel")
                    text, previous_end = self._arrays(tokens[index + 1 : end], previous_end)
                    parts.append(text + blanks(tokens[index:end]))
                    index, previous = end + 1, ";"
                    continue
            parts.append(self._token(tokens, index, previous))
            if not token.blank:
                previous = token.text
            index += 1
        return "".join(parts)

    def _token(self, tokens: Sequence[Token], index: int, previous: str) -> str:
        token = tokens[index]
        if token.kind == "number":
            return _literal(token)
        if token.kind != "word":
            return token.text
        if self._strict and token.text in _OPENCL_WORDS:
            return token.text + "_"
        if previous in (".", "->"):
            if is_swizzle(token.text):
                self._swizzles.add(token.text)
            return token.text
        if token.text == "is_function_constant_defined":
            raise token.error("is_function_constant_defined is not supported: set every constant")
        if self._strict:
            return _strict_word(tokens, index)
        constant = self._constants.get(token.text)
        if constant:
            return f"(::msl::constant_value<{constant.type}, {constant.index}>())"
        return token.text

    def _arrays(self, tokens: Sequence[Token], previous_end: str) -> tuple[str, str]:
        """Place `T a[N], b[M];` in the arena."""
        first, *others = split_commas(tokens)
        words = code(first)
        bracket = next((i for i, w in enumerate(words) if w.text == "["), len(words))
        if any(w.text == "=" for w in words):
            raise words[0].error("threadgroup variables cannot be initialised")
        type_text = " ".join(w.text for w in words[: bracket - 1])
        text = ""
        for declarator in [words[bracket - 1 :], *(code(other) for other in others)]:
            name = declarator[0].text
            dims = "".join(self._token(declarator, i, "") for i in range(1, len(declarator)))
            text += f"MSL_THREADGROUP_ARRAY(MSL_TYPE({type_text}), {name}, {dims}, {previous_end}) "
            previous_end = f"{name}_end"
        return text, previous_end

    # -- the head of the file

    def _head(self) -> str:
        shim = "strict.h" if self._strict else "shim.h"
        return (
            swizzle_lists(self._swizzles)
            + f'#include "{shim}"\nusing namespace metal;\nnamespace {UNIT_PREFIX}{self._stem} {{\n'
        )


def _strict_word(tokens: Sequence[Token], index: int) -> str:
    word = tokens[index].text
    if word != "constant":
        return word
    # A variable of constant memory and a pointer into it are two things in OpenCL.
    for token in tokens[index + 1 :]:
        if token.text in ("*", "&", "(", ",", ")"):
            break
        if token.text in ("=", ";", "{", "["):
            return "__constant const"
    return word


def _has_kernel_word(words: list[Token]) -> bool:
    for word in words:
        if word.text in ("(", "{", "=", ";"):
            return False
        if word.text == "kernel":
            return True
    return False


def _without_kernel_word(head: list[Token]) -> str:
    return "".join("static" if token.text == "kernel" else token.text for token in head)


def _host_name(attributes: list[Attribute]) -> str:
    for attribute in attributes:
        if attribute.name == "host_name":
            return "".join(re.findall(r'"([^"]*)"', attribute.argument))
        if attribute.name not in ("kernel", *_TUNING):
            raise attribute.token.error(f"attribute {attribute.name} is not supported on a kernel")
    return ""


def _opening(words: Sequence[Token], close: int) -> int:
    """Return the index of the bracket that the one at `close` closes."""
    pairs = {")": "(", ">": "<", "]": "["}
    opener, closer = pairs[words[close].text], words[close].text
    depth = 0
    for at in range(close, -1, -1):
        depth += (words[at].text == closer) - (words[at].text == opener)
        if depth == 0:
            return at
    raise words[close].error(f"'{closer}' without '{opener}'")


def _statement_end(tokens: Sequence[Token], index: int) -> int:
    while tokens[index].text != ";":
        index = matching(tokens, index) + 1 if tokens[index].text in ("(", "[", "{") else index + 1
    return index


def _declares_pointer(statement: Sequence[Token]) -> bool:
    """True for `threadgroup T* p = ...`: brackets may hold a `*` that multiplies."""
    index = 0
    while index < len(statement):
        text = statement[index].text
        if text in ("*", "&"):
            return True
        if text == "=":
            return False
        index = matching(statement, index) + 1 if text in ("(", "[", "{") else index + 1
    return False


def _literal(token: Token) -> str:
    match = _HALF_LITERAL.fullmatch(token.text)
    if match and not token.text.lower().startswith("0x"):
        digits = match[1]
        suffix = "f" if "." in digits or "e" in digits.lower() else ".0f"
        type_name = "half" if match[2] in "hH" else "bfloat"
        return f"(({type_name}){digits}{suffix})"
    if _BARE_FLOAT.fullmatch(token.text):
        raise token.error(f"float literal {token.text} needs a suffix (f or h)")
    return token.text
