"""Every pair of options, on the bundled model, against a plain engine and one request at a time.

The masks of the plain engine's forms come of trying every token, not of llguidance. Left out are
pairs that cannot be: two ways to ask (a plain prompt has no thinking, only `generate` has ``n``);
two forms; a form and ``ignore_eos``, which is refused, as is a form with tools, but for
``tool_choice="none"``, which is here. Forms that are calls (the other choices of tools) are in
``test_tiny_structured.py``, what chat templates read in ``test_chat.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
from mtlqwen import Completion, Engine, forms
from python.pairs import all_pairs, covering_rows, pairs_of
from python.slow_masks import SLOW_FORMS, SlowMasks

TEXTS = (
    "Once upon a time there was a small robot who walked and walked and walked through the town "
    "and asked everybody whom it met where the sea was, and nobody could tell it, and so it",
    "a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c a b",
    "List the numbers, one after another: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,",
)
END = 8167
# The end of a turn, characters, and longer tokens: a form finds some of them at every place.
COMMON = [END, *range(256), *range(300, 900, 3)]
NOW = {"type": "function", "function": {"name": "now", "description": "The time."}}

# How a text is asked for. Several texts, streams and budgets of reasoning exclude each other.
PLAIN = ("generate", "n", "stream")
CHATS = ("chat", "thinking", "no thinking", "budget", "chat stream", "tools")
# Of the engine, and of what happens in it.
AROUND: dict[str, Sequence[Any]] = {
    "spec": ("off", "ngram", "mtp", "dflash", "auto"),
    "slots": (1, 3, 8),
    "deterministic": (True, False),
    "cache": ("none", "cold", "hit"),
    "memory": ("roomy", "scarce"),
    "company": (0, 2, 5),
    "priority": (0, 3),
}
# Of the request. None: it is not set.
OPTIONS: dict[str, Sequence[Any]] = {
    "call": PLAIN + CHATS,
    "text": (0, 1, 2),
    "temperature": (0.0, 0.9),
    "seed": (1, 2**40 + 7),
    "top_k": (None, 8),
    "top_p": (None, 0.8),
    "min_p": (None, 0.05),
    "presence_penalty": (None, 0.8),
    "frequency_penalty": (None, 0.3),
    "repetition_penalty": (None, 1.2),
    "logit_bias": (None, {310: 2.0, 320: -math.inf, 401: -3.0}),
    "allowed_token_ids": (None, COMMON),
    "bad_words": (None, ["the", [10], [321, 322]]),
    "stop": (None, ["q", "ing "]),
    "stop_token_ids": (None, [310, 333]),
    "end": ({}, {"ignore_eos": True}, *({name: form.value} for name, form in SLOW_FORMS.items())),
    "min_tokens": (None, 6),
    "max_tokens": (9, 20),
    "repeat_limit": (None, 6),
    "logprobs": (None, 0, 3),
    "prompt_logprobs": (None, 0, 2),
}
FACTORS = AROUND | OPTIONS
ROWS = covering_rows(FACTORS, seed=6)
N_CORE = 10  # of them; the others are slow
SLOW = [pytest.param(i, marks=pytest.mark.slow) for i in range(N_CORE, len(ROWS))]


def settings(row: dict[str, int]) -> dict[str, Any]:
    return {name: FACTORS[name][value] for name, value in row.items()}


def keywords(row: dict[str, Any]) -> dict[str, Any]:
    """Of the call."""
    names = [name for name in OPTIONS if name not in ("call", "text", "end")]
    return {name: row[name] for name in names if row[name] is not None} | dict(row["end"])


def ask(engine: Engine, row: dict[str, Any], **more: Any) -> list[Completion]:
    """The results of a row's call."""
    options = keywords(row) | more
    call, text = row["call"], TEXTS[row["text"]]
    messages = [{"role": "user", "content": text}]
    if call in ("generate", "n"):
        texts = engine.generate(text, n=3 if call == "n" else 1, **options)
        return list(texts)
    if call == "stream":
        return [streamed(engine.stream(text, **options))]
    if call == "chat stream":
        return [streamed(engine.stream(messages, thinking=3, **options))]
    if call == "tools":
        options |= {"tools": [NOW], "tool_choice": "none"}
    thinking = {"thinking": True, "no thinking": False, "tools": False, "budget": 4}.get(call)
    return [engine.chat(messages, thinking=thinking, **options)]


