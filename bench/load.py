"""Opening a model: seconds, memory and time to the first token, with and without it in the cache.

Each round is a process of its own. Cold rounds ask the kernel to forget the file first; what was
read from the disk tells whether it did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.drive import TINY
from bench.report import Spread, parse, reported

WORKER = Path(__file__).resolve().parent / "workers/load.py"
PATHS = {"core": "_core.Engine", "python": "mtlqwen.Engine"}
COLUMNS = (
    *("page cache", "path", "open ms", "first token ms", "read from disk MB"),
    *("resident MB open", "resident MB after token", "anonymous MB after token"),
)
FIGURES = {  # of the worker's answer, in the order of the columns, with the unit of a cell
    "open_s": 1e-3,
    "ttft_s": 1e-3,
    "disk_bytes": 1e6,
    "resident_open": 1e6,
    "resident_done": 1e6,
    "anonymous_done": 1e6,
}


def forget(path: str) -> bool:
    """Ask for the file's pages to leave the page cache; False where nobody can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)  # pages that are not written yet would stay
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    return True


def once(path: str, model: str) -> dict[str, Any]:
    """One process."""
    command = [sys.executable, str(WORKER), path, model]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def main() -> None:
    """Measure cold rounds, then warm ones."""
    options = parse(__doc__, model="", rounds=5, paths=tuple(PATHS))
    model = options.model or str(TINY)
    with reported("load", COLUMNS, options.json) as report:
        report.facts |= {"model": Path(model).name, "model_bytes": Path(model).stat().st_size}
        for path in options.paths:
            for cache in ("cold", "warm"):
                if cache == "cold" and not forget(model):
                    continue
                runs = []
                for _ in range(options.rounds):
                    if cache == "cold":
                        forget(model)
                    runs.append(once(path, model))
                cells = [
                    Spread.of([run[key] / unit for run in runs]) for key, unit in FIGURES.items()
                ]
                report.add(cache, PATHS[path], *cells)


if __name__ == "__main__":
    main()
