"""The prefix cache: what it spares, what it costs, what it holds, and how soon a file is back.

The first two parts need a machine that does nothing else. The others count tokens and bytes.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mtlqwen import Engine, _core

from bench.drive import CONTEXT, TINY, counter, drain, prompt
from bench.report import Report, Spread, parse, reported

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from replays import Answered, Replay, agent, chat_format, long_chat, play

COLUMNS = ("case", "figure", "value", "target")
PARTS = ("ttft", "publishing", "bytes", "replays", "grid", "disk")
TAIL = 16  # tokens of a prompt behind what it shares
MIB = 1 << 20
FULL_CACHE = 64 * MIB  # so little that after FILLS prompts others make room
FILLS = 4
PAUSE_S = 0.5  # in front of a prompt, as a user makes it: the device then fetches fresh memory


def open_core(model: str, **options: Any) -> _core.Engine:
    """An engine that has touched its memory."""
    options = {"context": CONTEXT, "slots": 8} | options
    kernels = str(Path(str(_core.__file__)).with_name("kernels.metallib"))
    engine = _core.Engine(model or str(TINY), kernels=kernels, **options)
    run(engine, prompt(300, 999), max_tokens=4)
    return engine


def run(
    engine: _core.Engine,
    token_ids: Sequence[int],
    *,
    max_tokens: int = 1,
    checkpoint_at: Sequence[int] = (),
) -> _core.Poll:
    """Generate greedily with nothing else beside it."""
    sequence = engine.submit(
        list(token_ids),
        max_tokens=max_tokens,
        temperature=0.0,
        seed=0,
        stop_ids=[],
        checkpoint_at=list(checkpoint_at),
    )
    drain(engine)
    poll = engine.poll(sequence)
    engine.release(sequence)
    return poll


def ttft(report: Report, model: str, n_prefix: int, rounds: int) -> None:
    """Time to the first token of a prompt whose beginning nobody, or somebody, had before."""
    engine = open_core(model)
    seconds: dict[str, list[float]] = defaultdict(list)
    for seed in range(rounds):
        prefix = prompt(n_prefix, seed)
        for kind in ("cold", "cached"):
            tail = prompt(TAIL, 2000 + len(kind))
            poll = run(engine, prefix + tail, checkpoint_at=[n_prefix])
            if (poll.cached_tokens == n_prefix) != (kind == "cached"):
                raise RuntimeError(f"{kind} prompt with {poll.cached_tokens} cached tokens")
            seconds[kind].append(poll.ttft_s)
    engine.close()
    case = f"{n_prefix} shared tokens and {TAIL}"
    for kind, values in seconds.items():
        report.add(case, f"{kind} ttft ms", Spread.of([s * 1e3 for s in values]), "")
    ratios = [cold / warm for cold, warm in zip(seconds["cold"], seconds["cached"], strict=True)]
    report.add(case, "cold / cached", Spread.of(ratios), "at least 15")


def publishing(report: Report, model: str, n_prompt: int, rounds: int) -> None:
    """Prefill with checkpoints against prefill without a cache, taking turns."""
    hints = [n_prompt * i // 16 + 3 for i in range(16)]
    cases: dict[str, tuple[int | None, list[int]]] = {
        "without a cache": (0, []),
        "every 512": (FULL_CACHE, []),
        "every 512, into fresh memory": (None, []),
        "every 512 and 16 hints": (FULL_CACHE, hints),
    }
    engines = {name: open_core(model, cache_memory=size) for name, (size, _) in cases.items()}

    def seconds(name: str, seed: int) -> float:
        return run(engines[name], prompt(n_prompt, seed), checkpoint_at=cases[name][1]).prefill_s

    for seed in range(FILLS):
        for name in cases:
            seconds(name, 100 + seed)
    names = list(cases)
    taken: dict[str, list[float]] = defaultdict(list)
    for seed in range(rounds):
        # Who comes first changes, for a machine that slows down.
        for name in names if seed % 2 else reversed(names):
            time.sleep(PAUSE_S)
            taken[name].append(seconds(name, seed))
    for name in names:
        case = f"prefill of {n_prompt}, {name}"
        report.add(case, "ms", Spread.of([1e3 * one for one in taken[name]]), "")
        if name == names[0]:
            continue
        pairs = zip(taken[name], taken[names[0]], strict=True)
        cost = Spread.of([100 * (one / without - 1) for one, without in pairs])
        report.add(case, "cost %", cost, "less than 2")
    for engine in engines.values():
        engine.close()


def checkpoint_bytes(report: Report, model: str, n_prompt: int) -> None:
    """What a checkpoint holds, and what another one adds that shares its beginning."""
    engine = open_core(model, checkpoint_interval=0)
    token_ids = prompt(n_prompt + 300)

    def added(tokens: Sequence[int]) -> float:
        before = counter(engine, "cache_bytes")
        run(engine, tokens, checkpoint_at=[len(tokens) - 1])
        return (counter(engine, "cache_bytes") - before) / MIB

    report.add(f"checkpoint of {n_prompt} tokens", "MiB", added(token_ids[: n_prompt + 1]), "")
    fork = token_ids[:n_prompt] + prompt(TAIL, 2000)
    report.add(f"a fork of it, {TAIL - 1} tokens on", "MiB", added(fork), "one state, one bundle")
    report.add("the same, 299 tokens on", "MiB", added(token_ids), "")
    engine.close()


def replays(model: str, steps: float) -> Iterator[tuple[str, list[Answered]]]:
    """Both replays on the bundled model, once each."""
    sizes: dict[str, Replay] = {
        "chat": long_chat(max(2, int(50 * steps))),
        "agent": agent(max(2, int(200 * steps))),
    }
    for name, replay in sizes.items():
        with Engine(model or "tiny", progress=False) as engine:
            yield name, list(play(engine, replay))


def by_step(report: Report, name: str, answered: Sequence[Answered]) -> None:
    """Tokens that each call computed, beside those that were new to the engine."""
    case = f"{name}, {answered[-1].step + 1} steps"
    n_prompt = sum(one.prompt.size for one in answered)
    computed = sum(one.computed for one in answered)
    report.add(case, "prompt tokens", n_prompt, "")
    report.add(case, "new tokens", sum(one.new for one in answered), "")
    report.add(case, "computed tokens", computed, "")
    report.add(case, "hit rate %", 100 * (1 - computed / n_prompt), "")
    report.add(case, "computed by a call", Spread.of([one.computed for one in answered]), "")
    beyond = Spread.of([one.computed - one.new for one in answered])
    report.add(case, "beyond what was new", beyond, "at most 128")


def grid(report: Report, model: str, answered: Sequence[Answered], options: Namespace) -> None:
    """The agent's prompts again, for each interval and block size; with hints and without."""
    encoder = chat_format()
    sizes = product((True, False), options.intervals, options.block_tokens)
    for hints, interval, block_tokens in sizes:
        engine = open_core(
            model, context=8192, checkpoint_interval=interval, block_tokens=block_tokens
        )
        share, mib = _again(engine, answered, encoder.boundaries if hints else None)
        engine.close()
        case = f"agent, every {interval}{' and hints' * hints}, blocks of {block_tokens}"
        report.add(case, "hit rate %", 100 * share, "")
        report.add(case, "cache MiB", mib, "")


