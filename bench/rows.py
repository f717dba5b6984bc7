"""What rows of one sequence cost in one pass, against one row: the same weights, read once.

A pass of several rows is the end of a prompt, or the check of a draft. The rows stand behind 128
tokens that an earlier pass computed.
"""

from __future__ import annotations

from pathlib import Path

from mtlqwen import _core

from bench.drive import TINY, counter, drain, open_engine, submit
from bench.report import Spread, parse, reported

BEFORE = 128  # tokens: a whole pass
COLUMNS = ("rows", "ms/pass", "against 1 row", "ms/row")


def main() -> None:
    """Measure every number of rows in turn, over and over."""
    options = parse(__doc__, model="", rows=(1, 2, 4, 8, 16), rounds=30)
    model = options.model or str(TINY)
    engine = open_engine(model, slots=1)
    counts = [1, *(rows for rows in options.rows if rows != 1)]
    times: dict[int, list[float]] = {rows: [] for rows in counts}
    for seed in range(options.rounds):
        for rows in counts:
            times[rows].append(_time_pass(engine, rows, seed))
    engine.close()
    with reported("rows", COLUMNS, options.json) as report:
        report.facts["model"] = Path(model).name
        for rows in counts:
            against = [time / one for time, one in zip(times[rows], times[1], strict=True)]
            report.add(
                rows,
                Spread.of([1e3 * time for time in times[rows]]),
                Spread.of(against),
                Spread.of([1e3 * time / rows for time in times[rows]]),
            )


def _time_pass(engine: _core.Engine, rows: int, seed: int) -> float:
    """Seconds that the device works for the last rows of a prompt."""
    sequence = submit(engine, BEFORE + rows, 1, seed)
    engine.step()
    before = counter(engine, "gpu_s")
    engine.step()
    seconds = counter(engine, "gpu_s") - before
    drain(engine)
    engine.release(sequence)
    return seconds


if __name__ == "__main__":
    main()
