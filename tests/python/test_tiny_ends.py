"""The bundled model when processes end, fork or are interrupted; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

START = """
import asyncio, gc, os, signal, sys, threading, time
from mtlqwen import Engine, SamplingParams
LONG = SamplingParams(max_tokens=4000, ignore_eos=True)
PROMPT = "Once upon a time"
engine = Engine("tiny")
"""

EXITS = {
    "handles": "handles = [engine.submit(PROMPT, sampling=LONG) for _ in range(20)]",
    "stream": "stream = engine.stream(PROMPT, sampling=LONG); next(stream)",
    "cycle": """
class Knot: pass
knot = Knot(); knot.self = knot; knot.engine = engine
knot.stream = engine.stream(PROMPT, sampling=LONG); knot.handle = engine.submit(PROMPT)
""",
    "error": """
stream = engine.stream(PROMPT, sampling=LONG); next(stream)
print(time.time(), flush=True)
raise SystemExit(0)
""",
    "event loop": """
async def main():
    task = asyncio.create_task(engine.agenerate(PROMPT, sampling=LONG))
    await engine.astream(PROMPT, sampling=LONG).__anext__()
asyncio.run(main())
""",
}
DAEMONS = """
def generate():
    while True: engine.generate(PROMPT, sampling=LONG)
def stream():
    while True:
        for _ in engine.stream(PROMPT, sampling=LONG): pass
def short():
    while True: engine.generate(PROMPT, max_tokens=1)
def loop():
    async def main():
        async for _ in engine.astream(PROMPT, sampling=LONG): pass
    asyncio.run(main())
for work in (generate, stream, short, loop) * 3: threading.Thread(target=work, daemon=True).start()
while engine.stats()["live"] < 8: time.sleep(0.01)
"""

FORK = """
want = engine.generate(PROMPT, max_tokens=16)
stream = engine.stream(PROMPT, sampling=LONG, max_tokens=100)
handle = engine.submit(PROMPT, sampling=LONG, max_tokens=100)
next(stream)
child = os.fork()
if child == 0:
    refused = 0
    calls = (
        lambda: engine.generate("a"), lambda: engine.submit("a"), lambda: engine.stream("a"),
        lambda: list(stream), handle.result, lambda: handle.done, engine.stats, engine.step,
        engine.check_integrity, lambda: engine.context, lambda: asyncio.run(engine.agenerate("a")),
    )
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            refused += "this process: forked after the engine was made" in str(error)
    CHILD
    sys.exit(7 if refused == len(calls) else 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
tokens = len(stream.result().token_ids), len(handle.result().token_ids)
same = engine.generate(PROMPT, max_tokens=16) == want
engine.check_integrity()
print(code, *tokens, same, engine.stats()["live"])
"""
CHILDREN = {
    "exit": "",
    "close": "handle.cancel(); stream.close(); engine.close(); engine.close()",
    "drop": "calls = [0] * len(calls); del call, handle, stream, engine; gc.collect()",
    "new engine": """
    with Engine("tiny") as other:
        assert other.generate(PROMPT, max_tokens=16) == want
        other.check_integrity()
""",
}

# A handler that closes the engine while the main thread reads, submits or runs a pass.
CLOSE_BY_SIGNAL = """
import random
rng = random.Random(5)
closed = 0
for number in range(25):
    if number: engine = Engine("tiny")
    if number % 3 == 0: engine.step()
    signal.signal(signal.SIGALRM, lambda *_: engine.close())
    signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.05 * rng.random())
    try:
        while True:
            engine.generate(PROMPT, max_tokens=2, stop="Z")
            engine.submit(PROMPT, max_tokens=2).result()
            for _ in engine.stream(PROMPT, max_tokens=2): pass
    except RuntimeError as error:
        closed += "closed" in str(error)
print(closed)
"""


def run(script: str, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def interrupt(rounds: int, seed: int, *arguments: str) -> None:
    program = Path(__file__).with_name("interrupts.py")
    command = [sys.executable, str(program), str(rounds), str(seed), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.stderr == ""
    caught, wrong, live, waiting, ways = map(int, done.stdout.split())
    assert caught == rounds
    assert (wrong, live, waiting) == (0, 0, 0)
    assert ways == 16  # every way was interrupted


def test_random_interrupts() -> None:
    interrupt(100, 11)


def test_random_interrupts_of_an_embedder() -> None:
    interrupt(60, 12, "manual")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["thread", "manual"])
def test_a_thousand_random_interrupts(mode: str) -> None:
    interrupt(1000, 13, mode)


@pytest.mark.parametrize("work", EXITS.values(), ids=EXITS.keys())
def test_the_interpreter_exits_with_live_work(work: str) -> None:
    strict = "from mtlqwen import _core; _core._testing.set_leak_warnings(True)\n"
    done = run(START + strict + work + "\nprint(time.time(), flush=True)")
    assert (done.returncode, done.stderr) == (0, "")
    assert time.time() - float(done.stdout.split()[-1]) < 5


def test_the_interpreter_exits_under_daemon_threads() -> None:
    for _ in range(3):
        done = run(START + DAEMONS + "print('x', flush=True)")
        assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
def test_a_forked_child_is_refused_and_the_parent_goes_on(child: str) -> None:
    done = run(START + FORK.replace("CHILD", child), timeout=120)
    assert (done.stdout, done.stderr) == ("7 100 100 True 0\n", "")
    assert done.returncode == 0


def test_a_signal_handler_may_close_the_engine() -> None:
    done = run(START + CLOSE_BY_SIGNAL, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "25\n", "")
