"""The bundled model under many threads and loops: pools, priorities, deadlines, slots, memory."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from mtlqwen import Engine, SamplingParams
from python.test_driver import wait_until

PROMPT = "Once upon a time"
LONG = SamplingParams(max_tokens=2000, ignore_eos=True)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("tiny") as engine:
        yield engine


@pytest.fixture(autouse=True)
def whole(engine: Engine) -> Iterator[None]:
    """After each test nothing runs or waits, and the books agree."""
    yield
    gc.collect()
    assert wait_until(lambda: counts(engine) == (0, 0), 20)
    engine.check_integrity()


def counts(engine: Engine) -> tuple[int, int]:
    stats = engine.stats()
    assert isinstance(stats["live"], int)
    assert isinstance(stats["waiting"], int)
    return stats["live"], stats["waiting"]


def pool_of_threads(engine: Engine, n_threads: int, n_each: int) -> None:
    """Every thread mixes all ways of asking; every text must be its prompt's own."""
    prompts = [f"{PROMPT}, {name} and" for name in ("Hana", "Noah", "a monkey", "a radio")]
    want = {prompt: engine.generate(prompt, max_tokens=6) for prompt in prompts}

    def work(number: int) -> int:
        rng = random.Random(number)
        for _ in range(n_each):
            prompt = rng.choice(prompts)
            way = rng.randrange(5)
            if way == 0:
                texts = [str(engine.generate(prompt, max_tokens=6))]
            elif way == 1:
                texts = [str(text) for text in engine.generate([prompt] * 3, max_tokens=6)]
            elif way == 2:
                texts = ["".join(engine.stream(prompt, max_tokens=6))]
            elif way == 3:
                texts = [engine.submit(prompt, max_tokens=6, priority=number).result().text]
            else:
                texts = [str(asyncio.run(engine.agenerate(prompt, max_tokens=6)))]
            assert texts == [want[prompt]] * len(texts)
        return n_each

    with ThreadPoolExecutor(n_threads) as pool:
        assert sum(pool.map(work, range(n_threads))) == n_threads * n_each


def test_thirty_two_threads(engine: Engine) -> None:
    pool_of_threads(engine, 32, 3)


@pytest.mark.slow
def test_thirty_two_threads_for_long(engine: Engine) -> None:
    pool_of_threads(engine, 32, 40)


def test_two_engines_in_two_threads(engine: Engine) -> None:
    with Engine("tiny", slots=2) as other:
        engines = (engine, other)
        prompts = [f"{PROMPT} {number}" for number in range(6)]
        want = engine.generate(prompts, max_tokens=12)
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(each.generate, prompts, max_tokens=12) for each in engines]
            assert [job.result() for job in jobs] == [want, want]


def test_slots_and_a_waiting_line(engine: Engine) -> None:
    with Engine("tiny", slots=32) as wide:
        handles = [wide.submit(PROMPT, sampling=LONG) for _ in range(100)]
        assert wait_until(lambda: counts(wide) == (32, 68))
        wide.check_integrity()  # while passes run
        for handle in handles[32:]:
            handle.cancel()
        assert wait_until(lambda: counts(wide)[1] == 0)
        assert all(not handle.done for handle in handles[:32])


def test_other_threads_run_during_a_pass(engine: Engine) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())

    with Engine("tiny", slots=1) as own:
        own.step()
        handle = own.submit([100] * 500, max_tokens=1)
        threading.Thread(target=tick).start()
        spans = []
        while not handle.done:
            begin = time.perf_counter()
            own.step()
            spans.append((begin, time.perf_counter()))
        stop.set()
    # Inside the middle half of a pass nobody but native code of this thread runs.
    during = 0
    for begin, end in spans:
        quarter = (end - begin) / 4
        during += any(begin + quarter < moment < end - quarter for moment in ticks)
    assert during >= len(spans) / 2


def test_the_higher_priority_gets_the_slot() -> None:
    with Engine("tiny", slots=1) as engine:
        engine.step()
        wishes = (("low", -1), ("middle", 0), ("high", 5), ("second high", 5))
        handles = {
            name: engine.submit(PROMPT, max_tokens=1, priority=priority)
            for name, priority in wishes
        }
        order: list[str] = []
        while engine.step():
            order += [name for name, handle in handles.items() if handle.done and name not in order]
        assert order == ["high", "second high", "middle", "low"]


