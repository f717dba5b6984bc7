"""What structured output refuses, and what it says then."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from mtlqwen import ModelError, SamplingParams
from mtlqwen.constraint import Constraint
from mtlqwen.structured import Form, make_form, parse
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.vocabulary import Vocabulary


def form_of(options: dict[str, Any]) -> Form:
    ((option, value),) = SamplingParams(**options).form.items()
    return make_form(option, value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"regex": "a", "choices": ["a"]}, ValueError, "form: a text has one (got regex and choi"),
        ({"schema": "object"}, TypeError, "schema: not a dict and no type (got str)"),
        ({"schema": {"a": object()}}, ValueError, "schema: not JSON"),
        ({"schema": {"const": "\ud800"}}, ValueError, "schema: not JSON (got 'utf-8' codec"),
        ({"schema": False}, ValueError, "schema: no text can fit it"),
        ({"regex": 3}, TypeError, "regex: not a string (got 3)"),
        ({"regex": ""}, ValueError, "regex: empty"),
        ({"grammar": "\ud800"}, ValueError, "grammar: not valid Unicode"),
        ({"choices": "yes"}, TypeError, "choices: not a list of strings"),
        ({"choices": []}, ValueError, "choices: want strings that are not empty (got no string)"),
        ({"choices": ["a", ""]}, ValueError, "choices: want strings that are not empty (got an em"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        form_of(options)
    assert re.match(rf"\[(sampling|structured)\] {re.escape(words)}", str(caught.value))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": {"type": "integer", "minimum": 5, "maximum": 3}}, "is greater than maximum"),
        ({"schema": {"type": "strin"}}, "strin"),
        ({"schema": {"enum": []}}, "Unsatisfiable"),
        ({"schema": {"oneOf": [{"type": "string"}, {"minLength": 2}]}}, "oneOf"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": "[^\\s\\S]"}, "got NoExtension"),
        ({"grammar": "start: foo"}, "unknown name"),
        ({"grammar": 'start: "a" start'}, "Too many items"),
        ({"grammar": "start: a\na[max_tokens=3]: /.*/"}, "rollback not supported"),
    ],
)
def test_grammars_that_cannot_be(
    vocabulary: Vocabulary, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=r"^\[structured\] ") as caught:
        Constraint(vocabulary, form_of(options))
    message = str(caught.value)
    assert message.startswith(f"[structured] {next(iter(options))}: no grammar can be made of it")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"anyOf": [{"$ref": "#/$defs/a~1b"}]}}},
    ],
)
def test_schemas_without_an_end(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"schema: no text can fit it"):
        make_form("schema", schema)


def test_a_text_that_was_cut_has_no_value() -> None:
    form = make_form("schema", {"type": "integer"})
    assert parse(form, "12", "stop", whole=True).value == 12
    cut = parse(form, "12", "length", whole=False)
    assert cut.value is None
    assert cut.problem == "the text was cut (finish_reason length); raise max_tokens"
    assert "(finish_reason cancelled)" in (parse(form, "1", "cancelled", whole=False).problem or "")
    assert "no value" in (parse(form, "9" * 5000, "stop", whole=True).problem or "")


def test_without_llguidance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match=r"pip install 'mtlqwen\[structured\]'"):
        make_form("regex", "a")


def test_tokenizers_that_do_not_fit(bundled_tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelError, match=r"got 8192, want at most 100"):
        Vocabulary(bundled_tokenizer, 100, [8167])
    with pytest.raises(ModelError, match=r"one that ends a turn"):
        Vocabulary(bundled_tokenizer, 8203, [8200])
