"""Time that a step spends outside of the device's work: in the core, and through `mtlqwen.Engine`.

The core's figure is what its own clock says about steps of decoding sequences. The other one is the
wall time of a generation without the device's work, so the thread that drives the passes and the
readers of the tokens are in it; a short generation is subtracted from a long one, which leaves what
grows with the passes.
"""

from __future__ import annotations

import time

from mtlqwen import Engine

from bench.drive import counter, drain, open_engine, prompt, submit, until_decoding
from bench.report import Spread, parse, reported

COLUMNS = ("sequences", "path", "us outside a pass", "ms a pass", "target us")
SLOTS = 32
N_PROMPT = 8
TARGETS_US = {8: 300, 32: 600}


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


def generation(engine: Engine, n: int, tokens: int) -> tuple[float, float, float]:
    """Wall seconds, device seconds and passes of one generation of n sequences."""
    before = engine.stats()
    begin = time.perf_counter()
    engine.generate(
        [prompt(N_PROMPT, seed) for seed in range(n)],
        max_tokens=tokens,
        temperature=0.0,
        ignore_eos=True,
    )
    wall_s = time.perf_counter() - begin
    after = engine.stats()
    gpu_s, passes = (float(after[key]) - float(before[key]) for key in ("gpu_s", "passes"))
    return wall_s, gpu_s, passes


def python(model: str, n: int, passes: int, rounds: int) -> tuple[Spread, float]:
    """The same through the Python engine."""
    few = 4
    outside, whole = [], []
    with Engine(model or "tiny", slots=SLOTS, context=1024, progress=False) as engine:
        generation(engine, n, few)
        for _ in range(rounds):
            short = generation(engine, n, few)
            long = generation(engine, n, few + passes)
            wall_s, gpu_s, n_passes = (b - a for a, b in zip(short, long, strict=True))
            outside.append((wall_s - gpu_s) / n_passes * 1e6)
            whole.append(wall_s / n_passes * 1e3)
    return Spread.of(outside), Spread.of(whole).median


def main() -> None:
    """Measure both for every number of sequences."""
    options = parse(__doc__, model="", sequences=(1, 8, 32), passes=64, rounds=5)
    with reported("overhead", COLUMNS, options.json) as report:
        for n in options.sequences:
            for path, measure in (("_core.Engine", core), ("mtlqwen.Engine", python)):
                outside, pass_ms = measure(options.model, n, options.passes, options.rounds)
                report.add(n, path, outside, pass_ms, TARGETS_US.get(n, ""))


if __name__ == "__main__":
    main()