def test_a_deadline_ends_a_running_text(engine: Engine) -> None:
    begin = time.monotonic()
    result = engine.generate(PROMPT, sampling=LONG, deadline_s=0.3)
    assert 0.3 <= time.monotonic() - begin < 5
    assert result.finish_reason == "deadline"
    assert result == engine.generate(PROMPT, max_tokens=len(result.token_ids), ignore_eos=True)
    chat = engine.chat([{"role": "user", "content": "Hi"}], sampling=LONG, deadline_s=0.3)
    assert chat.finish_reason == "deadline"


def test_a_deadline_ends_one_that_waits() -> None:
    with Engine("tiny", slots=1) as engine:
        running = engine.submit(PROMPT, sampling=LONG)
        next(iter(running))
        late = engine.submit(PROMPT, max_tokens=5, deadline_s=0.1)
        assert late.result(timeout=20) == ""
        assert late.finish_reason == "deadline"
        assert late.result().token_ids == []
        assert not running.done


def test_async_twins_share_the_passes(engine: Engine) -> None:
    prompts = [f"{PROMPT} {number}" for number in range(20)]
    want = engine.generate(prompts, max_tokens=8)

    async def main() -> None:
        jobs = [engine.agenerate(prompt, max_tokens=8) for prompt in prompts]
        assert await asyncio.gather(*jobs) == want
        assert await engine.agenerate(prompts, max_tokens=8) == want
        pieces = [piece async for piece in engine.astream(prompts[0], max_tokens=8)]
        assert "".join(pieces) == want[0]
        hello = [{"role": "user", "content": "Good morning"}]
        assert await engine.achat(hello, thinking=False) == "Hello! How can I help you today?"
        task = asyncio.create_task(engine.agenerate([PROMPT] * 20, sampling=LONG))
        while counts(engine) != (8, 12):
            await asyncio.sleep(0.001)
        task.cancel()
        passes = engine.stats()["passes"]
        with pytest.raises(asyncio.CancelledError):
            await task
        while counts(engine) != (0, 0):
            await asyncio.sleep(0.001)
        assert engine.stats()["passes"] == passes  # the running one was stopped

    asyncio.run(main())


def test_a_dropped_iterator_is_gone_within_a_step() -> None:
    with Engine("tiny", slots=2) as engine:
        engine.step()
        kept = engine.submit(PROMPT, sampling=LONG)
        stream = engine.stream(PROMPT, sampling=LONG)
        assert next(stream)
        assert counts(engine) == (2, 0)
        del stream
        gc.collect()
        engine.step()
        assert counts(engine) == (1, 0)
        assert not kept.done


def use_until_closed(engine: Engine, errors: list[str]) -> None:
    try:
        while True:
            engine.generate([PROMPT] * 3, max_tokens=2)
            engine.submit(PROMPT, max_tokens=3).result()
            for _ in engine.stream(PROMPT, max_tokens=2):
                engine.stats()
                engine.check_integrity()
            asyncio.run(engine.agenerate(PROMPT, max_tokens=2))
    except RuntimeError as error:
        errors.append(str(error))


def test_close_at_random_moments() -> None:
    rng = random.Random(7)
    for _ in range(12):
        engine = Engine("tiny", slots=4)
        errors: list[str] = []
        threads = [
            threading.Thread(target=use_until_closed, args=(engine, errors)) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        time.sleep(rng.random() * 0.3)
        engine.close()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert len(errors) == 6
        assert all("closed" in error for error in errors)


def test_a_memory_budget_is_kept(engine: Engine) -> None:
    want = engine.generate([PROMPT] * 8, max_tokens=40, ignore_eos=True)
    needed = engine.stats()["memory_bytes"]
    assert isinstance(needed, int)
    with Engine("tiny", memory_budget=needed, deterministic=True) as bounded:
        got = bounded.generate([PROMPT] * 8, max_tokens=40, ignore_eos=True)
        assert len({text.text for text in got}) == 1
        stats = bounded.stats()
        assert stats["budget_bytes"] == needed
        assert isinstance(stats["memory_bytes"], int)
        assert stats["memory_bytes"] <= needed
        bounded.check_integrity()
    assert len(want) == 8
