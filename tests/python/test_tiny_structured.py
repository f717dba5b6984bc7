"""Texts with a form on the bundled model, from the call to the value."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import weakref
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import jsonschema
import pydantic
import pytest
from mtlqwen import CapacityError, Completion, Engine, SamplingParams, _core, tool
from mtlqwen.constraint import Constraint
from python.test_structured import SEARCH

PROMPT = "Once upon a time there was a small robot who"
QUESTION = [{"role": "user", "content": "What is 61 times 11?"}]
MAX_TOKENS = 40
SLOW = [pytest.param(spec, marks=pytest.mark.slow) for spec in ("off", "ngram", "mtp")]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 1},
        "size": {"type": "integer", "minimum": -5, "maximum": 99},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}
REGEX = r"(abc|[0-9]{2}-){1,3}!"
CHOICES = ["yes, of course", "no", "perhaps"]
GRAMMAR = 'start: WORD ("+" WORD)?\nWORD: /[a-z]{1,5}/'


class Colour(Enum):
    """A choice of two."""

    RED = "red"
    GREEN = "green"


@dataclass
class Thing:
    """What a dataclass is for."""

    colour: Colour
    count: int
    kind: Literal["big", "small"] | None = None


class Answer(pydantic.BaseModel):
    """What a model of pydantic is for."""

    value: int = pydantic.Field(ge=0, le=9999)
    sure: bool


@pytest.fixture(scope="module")
def plain() -> Engine:
    return Engine("tiny", deterministic=True, spec="off")


@pytest.fixture(scope="module")
def drafting() -> Engine:
    return Engine("tiny", deterministic=True, spec="dflash")


def check(form: dict[str, Any], text: Completion) -> bool:
    """Whether a text is complete, and then it fits, by other means than those that made it."""
    if text.finish_reason != "stop":
        assert text.parsed is None
        assert text.parse_problem is not None
        assert text.parse_problem.startswith("the text was cut (finish_reason length)")
        return False
    assert text.parse_problem is None
    if "schema" in form:
        jsonschema.validate(json.loads(text.text), form["schema"])
        assert text.parsed == json.loads(text.text)
    elif "choices" in form:
        assert text.text in form["choices"]
    else:
        words = r"[a-z]{1,5}(\+[a-z]{1,5})?"
        assert re.fullmatch(form.get("regex", words), text.text)
    assert "schema" in form or text.parsed == text.text
    return True


FORMS: list[dict[str, Any]] = [
    {"schema": SCHEMA},
    {"regex": REGEX},
    {"choices": CHOICES},
    {"grammar": GRAMMAR},
]
SAMPLING = [
    {},
    {"temperature": 1.3, "seed": 7, "top_k": 40, "top_p": 0.95, "frequency_penalty": 0.4},
]


def jobs() -> list[dict[str, Any]]:
    """Every form in several ways, and as many texts without one."""
    held = [{**form, **sampling} for form in FORMS for sampling in SAMPLING]
    return [job for pair in zip(held, SAMPLING * len(FORMS), strict=True) for job in pair]


@pytest.fixture(scope="module")
def alone(plain: Engine) -> list[Completion]:
    return [plain.generate(PROMPT, max_tokens=MAX_TOKENS, **job) for job in jobs()]


def test_texts_have_their_form(alone: list[Completion]) -> None:
    forms = [
        {name: job[name] for name in job if name in SamplingParams(**job).form} for job in jobs()
    ]
    whole = [check(form, text) for form, text in zip(forms, alone, strict=True) if form]
    assert sum(whole) >= len(whole) - 2
    assert all(
        (text.parsed, text.parse_problem) == (None, None)
        for form, text in zip(forms, alone, strict=True)
        if not form
    )


@pytest.mark.parametrize("spec", ["dflash", *SLOW])
def test_drafts_and_company_change_no_text(alone: list[Completion], spec: str) -> None:
    with Engine("tiny", deterministic=True, spec=spec) as engine:
        if spec != "off":
            _core._testing.force_width(engine._core, 3)
        handles = [engine.submit(PROMPT, max_tokens=MAX_TOKENS, **job) for job in jobs()]
        texts = [handle.result() for handle in handles]
        engine.check_integrity()
        assert texts == alone
        assert [text.parsed for text in texts] == [text.parsed for text in alone]
        assert (int(engine.stats()["drafted_tokens"]) > 0) == (spec != "off")


def test_types_are_schemas(drafting: Engine) -> None:
    thing = drafting.chat(QUESTION, thinking=False, max_tokens=100, schema=Thing)
    assert isinstance(thing.parsed, Thing), thing
    assert isinstance(thing.parsed.colour, Colour)
    answer = drafting.chat(QUESTION, thinking=False, max_tokens=100, schema=Answer)
    assert isinstance(answer.parsed, Answer), answer
    assert json.loads(answer.content) == answer.parsed.model_dump()
    numbers = drafting.generate(PROMPT, max_tokens=60, schema=tuple[bool, bool])
    assert numbers.parsed is not None, numbers
    assert {type(item) for item in numbers.parsed} == {bool}


def test_a_value_is_made_once_and_under_no_lock(plain: Engine) -> None:
    locked: list[bool] = []

    @dataclass
    class Noted:
        """What looks about when it is made."""

        sure: bool

        def __post_init__(self) -> None:
            """Note whether others must wait."""
            locked.append(handle._generation._lock.locked())

    handle = plain.submit(PROMPT, schema=Noted, max_tokens=60)
    first = handle.result()
    assert first.parse_problem is None
    assert handle.result().parsed is first.parsed
    assert locked == [False]


def test_a_type_is_described_once_a_call(drafting: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    adapter = pydantic.TypeAdapter

    def noted(wanted: Any) -> pydantic.TypeAdapter[Any]:
        made.append(wanted)
        return adapter(wanted)

    monkeypatch.setattr(pydantic, "TypeAdapter", noted)
    texts = drafting.generate([PROMPT, PROMPT], n=2, schema=list[bool], max_tokens=9)
    assert (len(texts), made) == (2, [list[bool]])

    def double(number: int) -> int:
        return 2 * number

    doubles = tool(double)
    assert [doubles.run({"number": number}) for number in (3, 4)] == [6, 8]
    assert len(made) == 2


@pytest.mark.parametrize("thinking", [True, 3])
def test_the_form_begins_behind_reasoning(
    plain: Engine, drafting: Engine, thinking: bool | int
) -> None:
    options: dict[str, Any] = {"thinking": thinking, "max_tokens": 200}
    free = plain.chat(QUESTION, **options)
    held = [
        engine.chat(QUESTION, choices=CHOICES, logprobs=0, **options)
        for engine in (plain, drafting)
    ]
    for answer in held:
        assert answer.reasoning == free.reasoning
        assert answer.content in CHOICES
        assert answer.parsed == answer.content
        assert answer.logprobs is not None
        assert len(answer.logprobs) == len(answer.token_ids)
    assert held[0].token_ids == held[1].token_ids


def test_n_streams_and_asyncio(plain: Engine, drafting: Engine) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "seed": 4, **FORMS[3]}
    expected = plain.generate(PROMPT, n=3, **options)
    assert drafting.generate(PROMPT, n=3, **options) == expected
    assert len(set(expected)) > 1
    for text in expected:
        check(FORMS[3], text)
    stream = drafting.stream(PROMPT, **options)
    assert "".join(stream) == expected[0].text
    assert stream.result().parsed == expected[0].parsed

    async def main() -> None:
        calls = [drafting.agenerate(PROMPT, **options), drafting.achat(QUESTION, choices=CHOICES)]
        first, second = await asyncio.gather(*calls)
        assert first.parsed == expected[0].parsed
        assert second.parsed in CHOICES
        pieces = [piece async for piece in drafting.astream(PROMPT, **options)]
        assert "".join(pieces) == expected[0].text

    asyncio.run(main())
    with drafting.session(sampling=SamplingParams(choices=CHOICES, thinking=False)) as session:
        assert session.say("Really?").parsed in CHOICES
        assert re.fullmatch("[0-9]", session.say("How many?", regex="[0-9]").parsed)


def test_an_engine_that_had_a_form_goes_when_nobody_holds_it() -> None:
    engine = Engine("tiny", spec="off")
    assert engine.generate(PROMPT, choices=["on"]).parsed == "on"
    held = weakref.ref(engine.tokenizer)
    engine.close()
    del engine
    gc.collect()
    assert held() is None


def test_a_stop_string_and_a_cancel_leave_no_value(plain: Engine) -> None:
    cut = plain.generate(PROMPT, max_tokens=60, choices=["aXb", "aXc"], stop="X")
    assert (cut.text, cut.finish_reason, cut.parsed) == ("a", "stop", None)
    assert cut.parse_problem == "the text was cut (finish_reason stop)"
    handle = plain.submit(PROMPT, max_tokens=400, regex="a{300,}")
    next(iter(handle))
    handle.cancel()
    assert handle.result().finish_reason == "cancelled"
    assert handle.result().parsed is None
    assert plain.generate(PROMPT, choices=["on"]).parsed == "on"


CALLS: list[tuple[str | dict[str, str], bool]] = [
    ("required", True),
    ({"name": "now"}, False),
]
NOW = {"type": "function", "function": {"name": "now", "description": "The time."}}


@pytest.mark.parametrize(("choice", "thinking"), CALLS)
def test_calls_that_must_come(
    plain: Engine, drafting: Engine, choice: str | dict[str, str], thinking: bool
) -> None:
    said = [
        engine.chat(
            QUESTION, tools=[SEARCH, NOW], tool_choice=choice, thinking=thinking, max_tokens=100
        )
        for engine in (plain, drafting)
    ]
    assert said[0].token_ids == said[1].token_ids
    for answer in said:
        assert answer.content == ""
        assert bool(answer.reasoning) == thinking
        assert answer.parsed is None
        if answer.finish_reason == "length":
            continue
        assert answer.finish_reason == "tool_calls"
        for call in answer.tool_calls:
            assert call.name in ("search", "now")
            if call.name == "search":
                jsonschema.validate(call.arguments, SEARCH["parameters"])
        if isinstance(choice, dict):
            assert [call.name for call in answer.tool_calls] == ["now"]


def test_calls_that_may_come_and_those_that_may_not(plain: Engine, drafting: Engine) -> None:
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    weather = {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
    free = plain.chat(ask, tools=[weather], max_tokens=200)
    assert free.tool_calls, "the bundled model calls tools"
    for engine in (plain, drafting):
        auto = engine.chat(ask, tools=[weather], tool_choice="auto", max_tokens=200)
        assert [call.name for call in auto.tool_calls] == ["get_weather"]
        assert {*auto.tool_calls[0].arguments} == {"city"}
        none = engine.chat(ask, tools=[weather], tool_choice="none", max_tokens=100)
        assert none.tool_calls == []
        both = engine.chat(
            ask, tools=[weather], tool_choice="none", choices=CHOICES, max_tokens=100
        )
        assert both.parsed in CHOICES


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"schema": {}, "regex": "a"}, ValueError, r"\[sampling\] form: a text has one \(got schema"),
    ({"schema": "text"}, TypeError, r"\[structured\] schema: not a dict and no type"),
    ({"schema": {"type": "nonsense"}}, ValueError, r"\[structured\] schema: no grammar can be"),
    ({"regex": "(?=a)b"}, ValueError, r"\[structured\] regex: no grammar can be made of it"),
    ({"regex": ""}, ValueError, r"\[sampling\] regex: empty"),
    ({"choices": []}, ValueError, r"\[sampling\] choices: want strings"),
    ({"choices": "abc"}, TypeError, r"\[sampling\] choices: not a list of strings"),
    ({"grammar": "begin: /a/"}, ValueError, r"\[structured\] grammar: no grammar can be made"),
    ({"regex": "a", "ignore_eos": True}, ValueError, r"\[sampling\] ignore_eos: not with regex"),
    ({"tool_choice": "auto"}, ValueError, r"\[sampling\] tool_choice: only"),
    ({"tool_choice": "always"}, ValueError, r"\[sampling\] tool_choice: no such word"),
    ({"tool_choice": {"nam": "f"}}, TypeError, r"\[sampling\] tool_choice: no word and no"),
]


@pytest.mark.parametrize(("options", "kind", "message"), REFUSED)
def test_what_cannot_be_is_refused_before_any_token(
    plain: Engine, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    before = plain.stats()["submitted"]
    with pytest.raises(kind, match=message):
        plain.generate(PROMPT, max_tokens=5, **options)
    with pytest.raises(kind, match=message):
        plain.chat(QUESTION, max_tokens=5, **options)
    assert plain.stats()["submitted"] == before


def test_tools_that_contradict_a_form(plain: Engine) -> None:
    for choice in (None, "auto", "required"):
        with pytest.raises(ValueError, match=r"regex: with tools only where tool_choice='none'"):
            plain.chat(QUESTION, tools=[NOW], regex="a", tool_choice=choice)
    with pytest.raises(ValueError, match=r"no such tool \(got 'later', want now\)"):
        plain.chat(QUESTION, tools=[NOW], tool_choice={"name": "later"})


def test_a_form_of_a_call_takes_the_place_of_others() -> None:
    under = SamplingParams(schema=Thing, temperature=0.5)
    over = under.merged(SamplingParams(regex="a"))
    assert (over.form, over.temperature) == ({"regex": "a"}, 0.5)
    assert over.merged(SamplingParams(top_k=3)).form == {"regex": "a"}


def test_a_form_and_other_options_that_leave_no_token(plain: Engine) -> None:
    with pytest.raises(ValueError, match=r"\[structured\] sampling: no token is left"):
        plain.generate(PROMPT, regex="[0-9]+", allowed_token_ids=plain.tokenizer.encode("abc"))
    text = plain.generate(PROMPT, choices=["no"], min_tokens=40, max_tokens=60)
    assert text.parsed == "no", "a least length gives way where nothing but the end may come"


def test_a_grammar_that_becomes_too_complex_ends_its_text_alone(
    plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plain.generate(PROMPT, max_tokens=20, choices=["a" * 15])
    failure = Constraint.failure

    def failing(self: Constraint) -> Exception | None:
        if self._form.option == "regex" and self.n_tokens > 2:
            return CapacityError("[structured] regex: too complex for one step (got a test)")
        return failure(self)

    monkeypatch.setattr(Constraint, "failure", failing)
    other = plain.submit(PROMPT, max_tokens=20, choices=["a" * 15])
    stream = plain.stream(PROMPT, regex="a{9}", max_tokens=60, temperature=1.0, seed=1)
    with pytest.raises(CapacityError, match=r"\[structured\] regex: too complex for one step"):
        list(stream)
    assert other.result() == expected


def test_without_the_extra_the_error_says_how(
    plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match=r"pip install 'mtlqwen\[structured\]'"):
        plain.generate(PROMPT, choices=["yes"])
    assert plain.chat(QUESTION, tools=[NOW], tool_choice="none", max_tokens=3).tool_calls == []
