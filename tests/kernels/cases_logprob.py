"""Cases of logprob_rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cases_layers import Floats
from harness import Buffer, Launch, Runner, check, run
from layer_args import LOGPROB, PASS, SCAN, TOKEN_LOGPROB, record
from numpy.typing import NDArray
from reference_layers import Array
from reference_logprob import likeliest, log_softmax

Records = NDArray[np.void]

GAP = 3  # elements before each row's top ids that belong to nobody
THREADS = 1024
UNTOUCHED = (-7, 7.0)


@dataclass(frozen=True, kw_only=True)
class Want:
    """A row, how many of its likeliest ids, and which id instead of the sampled one."""

    row: int = 0
    n_top: int = 0
    told: int = -1


@dataclass(frozen=True, kw_only=True)
class LogprobRun:
    """logprob_rows of some rows."""

    launches: list[Launch]
    chosen: Records
    tops: Records
    logits: Floats
    sampled: NDArray[np.int32]
    wanted: Sequence[Want]
    n_valid: int

    @property
    def moved_bytes(self) -> int:
        """The logits are read once."""
        return len(self.wanted) * self.n_valid * 4

    def __str__(self) -> str:
        """Name in benchmark tables."""
        return f"logprob-{len(self.wanted)}x{self.n_valid}-top{self.wanted[0].n_top}"

    def tops_of(self, index: int) -> Records:
        """The likeliest ids of one row."""
        first = sum(GAP + want.n_top for want in self.wanted[:index]) + GAP
        return self.tops[first : first + self.wanted[index].n_top]


def logprob_run(
    logits: Floats,
    sampled: Sequence[int],
    wanted: Sequence[Want],
    *,
    n_valid: int | None = None,
    threads: int = THREADS,
) -> LogprobRun:
    """A launch over logits (rows, vocab); one id was sampled for each row."""
    vocab = logits.shape[1]
    n_valid = vocab if n_valid is None else n_valid
    structs = np.zeros(len(wanted), LOGPROB)
    n_tops = 0
    for i, want in enumerate(wanted):
        structs[i] = (want.row, want.n_top, n_tops + GAP, want.told)
        n_tops += GAP + want.n_top
    chosen = np.full(len(wanted), np.array(UNTOUCHED, TOKEN_LOGPROB))
    tops = np.full(n_tops, np.array(UNTOUCHED, TOKEN_LOGPROB))
    ids = np.array(sampled, np.int32)
    args = record(SCAN, vocab=vocab, n_valid=n_valid)
    pass_ = record(PASS, rows=len(logits), n_logit_rows=len(logits))
    launch = Launch(
        kernel="logprob_rows",
        buffers=[chosen, tops, logits, ids, structs, args, pass_],
        groups=(1, len(wanted)),
        threads=threads,
    )
    return LogprobRun(
        launches=[launch],
        chosen=chosen,
        tops=tops,
        logits=logits,
        sampled=ids,
        wanted=wanted,
        n_valid=n_valid,
    )


def check_logprobs(runner: Runner, sampling: LogprobRun) -> None:
    """Which ids, with which numbers; and nothing between them."""
    run(runner, sampling.launches)
    untouched = np.ones(len(sampling.tops), bool)
    first = 0
    for i, want in enumerate(sampling.wanted):
        first += GAP
        untouched[first : first + want.n_top] = False
        first += want.n_top
        row = sampling.logits[want.row]
        logprobs, bound = log_softmax(row, sampling.n_valid)
        # Behind the last id: where -1 looks.
        logprobs, bound = np.append(logprobs, -np.inf), np.append(bound, 0.0)
        tops = sampling.tops_of(i)
        assert tops["id"].tolist() == likeliest(row, sampling.n_valid, want.n_top)
        check_finite(tops["logprob"], logprobs[tops["id"]], bound[tops["id"]])
        chosen = sampling.chosen[i]
        sampled = max(sampling.sampled[want.row], -1)
        assert chosen["id"] == (sampled if want.told < 0 else want.told)
        if chosen["id"] < 0:
            assert chosen["logprob"] == 0
        else:
            at = slice(chosen["id"], chosen["id"] + 1)
            check_finite(sampling.chosen[i : i + 1]["logprob"], logprobs[at], bound[at])
    assert (sampling.tops[untouched] == np.array(UNTOUCHED, TOKEN_LOGPROB)).all()


def check_finite(got: Buffer, expected: Array, bound: Array) -> None:
    """As check() does, with -infinity exactly where it is expected."""
    infinite = np.isinf(expected)
    assert np.array_equal(got[infinite], expected[infinite])
    check(got[~infinite], expected[~infinite], bound[~infinite])


def logprob_bench(n_top: int, vocab: int) -> LogprobRun:
    """One row."""
    logits = np.random.default_rng(0).standard_normal((1, vocab)).astype(np.float32) * 3
    return logprob_run(logits, [5], [Want(n_top=n_top)])
