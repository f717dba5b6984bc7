"""Types as forms of text: their schemas, and values of them."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, Union

import pydantic
import pytest
from mtlqwen.schemas import describe
from mtlqwen.structured import make_form, parse


class Colour(enum.Enum):
    """Two colours."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    """Where somebody lives."""

    street: str
    number: int | None = None


@dataclass
class Person:
    """Somebody, and theirs."""

    name: str
    height: float
    colour: Colour
    homes: list[Address] = field(default_factory=list)
    child: Optional[Person] = None  # noqa: UP045

    def __post_init__(self) -> None:
        """Refuse those without a name."""
        if not self.name:
            raise ValueError("a person has a name")


class Cat(pydantic.BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: Annotated[int, pydantic.Field(ge=1, le=9)]


class Dog(pydantic.BaseModel):
    """A dog."""

    kind: Literal["dog"]
    price: Decimal = Decimal(0)


class Owner(pydantic.BaseModel):
    """The owner of one of them."""

    pet: Annotated[Union[Cat, Dog], pydantic.Field(discriminator="kind")]  # noqa: UP007

    @pydantic.field_validator("pet")
    @classmethod
    def lucky(cls, pet: Cat | Dog) -> Cat | Dog:
        if isinstance(pet, Cat) and pet.lives == 4:
            raise ValueError("unlucky")
        return pet


@pytest.fixture(params=["plain", "pydantic"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "pydantic", None)
    return str(request.param)


def value(wanted: Any, text: str) -> Any:
    parsed = parse(make_form("schema", wanted), text, "stop", whole=True)
    assert parsed.problem is None
    return parsed.value


@pytest.mark.parametrize(
    ("wanted", "text", "expected"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, float], '{"a": 1}', {"a": 1.0}),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (tuple[int, ...], "[1, 2, 3]", (1, 2, 3)),
        (int | str | None, "null", None),
        (int | float, "3", 3),
        (float | int, "3", 3),
        (Literal["a", 3], "3", 3),
        (Annotated[bool, "yes or no"], "true", True),
        (Colour, '"red"', Colour.RED),
        (tuple[str, ...] | str, '"ab"', "ab"),
        (list[Address], '[{"street": "a"}]', [Address("a")]),
        (Any, '{"a": [null]}', {"a": [None]}),
        (list, "[1]", [1]),
    ],
)
def test_values_have_their_type(either: str, wanted: Any, text: str, expected: object) -> None:
    got = value(wanted, text)
    assert (got, type(got)) == (expected, type(expected))


def test_dataclasses_in_each_other(either: str) -> None:
    text = '{"name": "Paul", "height": 2, "colour": "blue", "homes": [{"street": "a", "number": 3}]'
    text += ', "child": {"name": "Hana", "height": 1.5, "colour": "red"}}'
    child = Person("Hana", 1.5, Colour.RED)
    want = Person("Paul", 2.0, Colour.BLUE, [Address("a", 3)], child)
    assert value(Person, text) == want
    schema = describe(Person)[0]
    person = schema["$defs"]["Person"] if "$ref" in schema else schema
    assert person["required"] == ["name", "height", "colour"]
    assert person["additionalProperties"] is False
    assert schema["$defs"]["Address"]["additionalProperties"] is False


def test_what_a_type_refuses_is_a_problem(either: str) -> None:
    text = '{"name": "", "height": 1, "colour": "red"}'
    parsed = parse(make_form("schema", Person), text, "stop", whole=True)
    assert parsed.value is None
    assert "a person has a name" in (parsed.problem or "")


@dataclass
class Listed:
    """What is known by its name."""

    name: str

    def __post_init__(self) -> None:
        """Refuse those that are not on the list."""
        {"here": True}[self.name]


def test_what_the_code_of_a_type_raises_is_a_problem(either: str) -> None:
    parsed = parse(make_form("schema", Listed), '{"name": "there"}', "stop", whole=True)
    assert parsed.value is None
    assert "KeyError: 'there'" in (parsed.problem or "")
    union = Listed | dict[str, str]
    assert either == "pydantic" or value(union, '{"name": "there"}') == {"name": "there"}


def test_a_number_beyond_floats_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    parsed = parse(make_form("schema", float), "9" * 400, "stop", whole=True)
    assert "OverflowError" in (parsed.problem or "")


def test_pydantic_models() -> None:
    owner = value(Owner, '{"pet": {"kind": "dog", "price": 1.25}}')
    assert owner == Owner(pet=Dog(kind="dog", price=Decimal("1.25")))
    parsed = parse(
        make_form("schema", Owner), '{"pet": {"kind": "cat", "lives": 4}}', "stop", whole=True
    )
    assert "unlucky" in (parsed.problem or "")
    schema = describe(Owner)[0]
    assert "discriminator" not in schema["properties"]["pet"]
    assert {"type": "number"} in schema["$defs"]["Dog"]["properties"]["price"]["anyOf"]
    assert all("(?" not in text for text in map(str, schema["$defs"].values()))


def test_literals_may_be_of_an_enum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert value(Literal[Colour.BLUE, None], '"blue"') is Colour.BLUE


@pytest.mark.parametrize("wanted", [set[int], dict[int, int], complex, object(), Literal[b"a"]])
def test_types_that_are_not_json(monkeypatch: pytest.MonkeyPatch, wanted: Any) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(TypeError, match=r"^\[structured\] schema: "):
        make_form("schema", wanted)


@pytest.mark.parametrize("wanted", [type("Odd", (), {}), list["Nowhere"]])  # type: ignore[name-defined] # noqa: F821
def test_types_that_pydantic_does_not_know(wanted: Any) -> None:
    with pytest.raises(TypeError, match=r"^\[structured\] schema: no "):
        make_form("schema", wanted)
