"""Handles, priorities and deadlines on a scripted core."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from mtlqwen import CapacityError, ChatResult, DeviceError, Engine
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import FakeCore, FakePoll, Script
from python.test_driver import LONG, endless, wait_until

Say = Callable[[str], Script]
HI = [{"role": "user", "content": "hi"}]


def test_a_handle_is_read_as_often_as_one_likes(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("Grüße €"))
    handle = engine.submit("x")
    assert "".join(handle) == "".join(handle) == handle.result() == engine.generate("x")
    assert handle.done
    assert handle.finish_reason == "stop"
    assert repr(handle) == "Handle(stop, 12 tokens)"
    assert all(piece.kind == "text" for piece in handle)


def test_a_handle_of_messages_has_a_chat_result(make_engine: MakeEngine, say: Say) -> None:
    handle = make_engine(say("why\n</think>\n\nbecause")).submit(HI)
    result = handle.result()
    assert isinstance(result, ChatResult)
    assert (result, result.reasoning) == ("because", "why")
    call = "<tool_call>\n<function=f>\n</function>\n</tool_call>"
    handle = make_engine(say(f"\n</think>\n\n{call}")).submit(HI, tools=[{"name": "f"}])
    assert handle.finish_reason is None or handle.done
    handle.result()
    assert handle.finish_reason == "tool_calls"


def test_many_threads_read_one_handle(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    text = "".join(f"{number} " for number in range(100))
    core = FakeCore(lambda prompt: tokenizer.encode(text + "<|im_end|>"), step_s=0.0005)
    handle = make_engine(core).submit("x")
    with ThreadPoolExecutor(16) as pool:
        reads = [pool.submit(lambda: "".join(handle)) for _ in range(8)]
        results = [pool.submit(handle.result) for _ in range(8)]
        assert {read.result(timeout=20) for read in reads} == {text}
        assert {str(result.result(timeout=20)) for result in results} == {text}


def test_a_timeout_leaves_the_generation_running(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    handle = make_engine(core).submit("x", max_tokens=300)
    for timeout in (0, -1, 0.02):
        with pytest.raises(TimeoutError, match=r"result: not there in time \(waited"):
            handle.result(timeout=timeout)
    assert not handle.done
    assert repr(handle).startswith("Handle(running, ")
    assert handle.result(timeout=float("inf")) == "x" * 300


def test_cancel_from_another_thread_wakes_the_readers(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    handle = make_engine(core).submit("x", max_tokens=LONG)
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(handle.result)
        joined = pool.submit(lambda: "".join(handle))
        assert wait_until(lambda: len(core.submitted[0].made) > 3)
        handle.cancel()
        text = joined.result(timeout=5)
        assert whole.result(timeout=5) == text
    assert handle.done
    assert handle.finish_reason == "cancelled" == handle.result().finish_reason
    assert text == handle.result()
    assert 3 < len(text) < LONG
    handle.cancel()
    assert wait_until(lambda: not core.sequences)


def test_cancel_after_the_end_changes_nothing(make_engine: MakeEngine, say: Say) -> None:
    handle = make_engine(say("text")).submit("x")
    handle.result()
    handle.cancel()
    assert handle.finish_reason == "stop"


@pytest.mark.parametrize("kind", ["handle", "stream", "cycle", "iterator"])
def test_what_is_dropped_ends_within_a_step(make_engine: MakeEngine, kind: str) -> None:
    core = FakeCore(endless)
    engine = make_engine(core)
    engine.step()  # from here on this test runs the passes
    kept = engine.submit("kept", max_tokens=LONG)
    left: object
    if kind == "stream":
        left = engine.stream("x", max_tokens=LONG)
    elif kind == "iterator":
        left = iter(engine.submit("x", max_tokens=LONG))
        next(left)
    else:
        left = engine.submit("x", max_tokens=LONG)
    if kind == "cycle":
        cycle: list[object] = [left]
        cycle.append(cycle)
        left = cycle
        del cycle
    engine.step()
    made = len(core.submitted[1].made)
    del left
    gc.collect()
    engine.step()
    assert core.live() == 1
    assert len(core.submitted[1].made) == made
    assert list(core.sequences) == [0]
    assert not kept.done


def test_a_stop_string_frees_the_slot_though_nobody_reads(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    core = FakeCore(lambda prompt: tokenizer.encode("abSTOPcd" * 100), step_s=0.001)
    handle = make_engine(core).submit("x", stop="TOP", max_tokens=LONG)
    assert wait_until(lambda: not core.sequences)
    assert len(core.submitted[0].made) < 20
    assert handle.result() == "abS"
    assert handle.finish_reason == "stop"


def test_errors_reach_the_handle_each_time(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)
    handle = engine.submit("x", max_tokens=LONG)
    assert next(iter(handle)) == "x"
    core.step_error = DeviceError("[device] pass: failed")
    for read in (handle.result, lambda: list(handle), handle.result):
        with pytest.raises(DeviceError, match="pass: failed"):
            read()
    assert handle.done
    assert handle.finish_reason is None
    assert repr(handle).startswith("Handle(DeviceError, ")


def test_a_closed_engine_keeps_what_has_ended(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("text"))
    ended = engine.submit("x")
    assert ended.result() == "text"
    engine._core.script = endless  # type: ignore[attr-defined]
    running = engine.submit("x", max_tokens=LONG)
    engine.close()
    assert ended.result() == "".join(ended) == "text"
    with pytest.raises(RuntimeError, match="it is closed"):
        running.result()


def test_wrong_requests_leave_nothing_behind(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(core)
    with pytest.raises(CapacityError):
        engine.submit([1] * 5000)
    with pytest.raises(ValueError, match="prompt: empty"):
        engine.submit("")
    assert not engine._driver._mailboxes
    assert engine.submit("a").result() == "x"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"priority": 1.5}, TypeError, "[engine] priority: not an integer (got 1.5)"),
        ({"priority": True}, TypeError, "priority"),
        ({"priority": 2**31}, ValueError, "[engine] priority: out of range (got 2147483648"),
        ({"deadline_s": 0}, ValueError, "[engine] deadline_s: out of range (got 0, want 1e-06"),
        ({"deadline_s": float("nan")}, ValueError, "deadline_s: out of range (got nan"),
        ({"deadline_s": float("inf")}, ValueError, "deadline_s: out of range (got inf"),
        ({"deadline_s": "1"}, TypeError, "[engine] deadline_s: not a number (got '1')"),
    ],
)
def test_wrong_schedules(
    make_engine: MakeEngine,
    say: Say,
    arguments: dict[str, object],
    error: type[Exception],
    words: str,
) -> None:
    engine = make_engine(say("x"))
    calls: list[Callable[..., object]] = [engine.generate, engine.stream, engine.submit]
    for call in calls:
        with pytest.raises(error) as caught:
            call("a", **arguments)
        assert words in str(caught.value)
    with pytest.raises(error):
        engine.chat(HI, **arguments)  # type: ignore[arg-type]
    assert engine.generate("a") == "x"


def test_priority_and_deadline_reach_the_core(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(core)
    engine.generate("a", priority=3)
    engine.chat(HI, priority=-3, deadline_s=100)
    engine.submit("a", priority=7).result()
    list(engine.stream("a", priority=8))
    assert [sequence.priority for sequence in core.submitted] == [3, -3, 7, 8]
    assert core.submitted[0].deadline is None
    assert core.submitted[1].deadline is not None


def test_a_deadline_ends_the_text_as_it_is(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    result = make_engine(core).generate("a", max_tokens=LONG, deadline_s=0.05)
    assert result.finish_reason == "deadline"
    assert 0 < len(result) < LONG
    assert not core.sequences


def test_engine_options_reach_the_core(make_engine: MakeEngine, say: Say) -> None:
    core = FakeCore(say("x"))
    engine = make_engine(
        core,
        memory_budget=10**9,
        block_tokens=256,
        prefill_share=0.5,
        threads=3,
        prefetch_weights=False,
        lock_weights=True,
        deterministic=True,
        slots=32,
        context=100,
    )
    options = core.options
    assert options is not None
    assert (options.memory_budget, options.prefill_share) == (10**9, 0.5)
    assert options.block_tokens == 256
    assert (options.threads, options.prefetch_weights, options.lock_weights) == (3, False, True)
    assert (options.deterministic, options.slots, options.context) == (True, 32, 100)
    assert repr(engine).endswith("slots=8, deterministic=True)")
    engine.check_integrity()
    engine.close()
    with pytest.raises(RuntimeError, match="it is closed"):
        engine.check_integrity()


def test_a_long_waiting_line_is_not_polled(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = FakeCore(endless, step_s=0.0)
    engine = make_engine(core)
    engine.step()
    handles = [engine.submit("x", max_tokens=LONG) for _ in range(50)]
    polled: list[int] = []
    poll = core.poll

    def counted(sequence: int) -> FakePoll:
        polled.append(sequence)
        return poll(sequence)

    monkeypatch.setattr(core, "poll", counted)
    for waiting in core.submitted[8:]:
        waiting.waits = True
    engine.step()
    assert sorted(polled) == list(range(8))
    assert len(handles) == 50


def test_close_at_any_moment(make_engine: MakeEngine) -> None:
    for round_ in range(60):
        core = FakeCore(endless, step_s=0.0002)
        engine = make_engine(core)
        ended: list[str] = []

        def work(engine: Engine = engine, ended: list[str] = ended, round_: int = round_) -> None:
            try:
                while True:
                    engine.generate("a", max_tokens=3)
                    engine.submit("a", max_tokens=round_ + 1).result()
                    list(engine.stream("a", max_tokens=2))
            except RuntimeError as error:
                ended.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.0005 * round_)
        engine.close()
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive()
        assert ended == ["[engine] engine: it is closed; make a new one"] * 4
