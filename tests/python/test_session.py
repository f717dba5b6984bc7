"""Sessions on a scripted core: what they say and keep, and what ends a turn."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import (
    CapacityError,
    DeviceError,
    Engine,
    ModelError,
    SamplingParams,
    Session,
    ToolCall,
)
from mtlqwen.generation import Generation
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import FakeCore, Script

Say = Callable[[str], Script]
TOOL = {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}
CALL = "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def contents(session: Session) -> list[str]:
    return [message["content"] for message in session.messages]


@pytest.fixture
def core(echo: Script) -> FakeCore:
    return FakeCore(echo)


@pytest.fixture
def engine(make_engine: MakeEngine, core: FakeCore) -> Engine:
    return make_engine(core)


def test_turns_add_up(engine: Engine, core: FakeCore, tokenizer: Tokenizer) -> None:
    with engine.session("be kind", thinking=False) as session:
        assert session.say("a") == "[a]"
        assert session.say("b") == "[b]"
        assert contents(session) == ["be kind", "a", "[a]", "b", "[b]"]
        assert repr(session) == "Session(2 turns, 5 messages, idle)"
    whole = engine._prepare.format.encode(
        [{"role": "system", "content": "be kind"}, *map(user, "a")], None, False
    )
    assert core.submitted[0].prompt == whole
    assert repr(session) == "Session(2 turns, 5 messages, closed)"


def test_a_turn_computes_only_what_is_new(engine: Engine, core: FakeCore) -> None:
    session = engine.session("be kind", thinking=False)
    answers = [session.say(text) for text in ("a", "b", "c")]
    assert answers[0].usage.cached_tokens == 0
    for before, answer in zip(core.submitted, answers[1:], strict=False):
        assert answer.usage.cached_tokens == before.checkpoint_at[-1]
    other = engine.session("be kind", thinking=False).say("z")
    assert other.usage.cached_tokens == core.submitted[0].checkpoint_at[0]
    computed = answers[2].usage.prompt_tokens - answers[2].usage.cached_tokens
    assert answers[2].timings.prefill_tps == computed / 0.5


def test_results_of_calls_are_said_as_messages(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    said = iter([f"why</think>look{CALL}<|im_end|>", "fine</think>done<|im_end|>"])
    core = FakeCore(lambda prompt: tokenizer.encode(next(said)))
    session = make_engine(core).session(tools=[TOOL])
    first = session.say("go")
    assert first.tool_calls == [ToolCall("f", {"n": 1})]
    assert session.say([{"role": "tool", "content": "3"}]) == "done"
    assert session.messages == [
        user("go"),
        {
            "role": "assistant",
            "content": "look",
            "reasoning_content": "why",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"n": 1}}}],
        },
        {"role": "tool", "content": "3"},
        {"role": "assistant", "content": "done", "reasoning_content": "fine"},
    ]
    session.rewind()
    assert session.messages == []


def test_messages_are_copies(engine: Engine) -> None:
    said = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    session = engine.session(thinking=False)
    session._conversation.begin(said).end({"role": "assistant", "content": "x"})
    session.messages[0]["content"][0]["text"] = "b"
    session.messages.clear()
    assert session.messages[0] == {"role": "user", "content": [{"type": "text", "text": "a"}]}


def test_a_fork_goes_its_own_way(engine: Engine) -> None:
    session = engine.session(thinking=False)
    session.say("a")
    fork = session.fork()
    assert (session.say("b"), fork.say("c")) == ("[b]", "[c]")
    assert contents(session) == ["a", "[a]", "b", "[b]"]
    assert contents(fork) == ["a", "[a]", "c", "[c]"]
    session.close()
    assert fork.say("d").usage.cached_tokens > 0


def test_rewind_takes_turns_back(engine: Engine) -> None:
    session = engine.session("s", thinking=False)
    for text in "abc":
        session.say(text)
    session.rewind(2)
    assert contents(session) == ["s", "a", "[a]"]
    assert session.say("d").usage.cached_tokens > 0
    for turns, error in ((3, ValueError), (0, ValueError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match=r"\[session\] "):
            session.rewind(turns)  # type: ignore[arg-type]
    assert contents(session) == ["s", "a", "[a]", "d", "[d]"]
    session.rewind(2)
    assert contents(session) == ["s"]


def test_settings_hold_for_every_turn_and_keywords_for_one(make_engine: MakeEngine) -> None:
    core = FakeCore(lambda prompt: [97])
    sampling = SamplingParams(temperature=0.5, seed=3, max_tokens=2, thinking=True)
    session = make_engine(core).session(sampling=sampling, thinking=False)
    session.say("a")
    session.say("b", max_tokens=3)
    session.say("c", sampling=SamplingParams(seed=4), temperature=0.0, thinking=True)
    asked = [(s.temperature, s.seed, s.max_tokens) for s in core.submitted]
    assert asked == [(0.5, 3, 2), (0.5, 3, 3), (0.0, 4, 2)]
    assert contents(session)[1::2] == ["aa", "aaa", ""]  # what was cut short is an answer
    assert session.messages[-1]["reasoning_content"] == "aa"


def test_a_stream_adds_the_turn_at_its_end(engine: Engine) -> None:
    session = engine.session(thinking=False)
    stream = session.stream("ab")
    assert next(stream) == "["
    assert repr(session) == "Session(0 turns, 0 messages, speaking)"
    assert "".join(stream) == "ab]"
    assert contents(session) == ["ab", "[ab]"]
    assert session.stream("c").result() == "[c]"
    stream.close()
    assert contents(session) == ["ab", "[ab]", "c", "[c]"]


@pytest.mark.parametrize("way", ["close", "drop", "with", "interrupt"])
def test_a_stream_that_is_left_adds_nothing(
    engine: Engine, core: FakeCore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    session = engine.session(thinking=False)
    session.say("a")
    stream = session.stream("b" * 100)
    next(stream)
    if way == "close":
        stream.close()
    elif way == "with":
        with stream:
            next(stream)
    elif way == "interrupt":
        with monkeypatch.context() as patch:
            patch.setattr(type(stream._pieces), "__next__", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(stream)
    else:
        del stream
        gc.collect()
    assert contents(session) == ["a", "[a]"]
    assert session.say("c") == "[c]"
    if way != "drop":
        stream.result()  # it may be read on, to no effect
    assert contents(session) == ["a", "[a]", "c", "[c]"]
    assert core.live() == 0


def _interrupted(_: object) -> None:
    raise KeyboardInterrupt


def test_one_turn_at_a_time(engine: Engine) -> None:
    session = engine.session(thinking=False)
    session.say("a")
    stream = session.stream("b" * 1000)
    for call in (
        lambda: session.say("c"),
        lambda: session.stream("c"),
        lambda: session.rewind(),
        lambda: asyncio.run(session.asay("c")),
    ):
        with pytest.raises(RuntimeError, match="a turn waits for its answer"):
            call()
    assert session.fork().say("d") == "[d]"
    assert contents(session) == ["a", "[a]"]
    assert stream.result() == f"[{'b' * 1000}]"
    assert session.say("c") == "[c]"


def test_threads_never_share_a_turn(make_engine: MakeEngine, echo: Script) -> None:
    session = make_engine(FakeCore(echo, step_s=0.001)).session(thinking=False)
    done: list[str] = []
    refused: list[RuntimeError] = []
    start = threading.Barrier(4)

    def run(name: str) -> None:
        start.wait()
        for number in range(5):
            try:
                done.append(session.say(f"{name}{number}"))
            except RuntimeError as error:
                refused.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) + len(refused) == 20
    assert done
    assert contents(session)[1::2] == done
    assert contents(session)[::2] == [text[1:-1] for text in done]


def test_a_failed_turn_adds_nothing_and_frees_the_session(engine: Engine, core: FakeCore) -> None:
    session = engine.session(thinking=False)
    core.poison = DeviceError("[device] it failed")
    with pytest.raises(DeviceError) as failed:  # its traceback holds the frames of the call
        session.say("a")
    assert session.messages == []
    core.poison = DeviceError("[device] it failed")
    stream = session.stream("b")
    with pytest.raises(DeviceError):
        list(stream)
    for call in (session.stream, session.astream):
        with pytest.raises(CapacityError) as kept:
            asyncio.run(_called(call, "b" * 5000))
    with pytest.raises(ValueError, match="refuses"):
        session.say([{"role": "system", "content": "late"}, {"role": "system", "content": "x"}])
    assert session.say("c") == "[c]"
    assert contents(session) == ["c", "[c]"]
    assert failed.value.__traceback__
    assert kept.value.__traceback__


async def _called(call: Callable[[str], object], text: str) -> None:
    call(text)


def test_a_closed_session_takes_no_turns(
    engine: Engine, core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.session(thinking=False) as session:
        session.say("a")
        stream = session.stream("b" * 1000)
        next(stream)
    assert stream.result().finish_reason == "cancelled"
    assert contents(session) == ["a", "[a]"]
    for call in (
        lambda: session.say("c"),
        lambda: session.fork(),
        lambda: session.rewind(),
        lambda: session.save("x"),
    ):
        with pytest.raises(RuntimeError, match="the session is closed"):
            call()
    session.close()
    closing = engine.session()
    make_turn = engine._prepare.turn

    def close_first(*arguments: Any) -> Generation:
        closing.close()  # before there is anything to cancel
        return make_turn(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(engine._prepare, "turn", close_first)
        with pytest.raises(RuntimeError, match="the session is closed"):
            closing.say("a")
    assert not closing.messages
    other = engine.session()
    engine.close()
    with pytest.raises(RuntimeError, match=r"\[engine\] engine: it is closed"):
        other.say("a")


def test_asyncio_twins(engine: Engine, core: FakeCore) -> None:
    async def main() -> list[str]:
        session = engine.session(thinking=False)
        assert await session.asay("a") == "[a]"
        stream = session.astream("b")
        with pytest.raises(RuntimeError, match="one at a time"):
            await session.asay("c")
        assert "".join([piece async for piece in stream]) == "[b]"
        assert (await session.astream("c").result()) == "[c]"
        left = session.astream("d" * 1000)
        await anext(left)
        await left.aclose()
        task = asyncio.create_task(session.asay("e" * 3000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session.asay("f") == "[f]"
        return contents(session)

    assert asyncio.run(main()) == ["a", "[a]", "b", "[b]", "c", "[c]", "f", "[f]"]
    assert core.live() == 0


def test_wrong_arguments(engine: Engine, tmp_path: Path) -> None:
    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: engine.session(3), TypeError, "[session] system: no string (got int)"),  # type: ignore[arg-type]
        (lambda: engine.session(tools=[{}]), ValueError, "[chat] tools[0]: no name"),
        (lambda: engine.session(sampling=3), TypeError, "not SamplingParams"),  # type: ignore[arg-type]
        (lambda: engine.session(thinking=-1), ValueError, "thinking: out of range (got -1"),
        (lambda: engine.session(sampling=SamplingParams(n=2)), ValueError, "[sampling] n: only"),
        (lambda: engine.session().say("a", n=2), ValueError, "[sampling] n: only"),  # type: ignore[call-arg]
        (lambda: engine.session().say(3), TypeError, "[chat] messages: not a list"),  # type: ignore[arg-type]
        (lambda: engine.session().say([]), ValueError, "[chat] messages: empty"),
        (lambda: engine.session().say([{"role": "x"}]), ValueError, "unknown role"),
        (lambda: engine.session().save(3), TypeError, "[session] path: not a path"),  # type: ignore[arg-type]
        (lambda: engine.session().save(tmp_path / "no" / "a"), FileNotFoundError, "no such folder"),
        (lambda: engine.load_session(""), TypeError, "[session] path: not a path"),
        (
            lambda: engine.session().save("a\0b"),
            ValueError,
            "[session] path: holds a null character",
        ),
        (lambda: engine.load_session(tmp_path / "no"), FileNotFoundError, "no such file"),
    ]
    for call, error, words in wrong:
        with pytest.raises(error) as caught:
            call()
        assert words in str(caught.value)


def test_a_model_without_template_has_no_sessions(
    make_engine: MakeEngine, say: Say, model_dir: Path
) -> None:
    template = model_dir / "chat_template.jinja"
    source = template.read_text()
    template.unlink()
    try:
        engine = make_engine(say("x"))
    finally:
        template.write_text(source)
    with pytest.raises(ModelError, match="no chat template"):
        engine.session()
    with pytest.raises(ModelError, match="no chat template"):
        engine.load_session("x")
