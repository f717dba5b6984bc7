"""Other work on the same cores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Ends by itself where this process is killed.
BURN = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[1])])
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6): pass
"""


@contextmanager
def busy(processes: int, cores: int) -> Iterator[None]:
    """Keep so many processes computing on the first cores of this process."""
    command = [sys.executable, "-c", BURN, str(cores)]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
