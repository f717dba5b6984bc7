"""What a target accepts of a draft, said in other words than the kernel's."""

from __future__ import annotations

from collections.abc import Sequence


def accepted(proposals: Sequence[int], sampled: Sequence[int], stops: Sequence[int]) -> int:
    """Length of the longest start of the draft that the target says, too, and goes on behind."""
    starts = [
        n
        for n in range(len(proposals) + 1)
        if list(proposals[:n]) == list(sampled[:n])
        and not set(proposals[:n]) & set(stops)
        and all(token >= 0 for token in proposals[:n])
    ]
    return max(starts)
