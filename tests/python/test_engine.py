"""The engine on a scripted core: what callers get, and what wrong arguments are told."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtlqwen import CapacityError, DeviceError, Engine, ModelError, SamplingParams, ToolCall
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import FakeCore, Script

Say = Callable[[str], Script]
HI = [{"role": "user", "content": "hi"}]


def test_generate_returns_a_string_with_facts(make_engine: MakeEngine, say: Say) -> None:
    result = make_engine(say("wörld")).generate("hello", max_tokens=50)
    assert result == "wörld"
    assert result.text + "!" == "wörld!"
    assert result.finish_reason == "stop"
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (5, 7)
    assert len(result.token_ids) == 7
    assert result.timings.prefill_tps == 10.0
    assert result.timings.decode_tps == 6.0
    assert repr(result) == "Completion('wörld', 7 tokens, finish_reason='stop')"


COPIERS: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(
        lambda value, p=protocol: pickle.loads(pickle.dumps(value, p))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ),
]


@pytest.mark.parametrize("copied", COPIERS)
def test_results_can_be_copied_and_pickled(
    make_engine: MakeEngine, say: Say, copied: Callable[[Any], Any]
) -> None:
    engine = make_engine(say("a\n</think>\n\nb<tool_call><function=f></function></tool_call>"))
    completion, chat = engine.generate("x"), engine.chat(HI)
    for result in (completion, chat, *engine.stream(HI)):
        other = copied(result)
        assert type(other) is type(result)
        assert other == result
        assert repr(other) == repr(result)
        slots = {name for kind in type(result).__mro__ for name in getattr(kind, "__slots__", ())}
        assert {name: getattr(other, name) for name in slots} == {
            name: getattr(result, name) for name in slots
        }
    assert chat.tool_calls
    for part in (chat.usage, chat.timings, chat.spec, *chat.tool_calls, SamplingParams(stop="x")):
        assert copied(part) == part


def test_token_ids_are_a_prompt(make_engine: MakeEngine, say: Say, tokenizer: Tokenizer) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(core)
    ids = tokenizer.encode("hello")
    prompts: list[Any] = [ids, tuple(ids), np.array(ids), [np.int32(token) for token in ids]]
    for prompt in prompts:
        assert engine.generate(prompt) == "x"
    assert [sequence.prompt for sequence in core.submitted] == [ids] * 4


def test_a_list_of_prompts_runs_together(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    def script(prompt: list[int]) -> list[int]:
        return tokenizer.encode(tokenizer.decode(prompt) * 3 + "<|im_end|>")

    core = FakeCore(script, step_s=0.01)  # time enough to submit all during the first pass
    engine = make_engine(core)
    assert engine.generate(["ab", "c", "def"]) == ["ababab", "ccc", "defdefdef"]
    assert core.passes <= 12  # not 7 + 4 + 10
    rows: Any = np.array([[97, 98], [99, 100]])
    assert engine.generate(rows.tolist()) == ["ababab", "cdcdcd"]
    assert engine.generate([[97], [98]]) == ["aaa", "bbb"]


def test_stop_strings_end_one_prompt_and_not_the_others(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    core = FakeCore(lambda prompt: tokenizer.encode(tokenizer.decode(prompt) * 200))
    results = make_engine(core).generate(["abSTOP", "cd"], stop=["TOP"], max_tokens=30)
    assert results == ["abS", "cd" * 15]
    assert [result.finish_reason for result in results] == ["stop", "length"]
    assert core.live() == 0


def test_what_came_behind_a_stop_string_counts_for_no_result(
    make_engine: MakeEngine, say: Say
) -> None:
    core = FakeCore(say("abcdef"), tokens_per_step=4)  # as a draft gives them
    result = make_engine(core).generate("x", stop="bc")
    assert (result, result.finish_reason, len(result.token_ids)) == ("a", "stop", 3)
    assert result.usage.completion_tokens == 3
    assert result.timings.decode_tps == 2.0  # in a second


def test_stream_joins_to_what_generate_returns(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("Grüße €"))
    stream = engine.stream("x")
    pieces = list(stream)
    assert "".join(pieces) == engine.generate("x") == stream.result()
    assert all(piece.kind == "text" for piece in pieces)


def test_chat_separates_reasoning_answer_and_calls(make_engine: MakeEngine, say: Say) -> None:
    call = "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"
    engine = make_engine(say(f"why\n</think>\n\nlook\n\n{call}"))
    tool = {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}
    result = engine.chat(HI, tools=[tool])
    assert (result, result.reasoning) == ("look", "why")
    assert result.tool_calls == [ToolCall("f", {"n": 1})]
    assert result.finish_reason == "tool_calls"
    assert result.usage.reasoning_tokens == 5
    assert result.message == {
        "role": "assistant",
        "content": "look",
        "reasoning_content": "why",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"n": 1}}}],
    }


def test_stream_of_messages_tells_kinds(make_engine: MakeEngine, say: Say) -> None:
    stream = make_engine(say("why\n</think>\n\nbecause")).stream(HI)
    pieces = list(stream)
    assert "".join(p for p in pieces if p.kind == "reasoning") == "why"
    assert "".join(p for p in pieces if p.kind == "text") == "because" == stream.result()


def test_thinking_off_reaches_the_template(make_engine: MakeEngine, say: Say) -> None:
    result = make_engine(say("just this")).chat(HI, thinking=False)
    assert (result, result.reasoning) == ("just this", "")


def test_keywords_go_before_sampling_and_sampling_before_defaults(
    make_engine: MakeEngine, say: Say, model_dir: Path
) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(core)
    engine.generate("a")
    engine.generate("a", sampling=SamplingParams(temperature=0.5, seed=3, max_tokens=7))
    engine.generate("a", sampling=SamplingParams(temperature=0.5, seed=3), temperature=0.9)
    engine.generate("a", ignore_eos=True, max_tokens=3)
    engine.generate("a" * 4000)
    first, second, third, fourth, fifth = core.submitted
    assert (first.temperature, first.seed, first.max_tokens) == (0.0, 0, 4095)
    assert (second.temperature, second.seed, second.max_tokens) == (0.5, 3, 7)
    assert (third.temperature, third.seed) == (0.9, 3)
    assert set(first.stop_ids) == {257, 259}
    assert (fourth.stop_ids, fourth.max_tokens) == ((), 3)
    assert fifth.max_tokens == 96


def test_unset_seed_is_fresh_for_each_prompt(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(say("x"))
    make_engine(core).generate(["a", "b"], temperature=1.0)
    assert core.submitted[0].seed != core.submitted[1].seed


def test_checkpoints_reach_the_core_for_each_prompt(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(core)
    first = engine.generate("abcdef", checkpoint_at=[4, 2, 4])
    assert first.usage.cached_tokens == 0
    positions: Any = np.array([3])
    engine.generate(["abc", "abd"], checkpoint_at=positions)
    assert engine.stream("ab", checkpoint_at=(1,)).result() == "x"
    assert engine.submit("ab", checkpoint_at=range(1, 3)).result() == "x"
    assert engine.generate("ab").usage.cached_tokens == 1  # one token is left to compute
    asked = [list(sequence.checkpoint_at) for sequence in core.submitted]
    assert asked == [[2, 4], [3], [3], [1], [1, 2], []]
    assert engine.generate("abcdxx").usage.cached_tokens == 4


def test_a_chat_leaves_checkpoints_at_the_ends_of_its_messages(
    make_engine: MakeEngine, say: Say, tokenizer: Tokenizer
) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(core)
    messages = [{"role": "system", "content": "be kind"}, *HI]
    engine.chat(messages)
    engine.stream(messages).result()
    start = tokenizer.token_id("<|im_start|>")
    for sequence in core.submitted:
        starts = [at for at, token in enumerate(sequence.prompt) if token == start]
        assert [0, *sequence.checkpoint_at] == starts
        assert len(starts) == 3
    assert core.submitted[1].cached_tokens == starts[-1]


WRONG_CALLS: list[tuple[str, Callable[[Engine], object], type[Exception], str]] = [
    ("empty text", lambda e: e.generate(""), ValueError, "[engine] prompt: empty"),
    ("no tokens", lambda e: e.generate([]), ValueError, "[engine] prompt: empty"),
    ("an empty one", lambda e: e.generate(["a", ""]), ValueError, "[engine] prompt: empty"),
    ("id too high", lambda e: e.generate([1, 1000]), ValueError, "got 1000, want 0 to 999"),
    ("id negative", lambda e: e.generate([-1]), ValueError, "got -1, want 0 to 999"),
    ("id bool", lambda e: e.generate([True]), TypeError, "not an integer (got True)"),
    ("id float", lambda e: e.generate([1.5]), TypeError, "not an integer (got 1.5)"),  # type: ignore[list-item]
    ("bytes", lambda e: e.generate(b"a"), TypeError, "not text and no list of token ids"),
    ("None", lambda e: e.generate(None), TypeError, "not text and no list"),  # type: ignore[call-overload]
    ("messages", lambda e: e.generate(HI), TypeError, "use chat"),  # type: ignore[arg-type]
    ("surrogate", lambda e: e.generate("\ud800"), ValueError, "not valid Unicode"),
    ("too long", lambda e: e.generate([1] * 4097), CapacityError, "got 4097 tokens, want at most"),
    ("NaN", lambda e: e.generate("a", temperature=float("nan")), ValueError, "temperature"),
    ("tokens", lambda e: e.generate("a", max_tokens=-1), ValueError, "max_tokens"),
    ("thinking", lambda e: e.stream("a", thinking=True), ValueError, "thinking: only for chats"),
    ("a list", lambda e: e.stream(["a"]), TypeError, "not an integer (got 'a')"),  # type: ignore[arg-type]
    ("tools", lambda e: e.stream("a", tools=[]), ValueError, "tools: only with messages"),
    ("sampling", lambda e: e.generate("a", sampling={}), TypeError, "not SamplingParams"),  # type: ignore[call-overload]
    ("no messages", lambda e: e.chat([]), ValueError, "messages: empty"),
    ("text as messages", lambda e: e.chat("hi"), TypeError, "not a list of dicts"),  # type: ignore[arg-type]
    ("no dict", lambda e: e.chat([1]), TypeError, "messages[0]: not a dict"),  # type: ignore[list-item]
    ("role", lambda e: e.chat([{"role": "bot"}]), ValueError, "unknown role (got 'bot'"),
    ("content", lambda e: e.chat([{"role": "user", "content": 1}]), TypeError, "no string"),
    ("tool", lambda e: e.chat(HI, tools=[{}]), ValueError, "tools[0]: no name"),
    ("tools text", lambda e: e.chat(HI, tools="f"), TypeError, "tools: not a list"),  # type: ignore[arg-type]
    (
        "refused",
        lambda e: e.chat([*HI, {"role": "system", "content": "late"}]),
        ValueError,
        "system comes first",
    ),
    ("position 0", lambda e: e.generate("a", checkpoint_at=[0]), ValueError, "got 0, want 1 to"),
    (
        "position behind the end",
        lambda e: e.generate(["abc", "ab"], checkpoint_at=[1, 3]),
        ValueError,
        "[engine] checkpoint_at: behind the end of the prompt (got 3, want 1 to 2)",
    ),
    ("no position", lambda e: e.stream("a", checkpoint_at=["1"]), TypeError, "not an integer"),  # type: ignore[list-item]
    ("positions", lambda e: e.submit("a", checkpoint_at=1), TypeError, "not a list of positions"),  # type: ignore[arg-type]
    ("of a chat", lambda e: e.submit(HI, checkpoint_at=[1]), ValueError, "only with a plain"),
]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [row[1:] for row in WRONG_CALLS],
    ids=[row[0] for row in WRONG_CALLS],
)
def test_wrong_call_is_told_why_and_the_engine_goes_on(
    make_engine: MakeEngine,
    say: Say,
    call: Callable[[Engine], object],
    error: type[Exception],
    words: str,
) -> None:
    core = FakeCore(say("fine"))
    engine = make_engine(core)
    with pytest.raises(error) as caught:
        call(engine)
    assert words in str(caught.value)
    assert re.match(r"\[[a-z]+\] [^:]+: ", str(caught.value))
    assert engine.generate("x") == "fine"
    assert core.live() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"device": "cuda"}, DeviceError, "[engine] device: not in this build (got 'cuda'"),
        ({"device": 1}, DeviceError, "device"),
        ({"spec": "eagle"}, ValueError, "spec: no such word (got 'eagle', want one of 'auto'"),
        ({"spec": None}, TypeError, "spec: not a string (got None"),
        ({"spec": "off", "drafter": "d.gguf"}, ValueError, "drafter: not used with spec='off'"),
        ({"drafter": "no/such.gguf"}, FileNotFoundError, "no/such.gguf"),
        ({"candidate_memory": -1}, ValueError, "candidate_memory"),
        ({"slots": 0}, ValueError, "slots: out of range (got 0, want 1 to 32)"),
        ({"slots": 33}, ValueError, "slots"),
        ({"slots": True}, TypeError, "slots"),
        ({"context": 0}, ValueError, "context"),
        ({"context": "1k"}, TypeError, "context"),
        ({"progress": 3}, TypeError, "progress"),
        ({"memory_budget": 0}, ValueError, "[engine] memory_budget: out of range (got 0, want 1"),
        ({"memory_budget": "4GiB"}, TypeError, "memory_budget: not an integer (got '4GiB')"),
        ({"memory_budget": 1e9}, TypeError, "memory_budget"),
        ({"block_tokens": 96}, ValueError, "no such size (got 96, want one of 64, 128, 256)"),
        ({"block_tokens": 32}, ValueError, "[engine] block_tokens: out of range (got 32, want 64"),
        ({"block_tokens": "64"}, TypeError, "block_tokens: not an integer (got '64')"),
        ({"prefill_share": 1.5}, ValueError, "prefill_share: out of range (got 1.5, want 0 to 1)"),
        ({"prefill_share": float("nan")}, ValueError, "prefill_share"),
        ({"prefill_share": "1"}, TypeError, "[engine] prefill_share: not a number (got '1')"),
        ({"threads": 0}, ValueError, "[engine] threads: out of range (got 0, want 1 to"),
        ({"threads": "2"}, TypeError, "threads: not an integer (got '2')"),
        ({"threads": 1.0}, TypeError, "threads"),
        ({"prefetch_weights": None}, TypeError, "prefetch_weights: not True or False"),
        ({"lock_weights": 1}, TypeError, "lock_weights: not True or False (got 1)"),
        ({"deterministic": 1}, TypeError, "deterministic: not True or False (got 1)"),
        ({"checkpoint_interval": -1}, ValueError, "checkpoint_interval: out of range (got -1"),
        ({"checkpoint_interval": None}, TypeError, "checkpoint_interval: not an integer"),
        ({"cache_memory": -1}, ValueError, "[engine] cache_memory: out of range (got -1, want 0"),
        ({"cache_memory": 1e9}, TypeError, "cache_memory"),
        ({"cache_dir": b"x"}, TypeError, "[engine] cache_dir: not a path (got b'x')"),
        ({"cache_dir": ""}, ValueError, "[engine] cache_dir: empty"),
        ({"cache_dir": "a\0b"}, ValueError, "[engine] cache_dir: no path of a file system"),
        ({"cache_dir_bytes": 0}, ValueError, "cache_dir_bytes: out of range (got 0, want 1 to"),
        ({"cache_dir_bytes": None}, TypeError, "cache_dir_bytes"),
    ],
)
def test_wrong_engine_argument(
    make_engine: MakeEngine,
    say: Say,
    arguments: dict[str, object],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error) as caught:
        make_engine(say("x"), **arguments)
    assert words in str(caught.value)


def test_the_cache_is_what_the_arguments_say(
    make_engine: MakeEngine, say: Say, tmp_path: Path
) -> None:
    def asked(**arguments: object) -> tuple[object, ...]:
        core = FakeCore(say("x"))
        make_engine(core, **arguments)
        options = core.options
        assert options
        cache = (options.cache_memory, options.cache_dir, options.cache_dir_bytes)
        return (options.checkpoint_interval, *cache)

    assert asked() == (512, None, "", 10 * 2**30)
    given = {"checkpoint_interval": 0, "cache_memory": 0, "cache_dir_bytes": 1}
    assert asked(**given, cache_dir=tmp_path) == (0, 0, str(tmp_path), 1)


def test_a_model_without_template_generates_but_does_not_chat(
    make_engine: MakeEngine, say: Say, model_dir: Path
) -> None:
    template = model_dir / "chat_template.jinja"
    source = template.read_text()
    template.unlink()
    try:
        engine = make_engine(say("x"))
    finally:
        template.write_text(source)
    assert engine.generate("a") == "x"
    with pytest.raises(ModelError, match="no chat template"):
        engine.chat(HI)


def test_repr_and_stats(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("x"))
    assert repr(engine).endswith(f"device={engine.device!r}, context=4096, slots=8)")
    engine.generate("a")
    assert engine.stats()["passes"] == 2
    engine.close()
    assert repr(engine).endswith(", closed)")