def streamed(stream: Any) -> Completion:
    """A stream's result; its pieces are its text."""
    pieces = list(stream)
    result: Completion = stream.result()
    assert "".join(piece for piece in pieces if piece.kind == "text") == result.text
    return result


def facts(result: Completion) -> dict[str, Any]:
    """What must be the same."""
    names = (
        *("text", "token_ids", "finish_reason", "reasoning", "parsed", "parse_problem"),
        *("logprobs", "prompt_logprobs"),
    )
    return {name: getattr(result, name) for name in names if hasattr(result, name)}


@cache
def plain_engine(deterministic: bool) -> tuple[Engine, SlowMasks]:
    masks = SlowMasks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms, "fill", masks.fill)
        engine = Engine(
            "tiny", spec="off", slots=1, cache_memory=0, context=512, deterministic=deterministic
        )
    return engine, masks


@cache
def expected(number: int, deterministic: bool) -> list[dict[str, Any]]:
    row = settings(ROWS[number])
    engine, masks = plain_engine(deterministic)
    before = masks.n_rows
    results = ask(engine, row)
    held = SLOW_FORMS.keys() & row["end"].keys()
    assert (masks.n_rows > before) == bool(held) or row["call"] in ("chat", "thinking")
    return [facts(result) for result in results]


def rounded(facts: dict[str, Any]) -> dict[str, Any]:
    """Logprobs but for what other kernels change."""

    def numbers(each: Any) -> Any:
        return each and (each.token_id, pytest.approx(each.logprob, abs=1e-2), len(each.top))

    lists = {name: facts[name] for name in ("logprobs", "prompt_logprobs")}
    return facts | {name: each and [numbers(one) for one in each] for name, each in lists.items()}


@cache
def scarce_budget(spec: str, slots: int, deterministic: bool) -> int:
    """Hardly more than one sequence of the context needs."""
    from mtlqwen import CapacityError

    try:
        Engine(
            "tiny", spec=spec, slots=slots, context=512, memory_budget=1, block_tokens=64,
            deterministic=deterministic,
        )  # fmt: skip
    except CapacityError as error:
        return int(str(error).partition("want at least ")[2].partition(")")[0]) + (1 << 20)
    raise AssertionError("one byte suffices")


def open_engine(row: dict[str, Any]) -> Engine:
    budget = None
    if row["memory"] == "scarce":
        budget = scarce_budget(row["spec"], row["slots"], row["deterministic"])
    return Engine(
        "tiny",
        spec=row["spec"],
        slots=row["slots"],
        context=512,
        block_tokens=64,
        checkpoint_interval=16,
        deterministic=row["deterministic"],
        memory_budget=budget,
        cache_memory=0 if row["cache"] == "none" else None,
    )


def test_every_pair_is_in_a_row() -> None:
    covered = set().union(*(pairs_of(list(row.items())) for row in ROWS))
    assert covered == all_pairs(FACTORS)
    print(f"{len(FACTORS)} options, {len(covered)} pairs, {len(ROWS)} rows")


@pytest.mark.parametrize("number", [*range(N_CORE), *SLOW])
def test_row(number: int) -> None:
    """Beside it run requests of other rows, which must come out right as well."""
    row = settings(ROWS[number])
    others = [(number + 1 + i * 5) % len(ROWS) for i in range(row["company"])]
    with open_engine(row) as engine, ThreadPoolExecutor(8) as threads:
        if row["cache"] == "hit":
            ask(engine, row | {"max_tokens": 1, "min_tokens": None})
        jobs: list[Callable[[], list[Completion]]] = [
            lambda: ask(engine, row, priority=row["priority"]),
            *(lambda other=other: ask(engine, settings(ROWS[other])) for other in others),
        ]
        results = [job.result() for job in [threads.submit(job) for job in jobs]]
        engine.check_integrity()
        if row["cache"] == "hit" and row["memory"] == "roomy" and not row["prompt_logprobs"]:
            usage = results[0][0].usage
            told = row["prompt_logprobs"] is not None
            assert told or usage.cached_tokens > 0
    for name, result in zip([number, *others], results, strict=True):
        got = [facts(each) for each in result]
        wanted = expected(name, row["deterministic"])
        if not row["deterministic"]:
            got, wanted = [rounded(each) for each in got], [rounded(each) for each in wanted]
        assert got == wanted, (settings(ROWS[name]), "in", row)
