"""Instructions that decoding a token takes, counted by callgrind.

Unlike a time the figure is exact and the same on every machine, so it tells a slower kernel from a
slower hour. One thread decodes n tokens, then 2 n in a process of its own: the difference has no
start in it. Valgrind knows no AVX-512, hence the AVX2 library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from bench.drive import TINY
from bench.report import parse, reported

DRIVER = Path(__file__).resolve().parent / "workers/decode.py"
COLUMNS = ("kernels", "instruction set", "tokens", "million instructions/token")


def collected(model: str, n_tokens: int, settings: dict[str, str]) -> int:
    """Instructions of a whole process that decodes so many tokens."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    said = subprocess.run(
        [*command, sys.executable, str(DRIVER), model, str(n_tokens)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Collected : (\d+)", said.stderr)
    if said.returncode != 0 or found is None:
        raise RuntimeError(f"{' '.join(command)}: {said.stderr[-2000:]}")
    return int(found[1])


def main() -> None:
    """Count with each choice of kernels."""
    options = parse(__doc__, model="", tokens=8, kernels=("msl", "auto"), isa="avx2")
    with reported("instructions", COLUMNS, options.json) as report:
        for kernels in options.kernels:
            settings = {"MTLQWEN_HOST_ISA": options.isa, "MTLQWEN_HOST_KERNELS": kernels}
            once, twice = (
                collected(options.model or str(TINY), n * options.tokens, settings) for n in (1, 2)
            )
            report.add(kernels, options.isa, options.tokens, (twice - once) / options.tokens / 1e6)


if __name__ == "__main__":
    main()
