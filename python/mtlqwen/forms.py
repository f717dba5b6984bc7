"""The texts of one engine that have a form: their constraints, and the masks that the core wants.

Knows options, tokens and masks; knows nothing of templates, threads and results.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mtlqwen.constraint import Constraint, fill_masks
from mtlqwen.generation import Facts
from mtlqwen.sampling import SamplingParams
from mtlqwen.structured import Form, Parsed, make_form, parse
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.tool_grammar import tool_form
from mtlqwen.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # Key, tokens that the core told of before, those since, drafted tokens, first row of the masks.
    Item: TypeAlias = tuple[int, int, list[int], list[int], int]

Parse: TypeAlias = Callable[[str, Facts], Parsed]
_BITS = 32  # ids of a mask's word


@dataclass(frozen=True, slots=True)
class Held:
    """A form, and the tokens before its grammar begins: see `Constraint`."""

    form: Form
    opening: tuple[int, ...] = ()

    @property
    def is_calls(self) -> bool:
        """Whether it is one of tool calls: their values are the calls."""
        return self.form.option == "tools"


class Forms:
    """Makes constraints, and has masks filled by them.

    The core knows a constraint by its key. Whoever reads its text owns it: here it is held weakly.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        mask_words: int,
        set_mask_fn: Callable[[Callable[..., list[Exception | None]]], None],
        stop_ids: Sequence[int],
    ) -> None:
        """Speak of one model; its vocabulary is translated at the first text that has a form.

        Args:
            tokenizer: the model's.
            mask_words: the words of a mask.
            set_mask_fn: tells the core who fills masks.
            stop_ids: what ends a turn.
        """
        self._tokenizer = tokenizer
        self._mask_words = mask_words
        self._stop_ids = tuple(stop_ids)
        self._lock = threading.RLock()  # guards the vocabulary; a signal's handler may want it, too
        self._vocabulary: Vocabulary | None = None
        self._keys = itertools.count(1)
        self._constraints: weakref.WeakValueDictionary[int, Constraint] = (
            weakref.WeakValueDictionary()
        )
        # The core holds what it is given, so that must not lead back to the engine.
        set_mask_fn(functools.partial(fill, self._constraints))

    def of_text(self, params: SamplingParams, opening: Sequence[int] = ()) -> Held | None:
        """Return the form that the options ask for, behind ``opening``.

        Raises:
            TypeError, ValueError, ImportError: as `make_form`; or another option contradicts it.
        """
        if not params.form:
            return None
        ((option, value),) = params.form.items()
        check_ends(params, option)
        return Held(make_form(option, value), tuple(opening))

    def of_turn(
        self,
        params: SamplingParams,
        tools: Sequence[Mapping[str, Any]] | None,
        opening: Sequence[int],
    ) -> Held | None:
        """Return the form that a chat's answer or its calls have to have, if any.

        Raises:
            TypeError, ValueError, ImportError: as `of_text` and `tool_form`.
        """
        choice = params.tool_choice
        if choice is not None and not tools:
            raise ValueError(f"[sampling] tool_choice: only with tools (got {choice!r} and none)")
        if params.form and tools and choice != "none":
            raise ValueError(
                f"[sampling] {next(iter(params.form))}: with tools only where tool_choice='none' "
                f"(got {choice!r}): an answer that may be a call has no form of its own"
            )
        if tools is None or choice is None or choice == "none":
            return self.of_text(params, opening)
        check_ends(params, "tool_choice")
        form, begin = tool_form(tools, choice, self._tokenizer)
        return Held(form, begin or tuple(opening))

    def without_calls(self, params: SamplingParams) -> SamplingParams:
        """Return the options of a text in which no call begins: ``tool_choice="none"``.

        Raises:
            ValueError: the model has no token that begins one.
        """
        begin = self._tokenizer.token_id("<tool_call>")
        if begin is None:
            raise ValueError("[sampling] tool_choice: this model has no token <tool_call>")
        return params.merged(SamplingParams(bad_words=(*(params.bad_words or ()), (begin,))))

    def constrain(self, held: Held) -> tuple[Constraint, tuple[int, int | None]]:
        """Return a constraint for one text, and what the core has to know of it.

        Raises:
            ValueError: no grammar can be made of the form, or no text fits it.
            ImportError: llguidance is not installed.
            ModelError: see `Vocabulary`.
        """
        constraint = Constraint(self._ready_vocabulary(), held.form, held.opening)
        key = next(self._keys)
        self._constraints[key] = constraint
        return constraint, (key, constraint.waiting_for)

    def parser(self, held: Held | None) -> Parse:
        """Return what makes the value of a text that has ended; of calls there is none."""
        if held is None or held.is_calls:
            return lambda text, facts: Parsed(None)
        form = held.form

        def parsed(text: str, facts: Facts) -> Parsed:
            last = facts.token_ids[-1:]
            whole = facts.finish_reason == "stop" and bool(last) and last[0] in self._stop_ids
            return parse(form, text, facts.finish_reason, whole=whole)

        return parsed

    def _ready_vocabulary(self) -> Vocabulary:
        with self._lock:
            if self._vocabulary is None:
                size = self._mask_words * _BITS
                self._vocabulary = Vocabulary(self._tokenizer, size, self._stop_ids)
            return self._vocabulary


def fill(
    constraints: Mapping[int, Constraint], items: list[Item], masks: NDArray[np.uint32]
) -> list[Exception | None]:
    """Write the masks of a pass: what the core calls between its forward and its choice.

    An interrupt may end it anywhere; called again with the same items, it goes on.
    """
    batch: list[tuple[Constraint, int, list[int]]] = []
    for key, n_told, fresh, drafted, first_row in items:
        constraint = constraints.get(key)
        if constraint is None:  # a signal's handler closed the engine a moment ago
            raise RuntimeError("[structured] masks: nobody reads the text any more")
        with contextlib.suppress(RuntimeError):  # fill_masks returns it
            constraint.advance(fresh[constraint.n_tokens - n_told :])
        batch.append((constraint, first_row, drafted))
    return fill_masks(batch, masks)


def check_ends(params: SamplingParams, name: str) -> None:
    """Raise ValueError where a text with a form could not end as it must."""
    if params.ignore_eos:
        raise ValueError(
            f"[sampling] ignore_eos: not with {name} (got True): the end of the turn says that the "
            "text is complete; leave it out"
        )
