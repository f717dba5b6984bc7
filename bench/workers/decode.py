"""Decodes tokens with one thread and ends: what `bench instructions` counts.

Arguments: model, number of tokens.
"""

from __future__ import annotations

import sys

from serve import pin


def main() -> None:
    """One sequence, nothing else."""
    pin(1)  # a thread that waits for another would be counted, too
    from ours import Ours

    model, n_tokens = sys.argv[1], int(sys.argv[2])
    side = Ours(model, threads=1, sequences=1, context=256)
    side.prompt([[10, 11, 12, 13]])
    for _ in range(n_tokens):
        side.decode()
    print(*side.token_ids()[0])


if __name__ == "__main__":
    main()
