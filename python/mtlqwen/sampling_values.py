"""The values that options of sampling may have, each brought to one form.

Knows their ranges; knows nothing of models. Every error names its option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mtlqwen.checks import (
    MAX_SEED,
    check_flag,
    check_integer,
    check_number,
    is_listing,
    listed,
    to_number,
)
from mtlqwen.loops import MIN_REPEATS

MAX_TOKENS = 2**31 - 1
MAX_N = 64
MAX_TOP_LOGPROBS = 20
TOOL_CHOICES = ("auto", "none", "required")
# A logit lies within some tens, so these force or forbid; far beyond them float32 would drop the
# digits of the logit itself.
MAX_BIAS = 1000.0
MAX_PENALTY = 100.0
MIN_TOP_P = 2.0**-126  # what float32 tells from 0


def checked(name: str, value: object) -> Any:
    """Return the value of the option ``name`` in its one form.

    Raises:
        TypeError: it has the wrong type.
        ValueError: it is out of its range.
    """
    return _CHECKS[name](name, value)


def _integer(low: int, high: int) -> Callable[[str, object], int]:
    return lambda name, value: check_integer("sampling", name, value, low, high)


def _number(low: float, high: float) -> Callable[[str, object], float]:
    return lambda name, value: check_number("sampling", name, value, low, high)


def _flag(name: str, value: object) -> object:
    check_flag("sampling", name, value)
    return value


def _temperature(name: str, value: object) -> float:
    number = to_number("sampling", name, value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(
            f"[sampling] {name}: not usable (got {number}, want a finite number >= 0); 0 is greedy"
        )
    return number


def _top_p(name: str, value: object) -> float:
    number = to_number("sampling", name, value)
    if not MIN_TOP_P <= number <= 1:
        raise ValueError(
            f"[sampling] {name}: out of range (got {number:g}, want above 0 and at most 1); "
            "1 keeps all tokens, top_k=1 only the likeliest one"
        )
    return number


def _word(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"[sampling] {name}: no string (got {type(value).__name__})")
    return str(value)


def _thinking(name: str, value: object) -> bool | int:
    if isinstance(value, bool):
        return value
    if not hasattr(value, "__index__"):
        raise TypeError(f"[sampling] {name}: not True, False or a number of tokens (got {value!r})")
    return check_integer("sampling", name, value, 0, MAX_TOKENS)


def _stop(name: str, value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or isinstance(items, (bytes, bytearray)):
        raise TypeError(f"[sampling] {name}: not a string or a list of strings (got {value!r})")
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"[sampling] {name}: holds something that is no string (got {item!r})")
        if not item:
            raise ValueError(f"[sampling] {name}: an empty string would end every text at once")
    return tuple(items)


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    """Return token ids, ascending, each once."""
    return tuple(sorted(set(_tokens(name, value))))


def _allowed(name: str, value: object) -> tuple[int, ...]:
    token_ids = _token_ids(name, value)
    if not token_ids:
        raise ValueError(
            f"[sampling] {name}: empty, so that no token could be chosen; leave it out to allow all"
        )
    return token_ids


def _tokens(name: str, value: object) -> list[int]:
    items = listed(value)
    if not is_listing(items):
        raise TypeError(f"[sampling] {name}: not a list of token ids (got {value!r})")
    return [check_integer("sampling", name, item, 0, MAX_TOKENS) for item in items]


def _bias(name: str, value: object) -> tuple[tuple[int, float], ...]:
    """Return pairs of token and bias, ascending; those that change nothing are left out."""
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not is_listing(pairs) or not all(is_listing(p) and len(p) == 2 for p in pairs):
        raise TypeError(f"[sampling] {name}: no dict of token ids and numbers (got {value!r})")
    biases: dict[int, float] = {}
    for key, item in pairs:
        token_id = check_integer("sampling", name, key, 0, MAX_TOKENS)
        bias = to_number("sampling", name, item)
        if not (-MAX_BIAS <= bias <= MAX_BIAS or bias == -math.inf):
            raise ValueError(
                f"[sampling] {name}: out of range (got {bias:g} for token {token_id}, want "
                f"{-MAX_BIAS:g} to {MAX_BIAS:g}, or -inf); -inf forbids a token, "
                "allowed_token_ids forbids all others"
            )
        biases[token_id] = bias
    return tuple(sorted((token_id, bias) for token_id, bias in biases.items() if bias != 0))


def _bad_words(name: str, value: object) -> tuple[str | tuple[int, ...], ...]:
    if not is_listing(value):
        raise TypeError(
            f"[sampling] {name}: not a list of strings or lists of token ids (got {value!r})"
        )
    words: list[str | tuple[int, ...]] = []
    for item in value:
        if not isinstance(item, str) and not is_listing(listed(item)):
            raise TypeError(
                f"[sampling] {name}: holds something that is no string and no list of token ids "
                f"(got {item!r})"
            )
        word = item if isinstance(item, str) else tuple(_tokens(name, item))
        if not word:
            raise ValueError(f"[sampling] {name}: an empty word cannot be forbidden; leave it out")
        words.append(word)
    return tuple(dict.fromkeys(words))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"[sampling] {name}: not a string (got {value!r})")
    if not value:
        raise ValueError(f"[sampling] {name}: empty; leave it out to allow any text")
    return value


def _choices(name: str, value: object) -> tuple[str, ...]:
    if not is_listing(value) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"[sampling] {name}: not a list of strings (got {value!r})")
    if not value or "" in value:
        got = "an empty string" if value else "no string"
        raise ValueError(f"[sampling] {name}: want strings that are not empty (got {got})")
    return tuple(dict.fromkeys(value))


def _tool_choice(name: str, value: object) -> str | dict[str, str]:
    """Return one of three words, or a dict with the name of a function."""
    if isinstance(value, str):
        if value not in TOOL_CHOICES:
            want = ", ".join(map(repr, TOOL_CHOICES))
            raise ValueError(
                f"[sampling] {name}: no such word (got {value!r}, want {want}, or a dict with the "
                "name of a function)"
            )
        return value
    function = value.get("function", value) if isinstance(value, Mapping) else None
    called = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(called, str):
        raise TypeError(f'[sampling] {name}: no word and no {{"name": function}} (got {value!r})')
    return {"name": called}


_CHECKS: dict[str, Callable[[str, object], object]] = {
    "temperature": _temperature,
    "top_k": _integer(0, MAX_TOKENS),
    "top_p": _top_p,
    "min_p": _number(0.0, 1.0),
    "presence_penalty": _number(-MAX_PENALTY, MAX_PENALTY),
    "frequency_penalty": _number(-MAX_PENALTY, MAX_PENALTY),
    "repetition_penalty": _number(1 / MAX_PENALTY, MAX_PENALTY),
    "logit_bias": _bias,
    "allowed_token_ids": _allowed,
    "bad_words": _bad_words,
    "seed": _integer(0, MAX_SEED),
    "n": _integer(1, MAX_N),
    "max_tokens": _integer(1, MAX_TOKENS),
    "min_tokens": _integer(0, MAX_TOKENS),
    "stop": _stop,
    "stop_token_ids": _token_ids,
    "ignore_eos": _flag,
    "repeat_limit": _integer(MIN_REPEATS, MAX_TOKENS),
    "logprobs": _integer(0, MAX_TOP_LOGPROBS),
    "prompt_logprobs": _integer(0, MAX_TOP_LOGPROBS),
    "thinking": _thinking,
    "preserve_thinking": _flag,
    "reasoning_effort": _word,
    "schema": lambda _, value: value,  # structured.py knows what one is
    "regex": _text,
    "choices": _choices,
    "grammar": _text,
    "tool_choice": _tool_choice,
}
