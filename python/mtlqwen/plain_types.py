"""JSON schemas and values of Python's own types, for those who have no pydantic.

Dataclasses, enums, literals, unions, lists, tuples, dicts and plain values, in each other.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

_BARE: dict[Any, tuple[Any, ...]] = {  # what `typing.List` and such leave out
    list: (Any,),
    Sequence: (Any,),
    dict: (str, Any),
    Mapping: (str, Any),
}
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    list: {"type": "array"},
    dict: {"type": "object"},
}


class PlainTypes:
    """The types that one schema is made of; dataclasses and enums are referred to by name."""

    def __init__(self) -> None:
        """Know none yet."""
        self._definitions: dict[str, dict[str, Any]] = {}
        self._names: dict[type, str] = {}

    def schema(self, wanted: Any) -> dict[str, Any]:
        """Return the JSON schema of a type.

        Raises:
            TypeError: it has none.
        """
        schema = self._schema(wanted)
        return schema | ({"$defs": self._definitions} if self._definitions else {})

    def _schema(self, wanted: Any) -> dict[str, Any]:
        if isinstance(wanted, typing.Hashable) and wanted in _PLAIN:
            return dict(_PLAIN[wanted])
        if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
            return self._named(wanted, self._dataclass)
        if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
            return {"enum": [_enum_value(member) for member in wanted]}
        origin, arguments = _parts(wanted)
        if origin is typing.Annotated:
            return self._schema(arguments[0])
        if origin is typing.Literal:
            return {"enum": [_enum_value(item) for item in arguments]}
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self._schema(item) for item in arguments]}
        if origin in (list, Sequence):
            return {"type": "array", "items": self._schema(arguments[0])}
        if origin in (dict, Mapping) and arguments[0] is str:
            return {"type": "object", "additionalProperties": self._schema(arguments[1])}
        if origin is tuple:
            return self._tuple(arguments)
        raise TypeError(
            f"[structured] schema: no type of JSON values (got {wanted!r}, want a dataclass, an "
            "enum, a literal, str, int, float, bool, None, or a list, tuple, dict or union of "
            "those); pydantic, where it is installed, knows more"
        )

    def _tuple(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) == 2 and arguments[1] is ...:
            return {"type": "array", "items": self._schema(arguments[0])}
        items = [self._schema(item) for item in arguments]
        length = len(items)
        return {"type": "array", "prefixItems": items, "minItems": length, "maxItems": length}

    def _named(self, wanted: type, describe: Any) -> dict[str, Any]:
        name = self._names.get(wanted)
        if name is None:
            name = wanted.__name__ + "_" * (wanted.__name__ in self._definitions)
            while name in self._definitions:
                name += "_"
            self._names[wanted] = name
            self._definitions[name] = {}  # before its fields, which may hold it again
            self._definitions[name] |= describe(wanted)
        return {"$ref": f"#/$defs/{name}"}

    def _dataclass(self, wanted: type) -> dict[str, Any]:
        hints = _hints(wanted)
        fields = [field for field in dataclasses.fields(wanted) if field.init]
        return {
            "type": "object",
            "properties": {field.name: self._schema(hints[field.name]) for field in fields},
            "required": [field.name for field in fields if not _has_default(field)],
            "additionalProperties": False,
        }

    def value(self, wanted: Any, data: Any) -> Any:
        """Return what JSON says as a value of a type.

        Raises:
            ValueError: it is none of them.
            TypeError: a dataclass refuses it.
        """
        if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
            return self._instance(wanted, data)
        if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
            return wanted(data)
        origin, arguments = _parts(wanted)
        if origin is typing.Annotated:
            return self.value(arguments[0], data)
        if origin in (typing.Union, types.UnionType):
            return self._first(arguments, data)
        if origin is typing.Literal:
            return self._literal(wanted, arguments, data)
        if origin in (list, Sequence):
            return [self.value(arguments[0], item) for item in _same(data, _is(data, list), wanted)]
        if origin in (dict, Mapping):
            pairs = _same(data, _is(data, dict), wanted).items()
            return {key: self.value(arguments[1], item) for key, item in pairs}
        if origin is tuple:
            items = _same(data, _is(data, list), wanted)
            many = len(arguments) == 2 and arguments[1] is ...
            kinds = (arguments[0],) * len(items) if many else arguments
            return tuple(map(self.value, kinds, _same(items, len(kinds) == len(items), wanted)))
        if wanted is float and _is(data, int):
            return float(data)
        return _same(data, wanted in (Any, None) or _is(data, wanted), wanted)

    def _instance(self, wanted: type, data: Any) -> Any:
        hints = _hints(wanted)
        known = _same(data, _is(data, dict) and data.keys() <= hints.keys(), wanted)
        return wanted(**{key: self.value(hints[key], item) for key, item in known.items()})

    def _literal(self, wanted: Any, arguments: tuple[Any, ...], data: Any) -> Any:
        for item in arguments:
            said = _enum_value(item)
            if said == data and type(said) is type(data):
                return item
        raise ValueError(f"not {wanted} (got {data!r})")

    def _first(self, kinds: tuple[Any, ...], data: Any) -> Any:
        """Return the value of the first type that fits; an exact one goes before a float."""
        for kind in sorted(kinds, key=lambda kind: kind is float):
            try:
                return self.value(kind, data)
            except RecursionError:  # the others go as deep
                raise
            except Exception:  # a type's own code may raise anything
                continue
        raise ValueError(f"none of {kinds} (got {data!r})")


def _parts(wanted: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what a generic type is of, and its arguments."""
    origin = typing.get_origin(wanted)
    return origin, typing.get_args(wanted) or _BARE.get(origin, ())


def _hints(wanted: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(wanted, include_extras=True)
    except NameError as error:
        raise TypeError(f"[structured] schema: a field of {wanted} has no type ({error})") from None


def _is(data: object, kind: Any) -> bool:
    if isinstance(data, bool) and kind is not bool:
        return False
    return isinstance(data, kind)


def _same(data: Any, fits: bool, wanted: object) -> Any:
    if not fits:
        raise ValueError(f"not {wanted} (got {data!r})")
    return data


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _enum_value(item: Any) -> Any:
    value = item.value if isinstance(item, enum.Enum) else item
    if value is not None and not isinstance(value, (str, int, float)):
        raise TypeError(f"[structured] schema: a choice that is no JSON value (got {item!r})")
    return value
