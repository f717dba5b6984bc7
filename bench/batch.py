"""Sequences side by side: tokens a second together, first tokens, gaps while prompts arrive."""

from __future__ import annotations

import time
from pathlib import Path

from mtlqwen import _core

from bench.drive import TINY, drain, open_engine, submit, until_decoding
from bench.report import Spread, parse, reported

COLUMNS = ("case", "tokens/s", "median ttft ms", "worst ttft ms", "median gap ms", "worst gap ms")
SLOTS = 32


def together(engine: _core.Engine, n: int, n_prompt: int, n_tokens: int) -> tuple[float, ...]:
    """Run n sequences that arrive at once.

    Returns:
        Tokens a second of all, median and worst seconds to the first token.
    """
    begin = time.perf_counter()
    sequences = [submit(engine, n_prompt, n_tokens, seed) for seed in range(n)]
    drain(engine)
    wall_s = time.perf_counter() - begin
    first_s = [engine.poll(sequence).ttft_s for sequence in sequences]
    for sequence in sequences:
        engine.release(sequence)
    return n * n_tokens / wall_s, Spread.of(first_s).median, max(first_s)


def gaps(
    engine: _core.Engine, n_prompt: int, n_prompts: int
) -> tuple[list[float], list[float], float]:
    """Let prompts arrive one after the other while one sequence decodes.

    Returns:
        Seconds between tokens of the decoding one, seconds to the first token of the others,
        prompt tokens a second.
    """
    decoding = submit(engine, 16, 10**6)
    until_decoding(engine, [decoding])
    gaps_s, first_s = [], []
    begin = last = time.perf_counter()
    for seed in range(n_prompts):
        arriving = submit(engine, n_prompt, 1, seed + 1)
        while (poll := engine.poll(arriving)).finish_reason is None:
            engine.step()
            if engine.poll(decoding).token_ids:
                now = time.perf_counter()
                gaps_s.append(now - last)
                last = now
        first_s.append(poll.ttft_s)
        engine.release(arriving)
    rate = n_prompts * n_prompt / (time.perf_counter() - begin)
    engine.release(decoding)
    drain(engine)
    return gaps_s, first_s, rate


def main() -> None:
    """Measure both."""
    options = parse(
        __doc__,
        model="",
        sequences=(1, 2, 4, 8, 16, 32),
        prompt=32,
        tokens=64,
        rounds=3,
        arriving_prompt=2000,
        arriving=3,
        prefill_shares=(1.0, 0.5, 0.125),
    )
    with reported("batch", COLUMNS, options.json) as report:
        report.facts["model"] = Path(options.model or TINY).name
        engine = open_engine(options.model, slots=SLOTS)
        for n in options.sequences:
            runs = [
                together(engine, n, options.prompt, options.tokens) for _ in range(options.rounds)
            ]
            rate, median_s, worst_s = zip(*runs, strict=True)
            report.add(
                f"{n} together",
                Spread.of(rate),
                Spread.of([s * 1e3 for s in median_s]),
                max(worst_s) * 1e3,
                "",
                "",
            )
        engine.close()
        for share in options.prefill_shares:
            engine = open_engine(options.model, prefill_share=share)
            gaps_s, first_s, rate_s = gaps(engine, options.arriving_prompt, options.arriving)
            engine.close()
            report.add(
                f"arriving, share {share:g}",
                rate_s,
                Spread.of([s * 1e3 for s in first_s]),
                max(first_s) * 1e3,
                Spread.of(gaps_s).median * 1e3,
                max(gaps_s) * 1e3,
            )


if __name__ == "__main__":
    main()
