"""What random schedules know of sequences and files, and count of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

CONTEXT = 384  # tokens: three blocks of 128


class Reference(Protocol):
    """One request, and what it gives when nothing else runs."""

    prompt: list[int]
    temperature: float
    seed: int

    def tokens(self, n: int) -> list[int]:
        """The first n tokens."""

    def logits(self, i: int) -> npt.NDArray[np.float32] | None:
        """Logits behind the i-th token, where bits are to be compared."""


class Lazy:
    """A reference that is computed as far as it is asked for."""

    def __init__(self, prompt: list[int], seed: int, tokens: Iterator[int]) -> None:
        self.prompt, self.seed, self.temperature = prompt, seed, 0.0
        self._source, self._known = tokens, list[int]()

    def tokens(self, n: int) -> list[int]:
        while len(self._known) < n:
            self._known.append(next(self._source))
        return self._known[:n]

    def logits(self, i: int) -> npt.NDArray[np.float32] | None:
        return None


@dataclass
class Tracked:
    """A submitted sequence and what must become of it."""

    id: int
    reference: Reference
    expected: list[int]
    reason: str
    known: int = 0  # tokens of the prompt that others of the engine begin with, too
    recall: bool = True
    cached: int = 0  # tokens of the prompt that came from the cache
    drafted: int = 0  # proposals so far
    accepted: int = 0
    tokens: list[int] = field(default_factory=list)
    ended: str | None = None  # finish reason, or "error"
    cancelled: bool = False
    may_fail: bool = False
    may_be_late: bool = False


@dataclass(frozen=True)
class Saved:
    """A file with a checkpoint, and what it must say."""

    path: Path
    token_ids: list[int]
    note: str
    n_state: int  # tokens of its checkpoint


@dataclass
class Tally:
    """What the schedules of a test did, so that it can tell that nothing was left out."""

    steps: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    preemptions: int = 0
    interrupts: int = 0
    reopened: int = 0
    hits: int = 0  # prompts of which some tokens came from the cache
    partial_hits: int = 0  # fewer than others had begun with
    mid_block_hits: int = 0  # the block that the first computed token falls into was copied
    evictions: int = 0
    saved: int = 0  # files with a state
    loaded: int = 0  # states from files
    file_faults: int = 0
    loaded_hits: int = 0  # of prompts that the engine had not met
    drafts: int = 0  # checked by a pass, with at least one proposal
    all_wrong: int = 0  # of them
    partly_right: int = 0
    all_right: int = 0
