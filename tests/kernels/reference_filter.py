"""NumPy references of filter_rows: one in its own arithmetic, to the bit, and one in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from harness import Buffer
from layer_args import KEPT, NO_INDEX, record
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Place = tuple[float, int]  # where a row is cut: the lowest logit kept, and minus the last id of it
EVERYTHING: Place = (-math.inf, -NO_INDEX)
ONE = 2.0**40  # the greatest weight
LEAST = 2.0**-126  # of normal floats; what is smaller is 0
# A weight's error, relative: x = (logit - max) / temperature is rounded three times, |x| < 28
# where the weight is not 0, and exp is within two units in the last place. A share has two sums.
SHARE_ERROR = 2 * (28 * 3 + 4) * 2.0**-24


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What FilterArgs say, but for the row."""

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


def fma(a: Floats, b: Floats | float, c: Floats | float) -> Floats:
    """A * b + c, rounded once: to odd in float64, in which a product is exact, then to float32."""
    product = a.astype(np.float64) * np.asarray(b, np.float32).astype(np.float64)
    addend = np.asarray(c, np.float32).astype(np.float64)
    total = np.asarray(product + addend)
    added = total - product
    error = (product - (total - added)) + (addend - added)
    between = np.isfinite(error) & (error != 0) & ((total.view(np.int64) & 1) == 0)
    next_one = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    result: Floats = np.where(between, next_one, total).astype(np.float32)
    return result


def exp(x: Floats) -> Floats:
    """e^x of x <= 0, as the kernels and their twins compute it."""
    least = np.float32(-87.336544)
    inside = np.maximum(x, least)
    shifted = fma(inside, 1.44269504, 12582912.0)
    n = shifted - np.float32(12582912.0)
    r = fma(-n, -2.12194440e-4, fma(-n, 0.693359375, inside))
    p = np.full_like(x, np.float32(1) / np.float32(5040))
    for factor in (720, 120, 24, 6, 2, 1, 1):
        p = fma(p, r, float(np.float32(1) / np.float32(factor)))
    scaled = p.view(np.uint32) + (shifted.view(np.uint32) << np.uint32(23))
    result: Floats = np.where(x < least, np.float32(0), scaled.view(np.float32))
    return result


class FilterRow:
    """One row: its scores in order, their weights, what filters keep of them."""

    def __init__(self, logits: Floats, temperature: float, allowed: Bools | None = None) -> None:
        """Mask out what `allowed` does not say; logits end at n_valid."""
        self.temperature = np.float32(temperature)
        self.logits = np.where(np.abs(logits) < LEAST, np.float32(0), logits)
        is_score = ~np.isnan(logits) & (logits != -np.inf)
        if allowed is not None:
            is_score &= allowed
        ids = np.flatnonzero(is_score)
        self.order = ids[np.argsort(-self.logits[ids], kind="stable")]
        self.scores = self.logits[self.order]  # descending

    @cached_property
    def weights(self) -> NDArray[np.uint64]:
        """Of the scores in order."""
        scale = np.float32(1) / np.clip(self.temperature, np.float32(1e-37), np.float32(1e37))
        with np.errstate(invalid="ignore", over="ignore"):
            below = (self.scores - self.scores[0]) * scale
        e = exp(np.where(self.scores == self.scores[0], np.float32(0), below))
        return np.floor(e.astype(np.float64) * ONE).astype(np.uint64)

    def keeps_all(self) -> bool:
        """Whether there is nothing to filter."""
        return self.order.size == 0 or float(self.temperature) < LEAST

    def _place(self, count: int, n: int) -> Place:
        """Behind `count` of the first n scores; without an id where all equals are kept."""
        lowest = float(self.scores[count - 1])
        parts_equals = count < n and self.scores[count] == self.scores[count - 1]
        return lowest, -int(self.order[count - 1]) if parts_equals else -NO_INDEX

    def _top_p(self, top_p: float, n: int) -> Place:
        sums = np.cumsum(self.weights[:n])
        share = int(np.float32(max(top_p, 0.0)) * 2.0**32)
        wanted = max(1, -(-share * int(sums[-1]) // 2**32))
        return self._place(1 + int(np.searchsorted(sums, np.uint64(wanted))), n)

    def _min_p(self, min_p: float) -> Place:
        log = math.log(np.float32(min_p))
        with np.errstate(invalid="ignore", over="ignore"):
            lowest = float(fma(np.array([self.temperature]), log, self.scores[:1])[0])
        if abs(lowest) < LEAST:
            lowest = 0.0
        most = float(self.scores[0])
        return (-math.inf if math.isnan(lowest) else min(lowest, most)), -NO_INDEX

    def kept(self, by: Filter) -> Buffer:
        """The Kept of a filter, (1,)."""
        places = [EVERYTHING]
        if not self.keeps_all():
            n = self.order.size
            if 0 < by.top_k <= n:
                places.append(self._place(by.top_k, n))
                n = by.top_k
            if by.top_p < 1:
                places.append(self._top_p(by.top_p, n))
            if by.min_p > 0:
                places.append(self._min_p(by.min_p))
        lowest, minus_last = max(places)
        return record(KEPT, lowest=lowest, last_id=-minus_last)

    def chosen(self, lowest: float, last_id: int) -> NDArray[np.int64]:
        """The ids that a Kept leaves, in the order of their scores."""
        leaves = (self.scores > lowest) | ((self.scores == lowest) & (self.order <= last_id))
        result: NDArray[np.int64] = self.order[leaves]
        return result

    def counts(self, by: Filter) -> tuple[int, int]:
        """How many ids float64 keeps at least and at most, as far as a kernel may be off."""
        n = self.order.size
        if self.keeps_all():
            return n, n
        scores = self.scores.astype(np.float64)
        k = by.top_k if 0 < by.top_k <= n else n
        p = np.exp((scores[:k] - scores[0]) / float(self.temperature))
        cut_off = n / ONE / p.sum()
        sums = np.cumsum(p / p.sum())
        bounds = []
        for sign in (-1.0, 1.0):
            count = k
            if by.top_p < 1:
                share = float(np.float32(by.top_p)) + sign * (SHARE_ERROR + cut_off)
                count = min(k, 1 + int(np.searchsorted(sums, share)))
            if by.min_p > 0:
                reach = float(self.temperature) * math.log(np.float32(by.min_p))
                error = 2.0**-22 * (abs(reach) + abs(scores[0]))
                least = min(scores[0], scores[0] + reach - sign * error)
                count = min(count, int((scores >= least).sum()))
            bounds.append(count)
        return bounds[0], bounds[1]
