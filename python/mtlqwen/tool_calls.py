"""Generated calls of tools to Python values, typed by the tools' schemas.

Knows nothing of tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mtlqwen.messages import function_of
from mtlqwen.result import ToolCall

_MAX_STEPS = 8  # from one schema to another, in a tool's


def parse_tool_calls(
    texts: Iterable[str], tools: Sequence[Mapping[str, Any]] | None = None
) -> list[ToolCall]:
    """Return the calls in the texts between ``<tool_call>`` and ``</tool_call>``.

    Args:
        texts: what the model wrote between the two marks, one text for each pair.
        tools: schemas that type the arguments; without one an argument stays a string.

    Example:
        >>> parse_tool_calls(["<function=add><parameter=a>1</parameter></function>"])
        [ToolCall(name='add', arguments={'a': '1'})]
    """
    schemas = {function_of(tool)["name"]: function_of(tool) for tool in tools or ()}
    calls = []
    for text in texts:
        for name, body in _FUNCTION.findall(text):
            parameters = schemas.get(name, {}).get("parameters")
            properties = _mapping(_mapping(parameters).get("properties"))
            arguments = {
                key: _typed(value, kinds_of(properties.get(key), parameters))
                for key, value in _parameters(body)
            }
            calls.append(ToolCall(name, arguments))
    return calls


# Names are bounded, and every search begins where the last one ended: the time stays linear in the
# text, whatever a model writes.
_FUNCTION = re.compile(
    r"<function=([^>\n]{1,256})>(.*?)(?:</function>\s*(?=<function=|\Z)|\Z)", re.DOTALL
)
_PARAMETER = re.compile(r"<parameter=([^>\n]{1,256})>")
# A closing tag inside a value is not the end of it.
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>|\Z))")


def _parameters(body: str) -> Iterable[tuple[str, str]]:
    """Yield the name and the text of each parameter; the last one may lack its closing tag."""
    start = _PARAMETER.search(body)
    while start:
        end = _VALUE_END.search(body, start.end())
        value = body[start.end() : end.start() if end else len(body)]
        # One newline on each side belongs to the tags.
        yield start[1], value.removeprefix("\n").removesuffix("\n")
        start = _PARAMETER.search(body, end.end()) if end else None


def _typed(text: str, kinds: Collection[object]) -> Any:
    """Return a parameter's text as one of the types that its schema names, else as it is."""
    if "null" in kinds and text == "null":
        return None
    if "string" in kinds or not kinds:
        return text
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json.loads(text, parse_constant=_no_constant)
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
        schema = root
        for part in name.removeprefix("#/").split("/"):
            schema = _mapping(schema).get(part.replace("~1", "/").replace("~0", "~"))
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


def _no_constant(word: str) -> None:
    raise ValueError(word)
