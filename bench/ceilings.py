"""What the machine gives: bytes a second that plain loops read from memory.

Every figure about bandwidth is a share of this one, measured in the same run: on a machine that is
shared with others it changes from hour to hour.
"""

from __future__ import annotations

from mtlqwen._core import _testing

from bench.report import Spread, parse, reported

READ_BYTES = 512 << 20  # more than the caches of any machine we know


def read_gb_per_s(threads: int, rounds: int = 7) -> Spread:
    """Read from memory that no cache holds, each thread its own part; no instruction set is named.

    A loop with wider vectors reads no faster: it waits for memory, not for instructions.
    """
    seconds = _testing.read_seconds(READ_BYTES, threads, rounds)
    return Spread.of([READ_BYTES / 1e9 / s for s in seconds])


def main() -> None:
    """Measure with the numbers of threads asked for."""
    options = parse(__doc__, threads=(1, 2), rounds=15)
    with reported("ceilings", ("threads", "read GB/s"), options.json) as report:
        for threads in options.threads:
            report.add(threads, read_gb_per_s(threads, options.rounds))


if __name__ == "__main__":
    main()
