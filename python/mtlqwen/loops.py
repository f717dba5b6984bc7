"""Notices that a text goes round in circles: its tail is one phrase again and again.

Exact, and the same whatever number of tokens arrives at a time. Knows nothing of text.
"""

from __future__ import annotations

MIN_REPEATS = 3  # of a phrase: fewer are no loop
MAX_PHRASE = 1024  # tokens


class LoopDetector:
    """Takes tokens in until the last of them repeat a phrase.

    They do if they are at least ``limit`` tokens of some period of 1 to `MAX_PHRASE` tokens, and at
    least three times as many as the period. A token is compared with the earlier ones like it, so
    it costs what a text repeats: some steps for natural language, `MAX_PHRASE` at worst.

    Example:
        >>> loops = LoopDetector(6)
        >>> [loops.feed(token) for token in [9, 1, 2, 1, 2, 1, 2]]
        [False, False, False, False, False, False, True]
    """

    def __init__(self, limit: int) -> None:
        """Look for repeats that cover ``limit`` tokens or more."""
        self._limit = limit
        self._n_tokens = 0
        self._seen: dict[int, list[int]] = {}  # token -> where it was, ascending
        self._runs: dict[int, int] = {}  # period -> how many of the last tokens came that long ago

    def feed(self, token_id: int) -> bool:
        """Take a token in and return whether the text repeats itself now."""
        at = self._n_tokens
        self._n_tokens += 1
        places = self._seen.setdefault(token_id, [])
        if len(places) >= 2 * MAX_PHRASE:  # of these half at most are within reach
            del places[:MAX_PHRASE]
        runs: dict[int, int] = {}
        for place in reversed(places):
            period = at - place
            if period > MAX_PHRASE:
                break
            runs[period] = self._runs.get(period, 0) + 1
        places.append(at)
        self._runs = runs
        return any(
            period + run >= max(self._limit, MIN_REPEATS * period) for period, run in runs.items()
        )
