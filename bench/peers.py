"""mtlqwen beside llama.cpp: same file, prompts, lengths and threads, taking turns in one run.

Each runs in a process of its own and computes only when asked. A round asks both for every kind of
work, one after the other; figures are medians over rounds, and a ratio is formed within its round,
as is the share of the read bandwidth, which is measured before and after each run.
`make bench-peers` builds llama.cpp in an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.busy import busy
from bench.ceilings import read_gb_per_s
from bench.drive import TINY, prompt
from bench.report import ROOT, Cell, Report, Spread, parse, reported
from bench.traffic import Traffic

WORKERS = Path(__file__).resolve().parent / "workers"
PEER_PYTHON = ROOT / "build/peers/venv/bin/python"
WORKS = ("prefill", "decode", "together")
SHORT = 16  # tokens of a prompt before decoding
SETTLE_S = 0.2  # until threads that wait by spinning have gone to sleep
NO_LIMIT_S = 1e9


class Worker:
    """One side's process."""

    def __init__(self, python: str, script: str) -> None:
        """Start it; it waits for lines."""
        self._process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: object) -> dict[str, Any]:
        """One request; raises RuntimeError with what the worker says is wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            raise RuntimeError(f"{self._process.args!r}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End of its input is the end of it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def opened(python: str, script: Path, **options: object) -> Iterator[tuple[Worker, dict[str, Any]]]:
    """A worker with the model open, and what it says about itself."""
    worker = Worker(python, str(script))
    try:
        yield worker, worker.ask(do="open", **options)
    finally:
        worker.close()


@dataclass(frozen=True)
class Run:
    """What one side has answered once; the figures of decoding are 0 where there was none."""

    prompt_rate: float  # tokens a second
    decode_rate: float  # tokens a second, of all sequences
    pass_s: float
    read_share: float  # bytes that the passes had to move, of what could have been read meanwhile
    read_gb_per_s: float  # just before and after
    first_tokens: list[int]

    @classmethod
    def of(
        cls,
        prompts: Sequence[Sequence[int]],
        answer: dict[str, Any],
        traffic: Traffic,
        read_gb_per_s: float,
    ) -> Run:
        """From the worker's answer."""
        n, passes = len(prompts), answer["passes"]
        pass_s = answer["decode_s"] / passes if passes else 0.0
        moved_gb = traffic.decode_bytes(n, len(prompts[0]) + passes / 2) / 1e9
        return cls(
            prompt_rate=sum(map(len, prompts)) / answer["prompt_s"],
            decode_rate=n / pass_s if passes else 0.0,
            pass_s=pass_s,
            read_share=moved_gb / pass_s / read_gb_per_s if passes else 0.0,
            read_gb_per_s=read_gb_per_s,
            first_tokens=[tokens[0] for tokens in answer["token_ids"]],
        )


Pair = tuple[Run, Run]  # ours and theirs, one after the other


def prompts_of(work: str, options: Namespace, seed: int) -> list[list[int]]:
    """Prompts of a round."""
    if work == "prefill":
        return [prompt(options.prompt, seed)]
    n = options.sequences if work == "together" else 1
    return [prompt(SHORT, seed * n + i) for i in range(n)]


@dataclass(frozen=True)
class Match:
    """Both sides with one model open."""

    workers: tuple[Worker, Worker]
    traffic: Traffic
    options: Namespace

    def round(self, work: str, seed: int, n_busy: int, passes: int) -> Pair:
        """Ask both for the same."""
        prompts = prompts_of(work, self.options, seed)
        passes = 0 if work == "prefill" else passes
        ours, theirs = (self._run(worker, prompts, passes, n_busy) for worker in self.workers)
        return ours, theirs

    def _run(self, worker: Worker, prompts: list[list[int]], passes: int, n_busy: int) -> Run:
        threads = self.options.threads
        limit_s = self.options.busy_limit_s if n_busy else NO_LIMIT_S
        before = read_gb_per_s(threads, rounds=3).median
        time.sleep(SETTLE_S)
        with busy(n_busy, threads):
            answer = worker.ask(do="run", prompts=prompts, passes=passes, limit_s=limit_s)
        after = read_gb_per_s(threads, rounds=3).median
        return Run.of(prompts, answer, self.traffic, (before + after) / 2)


