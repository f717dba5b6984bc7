"""Forms of text: grammars, masks and values, on the bundled vocabulary and without an engine."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import jsonschema
import numpy as np
import pytest
from mtlqwen import forms as forms_module
from mtlqwen import vocabulary as vocabulary_module
from mtlqwen.constraint import Constraint, fill_masks
from mtlqwen.forms import Forms, Held
from mtlqwen.parts import parse_tool_calls
from mtlqwen.structured import Form, make_form, parse
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.tool_grammar import tool_form
from mtlqwen.vocabulary import Vocabulary
from numpy.typing import NDArray
from python.slow_masks import SLOW_FORMS, slow_row

Masks: TypeAlias = NDArray[np.uint32]

ANY = 0xFFFFFFFF

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "object": PERSON,
    "nested": {
        "type": "object",
        "properties": {"people": {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 3}},
        "required": ["people"],
        "additionalProperties": False,
    },
    "open object": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "enum": {"enum": ["red", "grün", 3, None, {"a": [1]}]},
    "one of": {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": kind}, kind: {"type": "integer"}}}
            | {"required": ["kind", kind], "additionalProperties": False}
            for kind in ("cat", "dog")
        ]
    },
    "any of": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 5}, PERSON]},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "range": {"type": "number", "minimum": -2.5, "exclusiveMaximum": 7},
    "steps": {"type": "integer", "minimum": 10, "maximum": 99, "multipleOf": 5},
    "unicode": {"type": "object", "properties": {"größe 🎈": {"const": "é\u0301<|im_end|>"}}}
    | {"required": ["größe 🎈"], "additionalProperties": False},
    "recursion": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "string", "format": "date"}, {"type": "boolean"}],
        "minItems": 2,
        "maxItems": 2,
    },
    "anything": {},
}
SEARCH = {
    "name": "search",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "max": {"type": "number"},
            "kind": {"enum": ["new", "used"]},
            "box": {"$ref": "#/$defs/Box"},
        },
        "required": ["query", "max", "box"],
        "$defs": {"Box": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    },
}
NOW = {"type": "function", "function": {"name": "now"}}


def new_masks(vocabulary: Vocabulary, rows: int) -> Masks:
    return np.full((rows, vocabulary.words), 0x5A5A5A5A, np.uint32)


def allowed(row: Masks) -> list[int]:
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return list(np.flatnonzero(bits).tolist())


def write_masks(constraint: Constraint, drafted: Sequence[int], out: Masks) -> None:
    assert fill_masks([(constraint, 0, drafted)], out) == [None]


def walk(
    constraint: Constraint, vocabulary: Vocabulary, seed: int, closers: Sequence[str] = '"}]'
) -> list[int]:
    """Return tokens chosen at random among those that may come, most preferring what closes."""
    rng = random.Random(seed)
    closing = {i for text in closers for i in vocabulary._tokenizer.encode(text)}
    token_ids: list[int] = []
    out = new_masks(vocabulary, 1)
    while not {*token_ids[-1:]} & {*vocabulary.stop_ids}:
        assert len(token_ids) < 3000
        write_masks(constraint, [], out)
        choices = allowed(out[0])
        assert choices
        assert max(choices) < 8192
        ends = [token_id for token_id in choices if token_id in vocabulary.stop_ids]
        near = [token_id for token_id in choices if token_id in closing]
        preferred = [some for some in (ends, near) if some and rng.random() < 0.8]
        token_id = rng.choice([*preferred, choices][0])
        constraint.advance([token_id])
        token_ids.append(token_id)
    return token_ids


def text_of(token_ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """Return the text, of valid UTF-8, without the end of the turn."""
    return b"".join(map(vocabulary._tokenizer.token_bytes, token_ids)).decode("utf-8")


@pytest.mark.parametrize("name", SCHEMAS)
def test_texts_of_a_schema_fit_it(vocabulary: Vocabulary, name: str) -> None:
    schema = SCHEMAS[name]
    form = make_form("schema", schema)
    for seed in range(6):
        text = text_of(walk(Constraint(vocabulary, form), vocabulary, seed), vocabulary)
        jsonschema.validate(json.loads(text), schema)
        assert parse(form, text, "stop", whole=True).value == json.loads(text)


@pytest.mark.parametrize("regex", ["[ab]{3}(, ?[0-9]+)*", "/a/|\\\\d", "(Hä|日本)?[^x]", "a.b"])
def test_texts_of_a_regex_match_it(vocabulary: Vocabulary, regex: str) -> None:
    form = make_form("regex", regex)
    for seed in range(6):
        text = text_of(walk(Constraint(vocabulary, form), vocabulary, seed), vocabulary)
        assert re.fullmatch(regex, text)
        assert parse(form, text, "stop", whole=True).value == text


def test_texts_of_choices_are_among_them(vocabulary: Vocabulary) -> None:
    choices = ["yes", "no", 'say "\\" so', "<|im_end|>", "</think>", "e\u0301", "two\nlines"]
    form = make_form("choices", choices)
    walks = [walk(Constraint(vocabulary, form), vocabulary, seed, []) for seed in range(40)]
    assert {text_of(token_ids, vocabulary) for token_ids in walks} == set(choices)
    for token_ids in walks:  # names of added tokens are spelled as text
        assert not {*token_ids[:-1]} & {a.token_id for a in vocabulary._tokenizer.added.values()}


def test_a_grammar_may_name_added_tokens(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer
) -> None:
    lark = 'start: <think> A "<think>" </think> // <think>\nA: /<think>[0-9]/'
    constraint = Constraint(vocabulary, make_form("grammar", lark))
    think, end = bundled_tokenizer.token_id("<think>"), bundled_tokenizer.token_id("</think>")
    token_ids = walk(constraint, vocabulary, 0)
    assert (token_ids[0], token_ids[-2]) == (think, end)
    assert token_ids.count(think or -1) == 1


@pytest.mark.parametrize("name", ["nested", "one of", "unicode", "range", "anything"])
def test_masks_behind_a_draft_are_those_after_it(vocabulary: Vocabulary, name: str) -> None:
    form = make_form("schema", SCHEMAS[name])
    token_ids = walk(Constraint(vocabulary, form), vocabulary, 7)
    constraint = Constraint(vocabulary, form)
    rng = random.Random(name)
    at = 0
    while at < len(token_ids):
        draft = token_ids[at : at + rng.randint(0, 6)]
        out, one = new_masks(vocabulary, len(draft) + 1), new_masks(vocabulary, 1)
        write_masks(constraint, draft, out)
        taken = rng.randint(0, len(draft)) or 1
        ahead = Constraint(vocabulary, form)
        ahead.advance(token_ids[:at])
        for row, token_id in enumerate([*draft, None]):
            if {*draft[:row]} & {*vocabulary.stop_ids}:
                assert (out[row:] == ANY).all()
                break
            write_masks(ahead, [], one)
            assert (out[row] == one[0]).all()
            if token_id is not None:
                ahead.advance([token_id])
        constraint.advance(token_ids[at : at + taken])
        at += taken


@pytest.mark.parametrize("option", SLOW_FORMS)
def test_masks_allow_what_a_form_can_still_become(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer, option: str
) -> None:
    form = make_form(option, SLOW_FORMS[option].value)
    for seed in range(8):
        token_ids = walk(Constraint(vocabulary, form), vocabulary, seed, "]")
        constraint = Constraint(vocabulary, form)
        out = new_masks(vocabulary, len(token_ids))
        write_masks(constraint, token_ids[:-1], out)
        text = b""
        for token_id, row in zip(token_ids, out, strict=True):
            slow = slow_row(option, text, bundled_tokenizer, vocabulary.stop_ids, vocabulary.words)
            assert allowed(row) == allowed(slow), text
            text += bundled_tokenizer.token_bytes(token_id)


def test_behind_a_refused_draft_every_bit_is_set(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer
) -> None:
    constraint = Constraint(vocabulary, make_form("schema", PERSON))
    draft = [*bundled_tokenizer.encode('{"name":"A"x'), 8200]
    out = new_masks(vocabulary, len(draft) + 1)
    write_masks(constraint, draft, out)
    refused = next(i for i, token_id in enumerate(draft) if token_id not in allowed(out[i]))
    assert draft[refused] in bundled_tokenizer.encode("x")
    assert (out[refused + 1 :] == ANY).all()
    assert not (out[: refused + 1] == ANY).all(axis=1).any()


def test_only_the_end_may_come_when_all_is_said(vocabulary: Vocabulary) -> None:
    constraint = Constraint(vocabulary, make_form("choices", ["yes"]))
    constraint.advance(yes := vocabulary._tokenizer.encode("yes"))
    out = new_masks(vocabulary, 1)
    write_masks(constraint, [], out)
    assert allowed(out[0]) == sorted(vocabulary.stop_ids)
    constraint.advance([vocabulary.stop_ids[1], 5, 6])
    assert constraint.n_tokens == len(yes) + 1


def test_reasoning_is_free_and_the_answer_begins_behind_it(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer
) -> None:
    opening = bundled_tokenizer.encode("</think>\n\n")
    constraint = Constraint(vocabulary, make_form("choices", ["yes", "no"]), opening)
    assert constraint.waiting_for == opening[0]
    constraint.advance(bundled_tokenizer.encode("Hm. {"))
    draft = [*bundled_tokenizer.encode("So\n"), *opening, *bundled_tokenizer.encode("yes")]
    out = new_masks(vocabulary, len(draft) + 1)
    write_masks(constraint, draft, out)
    start = draft.index(opening[0]) + 1
    assert (out[:start] == ANY).all()
    assert allowed(out[start]) == [opening[1]]
    assert {bundled_tokenizer.token_text(i)[0] for i in allowed(out[start + 1])} == {"y", "n"}
    assert allowed(out[-1]) == sorted(vocabulary.stop_ids)
    write_masks(constraint, [opening[0], 5, 5], out[:4])
    assert (out[2:4] == ANY).all()
    constraint.advance([opening[0]])
    assert constraint.waiting_for is None
    before = constraint.n_tokens
    constraint.advance([*draft[start:], vocabulary.stop_ids[0], 5])
    assert constraint.n_tokens == before + len(draft[start:]) + 1


def test_several_constraints_fill_one_array(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer
) -> None:
    free, done = (Constraint(vocabulary, make_form("choices", ["yes", "no"])) for _ in range(2))
    waiting = Constraint(vocabulary, make_form("regex", "a+"), [9])
    wrong = Constraint(vocabulary, make_form("schema", PERSON))
    with pytest.raises(RuntimeError, match=r"\[structured\] schema: a token came that"):
        wrong.advance(bundled_tokenizer.encode("no"))
    done.advance(yes := bundled_tokenizer.encode("yes"))
    out = new_masks(vocabulary, 10)
    batch = [(done, 8, []), (free, 1, yes), (waiting, 3, [9]), (wrong, 6, [5])]
    errors = fill_masks(batch, out)
    assert [type(error) for error in errors] == [type(None)] * 3 + [RuntimeError]
    assert allowed(out[8]) == sorted(vocabulary.stop_ids) == allowed(out[1 + len(yes)])
    assert (out[[3, 6, 7]] == ANY).all()
    assert {bundled_tokenizer.token_text(i)[0] for i in allowed(out[4])} == {"a"}
    assert (out[[0, 5, 9]] == 0x5A5A5A5A).all()
    assert fill_masks([], out) == []


def test_arrays_that_do_not_fit(vocabulary: Vocabulary) -> None:
    constraint = Constraint(vocabulary, make_form("regex", "a+"))
    fit = new_masks(vocabulary, 3)
    misfits: list[Any] = [fit[:1], fit[:, 1:], fit.astype(np.int32), fit[::2], fit[0]]
    for out in misfits:
        with pytest.raises(ValueError, match=r"\[structured\] out: does not fit"):
            fill_masks([(constraint, 0, [5])], out)


def test_grammars_are_kept(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Form] = []
    make = vocabulary._make

    def noted(form: Form) -> Any:
        made.append(form)
        return make(form)

    monkeypatch.setattr(vocabulary, "_make", noted)
    monkeypatch.setattr(vocabulary_module, "MAX_CACHED", 2)
    for regex in ("q", "r", "q", "s", "q", "r"):
        vocabulary.compile(make_form("regex", regex))
    assert [json.loads(form.grammar)["grammars"][0]["lark_grammar"] for form in made] == [
        f"start: /{regex}/" for regex in ("q", "r", "s", "r")
    ]


def test_a_signals_handler_may_want_what_it_interrupts(
    bundled_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = Forms(bundled_tokenizer, 257, lambda function: None, [8167])

    def interrupted(*arguments: Any) -> Vocabulary:
        made = Vocabulary(*arguments)
        for lock in (forms._lock, made._lock):
            with lock:
                assert lock.acquire(blocking=False), "the handler would wait for ever"
                lock.release()
        return made

    monkeypatch.setattr(forms_module, "Vocabulary", interrupted)
    assert forms.constrain(Held(make_form("regex", "a")))[0].waiting_for is None


@pytest.mark.parametrize("choice", ["auto", "required", {"name": "search"}, {"name": "now"}])
def test_tool_calls(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer, choice: str | dict[str, str]
) -> None:
    tools = [SEARCH, NOW]
    form, opening = tool_form(tools, choice, bundled_tokenizer)
    begin = bundled_tokenizer.token_id("<tool_call>")
    assert opening == ((begin,) if choice == "auto" else ())
    for seed in range(2):
        token_ids = bundled_tokenizer.encode("Well.\n\n<tool_call>") if opening else []
        constraint = Constraint(vocabulary, form, opening)
        constraint.advance(token_ids)
        token_ids += walk(constraint, vocabulary, seed, ["\n</parameter>\n", "]"])
        text = text_of(token_ids, vocabulary)
        parts = [part.partition("</tool_call>")[0] for part in text.split("<tool_call>")[1:]]
        calls = parse_tool_calls(parts, tools)
        assert len(calls) == token_ids.count(begin or -1) > 0
        for call in calls:
            if call.name == "search":
                jsonschema.validate(call.arguments, SEARCH["parameters"])
            else:
                assert (call.name, call.arguments) == ("now", {})
        if isinstance(choice, dict):
            assert [call.name for call in calls] == [choice["name"]]


def test_arguments_hold_any_text_but_their_end(
    vocabulary: Vocabulary, bundled_tokenizer: Tokenizer
) -> None:
    value = "</div>\n</para\n\n </parameter> x</parameter>y\n\n"
    form, _ = tool_form([SEARCH], {"name": "search"}, bundled_tokenizer)
    call = f"\n<function=search>\n<parameter=query>\n{value}\n</parameter>\n<parameter=max>\n4.5"
    call += "\n</parameter>\n<parameter=box>\n[1, 2]\n</parameter>\n</function>\n"
    constraint = Constraint(vocabulary, form)
    said = bundled_tokenizer.encode(f"<tool_call>{call}</tool_call><|im_end|>")
    constraint.advance(said)
    assert constraint.n_tokens == len(said)
    (parsed,) = parse_tool_calls([call], [SEARCH])
    assert parsed.arguments == {"query": value, "max": 4.5, "box": [1, 2]}


def test_tools_that_cannot_be_called(bundled_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"tool_choice: no such tool .*'later', want now"):
        tool_form([NOW], {"name": "later"}, bundled_tokenizer)
    with pytest.raises(ValueError, match=r"tools: a name that no call can hold"):
        tool_form([{"name": "a>b"}], "auto", bundled_tokenizer)
