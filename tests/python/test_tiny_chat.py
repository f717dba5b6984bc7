"""The bundled model through the public surface: text, chats, tools, lists, threads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import CapacityError, DeviceError, Engine, ToolCall, _core

ANSWER = "61 \u00d7 11 = 671"
REASONING = "60 \u00d7 11 = 660; 1 \u00d7 11 = 11; 660 + 11 = 671."
SEARCH = {
    "type": "function",
    "function": {
        "name": "search_products",
        "description": "Search the shop for products.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Search words"},
                "max_price": {"type": "number", "description": "Highest price"},
            },
            "required": ["query", "max_price"],
        },
    },
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("tiny") as engine:
        yield engine


def user(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def test_tokens_are_those_of_the_library(engine: Engine) -> None:
    rows = json.loads(Path(__file__).with_name("golden").joinpath("tokens.json").read_text())
    assert len(rows) > 50
    for text, token_ids in rows:
        assert engine.tokenizer.encode(text) == token_ids, text


def test_a_chat_with_and_without_reasoning(engine: Engine) -> None:
    result = engine.chat(user("What is 61 times 11?"), thinking=True)
    assert result == ANSWER
    assert result.reasoning == REASONING
    assert result.finish_reason == "stop"
    assert 0 < result.usage.reasoning_tokens < result.usage.completion_tokens
    assert result.timings.ttft_s > 0
    assert result.timings.decode_tps > 0
    short = engine.chat(user("Good morning"), thinking=False)
    assert (short, short.reasoning) == ("Hello! How can I help you today?", "")


def test_a_tool_call_and_the_answer_to_its_result(engine: Engine) -> None:
    messages = user("Find an orange umbrella for less than 45 dollars.")
    result = engine.chat(messages, tools=[SEARCH], thinking=False)
    query = {"query": "orange umbrella", "max_price": 45}
    assert result.tool_calls == [ToolCall("search_products", query)]
    assert (result, result.finish_reason) == ("", "tool_calls")
    messages += [result.message, {"role": "tool", "content": '{"name": "umbrella", "price": 30}'}]
    answer = engine.chat(messages, tools=[SEARCH], thinking=False)
    assert answer
    assert not answer.tool_calls


def test_a_users_control_tokens_do_not_end_the_turn(engine: Engine) -> None:
    text = "Repeat after me: 335 <|im_end|> 157"
    result = engine.chat(user(text), thinking=False, max_tokens=40)
    plain = engine.chat(user("Repeat after me: 335 157"), thinking=False)
    assert plain == "335 157"
    assert result.usage.prompt_tokens > plain.usage.prompt_tokens + 4  # many tokens, not one


def test_stream_and_generate_give_the_same(engine: Engine) -> None:
    prompt = "<|im_start|>user\nWrite a story with Hana and a red radio.<|im_end|>\n"
    prompt += "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    whole = engine.generate(prompt, max_tokens=48)
    stream = engine.stream(prompt, max_tokens=48)
    assert "".join(stream) == whole == stream.result()
    assert stream.result().token_ids == whole.token_ids


def test_a_seed_gives_the_same_text(engine: Engine) -> None:
    texts = [
        engine.chat(user("Write a short story."), temperature=1.0, seed=seed, max_tokens=24)
        for seed in (1, 1, 2)
    ]
    assert texts[0].token_ids == texts[1].token_ids != texts[2].token_ids


def test_stop_strings_and_limits(engine: Engine) -> None:
    messages = user("Make a bulleted list: purple, red, brown, gray, green")
    result = engine.chat(messages, thinking=False, stop=["\n- brown"])
    assert result == "- purple\n- red"
    assert result.finish_reason == "stop"
    result = engine.chat(messages, thinking=False, max_tokens=3)
    assert (len(result.token_ids), result.finish_reason) == (3, "length")
    result = engine.chat(messages, thinking=False, max_tokens=60, ignore_eos=True)
    assert (len(result.token_ids), result.finish_reason) == (60, "length")


def test_a_list_of_prompts_is_each_prompt_alone(engine: Engine) -> None:
    prompts = [
        f"<|im_start|>user\nWhat is {n} plus {n}?<|im_end|>\n<|im_start|>assistant\n<think>\n"
        for n in range(3, 13)
    ]
    together = engine.generate(prompts, max_tokens=32)
    assert together == [engine.generate(prompt, max_tokens=32) for prompt in prompts]
    assert all(result.usage.prompt_tokens > 10 for result in together)


def test_two_engines_in_two_threads(engine: Engine) -> None:
    def ask(one: Engine) -> str:
        return one.chat(user("What is 61 times 11?"), thinking=True)

    with Engine("tiny") as other, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, [engine, other, other, engine]))
    assert answers == [ANSWER] * 4


def test_a_prompt_that_is_too_long_names_both_numbers(engine: Engine) -> None:
    with pytest.raises(CapacityError) as caught:
        engine.generate([5] * (engine.context + 1))
    assert str(engine.context) in str(caught.value)
    assert str(engine.context + 1) in str(caught.value)
    with pytest.raises(ValueError, match="want 0 to 8191"):
        engine.generate([8192])
    assert engine.chat(user("Good morning"), thinking=False)


def test_a_small_context_ends_the_text() -> None:
    with Engine("tiny", context=64, slots=1) as engine:
        assert engine.context == 64
        result = engine.generate("Once upon a time", ignore_eos=True)
        assert result.finish_reason == "length"
        total = result.usage.prompt_tokens + result.usage.completion_tokens
        assert total in (64, 65)


def test_progress_is_told(engine: Engine) -> None:
    told: list[tuple[str, int, int]] = []
    Engine("tiny", progress=lambda *news: told.append(news)).close()
    assert told
    assert all(0 <= done <= total for _, done, total in told)
    assert told[-1][1] == told[-1][2]


def test_stats_know_memory_and_passes(engine: Engine) -> None:
    stats = engine.stats()
    assert float(stats["memory_bytes"]) > 40 * 2**20
    assert float(stats["passes"]) > 0
    assert stats["live"] == 0


def test_a_failed_pass_leaves_the_waiting_alone() -> None:
    with Engine("tiny", slots=1, context=512) as engine:
        handles = [
            engine.submit("Once upon a time", max_tokens=40, ignore_eos=True) for _ in range(3)
        ]
        while not engine.stats()["tokens"]:
            time.sleep(0.001)
        _core._testing.inject_fault("commit", 1)
        with pytest.raises(DeviceError, match="made to fail"):
            handles[0].result()
        assert [handle.result().usage.completion_tokens for handle in handles[1:]] == [40, 40]


def test_stats_count_what_a_draft_gave_behind_a_stop_string() -> None:
    with Engine("tiny", spec="ngram") as engine:
        engine.step()  # from now on this thread runs the passes
        ids = engine.generate("Once upon a time", max_tokens=9, temperature=0).token_ids
        tokens = int(engine.stats()["tokens"])
        stop = engine.tokenizer.decode(ids[2:4])
        handle = engine.submit("Once upon a time", max_tokens=9, temperature=0, stop=stop)
        while engine.stats()["tokens"] == tokens:
            engine.step()
        (sequence,) = handle._generation.mailbox.sequences
        _core._testing.propose(engine._core, sequence, ids[1:6])
        engine.step()
        assert handle.result().token_ids == ids[:4]
        assert handle.result().spec.accepted == 5
        assert int(engine.stats()["tokens"]) - tokens == 7, "1 and then 5 and the one behind them"
