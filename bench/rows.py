"""What rows of one sequence cost in one pass, against one row: the same weights, read once.

A pass of several rows is the end of a prompt, or the check of a draft. The rows stand behind 128
tokens that an earlier pass computed. --by-kernel 1 traces as many passes again and adds up what the
kernels of each kind take.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtlqwen import _core

from bench.drive import TINY, counter, drain, open_engine, submit
from bench.report import Report, Spread, parse, plain, reported

BEFORE = 128  # tokens: a whole pass
COLUMNS = ("rows", "ms/pass", "against 1 row", "ms/row")
KERNELS_TRACK = 2  # of a trace
BY_ROWS = re.compile(
    r"_(row|panel|(decode_\w+|tile)_\d+)$"
)  # what a kernel's name says of its rows


def main() -> None:
    """Measure every number of rows in turn, over and over."""
    options = parse(__doc__, model="", rows=(1, 2, 4, 8, 16), rounds=30, by_kernel=0)
    model = options.model or str(TINY)
    engine = open_engine(model, slots=1)
    counts = [1, *(rows for rows in options.rows if rows != 1)]
    times: dict[int, list[float]] = {rows: [] for rows in counts}
    for seed in range(options.rounds):
        for rows in counts:
            times[rows].append(_time_pass(engine, rows, seed))
    kernels = _kernel_table(engine, counts, options.rounds) if options.by_kernel else None
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
        if kernels:
            report.facts["us_by_kernel"] = [plain(row) for row in kernels.rows]


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


def _kernel_table(engine: _core.Engine, counts: Sequence[int], rounds: int) -> Report:
    """Prints the microseconds that kernels take of a pass, the least of all rounds."""
    found: dict[int, dict[str, list[float]]] = {}
    for rows in counts:
        found[rows] = defaultdict(list)
        for seed in range(rounds):
            for kernels, time in _traced_pass(engine, rows, seed).items():
                found[rows][kernels].append(time)
    names = {name: None for rows in reversed(counts) for name in found[rows]}
    table = Report("rows by kernel", ("us", *map(str, counts)))
    for name in names:
        table.add(name, *(min(found[rows].get(name, [0.0])) for rows in counts))
    return table


def _traced_pass(engine: _core.Engine, rows: int, seed: int) -> Counter[str]:
    """Microseconds of the last pass of a prompt by the kernels that run side by side."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        sequence = submit(engine, BEFORE + rows, 1, seed)
        engine.step()
        engine.start_trace(str(path))
        drain(engine)
        engine.stop_trace()
        engine.release(sequence)
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    times: Counter[str] = Counter()
    for event in events:
        if event["ph"] == "X" and event["tid"] == KERNELS_TRACK:
            names = {BY_ROWS.sub("", kernel["kernel"]) for kernel in event["args"]["kernels"]}
            times[", ".join(sorted(names))] += event["dur"]
    return times


if __name__ == "__main__":
    main()
