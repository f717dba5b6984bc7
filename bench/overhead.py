"""Time that a step spends outside of the device's work: in the core, and through `mtlqwen.Engine`.

The core's figure is what its own clock says about steps of decoding sequences. The other one is
read off a trace: from the begin of one step to the begin of the next, without the time from the
first kernel to the last and without the writing of the trace, so that the thread that drives the
passes, and what it waits for, are in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from mtlqwen import Engine

from bench.drive import TINY, counter, drain, open_engine, prompt, submit, until_decoding
from bench.report import Spread, parse, reported

COLUMNS = ("sequences", "path", "us outside a pass", "ms a pass", "target us")
SLOTS = 32
N_PROMPT = 8
TARGETS_US = {8: 100, 32: 600}


def core(model: str, n: int, passes: int, rounds: int) -> tuple[Spread, float]:
    """Steps of n decoding sequences: microseconds outside, milliseconds a pass."""
    engine = open_engine(model, slots=SLOTS)
    outside, whole = [], []
    for _ in range(rounds):
        sequences = [submit(engine, N_PROMPT, passes + 2, seed) for seed in range(n)]
        until_decoding(engine, sequences)
        for _ in range(passes):
            before = counter(engine, "outside_s"), counter(engine, "step_s")
            engine.step()
            outside.append((counter(engine, "outside_s") - before[0]) * 1e6)
            whole.append((counter(engine, "step_s") - before[1]) * 1e3)
        drain(engine)
        for sequence in sequences:
            engine.release(sequence)
    engine.close()
    return Spread.of(outside), Spread.of(whole).median


def python(model: str, n: int, passes: int, rounds: int) -> tuple[Spread, float]:
    """The same through the Python engine."""
    outside: list[float] = []
    whole: list[float] = []
    prompts = [prompt(N_PROMPT, seed) for seed in range(n)]
    with (
        TemporaryDirectory() as folder,
        Engine(
            model or "tiny", slots=SLOTS, context=1024, cache_memory=0, progress=False
        ) as engine,
    ):
        for _ in range(rounds):
            with engine.trace(Path(folder) / "trace.json") as trace:
                engine.generate(prompts, max_tokens=passes + 2, temperature=0.0, ignore_eos=True)
            periods = list(decode_periods(trace.path))
            outside += [us for us, _ in periods]
            whole += [ms for _, ms in periods]
    return Spread.of(outside), Spread.of(whole).median


def decode_periods(path: Path) -> Iterator[tuple[float, float]]:
    """Microseconds outside and milliseconds from each decode step of a trace to the next step."""
    events = json.loads(path.read_text(encoding="utf-8"))
    slices = sorted((e for e in events if e["ph"] == "X"), key=lambda e: float(e["ts"]))
    steps = [e for e in slices if e["name"] == "step"]
    for step, following in pairwise(steps[1:]):  # the first step is prefill
        begin, end = float(step["ts"]), float(following["ts"])
        within = [e for e in slices if begin <= e["ts"] < end]
        kernels = [e for e in within if "bytes" in e.get("args", {})]
        if not kernels:
            continue
        busy = kernels[-1]["ts"] + kernels[-1]["dur"] - kernels[0]["ts"]
        writing = sum(e["dur"] for e in within if e["name"] == "write trace")
        yield end - begin - busy - writing, (end - begin) / 1e3


def main() -> None:
    """Measure both for every number of sequences."""
    options = parse(__doc__, model="", sequences=(1, 8, 32), passes=64, rounds=5)
    with reported("overhead", COLUMNS, options.json) as report:
        report.facts["model"] = Path(options.model or TINY).name
        for n in options.sequences:
            for path, measure in (("_core.Engine", core), ("mtlqwen.Engine", python)):
                outside, pass_ms = measure(options.model, n, options.passes, options.rounds)
                report.add(n, path, outside, pass_ms, TARGETS_US.get(n, ""))


if __name__ == "__main__":
    main()
