"""Decoding of one sequence alone: tokens a second, and shares of what the machine gives.

The device share is the part of the time that kernels run. The read share compares the bytes that a
pass must move with what the machine reads in the same time, measured before and after each round.
"""

from __future__ import annotations

from pathlib import Path

from bench.ceilings import read_gb_per_s
from bench.drive import TINY, counter, drain, open_engine, submit, until_decoding
from bench.report import Spread, cores, parse, reported
from bench.traffic import Traffic

COLUMNS = (
    *("prompt", "tokens", "tokens/s", "ms/token", "device share"),
    *("moved GB/s", "read GB/s", "read share"),
)


def main() -> None:
    """Measure rounds of one sequence after another."""
    options = parse(__doc__, model="", prompt=16, tokens=128, rounds=7)
    model = options.model or str(TINY)
    engine = open_engine(model)
    length = options.prompt + options.tokens / 2
    moved_gb = Traffic.of(model).decode_bytes(1, length) / 1e9
    rates, shares, reads = [], [], []
    for seed in range(options.rounds):
        before = read_gb_per_s(cores(), rounds=3).median
        sequence = submit(engine, options.prompt, options.tokens, seed)
        until_decoding(engine, [sequence])
        step_s, gpu_s = counter(engine, "step_s"), counter(engine, "gpu_s")
        drain(engine)
        step_s, gpu_s = counter(engine, "step_s") - step_s, counter(engine, "gpu_s") - gpu_s
        rates.append((options.tokens - 1) / engine.poll(sequence).decode_s)
        shares.append(gpu_s / step_s)
        engine.release(sequence)
        reads.append((before + read_gb_per_s(cores(), rounds=3).median) / 2)
    engine.close()
    rate = Spread.of(rates)
    moved = [moved_gb * tokens for tokens in rates]
    with reported("decode", COLUMNS, options.json) as report:
        report.facts["model"] = Path(model).name
        report.add(
            options.prompt,
            options.tokens,
            rate,
            1e3 / rate.median,
            Spread.of(shares),
            Spread.of(moved),
            Spread.of(reads),
            Spread.of([gb / read for gb, read in zip(moved, reads, strict=True)]),
        )


if __name__ == "__main__":
    main()
