"""Functions as tools: schemas, typed calls, and what becomes of results and errors."""

from __future__ import annotations

import asyncio
import enum
import functools
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from mtlqwen import Tool, ToolCall, tool
from mtlqwen.plain_types import PlainTypes
from mtlqwen.tool_calls import CallTypes, json_call
from mtlqwen.tool_runs import ToolRuns
from mtlqwen.tools import split_docstring


class Unit(enum.Enum):
    """How warmth is told."""

    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclass
class Place:
    """Where something is."""

    city: str
    country: str = "Norway"


@tool
def forecast(  # noqa: D417  some arguments say nothing of themselves
    place: Place,
    days: Annotated[int, "how many"],
    unit: Unit = Unit.CELSIUS,
    kind: Literal["short", "long"] = "short",
    note: Optional[str] = None,  # noqa: UP045  the old way to write it
    tags: list[str] | None = None,
) -> dict[str, Any]:
    """Tell the weather.

    In words.

    Args:
        place (Place): where
            it is asked for
        days: not this one
        tags: any: words

    Returns:
        place: a text
    """
    return {"place": place, "days": days, "unit": unit, "kind": kind, "note": note, "tags": tags}


def test_a_schema_of_a_function() -> None:
    function = forecast["function"]
    assert (forecast["type"], function["name"]) == ("function", "forecast")
    assert function["description"] == "Tell the weather.\n\nIn words."
    parameters = function["parameters"]
    assert parameters["required"] == ["place", "days"]
    properties = parameters["properties"]
    assert list(properties) == ["place", "days", "unit", "kind", "note", "tags"]
    assert properties["days"] == {"type": "integer", "description": "how many"}
    assert properties["kind"]["enum"] == ["short", "long"]
    assert properties["kind"]["default"] == "short"
    assert properties["place"]["description"] == "where it is asked for"
    assert properties["tags"]["description"] == "any: words"
    assert properties["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert "default" not in properties["unit"]
    assert "Place" in parameters["$defs"]
    assert "place" not in forecast["function"].get("required", [])


def test_a_tool_is_its_function_and_its_schema() -> None:
    assert forecast(Place("Oslo"), 1)["days"] == 1
    assert dict(forecast) == {"type": "function", "function": forecast["function"]}
    assert len({forecast, forecast}) == 1
    assert repr(forecast).startswith("Tool(forecast(place:")

    @tool(name="add", description="Adds.")
    def plus(a: int, b: int = 2) -> int:
        return a + b

    assert (plus["function"]["name"], plus["function"]["description"]) == ("add", "Adds.")
    assert plus(1) == 3


def test_arguments_get_the_types_of_the_function() -> None:
    given = {"place": {"city": "Oslo"}, "days": 3, "unit": "kelvin", "tags": ["a"]}
    assert forecast.run(given) == {
        "place": Place("Oslo", "Norway"),
        "days": 3,
        "unit": Unit.KELVIN,
        "kind": "short",
        "note": None,
        "tags": ["a"],
    }
    with pytest.raises(TypeError, match=r"missing: days \(it takes place, days"):
        forecast.run({"place": {"city": "x"}})
    with pytest.raises(TypeError, match="unknown: day"):
        forecast.run({"place": {"city": "x"}, "days": 1, "day": 2})
    with pytest.raises(ValueError, match="many"):
        forecast.run({"place": {"city": "x"}, "days": "many"})


class Shop:
    """Something with a method that can be called itself."""

    def price(self, name: str) -> int:
        return len(name)

    def __call__(self, name: str) -> int:
        return 1


def test_whatever_can_be_called() -> None:
    assert Tool(Shop().price).run({"name": "four"}) == 4
    assert Tool(Shop(), name="shop").run({"name": "four"}) == 1
    part = functools.partial(Shop().price)
    assert Tool(part, name="part").run({"name": "four"}) == 4


def untyped(a):  # type: ignore[no-untyped-def]
    return a


def starred(*a: int) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def no_json(a: memoryview) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (untyped, "a has no type; annotate it"),
        (starred, r"\*a: .* cannot be given by its name"),
        (unknown, "a type is unknown"),
        (no_json, "schema"),
    ],
)
def test_functions_that_are_no_tools(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        tool(function)


@pytest.mark.parametrize(
    ("text", "said", "notes"),
    [
        ("", "", {}),
        ("One.", "One.", {}),
        ("One.\n\nArgs:\n    a: b\n      c\n    d (int): e", "One.", {"a": "b c", "d": "e"}),
        ("One.\n:param a: b\n:param int d: e\n:returns: f", "One.", {"a": "b", "d": "e"}),
        ("One.\n\nReturns:\n    a: b\n\nTwo.", "One.\n\nTwo.", {}),
    ],
)
def test_docstrings(text: str, said: str, notes: dict[str, str]) -> None:
    assert split_docstring(text) == (said, notes)


def add(a: int, b: int = 1) -> int:
    return a + b


def fail(a: str) -> str:
    raise KeyError(a)


async def slow(a: str) -> list[str]:
    await asyncio.sleep(0)
    return [a]


def place(city: str) -> Place:
    return Place(city)


CALLS = [
    ToolCall("add", {"a": 1}),
    ToolCall("fail", {"a": "x"}),
    ToolCall("slow", {"a": "é"}),
    ToolCall("place", {"city": "Oslo"}),
    ToolCall("nosuch", {}),
    ToolCall("add", {"a": "one"}),
]
WANT = ["2", "error: KeyError: 'x'", '["é"]', '{"city": "Oslo", "country": "Norway"}']


def test_results_are_text_and_errors_are_told() -> None:
    runs = ToolRuns([add, fail, slow, place])
    for texts in (runs.run(CALLS), asyncio.run(runs.arun(CALLS))):
        assert texts[:4] == WANT
        assert texts[4] == "error: no such tool (got nosuch, want add, fail, slow, place)"
        assert texts[5].startswith("error: ")
    assert runs.run(CALLS[:2]) == WANT[:2]


class Unspeakable:
    """What has no text."""

    def __str__(self) -> str:  # noqa: D105
        raise RuntimeError("no\ud800")


def test_whatever_a_tool_returns_or_raises_is_a_text_that_can_be_read() -> None:
    def half() -> Any:
        return {"a": "x\ud800"}

    def wordless() -> Any:
        return Unspeakable()

    def fails() -> Any:
        raise ValueError(Unspeakable())

    calls = [ToolCall(name, {}) for name in ("half", "wordless", "fails")]
    runs = ToolRuns([half, wordless, fails])
    for texts in (runs.run(calls), asyncio.run(runs.arun(calls))):
        assert texts == ['{"a": "x?"}', "error: RuntimeError: no?", "error: ValueError"]


def test_calls_hold_no_half_characters() -> None:
    said = json_call('{"name": "f", "arguments": {"\\uD800a": ["\\udc00", "\\ud83d\\ude00"]}}')
    assert said == ToolCall("f", {"?a": ["?", "\U0001f600"]})
    types = CallTypes([{"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}])
    assert types.call("f", [("a", '["\\ud800"]')]).arguments == {"a": ["?"]}


def test_old_names_of_lists_and_dicts_hold_anything() -> None:
    types = PlainTypes()
    lists: list[Any] = [typing.List, typing.Sequence]  # noqa: UP006  the old way to write it
    for wanted in lists:
        assert types.schema(wanted) == {"type": "array", "items": {}}
        assert types.value(wanted, [1, "a"]) == [1, "a"]
    dicts: list[Any] = [typing.Dict, typing.Mapping]  # noqa: UP006
    for wanted in dicts:
        assert types.schema(wanted)["type"] == "object"
        assert types.value(wanted, {"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="not"):
        types.value(typing.List, {})  # noqa: UP006


def test_an_asynchronous_tool_needs_a_loop_that_is_free() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="use achat or astream"):
            ToolRuns([slow]).run([ToolCall("slow", {"a": "x"})])

    asyncio.run(main())


def test_tools_that_cannot_be_run() -> None:
    with pytest.raises(ValueError, match=r"tools\[1\] is a schema"):
        ToolRuns([add, {"name": "f"}])
    with pytest.raises(ValueError, match="no tools"):
        ToolRuns(None)
