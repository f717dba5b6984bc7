"""Cases of the sampling kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import reference_layers as ref
from cases_layers import Floats
from harness import Buffer, Launch
from layer_args import CANDIDATE, KEPT, NO_INDEX, PASS, SAMPLE, SCAN, record
from noise import sample_scores
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How one row is sampled."""

    temperature: float = 0.0
    seed: int = 0
    position: int = 0
    sample_index: int = 0
    filter: int = NO_INDEX
    mask: int = NO_INDEX

    def fields(self) -> tuple[float, ...]:
        """Of SampleArgs, in order."""
        seed = (self.seed & 0xFFFFFFFF, self.seed >> 32)
        place = (self.position, self.sample_index)
        return (self.temperature, *seed, *place, self.filter, self.mask, 0)


def draw_array(draws: Sequence[Draw]) -> Buffer:
    """SampleArgs of the rows."""
    return np.array([draw.fields() for draw in draws], SAMPLE)


@dataclass(frozen=True, kw_only=True)
class SampleRun:
    """sample_scan and sample_pick of some rows; ids holds the result."""

    launches: list[Launch]
    ids: Buffer
    logits: Floats
    draws: Sequence[Draw]
    n_valid: int

    @property
    def moved_bytes(self) -> int:
        """The logits are read once."""
        return self.logits.nbytes

    def __str__(self) -> str:
        """Name in benchmark tables."""
        rows, vocab = self.logits.shape
        draw = self.draws[0]
        filtered = "-filtered" if draw.filter != NO_INDEX else ""
        return f"sample-{rows}x{vocab}-T{draw.temperature:g}{filtered}"

    def best(self, row: int) -> tuple[ref.Array, float]:
        """Reference scores of one row, and how far a float32 score may be off."""
        draw = self.draws[row]
        logits = self.logits[row, : self.n_valid].astype(np.float64)
        scores = sample_scores(
            logits, draw.temperature, draw.seed, draw.position, draw.sample_index
        )
        # The logit's scaling, the product with the noise and the sum round once each. The inner log
        # is off by FUNCTION of its last places; the outer one turns that into as much absolutely.
        size = np.abs(logits[np.isfinite(logits)]).max(initial=0) / max(draw.temperature, 1.0)
        noise = min(draw.temperature, 1.0) * (2 * ref.FUNCTION + 17 * ref.FUNCTION)
        return scores, 2 * ref.U * (3 * size + noise)


def mask_words(n_valid: int) -> int:
    """Of one mask."""
    return -(-n_valid // 128) * 4


def pack_masks(allowed: NDArray[np.bool_]) -> Buffer:
    """Masks of what is allowed (masks, n_valid)."""
    count, n_valid = allowed.shape
    bits = np.zeros((count, mask_words(n_valid) * 32), np.bool_)
    bits[:, :n_valid] = allowed
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)


def no_kept() -> Buffer:
    """Of a run without filters: there are no empty buffers."""
    return np.zeros(1, KEPT)


def no_masks() -> Buffer:
    """The same of masks."""
    return np.zeros((1, 4), np.uint32)


def sample_run(
    logits: Floats,
    draws: Sequence[Draw],
    *,
    n_valid: int | None = None,
    chunk: int = 1024,
    kept: Buffer | None = None,
    masks: Buffer | None = None,
) -> SampleRun:
    """Launches that sample each row of logits (rows, vocab)."""
    rows, vocab = logits.shape
    n_chunks = -(-vocab // chunk)
    n_valid = vocab if n_valid is None else n_valid
    candidates = np.zeros((rows, n_chunks), CANDIDATE)
    candidates["score"] = np.nan
    ids = np.full(rows, -7, np.int32)
    samples = draw_array(draws)
    args = record(
        SCAN,
        vocab=vocab,
        n_valid=n_valid,
        chunk=chunk,
        n_chunks=n_chunks,
        mask_words=mask_words(n_valid),
    )
    kept = no_kept() if kept is None else kept
    masks = no_masks() if masks is None else masks
    pass_ = record(PASS, rows=rows, n_logit_rows=rows)
    scan = Launch(
        kernel="sample_scan",
        buffers=[candidates, logits, samples, kept, masks, args, pass_],
        groups=(n_chunks, rows),
    )
    pick = Launch(kernel="sample_pick", buffers=[ids, candidates, args, pass_], groups=(1, rows))
    return SampleRun(launches=[scan, pick], ids=ids, logits=logits, draws=draws, n_valid=n_valid)
