"""What an engine counts: a dictionary that notebooks show as a card."""

from __future__ import annotations


class Stats(dict[str, int | float | str]):
    """The counts of `Engine.stats`; docs/tracing.md describes every key."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from mtlqwen import cards

        return cards.bundle(self, cards.stats_card(self))
