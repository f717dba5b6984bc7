"""Rows of settings in which every pair of values of two options occurs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations

Value = tuple[str, int]  # an option, and which of its values


def pairs_of(row: Sequence[Value]) -> set[tuple[Value, Value]]:
    """All pairs of a row."""
    return set(combinations(sorted(row), 2))


def all_pairs(options: Mapping[str, Sequence[object]]) -> set[tuple[Value, Value]]:
    """Every pair that rows may have."""
    return {
        ((one, i), (other, j))
        for one, other in combinations(sorted(options), 2)
        for i in range(len(options[one]))
        for j in range(len(options[other]))
    }


def covering_rows(
    options: Mapping[str, Sequence[object]], seed: int, n_tries: int = 12
) -> list[dict[str, int]]:
    """Rows that have every pair, few of them: each is the best of some that were made greedily.

    Returns the number of a value for each option.
    """
    rng = random.Random(seed)
    left = all_pairs(options)
    rows = []
    while left:
        tries = [_row(options, left, rng) for _ in range(n_tries)]
        best = max(tries, key=lambda row: len(pairs_of(row) & left))
        left -= pairs_of(best)
        rows.append(dict(best))
    return rows


def _row(
    options: Mapping[str, Sequence[object]],
    left: set[tuple[Value, Value]],
    rng: random.Random,
) -> list[Value]:
    """Begin with a pair that is missing; then each option takes what brings most missing pairs."""
    row = list(rng.choice(sorted(left)))
    names = [name for name in options if name not in {name for name, _ in row}]
    rng.shuffle(names)
    for name in names:
        values = [(name, i) for i in range(len(options[name]))]
        rng.shuffle(values)

        def gain(value: Value) -> int:
            return sum(tuple(sorted((value, other))) in left for other in row)

        row.append(max(values, key=gain))
    return row
