"""Prefill of one prompt alone: tokens a second and time to the first token."""

from __future__ import annotations

from pathlib import Path

from bench.drive import TINY, counter, drain, open_engine, submit
from bench.report import Spread, parse, reported

COLUMNS = ("prompt", "passes", "tokens/s", "ttft ms")


def main() -> None:
    """Measure rounds of every length."""
    options = parse(__doc__, model="", prompts=(512, 2000), rounds=5)
    engine = open_engine(options.model)
    with reported("prefill", COLUMNS, options.json) as report:
        report.facts["model"] = Path(options.model or TINY).name
        for n_prompt in options.prompts:
            rates, ttft_ms = [], []
            passes = counter(engine, "passes")
            for seed in range(options.rounds):
                sequence = submit(engine, n_prompt, 1, seed)
                drain(engine)
                poll = engine.poll(sequence)
                rates.append(n_prompt / poll.prefill_s)
                ttft_ms.append(poll.ttft_s * 1e3)
                engine.release(sequence)
            passes = (counter(engine, "passes") - passes) / options.rounds
            report.add(n_prompt, int(passes), Spread.of(rates), Spread.of(ttft_ms))
    engine.close()


if __name__ == "__main__":
    main()
