"""Cases of edit_logits and restore_logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cases_layers import Floats, nans
from harness import Buffer, Launch, Runner, check, run
from layer_args import BAD_WORD, EDIT, PASS, SCAN, TOKEN_EDIT, record
from reference_edit import Edit, edited

GAP = 3  # elements that belong to nobody, before those of each row


@dataclass(frozen=True, kw_only=True)
class EditRun:
    """Edits of some rows, and how they are undone; each in place."""

    edit: Launch
    restore: Launch
    logits: Floats
    saved: Floats
    edits: Sequence[Edit]
    n_valid: int
    name: str

    @property
    def launches(self) -> list[Launch]:
        """In order."""
        return [self.edit, self.restore]

    @property
    def moved_bytes(self) -> int:
        """Entries are read twice; a logit is read, saved, changed, read and put back."""
        entries = self.edit.buffers[3].size
        return 2 * entries * TOKEN_EDIT.itemsize + 6 * entries * 4

    def __str__(self) -> str:
        """Name in benchmark tables."""
        return self.name


def entry_arrays(edits: Sequence[Edit]) -> tuple[list[int], Buffer, Buffer, list[int]]:
    """Where each row's entries begin; TokenEdits, BadWords and their tokens, of all rows."""
    firsts = []
    entries: list[tuple[int, int, float, int, int, int]] = []
    words: list[tuple[int, int]] = []
    word_tokens: list[int] = []
    for edit in edits:
        entries += [(5, 3, -np.inf, 0, 1, 1)] * GAP
        firsts.append(len(entries))
        for id_ in edit.ids:
            mine = [word[:-1] for word in edit.bad_words if word[-1] == id_]
            counted = (id_, edit.counts.get(id_, 0), edit.biases.get(id_, 0.0))
            entries.append((*counted, len(words), len(mine), id_ in edit.stops))
            for tokens in mine:
                words.append((len(word_tokens), len(tokens)))
                word_tokens += tokens
    return firsts, np.array(entries, TOKEN_EDIT), np.array(words or [(0, 0)], BAD_WORD), word_tokens


def edit_run(logits: Floats, edits: Sequence[Edit], *, n_valid: int | None = None) -> EditRun:
    """Launches on logits (rows, vocab), which they change. What nobody saved stays NaN."""
    n_valid = logits.shape[1] if n_valid is None else n_valid
    first_entries, entries, words, word_tokens = entry_arrays(edits)
    structs = np.zeros(len(edits), EDIT)
    tails: list[int] = []
    input_ids: list[int] = []
    n_saved = 0
    for i, edit in enumerate(edits):
        tails += [7] * GAP
        input_ids += [7] * GAP
        n_saved += GAP
        structs[i] = (
            *(edit.row, first_entries[i], len(edit.ids), len(input_ids), len(edit.drafted)),
            *(n_saved, len(tails), len(edit.tail)),
            *(edit.presence, edit.frequency, edit.repetition, edit.forbid_stops, 0),
        )
        tails += edit.tail
        input_ids += edit.drafted
        n_saved += len(edit.ids) + len(edit.drafted)
    tokens = [np.array(ids or [0], np.int32) for ids in (word_tokens, tails, input_ids)]
    saved = nans(n_saved)
    scan = record(SCAN, vocab=logits.shape[1], n_valid=n_valid)
    pass_ = record(PASS, rows=len(logits), n_logit_rows=len(logits))
    groups = (1, len(edits))
    metadata: list[Buffer] = [structs, entries]
    return EditRun(
        edit=Launch(
            kernel="edit_logits",
            buffers=[logits, saved, *metadata, words, *tokens, scan, pass_],
            groups=groups,
        ),
        restore=Launch(
            kernel="restore_logits",
            buffers=[logits, saved, *metadata, tokens[2], scan, pass_],
            groups=groups,
        ),
        logits=logits,
        saved=saved,
        edits=edits,
        n_valid=n_valid,
        name=f"edit-{len(edits)}x{len(edits[0].ids)}",
    )


