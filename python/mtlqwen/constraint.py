"""One text that a grammar holds: which tokens may come next, and behind each token of a draft.

Knows token ids and masks; knows nothing of engines, templates and schemas. One thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from mtlqwen.errors import CapacityError
from mtlqwen.structured import Form
from mtlqwen.vocabulary import Vocabulary

if TYPE_CHECKING:
    import llguidance
    import numpy as np
    from numpy.typing import NDArray

    Masks: TypeAlias = NDArray[np.uint32]

_ANY = 0xFFFFFFFF  # 32 tokens that may come


class Constraint:
    """The state of one generation in its grammar.

    Where the prompt leaves reasoning open, the grammar begins behind it: ``opening`` holds the
    token that ends it and those that stand between it and the answer. Until the first of them has
    come, everything may.
    """

    def __init__(self, vocabulary: Vocabulary, form: Form, opening: Sequence[int] = ()) -> None:
        """Stand at the beginning of a text.

        Raises:
            ValueError: as `Vocabulary.compile`.
        """
        self._vocabulary = vocabulary
        self._form = form
        self._matcher = vocabulary.compile(form)
        self._opening = tuple(opening)
        self._n_before = 0  # tokens before the grammar, those of the opening included
        # Of each token in it that it is allowed. A signal's handler may raise between any two
        # lines, but not inside of one call of C: the matcher and this list grow together.
        self._in_it: list[bool] = []
        # Where the grammar's first token stands; None until the opening has begun.
        self._begin: int | None = None if opening else 0
        self._ended = False  # the end of the turn has come; it is the last of n_tokens
        self._error: Exception | None = None

    @property
    def n_tokens(self) -> int:
        """How many tokens were taken in."""
        return self._n_before + len(self._in_it) + self._ended

    @property
    def waiting_for(self) -> int | None:
        """The token before which everything may come; None when it has come."""
        return self._opening[0] if self._begin is None else None

    @property
    def _in_grammar(self) -> bool:
        return self._begin is not None and self.n_tokens >= self._begin

    def advance(self, token_ids: Sequence[int]) -> None:
        """Take in tokens that have come; what stands behind the end of the turn is left out.

        Raises:
            RuntimeError: the grammar does not allow one of them.
        """
        for token_id in token_ids:
            if self._ended:
                return
            self._check()
            at = self.n_tokens
            if not self._in_grammar:
                allowed = self._advance_opening(token_id)
                self._n_before = at + 1
            elif token_id in self._vocabulary.stop_ids:
                # Not the matcher's business: it would have nothing to take back.
                allowed = self._ended = self._matcher.is_stopped() or self._matcher.is_accepting()
            else:
                self._in_it.extend(map(self._matcher.consume_token, (token_id,)))
                allowed = self._in_it[-1]
            if not allowed:
                self._error = RuntimeError(
                    f"[structured] {self._form.option}: a token came that the grammar does not "
                    f"allow (got {token_id}, at {at})"
                )
                raise self._error

    def _advance_opening(self, token_id: int) -> bool:
        if self._begin is None:
            if token_id == self._opening[0]:
                self._begin = self.n_tokens + len(self._opening)
            return True
        return token_id == self._opening[self.n_tokens - self._begin]

    def failure(self) -> Exception | None:
        """Return why this one cannot go on, if it can't."""
        if self._error is None and self._matcher.is_error():
            self._vocabulary.forget(self._form)
            self._error = CapacityError(
                f"[structured] {self._form.option}: too complex for one step (got "
                f"{self._matcher.stop_reason()}); longer pieces in it mean less work: "
                "/[a-z]+/, not /[a-z]/+"
            )
        return self._error

    def _check(self) -> None:
        if error := self.failure():
            raise error

    def fill_opening(self, drafted: Sequence[int], rows: Masks) -> int | None:
        """Write the rows that stand before the grammar; return the first one in it, if any is."""
        begin, here = self._begin, self.n_tokens
        for row in range(len(drafted) + 1):
            if begin is not None and here >= begin:
                return row
            if begin is not None:
                wanted = self._opening[here - begin]
                rows[row] = 0
                rows[row, wanted // 32] = 1 << (wanted % 32)
                if row < len(drafted) and drafted[row] != wanted:
                    return None
            elif row < len(drafted) and drafted[row] == self._opening[0]:
                begin = here + len(self._opening)
            here += 1
        return None

    def matcher_and_draft(self, drafted: Sequence[int]) -> tuple[llguidance.LLMatcher, list[int]]:
        """Return the matcher, and a draft up to the end of the turn."""
        ends = (at for at, token_id in enumerate(drafted) if token_id in self._vocabulary.stop_ids)
        return self._matcher, list(drafted[: next(ends, len(drafted))])


def fill_masks(
    batch: Sequence[tuple[Constraint, int, Sequence[int]]], out: Masks
) -> list[Exception | None]:
    """Write the masks of all constrained sequences of a pass, on several threads.

    A sequence has a row for now and one behind each token of its draft. Behind a drafted token that
    the grammar refuses, and behind one that ends the turn, every bit is set: the text never gets
    there. The constraints stay where they are.

    Args:
        batch: of each its constraint, its first row in ``out``, and its draft.
        out: (rows, words); bit ``i % 32`` of word ``i // 32`` says whether token ``i`` may come.
            Rows of nobody stay as they are.

    Returns:
        Of each why it cannot go on, or None. The rows of one that can't have every bit set.

    Raises:
        ValueError: ``out`` does not fit.
    """
    _check_out(batch, out)
    plain: list[tuple[llguidance.LLMatcher, int]] = []
    drafting: list[tuple[llguidance.LLMatcher, int, list[int]]] = []
    for constraint, first, drafted in batch:
        rows = out[first : first + len(drafted) + 1]
        rows[:] = _ANY
        begin = None if constraint.failure() else constraint.fill_opening(drafted, rows)
        if begin is None:
            continue
        matcher, draft = constraint.matcher_and_draft(drafted[begin:])
        if draft:
            drafting.append((matcher, first + begin, draft))
        else:
            plain.append((matcher, first + begin))
    executor = _executor(os.getpid())
    place = (out.ctypes.data, out.strides[0], out.shape[0])
    if plain:
        executor.unsafe_compute_mask_ptr(plain, *place)
    if drafting:
        executor.unsafe_compute_mask_ptr_with_draft_token(drafting, *place)
    errors = [constraint.failure() for constraint, _, _ in batch]
    for error, (_, first, drafted) in zip(errors, batch, strict=True):
        if error is not None:
            out[first : first + len(drafted) + 1] = _ANY
    return errors


def _check_out(batch: Sequence[tuple[Constraint, int, Sequence[int]]], out: Masks) -> None:
    """Raise ValueError where llguidance would write beside ``out``, or to what is none."""
    words = {constraint._vocabulary.words for constraint, _, _ in batch} or {0}
    fits = (
        out.ndim == 2
        and out.dtype.str in ("<u4", "|u4")
        and out.flags.c_contiguous
        and out.flags.writeable
        and words == {out.shape[1]}
        and all(0 <= first < out.shape[0] - len(drafted) for _, first, drafted in batch)
    )
    if batch and not fits:
        raise ValueError(
            f"[structured] out: does not fit (got {out.dtype} {out.shape}, want contiguous uint32, "
            f"{max(words)} words wide, a row for each token of a draft and one more)"
        )


@cache
def _executor(_process_id: int) -> llguidance.LLExecutor:
    """Return the threads of a process; a forked child has lost those of its parent."""
    import llguidance

    return llguidance.LLExecutor(num_threads=min(os.cpu_count() or 1, 4))