def compare(pairs: Sequence[Pair], figure: Callable[[Run], float]) -> tuple[Spread, Spread, Spread]:
    """Both sides, and the ratio of each round."""
    ours, theirs = ([figure(run) for run in side] for side in zip(*pairs, strict=True))
    return (
        Spread.of(ours),
        Spread.of(theirs),
        Spread.of([a / b for a, b in zip(ours, theirs, strict=True)]),
    )


def same_tokens(pairs: Sequence[Pair]) -> str:
    """How many of the first tokens both have chosen."""
    chosen = [t for a, b in pairs for t in zip(a.first_tokens, b.first_tokens, strict=True)]
    return f"{sum(a == b for a, b in chosen)}/{len(chosen)}"


def add_rows(report: Report, options: Namespace, n_busy: int, found: dict[str, list[Pair]]) -> None:
    """The lines of one number of busy processes."""
    names = {
        "prefill": f"prefill {options.prompt}, tokens/s",
        "decode": "decode alone, tokens/s",
        "together": f"decode, {options.sequences} together, tokens/s",
    }
    for work, pairs in found.items():
        if work == "prefill":
            cells: list[Cell] = [
                *compare(pairs, lambda run: run.prompt_rate),
                same_tokens(pairs),
                "",
                "",
            ]
        else:
            *shares, _ = compare(pairs, lambda run: run.read_share)
            cells = [*compare(pairs, lambda run: run.decode_rate), same_tokens(pairs), *shares]
        report.add(names[work], n_busy, *cells)
    if {"decode", "together"} <= found.keys():
        both = list(zip(found["decode"], found["together"], strict=True))
        times = [Spread.of([many[i].pass_s / one[i].pass_s for one, many in both]) for i in (0, 1)]
        name = f"{options.sequences} rows against 1, time"
        report.add(name, n_busy, *times, "", "", "", "")


def measure(match: Match, report: Report) -> None:
    """All rounds of all works, with every number of busy processes."""
    options = match.options
    for work in options.works:  # not counted: pages and threads find their places
        match.round(work, seed=0, n_busy=0, passes=options.tokens)
    for n_busy in options.busy:
        found: dict[str, list[Pair]] = {work: [] for work in options.works}
        passes = options.busy_tokens if n_busy else options.tokens
        for seed in range(options.busy_rounds if n_busy else options.rounds):
            for work, pairs in found.items():
                pairs.append(match.round(work, seed + 1, n_busy, passes))
        reads = [run.read_gb_per_s for pairs in found.values() for pair in pairs for run in pair]
        report.facts[f"read GB/s around the runs, {n_busy} busy"] = Spread.of(reads)
        add_rows(report, options, n_busy, found)


def main() -> None:
    """Open both and compare."""
    options = parse(
        __doc__,
        model="",
        works=WORKS,
        threads=2,
        prompt=512,
        tokens=128,
        sequences=8,
        rounds=5,
        busy=(0, 1, 2),
        busy_tokens=16,
        busy_rounds=3,
        busy_limit_s=10.0,
        peer_python=str(PEER_PYTHON),
        peer_worker=str(WORKERS / "llama.py"),
    )
    model = options.model or str(TINY)
    context = max(options.prompt, SHORT + options.tokens) + 128
    asked = {
        "model": model,
        "threads": options.threads,
        "sequences": options.sequences,
        "context": context,
    }
    with ExitStack() as stack:
        ours, us = stack.enter_context(opened(sys.executable, WORKERS / "ours.py", **asked))
        theirs, them = stack.enter_context(
            opened(options.peer_python, Path(options.peer_worker), **asked)
        )
        columns = ("work", "busy", us["name"], them["name"], "ratio", "same first tokens")
        shares_of = tuple(f"read share {side['name']}" for side in (us, them))
        with reported("peers", columns + shares_of, options.json) as report:
            report.facts |= {"model": Path(model).name, "threads": options.threads}
            report.facts["peer"] = them["version"]
            measure(Match((ours, theirs), Traffic.of(model), options), report)


if __name__ == "__main__":
    main()
