"""Opens a model, generates one token and ends, saying what that took: what `bench load` runs.

Arguments: `core` or `python`, the model.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROMPT = [10 + i for i in range(16)]
PAGE_BYTES = resource.getpagesize()


def memory() -> tuple[int, int]:
    """Bytes resident, and those of them that no file stands behind (0 where that is unknown)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        resident, shared = map(int, statm.read_text(encoding="ascii").split()[1:3])
        return resident * PAGE_BYTES, (resident - shared) * PAGE_BYTES
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024), 0


def core(model: str) -> Callable[[], object]:
    """Through `_core.Engine`, which knows no text."""
    from ours import Ours

    side = Ours(model, threads=0, sequences=1, context=1024)
    return lambda: side.prompt([PROMPT])


def python(model: str) -> Callable[[], object]:
    """Through `mtlqwen.Engine`, with tokenizer and chat template."""
    from mtlqwen import Engine

    engine = Engine(model, context=1024, slots=1, progress=False)
    return lambda: engine.generate(PROMPT, max_tokens=1, temperature=0.0)


def main() -> None:
    """Imports, too, count as opening."""
    resident, anonymous = memory()
    begin = time.perf_counter()
    first_token = {"core": core, "python": python}[sys.argv[1]](sys.argv[2])
    opened = time.perf_counter()
    resident_open, _ = memory()
    first_token()
    done = time.perf_counter()
    resident_done, anonymous_done = memory()
    found = {
        "open_s": opened - begin,
        "ttft_s": done - opened,
        "resident_open": resident_open - resident,
        "resident_done": resident_done - resident,
        "anonymous_done": anonymous_done - anonymous,
        "disk_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
