"""`threads=`: how many run kernels, and that no result depends on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from engine.driving import TINY, generate, open_tiny
from mtlqwen import _core

PROMPT = range(10, 150)


def most() -> int:
    """Return the highest number that the core takes, as its refusal of any higher one says."""
    with pytest.raises(ValueError, match=r"want 1 to \d+\)") as caught:
        _core.Engine(str(TINY), kernels="", threads=60_000)
    return int(str(caught.value).split("want 1 to ")[1].split(")")[0])


def test_more_threads_than_cpus_are_refused(kernels: str) -> None:
    high = most()
    assert 1 <= high <= len(os.sched_getaffinity(0))
    words = rf"^\[engine\] threads: more than .* \(got {high + 1}, want 1 to {high}\)"
    with pytest.raises(ValueError, match=words):
        _core.Engine(str(TINY), kernels=kernels, threads=high + 1)


def test_stats_tell_the_threads(kernels: str) -> None:
    high = most()
    for threads in (1, high):
        engine = open_tiny(kernels, threads=threads)
        assert engine.stats()["threads"] == threads
        assert f", {threads} threads)" in str(engine.stats()["device"])
        engine.close()
    engine = open_tiny(kernels)
    assert 1 <= int(engine.stats()["threads"]) <= high
    engine.close()


def test_no_result_depends_on_the_threads(kernels: str) -> None:
    texts = []
    for threads in sorted({1, most()}):
        engine = open_tiny(kernels, threads=threads)
        texts.append(generate(engine, PROMPT, max_tokens=24))
        engine.close()
    assert all(text == texts[0] for text in texts)


def test_engines_with_different_threads_at_once(kernels: str) -> None:
    engines = [open_tiny(kernels, threads=threads) for threads in (1, most(), 1)]
    texts: list[list[int] | None] = [None] * len(engines)

    def run(index: int) -> None:
        texts[index] = generate(engines[index], PROMPT, max_tokens=16)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts[0]
    assert texts == [texts[0]] * len(engines)
    for engine in engines:
        engine.close()


def test_affinity_limits_the_threads(kernels: str) -> None:
    program = (
        "import os, sys\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from mtlqwen import _core\n"
        "engine = _core.Engine(sys.argv[1], kernels=sys.argv[2], context=256)\n"
        "print(engine.stats()['threads'])\n"
        "try:\n"
        "    _core.Engine(sys.argv[1], kernels=sys.argv[2], threads=2)\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(TINY), kernels],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert told[0] == "1"
    assert "(got 2, want 1 to 1)" in told[1]
