"""How a token is chosen, slowly and plainly: float64, one token at a time, nothing shared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from noise import sample_scores

Scores = npt.NDArray[np.float64]
TIE = 1e-4  # scores nearer than this may swap places in float32


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `_core.Engine.submit` takes about the choice of a token."""

    temperature: float = 0.0
    seed: int = 0
    sample_index: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_ids: Sequence[int] = ()
    bad_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0

    def arguments(self) -> dict[str, Any]:
        """The keywords of submit()."""
        return asdict(self) | {"logit_bias": list(self.logit_bias.items())}


def edited(
    raw: npt.NDArray[np.float32],
    options: Options,
    prompt: Sequence[int],
    text: Sequence[int],
    stops: Sequence[int],
) -> Scores:
    """Logits behind a prompt and the text generated so far."""
    logits = raw.astype(np.float64)
    for token, count in Counter(text).items():
        repetition = options.repetition_penalty
        logits[token] *= 1 / repetition if logits[token] > 0 else repetition
        logits[token] -= options.presence_penalty + options.frequency_penalty * count
    for token, bias in options.logit_bias.items():
        logits[token] += bias
    if len(text) < options.min_tokens:
        logits[list(stops)] = -np.inf
    before = [*prompt, *text]
    for *first, last in options.bad_words:
        if before[len(before) - len(first) :] == first:
            logits[last] = -np.inf
    if options.allowed_ids:
        forbidden = np.ones(logits.size, bool)
        forbidden[list(options.allowed_ids)] = False
        logits[forbidden] = -np.inf
    return logits


def kept(logits: Scores, options: Options) -> tuple[npt.NDArray[np.bool_], bool]:
    """Which ids may be drawn; and whether rounding could not change that."""
    order = np.lexsort((np.arange(logits.size), -logits))
    order = order[np.isfinite(logits[order])]
    scaled = logits[order] / options.temperature
    firm = True
    if options.top_k > 0:
        firm &= _firm(scaled, options.top_k)
        order, scaled = order[: options.top_k], scaled[: options.top_k]
    weights = np.exp(scaled - scaled[0])
    n = scaled.size
    if options.top_p < 1:
        sums = np.cumsum(weights) / weights.sum()
        n = min(int(np.searchsorted(sums, options.top_p)) + 1, n)
        firm &= bool(np.abs(sums - options.top_p).min() > 1e-5)
    if options.min_p > 0:
        least = int((weights >= options.min_p).sum())
        firm &= bool(np.abs(scaled - scaled[0] - math.log(options.min_p)).min() > TIE)
        n = min(n, least)
    firm &= _firm(scaled, n)
    may = np.zeros(logits.size, bool)
    may[order[:n]] = True
    return may, firm


def _firm(scaled: Scores, n: int) -> bool:
    """Whether the n-th and the one behind it are far enough apart."""
    return n >= scaled.size or bool(scaled[n - 1] - scaled[n] > TIE)


def choose(logits: Scores, options: Options, position: int) -> tuple[int, bool]:
    """The token, and whether it is so by more than rounding."""
    firm = True
    if options.temperature > 0:
        may, firm = kept(logits, options)
        logits = np.where(may, logits, -np.inf)
    scores = sample_scores(
        logits, options.temperature, options.seed, position, options.sample_index
    )
    best = int(np.argmax(scores))
    others = np.delete(scores, best)
    return best, firm and bool(scores[best] - others.max(initial=-np.inf) > TIE)
