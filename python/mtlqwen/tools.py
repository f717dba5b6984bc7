"""Python functions as tools: the schema that a model reads, and calls with typed arguments.

Knows nothing of models and chats.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

from mtlqwen.schemas import describe, find

# Sections of a docstring as Google writes them, and fields as Sphinx does.
_ARGUMENTS = ("Args", "Arguments", "Parameters")
_SECTION = re.compile(rf"(?:{'|'.join(_ARGUMENTS)}|Returns|Yields|Raises|Examples?|Notes?):\s*")
_ARGUMENT = re.compile(r" {1,4}\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
_FIELD = re.compile(r":(?:param(?:\s+[^:\s]+)??\s+(\w+)|\w+(?:\s+[^:]+)?):\s*(.*)")


class Tool(Mapping[str, Any]):
    """A function that a model may call: its JSON schema as a mapping, and the function itself.

    Called, it is the function. Use `tool` to make one.

    Attributes:
        name: what the model calls it.
        function: what is called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        """Make the schema; as `tool`."""
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        hints = _hints(self.name, function)
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            _check_parameter(self.name, parameter, hints)
        self._signature = signature
        schema, self._make_values = describe(_arguments_type(self.name, signature, hints))
        said, notes = split_docstring(function.__doc__ or "")
        self._schema = {
            "type": "function",
            "function": {
                "name": self.name,
                "description": said if description is None else description,
                "parameters": self._parameters(schema, notes, hints),
            },
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function with what a model wrote: JSON values, brought to the function's types.

        Returns:
            What the function does; of an asynchronous one, something to await.

        Raises:
            TypeError, ValueError: the arguments do not fit.
            Exception: the function's own.
        """
        unknown = arguments.keys() - self._signature.parameters.keys()
        needed = [
            name
            for name, parameter in self._signature.parameters.items()
            if parameter.default is parameter.empty and name not in arguments
        ]
        if unknown or needed:
            want = ", ".join(self._signature.parameters) or "none"
            wrong = f"missing: {', '.join(needed)}" if needed else f"unknown: {', '.join(unknown)}"
            raise TypeError(f"arguments of {self.name}: {wrong} (it takes {want})")
        values = self._make_values(json.dumps(dict(arguments)))
        return self.function(**{name: getattr(values, name) for name in arguments})

    def __getitem__(self, key: str) -> Any:
        """Return a part of the schema."""
        return self._schema[key]

    def __iter__(self) -> Iterator[str]:
        """Return the schema's keys."""
        return iter(self._schema)

    def __len__(self) -> int:
        """Return how many parts the schema has."""
        return len(self._schema)

    def __hash__(self) -> int:
        """Tools are told apart as the objects they are."""
        return id(self)

    def __repr__(self) -> str:
        """Return its signature in a line."""
        return f"Tool({self.name}{self._signature})"

    def _parameters(
        self, schema: Mapping[str, Any], notes: Mapping[str, str], hints: Mapping[str, Any]
    ) -> dict[str, Any]:
        definitions = dict(schema.get("$defs", {}))
        own = schema
        if "$ref" in schema:  # the dataclass of the arguments, which nothing else refers to
            own = find(schema, schema["$ref"])
            definitions = {name: one for name, one in definitions.items() if one is not own}
        properties: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            properties[name] = dict(own["properties"][name])
            properties[name].pop("title", None)
            properties[name].pop("default", None)
            note = _annotated(hints[name]) or notes.get(name)
            if note:
                properties[name].setdefault("description", note)
            if parameter.default is not parameter.empty and _is_json(parameter.default):
                properties[name]["default"] = parameter.default
        parameters = {
            "type": "object",
            "properties": properties,
            "required": own.get("required", []),
        }
        return parameters | ({"$defs": definitions} if definitions else {})


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function; a decorator, with or without arguments.

    The schema comes from the signature: names, types, defaults. The docstring describes the
    function, and its section ``Args:`` (or ``:param name:``) the arguments;
    ``Annotated[int, "how many"]`` does so, too. Types are those of JSON, dataclasses, enums,
    literals, optional ones, lists and dicts of them, and where pydantic is installed all that it
    knows.

    Args:
        function: any function, method or coroutine function whose parameters have types.
        name: what the model calls it. Unset: the function's name.
        description: what the model reads. Unset: the docstring.

    Raises:
        TypeError: a parameter has no type, none that JSON has, or cannot be given by name.

    Example:
        >>> @tool
        ... def weather(city: str, days: int = 1) -> str:
        ...     '''Tell the weather.
        ...
        ...     Args:
        ...         city: where
        ...     '''
        ...     return f"{days} days of sun in {city}"
        >>> weather["function"]["parameters"]["properties"]["city"]
        {'type': 'string', 'description': 'where'}
        >>> weather("Oslo"), weather.run({"city": "Rome", "days": 2})
        ('1 days of sun in Oslo', '2 days of sun in Rome')
    """
    if function is not None:
        return Tool(function)
    return lambda function: Tool(function, name=name, description=description)


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of its function, and of each argument."""
    said: list[str] = []
    notes: dict[str, list[str]] = {"": []}
    section = name = ""
    for line in inspect.cleandoc(text).split("\n"):
        field = _FIELD.fullmatch(line)
        if _SECTION.fullmatch(line):
            section, name = line.split(":")[0], ""
            continue
        if not line.strip() or (line[:1].strip() and not field):
            section = section if not line.strip() else ""
        if field:
            section, name = "field", field[1] or ""
            notes.setdefault(name, []).append(field[2])
        elif not section:
            said.append(line)
        else:
            argument = _ARGUMENT.fullmatch(line) if section in _ARGUMENTS else None
            name = argument[1] if argument else name
            notes.setdefault(name, []).append(argument[2] if argument else line.strip())
    del notes[""]
    return "\n".join(said).strip(), {name: " ".join(lines).strip() for name, lines in notes.items()}


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    called = function if inspect.isroutine(function) else type(function).__call__
    called = getattr(function, "func", called)  # functools.partial
    try:
        return typing.get_type_hints(called, include_extras=True)
    except NameError as error:
        raise TypeError(f"[tools] {name}: a type is unknown ({error})") from None


def _check_parameter(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    by_name = (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    if parameter.kind not in by_name:
        raise TypeError(
            f"[tools] {name}: {parameter} cannot be given by its name; want plain parameters"
        )
    if parameter.name not in hints:
        raise TypeError(
            f"[tools] {name}: {parameter.name} has no type; annotate it, for instance "
            f"{parameter.name}: str"
        )


def _arguments_type(name: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> type:
    """Return a dataclass whose fields are a function's parameters."""
    fields: list[tuple[str, Any, Any]] = []
    for parameter in signature.parameters.values():
        options: dict[str, Any] = {}
        if parameter.default is not parameter.empty:
            options["default_factory"] = lambda default=parameter.default: default
        fields.append((parameter.name, hints[parameter.name], dataclasses.field(**options)))
    made: type = dataclasses.make_dataclass(re.sub(r"\W", "_", name), fields, kw_only=True)
    return made


def _annotated(hint: Any) -> str | None:
    """Return the description in ``Annotated[type, description]``."""
    notes = getattr(hint, "__metadata__", ())
    return next((textwrap.dedent(note).strip() for note in notes if isinstance(note, str)), None)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
