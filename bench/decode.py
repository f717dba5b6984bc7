"""Decoding of one sequence alone: tokens a second, and how much of the time the device works."""

from __future__ import annotations

from bench.drive import counter, drain, open_engine, submit, until_decoding
from bench.report import Spread, parse, reported

COLUMNS = ("prompt", "tokens", "tokens/s", "ms/token", "device share", "weights GB/s")


def main() -> None:
    """Measure rounds of one sequence after another."""
    options = parse(__doc__, model="", prompt=16, tokens=128, rounds=7)
    engine = open_engine(options.model)
    weights_gb = counter(engine, "weights_bytes") / 1e9
    rates, shares = [], []
    for seed in range(options.rounds):
        sequence = submit(engine, options.prompt, options.tokens, seed)
        until_decoding(engine, [sequence])
        step_s, gpu_s = counter(engine, "step_s"), counter(engine, "gpu_s")
        drain(engine)
        step_s, gpu_s = counter(engine, "step_s") - step_s, counter(engine, "gpu_s") - gpu_s
        rates.append((options.tokens - 1) / engine.poll(sequence).decode_s)
        shares.append(gpu_s / step_s)
        engine.release(sequence)
    engine.close()
    rate = Spread.of(rates)
    with reported("decode", COLUMNS, options.json) as report:
        report.add(
            options.prompt,
            options.tokens,
            rate,
            1e3 / rate.median,
            Spread.of(shares),
            rate.median * weights_gb,
        )


if __name__ == "__main__":
    main()
