"""Cases of filter_rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cases_layers import Floats
from cases_sample import Draw, draw_array, mask_words, no_masks, pack_masks
from harness import Buffer, Launch
from layer_args import FILTER, KEPT, PASS, SCAN, record
from numpy.typing import NDArray
from reference_filter import Filter, FilterRow

THREADS = 128


@dataclass(frozen=True, kw_only=True)
class FilterRun:
    """filter_rows of some rows; kept holds the result."""

    launches: list[Launch]
    kept: Buffer
    logits: Floats
    draws: Sequence[Draw]
    filters: Sequence[tuple[int, Filter]]
    n_valid: int
    allowed: NDArray[np.bool_] | None

    @property
    def moved_bytes(self) -> int:
        """The logits are read once."""
        return 4 * self.n_valid * len(self.filters)

    def __str__(self) -> str:
        """Name in benchmark tables."""
        by = self.filters[0][1]
        parts = [f"k{by.top_k}" * (by.top_k > 0), f"p{by.top_p:g}" * (by.top_p < 1)]
        parts.append(f"m{by.min_p:g}" * (by.min_p > 0))
        name = "-".join(part for part in parts if part)
        return f"filter-{len(self.filters)}x{self.logits.shape[1]}-{name}"

    def reference(self, row: int) -> FilterRow:
        """The scores of one row."""
        draw = self.draws[row]
        allowed = None if self.allowed is None or draw.mask >= len(self.allowed) else draw.mask
        return FilterRow(
            self.logits[row, : self.n_valid],
            draw.temperature,
            None if allowed is None or self.allowed is None else self.allowed[allowed],
        )


def filter_run(
    logits: Floats,
    draws: Sequence[Draw],
    filters: Sequence[tuple[int, Filter]],
    *,
    n_valid: int | None = None,
    allowed: NDArray[np.bool_] | None = None,
    threads: int = THREADS,
) -> FilterRun:
    """The launch for filters of rows of logits (rows, vocab)."""
    rows, vocab = logits.shape
    n_valid = vocab if n_valid is None else n_valid
    kept = np.zeros(len(filters), KEPT)
    kept["lowest"] = np.nan
    filter_args = [
        record(FILTER, row=row, top_k=by.top_k, top_p=by.top_p, min_p=by.min_p)
        for row, by in filters
    ]
    buffers = [
        kept,
        logits,
        draw_array(draws),
        np.concatenate(filter_args),
        no_masks() if allowed is None else pack_masks(allowed),
        record(SCAN, vocab=vocab, n_valid=n_valid, mask_words=mask_words(n_valid)),
        record(PASS, rows=rows, n_logit_rows=rows),
    ]
    launch = Launch(
        kernel="filter_rows", buffers=buffers, groups=(1, len(filters)), threads=threads
    )
    return FilterRun(
        launches=[launch],
        kept=kept,
        logits=logits,
        draws=draws,
        filters=filters,
        n_valid=n_valid,
        allowed=allowed,
    )
