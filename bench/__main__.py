"""`python -m bench NAME [options]`: runs one benchmark; its --help lists the options.

`results` runs none: it makes bench/RESULTS.md from what the others have written.
"""

from __future__ import annotations

import sys
from importlib import import_module

BENCHMARKS = (
    *("kernels", "decode", "rows", "prefill", "batch", "cache", "load", "overhead", "peers"),
    "spec",
    *("ceilings", "instructions", "results"),
)


def main() -> int:
    """Hand the rest of the command line to the benchmark that it names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHMARKS:
        print(f"usage: python -m bench {{{','.join(BENCHMARKS)}}} [options]", file=sys.stderr)
        return 2
    del sys.argv[1]
    sys.argv[0] = f"bench {name}"
    import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
