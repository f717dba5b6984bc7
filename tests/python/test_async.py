"""The asyncio twins on a scripted core: same results, no thread per call, cancelled in a step."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from mtlqwen import CapacityError, ChatResult, DeviceError, Engine
from mtlqwen.tokenizer import Tokenizer
from python.conftest import MakeEngine
from python.fake_core import FakeCore, Script
from python.test_driver import LONG, endless, wait_until

Say = Callable[[str], Script]
HI = [{"role": "user", "content": "hi"}]


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Return whether a condition comes true in time, leaving the loop to others."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition() and loop.time() < end:
        await asyncio.sleep(0.002)
    return condition()


def test_twins_return_what_the_others_do(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("why\n</think>\n\nbecause"))

    async def main() -> None:
        assert await engine.agenerate("x") == engine.generate("x")
        assert await engine.agenerate(["x", "y"]) == engine.generate(["x", "y"])
        result = await engine.achat(HI)
        assert isinstance(result, ChatResult)
        assert (result, result.reasoning) == ("because", "why")
        stream = engine.astream(HI)
        pieces = [piece async for piece in stream]
        assert "".join(piece for piece in pieces if piece.kind == "text") == "because"
        assert await stream.result() == "because"
        assert await engine.submit("x") == engine.generate("x")

    asyncio.run(main())


def test_a_hundred_tasks_take_no_thread_each(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    core = FakeCore(
        lambda prompt: tokenizer.encode(tokenizer.decode(prompt) * 9 + "<|im_end|>"), step_s=0.0002
    )
    engine = make_engine(core)
    threads = 0

    async def watch() -> None:
        nonlocal threads
        while True:
            threads = max(threads, threading.active_count())
            await asyncio.sleep(0.001)

    async def read(number: int) -> str:
        return "".join([piece async for piece in engine.astream(f"p{number}")])

    async def main() -> list[str]:
        watcher = asyncio.create_task(watch())
        texts = await asyncio.gather(*[read(number) for number in range(100)])
        watcher.cancel()
        return texts

    before = threading.active_count()
    assert asyncio.run(main()) == [f"p{number}" * 9 for number in range(100)]
    assert threads <= before + 1  # the driver
    assert not core.sequences


def test_many_loops_use_one_engine(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    core = FakeCore(lambda prompt: tokenizer.encode(tokenizer.decode(prompt) * 5 + "<|im_end|>"))
    engine = make_engine(core)

    def work(number: int) -> list[str]:
        async def main() -> list[str]:
            jobs = [engine.agenerate(f"{number}-{job}") for job in range(10)]
            return [str(text) for text in await asyncio.gather(*jobs)]

        return asyncio.run(main())

    with ThreadPoolExecutor(8) as pool:
        for number, texts in enumerate(pool.map(work, range(16))):
            assert texts == [f"{number}-{job}" * 5 for job in range(10)]


@pytest.mark.parametrize("way", ["agenerate", "a list", "achat", "astream", "wait_for", "timeout"])
def test_a_cancelled_task_frees_its_slot(make_engine: MakeEngine, way: str) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)

    async def call() -> None:
        if way == "a list":
            await engine.agenerate(["a", "b", "c"], max_tokens=LONG)
        elif way == "achat":
            await engine.achat(HI, max_tokens=LONG)
        elif way == "astream":
            async for _ in engine.astream("a", max_tokens=LONG):
                pass
        else:
            await engine.agenerate("a", max_tokens=LONG)

    async def main() -> None:
        if way == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(call(), 0.05)
        else:
            task = asyncio.create_task(call())
            assert await until(lambda: len(core.submitted) == (3 if way == "a list" else 1))
            assert await until(lambda: len(core.submitted[-1].made) > 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        passes = core.passes
        assert await until(lambda: not core.sequences)
        assert core.passes <= passes + 2

    asyncio.run(main())


@pytest.mark.parametrize("way", ["drop", "aclose", "with", "break"])
def test_an_iterator_left_behind_frees_its_slot(make_engine: MakeEngine, way: str) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)

    async def main() -> None:
        if way == "with":
            async with engine.astream("a", max_tokens=LONG) as opened:
                await opened.__anext__()
        elif way == "break":
            async for _ in engine.astream("a", max_tokens=LONG):
                break
        else:
            stream = engine.astream("a", max_tokens=LONG)
            await stream.__anext__()
            if way == "aclose":
                await stream.aclose()
                assert [piece async for piece in stream] == []
                assert (await stream.result()).finish_reason == "cancelled"
            del stream
        gc.collect()
        assert await until(lambda: not core.sequences)

    asyncio.run(main())
    assert len(core.submitted[0].made) < LONG


def test_a_loop_that_ends_takes_its_generations_along(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)

    async def main() -> None:
        asyncio.create_task(engine.agenerate("a", max_tokens=LONG))  # noqa: RUF006
        assert await until(lambda: core.live() == 1)

    asyncio.run(main())
    assert wait_until(lambda: not core.sequences)
    loop = asyncio.new_event_loop()
    task = loop.create_task(engine.agenerate("a", max_tokens=LONG))
    loop.run_until_complete(until(lambda: core.live() == 1))
    loop.close()  # with a task that still waits; the driver must not mind
    assert wait_until(lambda: len(core.submitted[1].made) > 20)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    assert wait_until(lambda: not core.sequences)


def test_a_cancelled_wait_for_a_handle_leaves_it(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)

    async def main() -> None:
        handle = engine.submit("a", max_tokens=200)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.ensure_future(read(handle)), 0.01)
        assert await handle == "x" * 200

    async def read(handle: object) -> object:
        return await handle  # type: ignore[misc]

    asyncio.run(main())


def test_errors_and_closing_reach_tasks(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.001)
    engine = make_engine(core)

    async def main() -> None:
        with pytest.raises(CapacityError):
            await engine.agenerate([1] * 5000)
        with pytest.raises(ValueError, match="prompt: empty"):
            engine.astream("")
        jobs = [asyncio.create_task(engine.agenerate("a", max_tokens=LONG)) for _ in range(3)]
        assert await until(lambda: core.live() == 3)
        core.step_error = DeviceError("[device] pass: failed")
        for job in jobs:
            with pytest.raises(DeviceError, match="pass: failed"):
                await job
        job = asyncio.create_task(engine.agenerate("a", max_tokens=LONG))
        stream = engine.astream("a", max_tokens=LONG)
        await stream.__anext__()
        engine.close()
        for awaitable in (job, stream.result()):
            with pytest.raises(RuntimeError, match="it is closed"):
                await awaitable

    asyncio.run(main())


def test_an_embedder_steps_for_its_tasks(make_engine: MakeEngine, say: Say) -> None:
    engine = make_engine(say("text"))
    engine.step()

    async def main() -> None:
        job = asyncio.create_task(engine.agenerate("a"))
        while not job.done():
            await asyncio.sleep(0)
            engine.step()
        assert job.result() == "text"

    asyncio.run(main())
    assert engine._driver._thread is None


def test_the_loop_runs_while_the_model_does(make_engine: MakeEngine) -> None:
    core = FakeCore(endless, step_s=0.01)
    engine = make_engine(core)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async def main(engine: Engine) -> None:
        ticker = asyncio.create_task(tick())
        await engine.agenerate("a", max_tokens=30)
        ticker.cancel()

    asyncio.run(main(engine))
    assert ticks > 60  # 0.3 s; less than 30 would be one tick a token
