"""edit_logits and restore_logits: every kind of entry, drafts, bad words, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from cases_edit import check_edit, edit_run, random_edit
from cases_layers import Floats
from harness import Runner, open_runner, run
from reference_edit import FORBIDDEN, Edit

VOCAB = 40
SAID = {3: 1, 4: 2, 5: 7}


def logits(rows: int, vocab: int) -> Floats:
    """Positive, negative and zero ones."""
    values = np.random.default_rng(rows + vocab).standard_normal((rows, vocab)) * 3
    values[:, ::7] = 0
    values[:, 1::7] = -0.0
    return values.astype(np.float32)


@pytest.mark.parametrize("n_entries", [0, 1, 31, 32, 33, 1000])
def test_edits_of_many_entries(runner: Runner, n_entries: int) -> None:
    rng = np.random.default_rng(n_entries)
    edits = [random_edit(rng, n_entries, 2000, row=row, n_drafted=5 * row) for row in (2, 0, 3)]
    check_edit(runner, edit_run(logits(4, 2000), edits, n_valid=1990))


@pytest.mark.parametrize("n_drafted", range(16))
def test_drafted_tokens(runner: Runner, n_drafted: int) -> None:
    """Repeated ones, entries and others."""
    rng = np.random.default_rng(n_drafted)
    edits = [
        Edit(
            row=row,
            counts=SAID,
            biases={6: 1.5, 7: -2.0},
            drafted=rng.integers(0, high, n_drafted).tolist(),
            presence=0.5,
            frequency=0.25,
            repetition=1.3,
        )
        for row, high in enumerate((4, 9, VOCAB))
    ]
    check_edit(runner, edit_run(logits(3, VOCAB), edits))


PENALTIES = [(0.0, 0.0, 1.0), (1.5, 0.0, 1.0), (0.0, 0.7, 1.0), (0.0, 0.0, 1.3), (-1.1, -0.3, 0.8)]


@pytest.mark.parametrize(("presence", "frequency", "repetition"), PENALTIES)
def test_penalties(runner: Runner, presence: float, frequency: float, repetition: float) -> None:
    edit = Edit(
        counts={id_: id_ % 4 for id_ in range(VOCAB)},
        drafted=(0, 4, 4, 8, 9),
        presence=presence,
        frequency=frequency,
        repetition=repetition,
    )
    check_edit(runner, edit_run(logits(1, VOCAB), [edit]))


def test_an_edit_of_nothing_changes_no_bit(runner: Runner) -> None:
    run_ = edit_run(logits(1, VOCAB), [Edit(counts=SAID, drafted=(3, 9, 9))])
    raw = run_.logits.copy()
    run(runner, [run_.edit])
    assert np.array_equal(run_.logits, raw)


def test_biases(runner: Runner) -> None:
    biases = {1: np.inf, 2: -np.inf, 3: 100.0, 4: -0.25, 8: 3e38}
    values = logits(1, VOCAB)
    values[0, 8] = 3e38
    check_edit(runner, edit_run(values, [Edit(counts=SAID, biases=biases, presence=1.0)]))


def test_infinities_and_nan(runner: Runner) -> None:
    """They stay, so that they are seen, forbidden or not."""
    values = logits(1, VOCAB)
    values[0, [3, 6, 9]] = np.inf
    values[0, [4, 7, 10]] = -np.inf
    values[0, [5, 8, 11]] = np.nan
    edit = Edit(
        counts=SAID,
        biases={6: -np.inf, 7: -np.inf, 8: -np.inf, 12: np.inf},
        stops=(9, 10, 11),
        drafted=(5, 13),
        presence=1.5,
        repetition=1.2,
        forbid_stops=True,
    )
    run_ = edit_run(values, [edit])
    check_edit(runner, run_)
    run(runner, [run_.edit])
    changed = [3, 6, 9, 4, 7, 10, 5, 8, 11]
    assert np.array_equal(run_.logits[0, changed], values[0, changed], equal_nan=True)
    assert run_.logits[0, 12] == np.inf


@pytest.mark.parametrize("forbid_stops", [False, True])
def test_stops(runner: Runner, forbid_stops: bool) -> None:
    edit = Edit(counts=SAID, stops=(3, 20), presence=1.0, forbid_stops=forbid_stops)
    run_ = edit_run(logits(1, VOCAB), [edit])
    check_edit(runner, run_)
    run(runner, [run_.edit])
    assert (
        np.flatnonzero(run_.logits[0] == np.float32(FORBIDDEN)).tolist() == [3, 20]
    ) == forbid_stops


TAIL = (10, 11, 12, 13)
DRAFTED = (14, 15, 16)
WORDS: dict[
    str, tuple[list[tuple[int, ...]], list[int]]
] = {  # bad words, and which ids they forbid behind the tail and the draft
    "of one token": ([(20,), (10,)], [10, 20]),
    "in the draft": ([(16, 20), (15, 16, 21)], [20, 21]),
    "all of the draft": ([(14, 15, 16, 20)], [20]),
    "across tail and draft": ([(13, 14, 15, 16, 20)], [20]),
    "of all there is": ([(*TAIL, *DRAFTED, 20)], [20]),
    "longer than what is there": ([(9, *TAIL, *DRAFTED, 20), (7, *TAIL, *DRAFTED, 21)], []),
    "somewhere else": ([(15, 20), (13, 21), (16, 15, 22), (9, 14, 15, 16, 23)], []),
    "of one id": ([(15, 20), (16, 20), (9, 20), (15, 16, 21), (14, 22)], [20, 21]),
    "ending in what was said": ([(16, 16), (16, 3), (15, 16, 14)], [3, 14, 16]),
}


@pytest.mark.parametrize("name", WORDS)
def test_bad_words(runner: Runner, name: str) -> None:
    words, forbidden = WORDS[name]
    edit = Edit(counts=SAID, bad_words=words, tail=TAIL, drafted=DRAFTED, presence=0.5)
    run_ = edit_run(logits(1, VOCAB), [edit])
    check_edit(runner, run_)
    run(runner, [run_.edit])
    assert np.flatnonzero(run_.logits[0] == np.float32(FORBIDDEN)).tolist() == forbidden


@pytest.mark.parametrize(("tail", "forbidden"), [(TAIL, [20, 21]), ((13,), [20]), ((), [])])
def test_bad_words_without_a_draft(
    runner: Runner, tail: tuple[int, ...], forbidden: list[int]
) -> None:
    run_ = edit_run(logits(1, VOCAB), [Edit(bad_words=[(13, 20), (12, 13, 21)], tail=tail)])
    run(runner, [run_.edit])
    assert np.flatnonzero(run_.logits[0] == np.float32(FORBIDDEN)).tolist() == forbidden


@pytest.mark.parametrize("n_valid", [1, 5, 6, 39])
def test_ids_past_n_valid_are_left_alone(runner: Runner, n_valid: int) -> None:
    edit = Edit(
        counts={**SAID, VOCAB: 1, VOCAB + 9: 1},
        biases={0: 1.0, 39: 2.0},
        bad_words=[(38,)],
        drafted=(39, -1, -1, VOCAB, 3, 6, 2**31 - 1),
        presence=1.0,
    )
    check_edit(runner, edit_run(logits(1, VOCAB), [edit], n_valid=n_valid))


def test_rows_without_an_edit_are_left_alone(runner: Runner) -> None:
    edits = [Edit(row=row, counts=SAID, drafted=(9,) * row, presence=1.0) for row in (4, 1)]
    run_ = edit_run(logits(6, VOCAB), edits)
    raw = run_.logits.copy()
    check_edit(runner, run_)
    run(runner, [run_.edit])
    changed = (run_.logits != raw).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [1, 4]


def test_twins_give_the_same_bits(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels themselves: a seed means one text on every machine."""
    runners = []
    for choice in ("auto", "msl"):
        monkeypatch.setenv("MTLQWEN_HOST_KERNELS", choice)
        runners.append(open_runner(kernels))
    rng = np.random.default_rng(5)
    for _ in range(100):
        values = logits(3, 300)
        values[rng.random(values.shape) < 0.05] = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e-39])
        edits = [
            random_edit(
                rng,
                int(rng.integers(0, 100)),
                300,
                row=row,
                n_drafted=int(rng.integers(0, 16)),
            )
            for row in range(3)
        ]
        both = []
        for one in runners:
            run_ = edit_run(values.copy(), edits, n_valid=290)
            run(one, [run_.edit])
            both.append(run_.logits.tobytes())
        assert both[0] == both[1]
