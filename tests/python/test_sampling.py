"""SamplingParams: what is accepted, and what each wrong value is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mtlqwen import SamplingParams
from mtlqwen.sampling import OPTIONS, ChatKeywords, Keywords, params_of

WRONG: list[tuple[str, object, type[Exception], str]] = [
    ("temperature", math.nan, ValueError, "got nan, want a finite number >= 0"),
    ("temperature", math.inf, ValueError, "got inf"),
    ("temperature", 10**400, ValueError, "got inf"),
    ("temperature", -0.1, ValueError, "got -0.1"),
    ("temperature", "0.7", TypeError, "not a number"),
    ("temperature", True, TypeError, "not a number"),
    ("seed", -1, ValueError, "got -1, want 0 to 2**64 - 1"),
    ("seed", 2**64, ValueError, "out of range"),
    ("seed", 1.0, TypeError, "not an integer"),
    ("seed", False, TypeError, "not an integer"),
    ("max_tokens", 0, ValueError, "got 0, want 1 to"),
    ("max_tokens", -5, ValueError, "got -5"),
    ("max_tokens", "12", TypeError, "not an integer"),
    ("stop", "", ValueError, "empty string"),
    ("stop", ["a", ""], ValueError, "empty string"),
    ("stop", ["a", 1], TypeError, "no string"),
    ("stop", b"a", TypeError, "not a string"),
    ("stop", 7, TypeError, "not a string"),
    ("ignore_eos", 1, TypeError, "not True or False"),
    ("thinking", 1.5, TypeError, "not True, False or a number of tokens (got 1.5)"),
    ("thinking", -1, ValueError, "got -1, want 0 to"),
    ("top_k", -1, ValueError, "got -1, want 0 to"),
    ("top_k", 20.0, TypeError, "not an integer"),
    ("top_p", 0, ValueError, "got 0, want above 0 and at most 1); 1 keeps all"),
    ("top_p", 1.01, ValueError, "got 1.01"),
    ("top_p", math.nan, ValueError, "got nan"),
    ("min_p", -0.1, ValueError, "got -0.1, want 0 to 1"),
    ("min_p", 1.5, ValueError, "got 1.5"),
    ("presence_penalty", 101, ValueError, "got 101, want -100 to 100"),
    ("frequency_penalty", math.inf, ValueError, "got inf"),
    ("top_p", 1e-60, ValueError, "got 1e-60"),
    ("repetition_penalty", 0, ValueError, "got 0, want 0.01 to 100"),
    ("repetition_penalty", "1", TypeError, "not a number"),
    ("logit_bias", {1: math.inf}, ValueError, "got inf for token 1, want -1000 to 1000, or -inf"),
    ("logit_bias", {1: math.nan}, ValueError, "got nan for token 1"),
    ("logit_bias", {-1: 0.0}, ValueError, "got -1, want 0 to"),
    ("logit_bias", {"1": 0.0}, TypeError, "not an integer (got '1')"),
    ("logit_bias", [1, 2], TypeError, "no dict of token ids and numbers"),
    ("logit_bias", 3, TypeError, "no dict"),
    ("allowed_token_ids", [], ValueError, "empty, so that no token could be chosen"),
    ("allowed_token_ids", "ab", TypeError, "not a list of token ids"),
    ("allowed_token_ids", [1.0], TypeError, "not an integer"),
    ("bad_words", "word", TypeError, "not a list of strings or lists of token ids"),
    ("bad_words", [""], ValueError, "an empty word cannot be forbidden"),
    ("bad_words", [[]], ValueError, "an empty word"),
    ("bad_words", [5], TypeError, "no string and no list of token ids (got 5)"),
    ("bad_words", [b"a"], TypeError, "no string and no list"),
    ("stop_token_ids", 7, TypeError, "not a list of token ids"),
    ("stop_token_ids", [True], TypeError, "not an integer"),
    ("n", 0, ValueError, "got 0, want 1 to 64"),
    ("n", 65, ValueError, "got 65"),
    ("min_tokens", -1, ValueError, "got -1"),
    ("logprobs", 21, ValueError, "got 21, want 0 to 20"),
    ("logprobs", True, TypeError, "not an integer"),
    ("prompt_logprobs", 21, ValueError, "got 21, want 0 to 20"),
    ("repeat_limit", 2, ValueError, "got 2, want 3 to"),
]


@pytest.mark.parametrize(("name", "value", "error", "words"), WRONG)
def test_wrong_value_is_named(name: str, value: object, error: type[Exception], words: str) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(error) as caught:
        SamplingParams(**arguments)
    assert str(caught.value).startswith(f"[sampling] {name}:")
    assert words in str(caught.value)


def test_values_are_brought_to_one_form() -> None:
    params = SamplingParams(temperature=1, seed=np.int64(3), stop="x")  # type: ignore[arg-type]
    assert params.temperature == 1.0
    assert type(params.seed) is int
    assert params.stop_strings == ("x",)
    assert SamplingParams().stop_strings == ()


def test_sequences_become_tuples_in_order() -> None:
    params = SamplingParams(
        logit_bias={7: 1, 2: -math.inf, 5: 0},
        allowed_token_ids=np.array([9, 3, 9]),  # type: ignore[arg-type]
        stop_token_ids=[4, 4, 1],
        bad_words=["b", [5, 4], "b", (5, 4), np.array([1])],  # type: ignore[list-item]
    )
    assert params.biases == params.logit_bias == ((2, -math.inf), (7, 1.0))
    assert params.allowed_token_ids == (3, 9)
    assert params.stop_token_ids == (1, 4)
    assert params.bad_words == ("b", (5, 4), (1,))
    assert hash(params) == hash(SamplingParams(**params.given()))
    assert SamplingParams(logit_bias={}).biases == SamplingParams().biases == ()


def test_no_budget_of_reasoning_is_not_no_reasoning() -> None:
    off, none = SamplingParams(thinking=False), SamplingParams(thinking=0)
    assert off != none
    assert none == SamplingParams(thinking=np.int64(0))  # type: ignore[arg-type]
    assert off == SamplingParams().merged(off)
    assert SamplingParams() != off
    assert len({off, none, SamplingParams(thinking=False)}) == 2
    assert SamplingParams(thinking=True) != SamplingParams(thinking=1)
    cases: list[tuple[Any, bool | None, int | None]] = [
        (None, None, None),
        (True, True, None),
        (False, False, None),
        (0, True, 0),
        (np.int64(512), True, 512),
    ]
    for thinking, reasons, budget in cases:
        params = SamplingParams(thinking=thinking)
        assert (params.reasons, params.thinking_budget) == (reasons, budget)


def test_min_tokens_is_at_most_max_tokens() -> None:
    with pytest.raises(
        ValueError, match=r"min_tokens: more than max_tokens \(got 5, want at most 4"
    ):
        SamplingParams(min_tokens=5, max_tokens=4)
    session, turn = SamplingParams(min_tokens=5), SamplingParams(max_tokens=4)
    with pytest.raises(ValueError, match="min_tokens"):
        session.merged(turn)
    merged = session.merged(turn, SamplingParams(min_tokens=2))  # only what comes out counts
    assert merged == SamplingParams(min_tokens=2, max_tokens=4)


def test_keywords_of_calls_are_the_fields() -> None:
    kinds = SamplingParams.__annotations__
    assert tuple(kinds) == OPTIONS
    assert ChatKeywords.__annotations__.keys() | {"n"} == kinds.keys()
    chats = {"thinking", "preserve_thinking", "reasoning_effort", "tool_choice"}
    assert Keywords.__annotations__.keys() | {"n"} | chats == kinds.keys()
    for keywords in (Keywords, ChatKeywords):
        for name, kind in keywords.__annotations__.items():
            assert kind.__forward_arg__ == kinds[name]
    with pytest.raises(TypeError, match=r"\[sampling\] topk: no such keyword \(want temperature, "):
        params_of({"topk": 1})


def test_merged_keeps_what_the_other_leaves_open() -> None:
    base = SamplingParams(temperature=0.5, seed=1, stop=["a"])
    merged = base.merged(SamplingParams(seed=2, stop=[]))
    assert merged == SamplingParams(temperature=0.5, seed=2, stop=())


def test_parameters_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 1.0  # type: ignore[misc]
