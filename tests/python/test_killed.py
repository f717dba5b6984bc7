"""Processes that are killed while they write to a cache directory leave nothing wrong in it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from long import draws
from mtlqwen import Engine

CONTEXT = 1024
N_TOKENS = 4
OPTIONS = f"deterministic=True, context={CONTEXT}, checkpoint_interval=64, progress=False"

WORK = f"""
import sys, random
from mtlqwen import Engine
sys.path.insert(0, sys.argv[1])
from python.test_killed import N_TOKENS, prompts

engine = Engine("tiny", cache_dir=sys.argv[2], {OPTIONS})
rng = random.Random(int(sys.argv[3]))
print("ready", flush=True)
while True:
    prompt = rng.choice(prompts())
    engine.generate(prompt, max_tokens=N_TOKENS, temperature=0.0)
"""


def prompts() -> list[list[int]]:
    """Some share a beginning with others; none is like those of a chat."""
    rng = random.Random(0)
    whole = [[rng.randint(10, 8000) for _ in range(400)] for _ in range(3)]
    return [[*one[: rng.randint(100, 390)], rng.randint(10, 8000)] for one in whole * 4]


def start(folder: Path, seed: int) -> subprocess.Popen[str]:
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", WORK, str(tests), str(folder), str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def tokens_of(engine: Engine) -> tuple[list[list[int]], int]:
    """What every prompt gives, and how many tokens of the first came from another engine."""
    results = [
        engine.generate(prompt, max_tokens=N_TOKENS, temperature=0.0) for prompt in prompts()
    ]
    return [one.token_ids for one in results], results[0].usage.cached_tokens


def open_engine(cache_dir: Path | None = None) -> Engine:
    return Engine(
        "tiny",
        deterministic=True,
        context=CONTEXT,
        progress=False,
        cache_dir=cache_dir,
        cache_memory=None if cache_dir else 0,
    )


def kill_in_a_loop(folder: Path, n_kills: int) -> None:
    with open_engine() as cold:
        begin = time.monotonic()
        expected, cached = tokens_of(cold)
        several_s = (
            time.monotonic() - begin
        ) / 2  # half of the prompts, as fast as this machine is
        assert cached == 0
    rng = random.Random(n_kills)
    found = 0
    for i in range(n_kills):
        process = start(folder, i)
        time.sleep(rng.uniform(0.05, several_s))
        assert process.poll() is None
        process.kill()
        process.communicate()
        # In a copy, for this engine would leave more than the killed ones did.
        left = shutil.copytree(folder, folder.with_name(f"left-{i}"))
        with open_engine(left) as engine:
            tokens, cached = tokens_of(engine)
            engine.check_integrity()
        assert tokens == expected
        found += cached > 0
        shutil.rmtree(left)
    assert found > 0, "nothing had been written"


def test_an_engine_goes_on_from_what_killed_ones_left(tmp_path: Path) -> None:
    kill_in_a_loop(tmp_path / "cache", 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
def test_many_killed_engines_leave_nothing_wrong(tmp_path: Path) -> None:
    kill_in_a_loop(tmp_path / "cache", draws(12, 30))