def expected_saved(edits: Sequence[Edit], raw: Floats, n_valid: int) -> Floats:
    """Of every entry, and of the first drafted token of every other id; NaN elsewhere."""
    saved: list[float] = []
    for edit in edits:
        alone = [
            id_ not in edit.ids and id_ not in edit.drafted[:i]
            for i, id_ in enumerate(edit.drafted)
        ]
        saved += [np.nan] * GAP
        saved += [
            raw[edit.row, id_] if there and 0 <= id_ < n_valid else np.nan
            for id_, there in zip(
                [*edit.ids, *edit.drafted], [True] * len(edit.ids) + alone, strict=True
            )
        ]
    return np.array(saved, np.float32)


def check_edit(runner: Runner, sampling: EditRun) -> None:
    """Both launches: every logit, everything saved, and the same bits again in the end."""
    logits = sampling.logits
    raw = logits.copy()
    expected, bound = raw.astype(np.float64), np.zeros(raw.shape)
    for edit in sampling.edits:
        expected[edit.row], bound[edit.row] = edited(raw[edit.row], edit, sampling.n_valid)
    run(runner, [sampling.edit])
    # A difference of infinities is NaN: they are compared by themselves.
    infinite = np.isinf(expected)
    assert np.array_equal(logits[infinite], expected[infinite])
    check(np.where(infinite, 0, logits), np.where(infinite, 0, expected), bound)
    assert np.array_equal(
        sampling.saved, expected_saved(sampling.edits, raw, sampling.n_valid), equal_nan=True
    )
    run(runner, [sampling.restore])
    assert logits.tobytes() == raw.tobytes()


def random_edit(
    rng: np.random.Generator, n_entries: int, vocab: int, *, row: int = 0, n_drafted: int = 0
) -> Edit:
    """Entries of every kind, some past the vocabulary; drafted tokens that are entries or not."""
    ids = rng.permutation(vocab + 3)[:n_entries].tolist()
    pool = [*ids, *rng.integers(0, vocab, n_entries + 5).tolist()]
    text = rng.choice(pool, int(rng.integers(0, 9)) + n_drafted).tolist()
    tail, drafted = text[: len(text) - n_drafted], text[len(text) - n_drafted :]
    kinds = rng.random((4, n_entries)) < 0.5
    kinds[0] |= ~kinds.any(axis=0)
    words = []
    for id_ in np.array(ids)[kinds[3]].tolist():
        n = int(rng.integers(0, 5))
        start = text[max(len(text) - n, 0) :] if n else []
        words.append((*(start if rng.random() < 0.5 else rng.choice(pool, n).tolist()), id_))
    return Edit(
        row=row,
        counts={id_: int(rng.integers(0, 5)) for id_ in np.array(ids)[kinds[0]].tolist()},
        biases={id_: float(rng.standard_normal()) for id_ in np.array(ids)[kinds[1]].tolist()},
        stops=np.array(ids)[kinds[2]].tolist(),
        bad_words=words,
        tail=tail,
        drafted=drafted,
        presence=float(rng.choice([0.0, 1.5])),
        frequency=float(rng.choice([0.0, 0.3])),
        repetition=float(rng.choice([1.0, 1.2])),
        forbid_stops=bool(rng.random() < 0.5),
    )


def edit_bench(n_rows: int, n_entries: int, vocab: int) -> EditRun:
    """Rows of a draft, or one row; ids that were said, and nothing else."""
    rng = np.random.default_rng(n_entries)
    counts = dict.fromkeys(rng.permutation(vocab)[:n_entries].tolist(), 2)
    drafted = rng.integers(0, vocab, n_rows - 1).tolist()
    edits = [
        Edit(row=row, counts=counts, drafted=drafted[:row], presence=1.5, repetition=1.1)
        for row in range(n_rows)
    ]
    return edit_run(rng.standard_normal((n_rows, vocab)).astype(np.float32), edits)
