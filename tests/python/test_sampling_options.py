"""Options of sampling on a scripted core: what it is asked, and what comes back."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import Completion, Engine, SamplingParams, TokenLogprob
from mtlqwen.driver import Core
from mtlqwen.request import Request
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import CHOICE, FakeCore, FakePoll, Script

Say = Callable[[str], Script]
HI = [{"role": "user", "content": "hi"}]
END, TEXT_END = 259, 257  # <|im_end|>, <|endoftext|>


@pytest.fixture
def core(say: Say) -> FakeCore:
    return FakeCore(say("abc"))


@pytest.fixture
def engine(make_engine: MakeEngine, core: FakeCore) -> Engine:
    return make_engine(core)


def test_requests_have_the_cores_own_defaults() -> None:
    parameters = inspect.signature(Core.submit).parameters
    known = {name: p.default for name, p in parameters.items() if name != "self"}
    fields = {field.name: field.default for field in Request.__dataclass_fields__.values()}
    assert fields.keys() == known.keys()
    set_here = {name for name, value in known.items() if value is not inspect.Parameter.empty}
    assert {name: fields[name] for name in set_here} == {name: known[name] for name in set_here}
    assert set_here >= CHOICE


def test_the_core_hears_only_what_was_asked(engine: Engine, core: FakeCore) -> None:
    engine.generate("x", top_k=0, top_p=1, min_p=0.0, presence_penalty=0, repetition_penalty=1)
    engine.generate("x", logit_bias={1: 0.0}, bad_words=[], stop_token_ids=[], min_tokens=0, n=1)
    assert [sequence.choice for sequence in core.submitted] == [{}, {}]
    engine.generate(
        "x",
        temperature=0.5,
        top_k=20,
        top_p=0.9,
        min_p=0.05,
        presence_penalty=1.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        logit_bias={9: -math.inf, 3: 2},
        allowed_token_ids=[5, 3, END],
        bad_words=[[1, 2]],
        min_tokens=2,
        logprobs=0,
        prompt_logprobs=1,
    )
    assert core.submitted[-1].choice == {
        "top_k": 20,
        "top_p": 0.9,
        "min_p": 0.05,
        "presence_penalty": 1.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "logit_bias": ((3, 2.0), (9, -math.inf)),
        "allowed_ids": (3, 5, END),
        "bad_words": ((1, 2),),
        "min_tokens": 2,
        "logprobs": 0,
        "prompt_logprobs": 1,
        "recall": False,
    }


def test_a_word_is_forbidden_with_and_without_a_space(
    engine: Engine, core: FakeCore, tokenizer: Tokenizer
) -> None:
    engine.generate("x", bad_words=["the", " a", "<think>", [7]])
    words = ["the", " the", " a", "<think>", " <think>"]
    assert core.submitted[0].choice["bad_words"] == (
        *(tuple(tokenizer.encode(word)) for word in words),
        (7,),
    )


def test_a_word_that_no_token_spells_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda self, text: [] if text == "\u00ad" else encode(self, text)
    )
    with pytest.raises(ValueError, match="bad_words: no token of this model spells a word"):
        engine.generate("x", bad_words=["\u00ad"])


def test_stop_tokens_stand_beside_the_models_own(engine: Engine, core: FakeCore) -> None:
    result = engine.generate("x", stop_token_ids=[98, END])
    assert (result, result.finish_reason, len(result.token_ids)) == ("ab", "stop", 2)
    assert core.submitted[0].stop_ids == (END, TEXT_END, 98)
    engine.generate("x", stop_token_ids=[98], ignore_eos=True)
    assert core.submitted[1].stop_ids == (98,)


def test_stop_strings_wait_for_min_tokens(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(FakeCore(say("abababab"), tokens_per_step=3))
    assert engine.generate("x", stop="ab") == ""
    assert engine.generate("x", stop="ab", min_tokens=2) == "ab"
    result = engine.generate("x", stop="ab", min_tokens=3)  # the one that has begun does not count
    assert (result, len(result.token_ids)) == ("abab", 6)


def test_min_tokens_never_passes_what_the_context_leaves(engine: Engine, core: FakeCore) -> None:
    engine.generate("a" * 4000, min_tokens=200)
    assert core.submitted[0].max_tokens == core.submitted[0].choice["min_tokens"] == 96


def test_defaults_of_the_model_are_asked_for(
    make_engine: MakeEngine, core: FakeCore, model_dir: Path
) -> None:
    file = model_dir / "generation_config.json"
    said = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 7}
    file.write_text(json.dumps(said | {"repetition_penalty": 1.05, "max_new_tokens": 40}))
    try:
        engine = make_engine(core)
    finally:
        file.unlink()
    engine.generate("x")
    engine.generate("x", top_k=0, top_p=0.5)
    first, second = core.submitted
    assert (first.temperature, first.max_tokens) == (0.6, 40)
    assert first.choice == {"top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    assert second.choice == {"top_p": 0.5, "repetition_penalty": 1.05}
    with pytest.raises(ValueError, match="min_tokens: more than max_tokens"):
        engine.generate("x", min_tokens=41)


# --- n --------------------------------------------------------------------------------------------
def test_n_texts_share_a_seed_and_a_prompt(engine: Engine, core: FakeCore) -> None:
    results = engine.generate("xyz", n=3, temperature=1.0, checkpoint_at=[1])
    assert results == ["abc"] * 3
    assert [s.choice.get("sample_index", 0) for s in core.submitted] == [0, 1, 2]
    assert len({s.seed for s in core.submitted}) == 1
    assert [s.checkpoint_at for s in core.submitted] == [[1, 2]] * 3
    engine.generate("xyz", n=2, temperature=1.0, seed=7)
    assert [s.seed for s in core.submitted[3:]] == [7, 7]
    engine.generate("x", n=2)  # nothing to share
    assert core.submitted[-1].checkpoint_at == []


def test_results_of_n_are_lists(engine: Engine, core: FakeCore) -> None:
    one: list[Completion] = engine.generate("x", n=1)
    assert one == ["abc"]
    many: list[list[Completion]] = engine.generate(["x", "y"], n=2, temperature=1.0)
    assert many == [["abc"] * 2] * 2
    seeds = [sequence.seed for sequence in core.submitted[1:]]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
    by_params: Any = engine.generate("x", sampling=SamplingParams(n=2))
    assert by_params == ["abc"] * 2
    by_params = engine.generate(["x"], sampling=SamplingParams(n=2), n=1)
    assert by_params == [["abc"]]
    assert asyncio.run(engine.agenerate(["x", "y"], n=2)) == [["abc"] * 2] * 2
    assert asyncio.run(engine.agenerate("x", n=2)) == ["abc"] * 2
    assert core.live() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda engine, sampling: engine.stream("x", sampling=sampling),
        lambda engine, sampling: engine.astream("x", sampling=sampling),
        lambda engine, sampling: engine.submit("x", sampling=sampling),
        lambda engine, sampling: engine.submit(HI, sampling=sampling),
        lambda engine, sampling: engine.chat(HI, sampling=sampling),
        lambda engine, sampling: asyncio.run(engine.achat(HI, sampling=sampling)),
        lambda engine, sampling: engine.session().say("x", sampling=sampling),
    ],
)
def test_calls_with_one_result_refuse_n(
    engine: Engine, core: FakeCore, call: Callable[[Engine, SamplingParams], object]
) -> None:
    with pytest.raises(ValueError, match=r"\[sampling\] n: only generate and agenerate .*got 3"):
        call(engine, SamplingParams(n=3))
    assert not core.submitted


# --- logprobs -------------------------------------------------------------------------------------
@pytest.mark.parametrize("tokens_per_step", [1, 3, 8])
def test_logprobs_stand_beside_their_tokens(
    make_engine: MakeEngine, say: Say, tokens_per_step: int
) -> None:
    engine = make_engine(FakeCore(say("a€"), tokens_per_step=tokens_per_step))
    assert engine.generate("x").logprobs is None
    result = engine.generate("x", logprobs=2)
    assert result.logprobs is not None
    assert [each.token_id for each in result.logprobs] == result.token_ids
    assert [each.token for each in result.logprobs] == ["a", *"\ufffd" * 3, "<|im_end|>"]
    top = tuple(TokenLogprob(token_id=k, token=chr(k), logprob=-k / 64) for k in range(2))
    assert result.logprobs[0] == TokenLogprob(token_id=97, token="a", logprob=-97 / 64, top=top)
    alone = engine.generate("x", logprobs=0).logprobs
    assert alone is not None
    assert [(each.logprob, each.top) for each in alone] == [
        (-token / 64, ()) for token in result.token_ids
    ]


def test_what_came_behind_a_stop_string_has_no_logprobs(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(FakeCore(say("abcdef"), tokens_per_step=4))
    result = engine.generate("x", stop="bc", logprobs=0)
    assert result.logprobs is not None
    assert [each.token for each in result.logprobs] == ["a", "b", "c"]


def test_tokens_that_nobody_chose_have_no_others_in_their_place(
    engine: Engine, core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = core.poll

    def forced(sequence: int) -> FakePoll:
        news = poll(sequence)
        return replace(news, top_logprobs=[[(-1, 0.0)] * 2 for _ in news.token_ids])

    monkeypatch.setattr(core, "poll", forced)
    logprobs = engine.generate("x", logprobs=2).logprobs
    assert logprobs is not None
    assert [each.top for each in logprobs] == [()] * 4


def test_chats_and_streams_have_logprobs(engine: Engine) -> None:
    for result in (engine.chat(HI, logprobs=1), engine.stream("x", logprobs=1).result()):
        assert result.logprobs is not None
        assert [each.token for each in result.logprobs] == ["a", "b", "c", "<|im_end|>"]


# --- repeats --------------------------------------------------------------------------------------
@pytest.mark.parametrize("tokens_per_step", [1, 4, 50])
def test_a_text_in_circles_is_ended(
    make_engine: MakeEngine, say: Say, tokens_per_step: int
) -> None:
    core = FakeCore(say("so:" + "it goes. " * 90), tokens_per_step=tokens_per_step)
    engine = make_engine(core)
    result = engine.generate("x", repeat_limit=40, stop="never. ")
    assert (result, result.finish_reason) == ("so:" + ("it goes. " * 5)[:40], "repetition")
    assert len(result.token_ids) == result.usage.completion_tokens == 43
    assert "".join(engine.stream("x", repeat_limit=40)) == result
    assert core.live() == 0
    free = engine.generate("x", max_tokens=200)
    assert (free.finish_reason, len(free.token_ids)) == ("length", 200)


def test_reasoning_in_circles_is_ended(make_engine: MakeEngine, say: Say) -> None:
    result = make_engine(say("hm" * 50)).chat(HI, repeat_limit=10)
    assert (result.finish_reason, result.reasoning, result) == ("repetition", "hmhmhmhmhm", "")
    assert result.tool_calls == []


# --- thinking -------------------------------------------------------------------------------------
@pytest.mark.parametrize("budget", [0, 512])
def test_a_budget_of_reasoning_reaches_the_core(
    engine: Engine, core: FakeCore, tokenizer: Tokenizer, budget: int
) -> None:
    engine.chat(HI, thinking=budget)
    engine.chat(HI, thinking=True)
    first, second = core.submitted
    end = tokenizer.token_id("</think>")
    closing = tokenizer.encode("\n</think>\n\n")
    assert first.choice == {"thinking_budget": (budget, end, closing)}
    assert end in closing
    assert first.prompt == second.prompt
    assert second.choice == {}


def test_a_budget_needs_a_template_that_opens_reasoning(
    make_engine: MakeEngine, say: Say, model_dir: Path
) -> None:
    template = model_dir / "chat_template.jinja"
    source = template.read_text()
    template.write_text(source.replace("<think>\n", ""))
    try:
        engine = make_engine(say("x"))
    finally:
        template.write_text(source)
    with pytest.raises(ValueError, match=r"\[sampling\] thinking: a budget is only for models"):
        engine.chat(HI, thinking=5)
    assert engine.chat(HI, thinking=True) == "x"


# --- what is refused ------------------------------------------------------------------------------
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topp": 0.5}, TypeError, "[sampling] topp: no such keyword (want temperature, top_k"),
    ({"stop_token_ids": [1000]}, ValueError, "stop_token_ids: no token of this model (got 1000"),
    ({"logit_bias": {1000: 1.0}}, ValueError, "logit_bias: no token of this model"),
    ({"allowed_token_ids": [3, 2000]}, ValueError, "(got 2000, want 0 to 999)"),
    ({"bad_words": [[1, 1000]]}, ValueError, "bad_words: no token of this model"),
    ({"bad_words": ["\ud800"]}, ValueError, "not valid Unicode"),
    ({"min_tokens": 9, "max_tokens": 8}, ValueError, "min_tokens: more than max_tokens"),
    ({"thinking": 5}, ValueError, "thinking: only for chats"),
    (
        {"allowed_token_ids": [1, 2], "logit_bias": {1: -math.inf}, "bad_words": [[2]]},
        ValueError,
        "allowed_token_ids: no token could be chosen (got 2, all forbidden",
    ),
    (
        {"allowed_token_ids": [END], "min_tokens": 1},
        ValueError,
        "allowed_token_ids: no token could be chosen",
    ),
]


@pytest.mark.parametrize(("keywords", "error", "words"), WRONG)
def test_wrong_options_are_told_why(
    engine: Engine,
    core: FakeCore,
    keywords: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error) as caught:
        engine.generate("x", **keywords)
    assert words in str(caught.value)
    assert not core.submitted
    assert engine.generate("x", allowed_token_ids=[END]) == "abc"