def _again(
    engine: _core.Engine, answered: Sequence[Answered], boundaries: Any
) -> tuple[float, float]:
    """Share of the prompts' tokens that came from the cache, and what it held at the end."""
    cached = 0
    for one in answered:
        token_ids = one.prompt.tolist()
        hints = boundaries(token_ids) if boundaries else ()
        n_tokens = len(one.result.token_ids)
        cached += run(engine, token_ids, max_tokens=n_tokens, checkpoint_at=hints).cached_tokens
    share = cached / sum(one.prompt.size for one in answered)
    return share, counter(engine, "cache_bytes") / MIB


@dataclass(frozen=True)
class Restored:
    """One prompt after a restart."""

    ttft_s: float  # of a prompt that the file begins
    cached_s: float  # of another one that begins so, right after it
    read_s: float  # the bytes of the file, by one plain read
    n_bytes: int


def disk(report: Report, model: str, n_prefix: int, rounds: int) -> None:
    """A prompt's first token after a restart, beside a plain read of the same bytes."""
    found = [_restore(model, n_prefix, seed) for seed in range(rounds)]
    case = f"{n_prefix} tokens from disk"
    report.add(case, "file MiB", found[0].n_bytes / MIB, "")
    report.add(case, "ttft ms", Spread.of([one.ttft_s * 1e3 for one in found]), "")
    restore = [1e3 * (one.ttft_s - one.cached_s) for one in found]
    report.add(case, "beyond a cached ttft ms", Spread.of(restore), "")
    report.add(case, "plain read ms", Spread.of([one.read_s * 1e3 for one in found]), "")


def _restore(model: str, n_prefix: int, seed: int) -> Restored:
    prefix = prompt(n_prefix, seed)
    with TemporaryDirectory() as folder:
        options = {"cache_dir": folder, "checkpoint_interval": 0}
        engine = open_core(model, **options)
        run(engine, prefix + prompt(TAIL, 2000), checkpoint_at=[n_prefix])
        engine.close()
        n_bytes, read_s = _read_largest(Path(folder))
        engine = open_core(model, **options)
        polls = [run(engine, prefix + prompt(TAIL, tail)) for tail in (2001, 2002)]
        engine.close()
    for poll in polls:
        if poll.cached_tokens != n_prefix:
            raise RuntimeError(f"restored {poll.cached_tokens} tokens of {n_prefix}")
    return Restored(polls[0].ttft_s, polls[1].ttft_s, read_s, n_bytes)


def _read_largest(folder: Path) -> tuple[int, float]:
    """Bytes of the prompt's file, and seconds to read them; the engine's first use left another."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    path = max(paths, key=lambda path: path.stat().st_size)
    buffer = bytearray(path.stat().st_size)
    begin = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        n_bytes = file.readinto(buffer)
    return n_bytes, time.perf_counter() - begin


def main() -> None:
    """Run the parts that are asked for."""
    options = parse(
        __doc__,
        model="",
        parts=PARTS,
        prompt=2000,
        rounds=9,
        steps=1.0,
        intervals=(256, 512, 1024),
        block_tokens=(64, 128, 256),
    )
    with reported("cache", COLUMNS, options.json) as report:
        report.facts["model"] = Path(options.model or TINY).name
        if "ttft" in options.parts:
            ttft(report, options.model, options.prompt, options.rounds)
        if "publishing" in options.parts:
            publishing(report, options.model, options.prompt, options.rounds)
        if "bytes" in options.parts:
            checkpoint_bytes(report, options.model, options.prompt)
        if {"replays", "grid"} & set(options.parts):
            for name, answered in replays(options.model, options.steps):
                if "replays" in options.parts:
                    by_step(report, name, answered)
                if "grid" in options.parts and name == "agent":
                    grid(report, options.model, answered, options)
        if "disk" in options.parts:
            disk(report, options.model, options.prompt, options.rounds)


if __name__ == "__main__":
    main()
