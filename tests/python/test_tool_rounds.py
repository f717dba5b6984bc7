"""Chats that run their tools: rounds, streams, limits, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from mtlqwen import CapacityError, ChatResult, Engine, Tool
from mtlqwen.prepare import Preparer
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import Script

ASKED = [{"role": "user", "content": "How warm is it?"}]


def warmth(city: str) -> str:
    """Tell how warm it is."""
    if city == "Atlantis":
        raise LookupError("no such place")
    return f"21 in {city}"


async def awarmth(city: str) -> str:
    await asyncio.sleep(0)
    return warmth(city)


def call(city: str, name: str = "warmth") -> str:
    argument = f"<parameter=city>\n{city}\n</parameter>"
    return f"<tool_call>\n<function={name}>\n{argument}\n</function>\n</tool_call>"


@pytest.fixture
def script(tokenizer: Tokenizer) -> Script:
    """A model that asks for Oslo, then for two more places, then answers with what it was told."""

    def make(prompt: list[int]) -> list[int]:
        text = tokenizer.decode(prompt)
        told = text.split("assistant\n")
        name = "awarmth" if '"awarmth"' in text else "warmth"
        answers = [
            f"I look.\n\n{call('Oslo', name)}",
            f"{call('Atlantis', name)}\n{call('Rome', name)}",
            f"Told: {' | '.join(part.split('tool')[-1].strip() for part in told[1:-1])}",
        ]
        turns = text.count("assistant\n") - 1
        return tokenizer.encode(answers[min(turns, 2)] + "<|im_end|>")

    return make


def checked(result: Any) -> None:
    assert isinstance(result, ChatResult)
    assert result.startswith("Told: ")
    assert result.finish_reason == "stop"
    assert [message["role"] for message in result.messages] == [
        *("assistant", "tool"),
        *("assistant", "tool", "tool"),
        "assistant",
    ]
    told = [message["content"] for message in result.messages if message["role"] == "tool"]
    assert told == ["21 in Oslo", "error: LookupError: no such place", "21 in Rome"]
    assert result.messages[-1] == result.message


def test_rounds_until_the_model_asks_for_nothing(make_engine: MakeEngine, script: Script) -> None:
    engine = make_engine(script)
    before = [dict(message) for message in ASKED]
    checked(engine.chat(ASKED, tools=[warmth], run_tools=True, thinking=False))
    assert before == ASKED


def test_what_streams_through_the_rounds(make_engine: MakeEngine, script: Script) -> None:
    engine = make_engine(script)
    stream = engine.stream(ASKED, tools=[warmth], run_tools=True, thinking=False)
    pieces = list(stream)
    checked(stream.result())
    kinds = [kind for kind, _ in itertools.groupby(pieces, lambda piece: piece.kind)]
    assert kinds == ["text", *("tool_call", "tool_result") * 2, "text"]
    told = [str(piece) for piece in pieces if piece.kind == "tool_result"]
    assert told == ["21 in Oslo", "error: LookupError: no such place", "21 in Rome"]
    assert [p.tool_call.arguments["city"] for p in pieces if p.tool_call] == [
        *("Oslo", "Atlantis", "Rome")
    ]


def test_tools_are_made_once(
    make_engine: MakeEngine, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = Tool.__init__

    def count(one: Tool, function: Any) -> None:
        made.append(function.__name__)
        make(one, function)

    monkeypatch.setattr(Tool, "__init__", count)
    engine = make_engine(script)
    checked(engine.chat(ASKED, tools=[warmth], run_tools=True, thinking=False))
    assert made == ["warmth"]
    engine.chat(ASKED, tools=[warmth], thinking=False)
    assert made == ["warmth"] * 2


def test_texts_that_no_model_can_read(make_engine: MakeEngine, script: Script) -> None:
    def broken(city: str) -> str:
        return f"{city}: \ud83d"

    broken.__name__ = "warmth"
    result = make_engine(script).chat(ASKED, tools=[broken], run_tools=True, thinking=False)
    told = [message["content"] for message in result.messages if message["role"] == "tool"]
    assert told[0] == "Oslo: ?"


def test_the_last_round_keeps_its_calls(make_engine: MakeEngine, script: Script) -> None:
    engine = make_engine(script)
    result = engine.chat(ASKED, tools=[warmth], run_tools=True, max_rounds=1, thinking=False)
    assert result.finish_reason == "tool_calls"
    assert [one.arguments["city"] for one in result.tool_calls] == ["Atlantis", "Rome"]
    assert len(result.rounds) == 2


def test_a_closed_stream_runs_nothing(make_engine: MakeEngine, script: Script) -> None:
    ran: list[str] = []

    def noted(city: str) -> str:
        ran.append(city)
        return city

    noted.__name__ = "warmth"
    engine = make_engine(script)
    with engine.stream(ASKED, tools=[noted], run_tools=True, thinking=False) as stream:
        for piece in stream:
            if piece.tool_call:
                break
    assert list(stream) == ran == []


def interrupted(city: str) -> str:
    raise KeyboardInterrupt(city)


async def cancelled(city: str) -> str:
    raise asyncio.CancelledError(city)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (interrupted, KeyboardInterrupt),
        (cancelled, asyncio.CancelledError),
        (warmth, CapacityError),  # the next round cannot begin
    ],
)
def test_a_round_that_fails_is_not_run_again(
    make_engine: MakeEngine,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    function: Any,
    fault: Any,
) -> None:
    prepared = Preparer.later
    ran: list[str] = []

    def once(self: Preparer, prompt: Any, added: Any, *rest: Any) -> Any:
        if added:
            raise CapacityError("too long")
        return prepared(self, prompt, added, *rest)

    def noted(city: str) -> Any:
        ran.append(city)
        return function(city)

    def check(last: Any) -> None:
        assert ran == ["Oslo"]
        assert last.finish_reason == "tool_calls"
        assert [message["role"] for message in last.messages] == ["assistant"]

    async def main() -> None:
        stream = engine.astream(ASKED, tools=[noted], run_tools=True, thinking=False)
        with pytest.raises(fault):
            await stream.result()
        assert await anext(stream, None) is None
        check(await stream.result())

    noted.__name__ = "warmth"
    engine = make_engine(script)
    monkeypatch.setattr(Preparer, "later", once)
    stream = engine.stream(ASKED, tools=[noted], run_tools=True, thinking=False)
    with pytest.raises(fault):
        stream.result()
    assert next(stream, None) is None
    check(stream.result())
    ran.clear()
    if function is not interrupted:  # an interrupt of a task ends its loop
        asyncio.run(main())


def test_a_stream_closed_by_its_tool_begins_no_other_round(
    make_engine: MakeEngine, script: Script
) -> None:
    def closes(city: str) -> str:
        streams[-1].close()
        return city

    async def acloses(city: str) -> str:
        await streams[-1].aclose()
        return city

    async def main() -> None:
        streams.append(engine.astream(ASKED, tools=[acloses], run_tools=True, thinking=False))
        assert {piece.kind async for piece in streams[-1]} == {"text", "tool_call"}
        assert (await streams[-1].result()).finish_reason == "tool_calls"

    streams: list[Any] = []
    closes.__name__ = acloses.__name__ = "warmth"
    engine = make_engine(script)
    streams.append(engine.stream(ASKED, tools=[closes], run_tools=True, thinking=False))
    assert {piece.kind for piece in streams[-1]} == {"text", "tool_call"}
    assert streams[-1].result().finish_reason == "tool_calls"
    asyncio.run(main())


def test_calls_that_were_cut_off_are_not_run(make_engine: MakeEngine, script: Script) -> None:
    engine = make_engine(script)
    result = engine.chat(ASKED, tools=[warmth], run_tools=True, max_tokens=60, thinking=False)
    assert result.finish_reason == "length"
    assert result.rounds == []


@pytest.mark.parametrize("function", [warmth, awarmth])
def test_rounds_in_asyncio(make_engine: MakeEngine, script: Script, function: Any) -> None:
    engine = make_engine(script)

    async def main() -> None:
        options: Any = {"tools": [function], "run_tools": True, "thinking": False}
        checked(await engine.achat(ASKED, **options))
        stream = engine.astream(ASKED, **options)
        kinds = {piece.kind async for piece in stream}
        assert kinds == {"text", "tool_call", "tool_result"}
        checked(await stream.result())
        async with engine.astream(ASKED, **options) as cut:
            async for piece in cut:
                if piece.tool_call:
                    break
        assert [piece async for piece in cut] == []

    asyncio.run(main())
    checked(engine.chat(ASKED, tools=[function], run_tools=True, thinking=False))


def test_arguments_that_make_no_sense(make_engine: MakeEngine, script: Script) -> None:
    engine: Engine = make_engine(script)
    with pytest.raises(ValueError, match="max_rounds: only with run_tools=True"):
        engine.chat(ASKED, tools=[warmth], max_rounds=2)
    with pytest.raises(ValueError, match="max_rounds"):
        engine.chat(ASKED, tools=[warmth], run_tools=True, max_rounds=0)
    with pytest.raises(ValueError, match="run_tools: no tools"):
        engine.chat(ASKED, run_tools=True)
    with pytest.raises(ValueError, match="run_tools: only with messages"):
        engine.stream("text", tools=[warmth], run_tools=True)
    with pytest.raises(ValueError, match="messages: empty; want at least"):
        engine.chat([], tools=[warmth], run_tools=True)
    with pytest.raises(TypeError, match="run_tools"):
        engine.stream(ASKED, tools=[warmth], run_tools=1)  # type: ignore[arg-type]
