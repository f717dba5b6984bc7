"""Types and JSON schemas: a schema for a type, and a value of the type from a text.

pydantic does both where it is installed. Knows nothing of grammars and tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from mtlqwen.plain_types import PlainTypes

# What llguidance enforces; pydantic checks the others itself.
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # hold schemas by name
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")
_MAX_ROUNDS = 100  # references behind references
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")

# Makes a value from JSON text; raises where it has none: what the type's own code raises, too.
MakeValue: TypeAlias = Callable[[str], Any]


def describe(wanted: Any) -> tuple[dict[str, Any], MakeValue]:
    """Return the JSON schema of a type, or of what is one already, and what makes a value of it.

    Objects of a type have no properties but their own; in a schema that came as a dict they do,
    unless it says ``"additionalProperties": false``.

    Raises:
        TypeError: it describes no JSON.
        ValueError: no text can fit it.
    """
    if isinstance(wanted, Mapping):
        return dict(wanted), json.loads
    if isinstance(wanted, bool):
        if not wanted:
            raise ValueError("[structured] schema: no text can fit it (got False, want a schema)")
        return {}, json.loads
    if isinstance(wanted, (str, bytes, int, float, list, tuple)):
        got = type(wanted).__name__
        raise TypeError(f"[structured] schema: not a dict and no type (got {got})")
    adapter = _adapter(wanted)
    if adapter is None:
        return PlainTypes().schema(wanted), lambda text: _plain_value(wanted, text)
    try:
        schema: dict[str, Any] = adapter.json_schema()
    except Exception as error:  # pydantic has several, some of them RuntimeErrors
        raise TypeError(f"[structured] schema: no JSON describes the type ({error})") from None
    _tighten(schema)
    return schema, adapter.validate_json


def _plain_value(wanted: Any, text: str) -> Any:
    return PlainTypes().value(wanted, json.loads(text))


def _adapter(wanted: Any) -> Any:
    """Return pydantic's adapter of a type; None where there is no pydantic."""
    try:
        from pydantic import TypeAdapter
    except ImportError:
        return None
    try:
        return TypeAdapter(wanted)
    except Exception as error:  # as above
        raise TypeError(f"[structured] schema: no type of JSON values ({error})") from None


def _tighten(schema: dict[str, Any]) -> None:
    """Close objects, and leave out what only pydantic can check."""
    for part in _parts(schema):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
        part.pop("discriminator", None)
        if part.get("format") not in _FORMATS:
            part.pop("format", None)
        branches = part.get("anyOf", [])
        kept = [branch for branch in branches if not _looks_around(branch)]
        if kept:  # of a Decimal, some versions' text with a pattern goes
            part["anyOf"] = kept


def _looks_around(schema: object) -> bool:
    pattern = schema.get("pattern") if isinstance(schema, dict) else None
    return isinstance(pattern, str) and bool(_LOOK_AROUND.search(pattern))


def _parts(schema: object) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in list(schema.items()):
        inner: list[object] = []
        if key in _NAMED and isinstance(value, dict):
            inner = list(value.values())
        elif key in _LISTED and isinstance(value, list):
            inner = value
        elif key in _SINGLE:
            inner = [value]
        for item in inner:
            yield from _parts(item)


def check_finite(schema: Mapping[str, Any]) -> None:
    """Raise ValueError where every text of a schema would have to hold another one, for ever.

    Other schemas that no text can fit llguidance finds itself.
    """
    try:
        endless = not _ends(schema, _endless_references(schema))
    except RecursionError:
        return  # too deep to tell
    if endless:
        raise ValueError(
            "[structured] schema: no text can fit it (got an object that requires another one like "
            "itself, want an end); make the property optional, or let it be null"
        )


def _endless_references(schema: Mapping[str, Any]) -> set[str]:
    """Return the references of a schema of which no text ends: what is left when all others are."""
    left = {part["$ref"] for part in _parts(dict(schema)) if isinstance(part.get("$ref"), str)}
    for _ in range(_MAX_ROUNDS):
        ending = {name for name in left if _ends(find(schema, name), left)}
        if not ending:
            return left
        left -= ending
    return set()


def _ends(schema: Any, endless: set[str]) -> bool:
    """Whether a schema has a text that ends, if references have one that are not ``endless``."""
    if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
        return True
    if schema.get("$ref") in endless or not all(_ends(p, endless) for p in _list(schema, "allOf")):
        return False
    for branches in (_list(schema, "anyOf"), _list(schema, "oneOf")):
        if branches and not any(_ends(branch, endless) for branch in branches):
            return False
    if schema.get("type") == "object":
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        return all(_ends(known.get(name), endless) for name in _list(schema, "required"))
    least = schema.get("minItems", 0)
    if schema.get("type") == "array" and isinstance(least, int) and least > 0:
        first = _list(schema, "prefixItems")[:least]
        items = [schema.get("items")] if least > len(first) else []
        return all(_ends(item, endless) for item in (*first, *items))
    return True


def find(root: object, name: str) -> Any:
    """Return what a reference such as ``#/$defs/Name`` means in ``root``; None: nothing."""
    found: Any = root
    for part in filter(None, name.removeprefix("#").split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
