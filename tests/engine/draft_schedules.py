"""Random schedules of engines that draft, with proposals of our own among the drafter's."""

from __future__ import annotations

from typing import Any

from engine.drafting import MOST_WIDTH, force_width, propose, spoil
from engine.schedules import Move, Schedule
from engine.tracking import Tracked


class DraftSchedule(Schedule):
    """A schedule in which many drafts are right up to anywhere."""

    def moves(self) -> dict[Move, float]:
        return super().moves() | {self.choose_width: 3}

    def step(self) -> bool:
        for sequence in self.known:
            if sequence.ended is None and not sequence.cancelled and self.rng.random() < 0.4:
                self.propose(sequence)
        return super().step()

    def propose(self, sequence: Tracked) -> None:
        """The next draft is what follows, in a third of the cases without mistake."""
        n = len(sequence.tokens)
        proposals = sequence.reference.tokens(n + self.rng.randint(1, MOST_WIDTH))[n:]
        if self.rng.random() < 2 / 3:
            at = self.rng.randrange(len(proposals) + 1)
            proposals = spoil(proposals, at, self.engine.vocab_size)
        propose(self.engine, sequence.id, proposals)

    def choose_width(self) -> None:
        force_width(self.engine, self.rng.choice([None, 0, 1, 2, 4, MOST_WIDTH]))

    def note_poll(self, sequence: Tracked, poll: Any) -> None:
        super().note_poll(sequence, poll)
        drafted = poll.drafted_tokens - sequence.drafted
        accepted = poll.accepted_tokens - sequence.accepted
        assert 0 <= accepted <= drafted
        sequence.drafted, sequence.accepted = poll.drafted_tokens, poll.accepted_tokens
        if drafted == 0:
            return
        self.tally.drafts += 1
        self.tally.all_right += accepted == drafted
        self.tally.all_wrong += accepted == 0
        self.tally.partly_right += 0 < accepted < drafted
