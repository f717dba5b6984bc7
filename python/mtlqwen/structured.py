"""Structured output: from what a caller wants a text to be to a grammar that holds it to that.

The grammars are llguidance's (the extra ``structured``). Knows text; knows nothing of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mtlqwen.schemas import check_finite, describe

# Compact, or one space, or a new line with its indent. Any number of spaces would let a model that
# is lost write nothing else until max_tokens.
JSON_OPTIONS = {"whitespace_pattern": " |\n[ \t]{0,16}"}


@dataclass(frozen=True, slots=True)
class Form:
    """What a text has to be.

    Attributes:
        option: what the caller called it: ``schema``, ``regex``, ``choices`` or ``grammar``.
        grammar: the same for llguidance; equal forms have equal ones.
        parse: makes the value of a complete text; raises where it has none.
    """

    option: str
    grammar: str
    parse: Callable[[str], Any]


def make_form(option: str, value: Any) -> Form:
    """Return the form that an option describes.

    Args:
        option: ``schema``, ``regex``, ``choices`` or ``grammar``.
        value: as `SamplingParams` holds it. ``schema``: a JSON schema as a dict, a pydantic model,
            a dataclass, or a type: ``list[int]``. ``regex``: what the whole text matches, in the
            syntax of Rust's regex: no look-around. ``choices``: strings, of which the text is one.
            ``grammar``: a grammar in llguidance's dialect of Lark; its first rule is ``start``.

    Raises:
        TypeError: a schema is none, or no type of JSON values.
        ValueError: no text can fit it, or it is not valid Unicode.
        ImportError: llguidance is not installed.

    Example:
        >>> make_form("choices", ["yes", "no"]).grammar
        'start: "yes" | "no"'
    """
    if option == "schema":
        return _schema_form(value)
    for text in (value,) if isinstance(value, str) else value:
        _check_unicode(option, text)
    grammar = value
    if option == "regex":
        grammar = library().LLMatcher.grammar_from_regex(value)
    elif option == "choices":
        grammar = "start: " + " | ".join(json.dumps(item, ensure_ascii=False) for item in value)
    return Form(option, grammar, str)


def _schema_form(value: Any) -> Form:
    schema, make_value = describe(value)
    check_finite(schema)
    matcher = library().LLMatcher
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        text.encode()  # raises where there is a lone surrogate
        grammar = matcher.grammar_from_json_schema(text, JSON_OPTIONS)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"[structured] schema: not JSON (got {error}, want dicts, lists, strings and numbers)"
        ) from None
    return Form("schema", grammar, make_value)


def _check_unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"[structured] {name}: not valid Unicode (a lone surrogate)") from None


@dataclass(frozen=True, slots=True)
class Parsed:
    """The value of a text, or why it has none.

    Attributes:
        value: what the text says; None where there is a ``problem``, or where it says null.
        problem: why there is no value, in words; None where there is one.
    """

    value: Any
    problem: str | None = None


def parse(form: Form, text: str, finish_reason: str, *, whole: bool) -> Parsed:
    """Return the value of a generated text.

    Args:
        form: what it had to be.
        text: the answer, without reasoning.
        finish_reason: how it ended.
        whole: its last token was the end of the turn, which comes only after a complete text.
    """
    if not whole:
        advice = "; raise max_tokens" if finish_reason == "length" else ""
        return Parsed(None, f"the text was cut (finish_reason {finish_reason}){advice}")
    try:
        return Parsed(form.parse(text))
    except Exception as error:  # a type's own code may raise anything
        said = f"{type(error).__name__}: {error}"
        return Parsed(None, f"the text is complete, but no value of the type ({said})")


def library() -> Any:
    """Return the module llguidance.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import llguidance
    except ImportError:
        raise ImportError(
            "[structured] llguidance: not installed; pip install 'mtlqwen[structured]'"
        ) from None
    return llguidance
