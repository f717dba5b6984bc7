"""What an edit makes of a row's logits, said in other words than the kernel's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from reference_layers import Array, U

FORBIDDEN = float(np.finfo(np.float32).min)  # a logit that is never chosen


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What stands between a row's raw logits and its sample."""

    row: int = 0
    counts: Mapping[int, int] = field(default_factory=dict)  # how often an id was generated
    biases: Mapping[int, float] = field(default_factory=dict)
    stops: Sequence[int] = ()
    bad_words: Sequence[Sequence[int]] = ()
    tail: Sequence[int] = ()  # what the request ends with
    drafted: Sequence[int] = ()  # goes on from the tail, up to the row
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    forbid_stops: bool = False

    @property
    def ids(self) -> list[int]:
        """Its entries."""
        last = {word[-1] for word in self.bad_words}
        return sorted({*self.counts, *self.biases, *self.stops, *last})

    @property
    def forbidden(self) -> set[int]:
        """Ids that cannot be chosen whatever their logits."""
        text = [*self.tail, *self.drafted]
        ends = {tuple(text[len(text) - n :]) for n in range(len(text) + 1)}
        words = {word[-1] for word in self.bad_words if tuple(word[:-1]) in ends}
        biased = {id_ for id_, bias in self.biases.items() if bias == -np.inf}
        return words | biased | (set(self.stops) if self.forbid_stops else set())


def edited(raw: NDArray[np.float32], edit: Edit, n_valid: int) -> tuple[Array, Array]:
    """A row's logits behind an edit, and how far float32 may be off."""
    x = raw.astype(np.float64)
    bound = np.zeros_like(x)
    said = Counter(edit.counts) + Counter(edit.drafted)
    f4 = np.float32
    for id_ in {*edit.ids, *edit.drafted}:
        if not 0 <= id_ < n_valid or not np.isfinite(x[id_]):
            continue
        count = said[id_]
        terms = [x[id_]]
        if count:
            factor = float(f4(edit.repetition))
            scaled = x[id_] / factor if x[id_] > 0 else x[id_] * factor
            terms = [scaled, -float(f4(edit.presence)), -float(f4(edit.frequency)) * count]
        terms.append(float(f4(edit.biases.get(id_, 0.0))))
        x[id_] = FORBIDDEN if id_ in edit.forbidden else sum(terms)
        if abs(x[id_]) > np.finfo(f4).max:
            x[id_] = np.copysign(np.inf, x[id_])
        # A product, and each sum of the terms so far.
        size = sum(abs(term) for term in terms)
        bound[id_] = 4 * U * size if np.isfinite(size) else 0.0
    return x, bound
