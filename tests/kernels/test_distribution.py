"""A million draws of each filter, plain and verified, against the distribution of float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases_edit import edit_run
from cases_filter import filter_run
from cases_layers import Floats
from cases_sample import Draw, no_kept, sample_run
from engine.choice_oracle import Options, Scores, kept
from harness import Buffer, Launch, Runner, open_runner, run
from layer_args import KEPT, NO_INDEX, QUERY, SAMPLE, VERIFY
from numpy.typing import NDArray
from reference_edit import FORBIDDEN, Edit
from reference_filter import Filter
from test_filter import chi_square

Ids = NDArray[np.int32]

pytestmark = pytest.mark.slow

N = 1_000_000
BATCH = 250_000
WIDTH = 3  # proposals of a draft
LOGITS = np.array(
    [2.0, 1.5, 0.0, -1.0, 1.0, 0.5, -0.5, 2.5, -1.5, 0.25, -3.0, 1.5, 0.75, -2.0, 1.25, 2.2],
    np.float32,
)
CASES = {
    "temperature": Options(temperature=0.7),
    "high temperature": Options(temperature=1.7),
    "top_k": Options(temperature=1.0, top_k=5),
    "top_p": Options(temperature=1.1, top_p=0.8),
    "min_p": Options(temperature=1.3, min_p=0.1),
    "all filters": Options(temperature=0.9, top_k=10, top_p=0.97, min_p=0.06),
}
EDIT = Edit(
    counts={0: 1, 7: 3, 11: 2},
    biases={3: 2.0, 15: -np.inf, 10: 1.5},
    bad_words=[(4,)],
    presence=0.3,
    frequency=0.2,
    repetition=1.2,
)


@pytest.fixture
def runner(kernels: str) -> Runner:
    """What a machine chooses by itself: on CPUs twins, which choose as the kernels do."""
    return open_runner(kernels)


def limit(n_ids: int) -> float:
    """What chi-square exceeds once in a thousand times, by Wilson and Hilferty."""
    freedom = n_ids - 1
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 3.0902 * spread**0.5) ** 3)


def probabilities(logits: Floats, options: Options) -> Scores:
    scores = np.where(logits == np.float32(FORBIDDEN), -np.inf, logits.astype(np.float64))
    may, firm = kept(scores, options)
    assert firm
    p = np.exp(np.where(may, scores, -np.inf) / options.temperature)
    return np.asarray(p / p.sum())


def is_like(ids: Ids, p: Scores) -> bool:
    return chi_square(ids, ids.size * p) < limit(int((p > 0).sum()))


def filtered(runner: Runner, logits: Floats, options: Options) -> tuple[int, Buffer]:
    """The filter of every row, and what it keeps."""
    by = Filter(top_k=options.top_k, top_p=options.top_p, min_p=options.min_p)
    if by == Filter():
        return NO_INDEX, no_kept()
    case = filter_run(logits[None], [Draw(temperature=options.temperature)], [(0, by)])
    run(runner, case.launches)
    assert case.kept.dtype == KEPT
    return 0, case.kept


def drawn(runner: Runner, logits: Floats, options: Options, *, n: int = N, seed: int = 5) -> Ids:
    """Tokens of n positions that have the same logits."""
    number, keeps = filtered(runner, logits, options)
    ids = []
    for first in range(0, n, BATCH):
        rows = min(BATCH, n - first)
        sampling = sample_run(np.tile(logits, (rows, 1)), [Draw()], kept=keeps, chunk=64)
        samples = np.zeros(rows, SAMPLE)
        samples["temperature"], samples["seed_low"] = options.temperature, seed
        samples["position"] = np.arange(first, first + rows)
        samples["mask"] = NO_INDEX
        samples["filter"] = number
        scan, pick = sampling.launches
        scan.buffers[2] = samples
        chosen = np.full(rows, -7, np.int32)
        pick.buffers[0] = chosen
        scan = replace(scan, groups=(1, rows))
        scan.buffers[0] = pick.buffers[1] = np.resize(scan.buffers[0], (rows, 1))
        run(runner, [scan, replace(pick, groups=(1, rows))])
        ids.append(chosen)
    return np.concatenate(ids)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_plain(runner: Runner, options: Options) -> None:
    """A temperature that is off by 3 %, or a filter by one id, does not pass."""
    p = probabilities(LOGITS, options)
    assert is_like(drawn(runner, LOGITS, options), p)
    biased = replace(options, temperature=1.03 * options.temperature)
    assert not is_like(drawn(runner, LOGITS, biased, n=N // 4), p)
    if options.top_k:
        more = replace(options, top_k=options.top_k + 1, top_p=1.0, min_p=0.0)
        assert not is_like(drawn(runner, LOGITS, more, n=N // 10), p)


def test_edited(runner: Runner) -> None:
    case = edit_run(LOGITS[None].copy(), [EDIT])
    run(runner, [case.edit])
    said = {0: 1, 7: 3, 11: 2}
    expected = LOGITS.astype(np.float64)
    for token, count in said.items():
        expected[token] *= 1 / 1.2 if expected[token] > 0 else 1.2
        expected[token] -= 0.3 + 0.2 * count
    expected[[3, 10]] += (2.0, 1.5)
    expected[[15, 4]] = -np.inf
    options = Options(temperature=0.8)
    p = np.exp(expected / 0.8)
    assert is_like(drawn(runner, case.logits[0], options), p / p.sum())
    assert not is_like(drawn(runner, LOGITS, options, n=N // 10), p / p.sum())


def verified(runner: Runner, sampled: Ids, proposals: Ids) -> Ids:
    """How many proposals of each draft hold; sampled (drafts, 1 + WIDTH), proposals (.., WIDTH)."""
    n = len(sampled)
    queries, verifies = np.zeros(n, QUERY), np.zeros(n, VERIFY)
    first = np.arange(n, dtype=np.uint32) * np.uint32(1 + WIDTH)
    queries["first_row"], queries["count"] = first, 1 + WIDTH
    verifies["query"], verifies["first_logit"], verifies["width"] = np.arange(n), first, WIDTH
    input_ids = np.concatenate([np.zeros((n, 1), np.int32), proposals], axis=1)
    accepted = np.full(n, 99, np.int32)
    stops = np.zeros(1, np.int32)
    launch = Launch(
        kernel="verify",
        buffers=[accepted, input_ids, sampled.reshape(-1), queries, verifies, stops],
        groups=(1, n),
    )
    run(runner, [launch])
    return accepted


def emitted(sampled: Ids, accepted: Ids) -> list[Ids]:
    """The tokens of a pass that are kept, by their place behind the anchor."""
    return [sampled[accepted >= place, place] for place in range(1 + WIDTH)]


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_verified(runner: Runner, options: Options) -> None:
    """Whatever the drafts know: nothing, the likeliest token, or the very noise of the draw."""
    p = probabilities(LOGITS, options)
    sampled = drawn(runner, LOGITS, options, seed=9).reshape(-1, 1 + WIDTH)
    rng = np.random.default_rng(1)
    knowing = sampled[:, :WIDTH]
    drafts = {
        "likeliest": np.full_like(knowing, int(p.argmax())),
        "random": rng.choice(p.size, knowing.shape, p=p).astype(np.int32),
        # Right where the token is an even one, and sometimes else.
        "knowing": np.where((knowing % 2 == 0) | (rng.random(knowing.shape) < 0.3), knowing, 1),
    }
    for name, proposals in drafts.items():
        proposals = np.ascontiguousarray(proposals, np.int32)
        accepted = verified(runner, sampled, proposals)
        for place, ids in enumerate(emitted(sampled, accepted)):
            assert ids.size > 1000 or place > 1, name
            assert ids.size <= 1000 or is_like(ids, p), (name, place)
        # What was accepted is what was drawn; the next pass goes on where this one ended.
        ends = np.minimum(accepted, WIDTH)
        agree = [(sampled[ends > i, i] == proposals[ends > i, i]).all() for i in range(WIDTH)]
        assert all(agree)


def test_a_verifier_that_takes_what_is_likely_does_not_pass(runner: Runner) -> None:
    """It keeps a proposal though another token was drawn, where that is half as likely."""
    options = CASES["temperature"]
    p = probabilities(LOGITS, options)
    sampled = drawn(runner, LOGITS, options, n=N // 4, seed=9)
    proposal = int(p.argmax())
    taken = np.where(p[sampled] > 0.5 * p[proposal], proposal, sampled)
    assert is_like(sampled, p)
    assert not is_like(taken.astype(np.int32), p)
