"""Generated calls of tools to Python values, typed by the tools' schemas.

Knows nothing of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mtlqwen.messages import function_of
from mtlqwen.result import ToolCall
from mtlqwen.schemas import find

_MAX_STEPS = 8  # from one schema to another, in a tool's


class CallTypes:
    """What the schemas of a turn's tools say about calls of them."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Take the schemas; without any, all arguments are strings."""
        functions = {function_of(tool)["name"]: function_of(tool) for tool in tools or ()}
        self._parameters = {name: one.get("parameters") for name, one in functions.items()}

    def known(self, name: str) -> bool:
        """Whether there is a tool called ``name``."""
        return name in self._parameters

    @property
    def any(self) -> bool:
        """Whether there is any tool."""
        return bool(self._parameters)

    def properties(self, name: str) -> Mapping[str, Any]:
        """Return the schemas of a function's arguments."""
        return _mapping(_mapping(self._parameters.get(name)).get("properties"))

    def call(self, name: str, texts: Iterable[tuple[str, str]]) -> ToolCall:
        """Return a call whose arguments have the types that their schemas ask for.

        Example:
            >>> CallTypes().call("add", [("a", "1")])
            ToolCall(name='add', arguments={'a': '1'})
        """
        parameters, properties = self._parameters.get(name), self.properties(name)
        arguments = {
            key: _typed(text, kinds_of(properties.get(key), parameters)) for key, text in texts
        }
        return ToolCall(name, arguments)


def json_call(text: str) -> ToolCall | None:
    """Return the call that a JSON object writes, as the models before these did; None: it is none.

    Example:
        >>> json_call('{"name": "add", "arguments": {"a": 1}}')
        ToolCall(name='add', arguments={'a': 1})
    """
    try:
        call = _read(text)
        arguments = call.get("arguments", call.get("parameters")) or {}
        if isinstance(arguments, str):
            arguments = _read(arguments)
    except (ValueError, AttributeError, RecursionError):
        return None
    name = call.get("name")
    good = isinstance(name, str) and isinstance(arguments, dict)
    return ToolCall(name, arguments) if good else None


def _typed(text: str, kinds: Collection[object]) -> Any:
    """Return a parameter's text as one of the types that its schema names, else as it is."""
    if "null" in kinds and text == "null":
        return None
    if "string" in kinds or not kinds:
        return text
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = _read(text)
    except (ValueError, RecursionError):
        return text
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if any(_is_kind(value, name) for name in kinds) else text


def resolved(schema: object, root: object) -> Mapping[str, Any]:
    """Return a schema, or the one in ``root`` that it refers to."""
    for _ in range(_MAX_STEPS):
        name = _mapping(schema).get("$ref")
        if not isinstance(name, str):
            break
        schema = find(root, name)
    return _mapping(schema)


def kinds_of(schema: object, root: object) -> list[object]:
    """Return the types of JSON values that a schema in ``root`` names; none: it names none."""
    kinds: list[object] = []
    todo = [schema]
    seen: set[int] = set()
    while todo:
        part = resolved(todo.pop(), root)
        if id(part) in seen:
            continue
        seen.add(id(part))
        kind = part.get("type")
        values = part.get("enum", [part["const"]] if "const" in part else None)
        branches = part.get("anyOf", part.get("oneOf"))
        if kind is not None:
            kinds += kind if isinstance(kind, list) else [kind]
        elif isinstance(values, list):
            kinds += map(_kind_of_value, values)
        elif isinstance(branches, list):
            todo += branches
        else:
            return []  # anything fits
    return kinds


def _kind_of_value(value: object) -> str:
    return next((name for name in _TYPES if _is_kind(value, name)), "string")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def _is_kind(value: object, kind: object) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(kind, str) and kind in _TYPES and isinstance(value, _TYPES[kind])


def _read(text: str) -> Any:
    """Return the value of a JSON text; half of a character becomes "?", for no text can hold it."""
    value = json.loads(text, parse_constant=_no_constant)
    if "\\ud" not in text.lower():
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _no_constant(word: str) -> None:
    raise ValueError(word)
