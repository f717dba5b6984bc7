"""Forms whose masks need no grammar: every token is tried behind the text so far.

What begins such a text, and what is a whole one, a pattern of Python says. In none of them are two
characters forced, one behind the other: there llguidance allows the usual tokens only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from mtlqwen.constraint import Constraint
from mtlqwen.tokenizer import Tokenizer
from numpy.typing import NDArray

Masks: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True)
class SlowForm:
    """A form by its option, and patterns of its texts."""

    value: Any
    begins: re.Pattern[bytes]
    whole: re.Pattern[bytes]


def _form(value: Any, begins: str, whole: str) -> SlowForm:
    return SlowForm(value, re.compile(begins.encode()), re.compile(whole.encode()))


_SPACE, _INT = "(?: |\n[ \t]{0,16})?", "(?:0|[1-9][0-9]?)"
_ITEM = f"{_INT}{_SPACE},{_SPACE}"
_LETTERS = ("st", "eo", "ra", "ie", "sd")

SLOW_FORMS = {
    "schema": _form(
        {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4},
        rf"(?:\[{_SPACE}(?:(?:{_ITEM}){{0,3}}(?:{_INT}{_SPACE}\]?)?|\]))?",
        rf"\[{_SPACE}(?:(?:{_ITEM}){{0,3}}{_INT}{_SPACE})?\]",
    ),
    "regex": _form(
        "[a-q]{2,9}( [0-9]{2}){0,3}",
        "[a-q]{0,9}|[a-q]{2,9}(?: [0-9]{2}){0,2} [0-9]{0,2}",
        "[a-q]{2,9}(?: [0-9]{2}){0,3}",
    ),
    "choices": _form(
        ["".join(letters) for letters in product(*_LETTERS)],
        "".join(f"(?:[{some}]" for some in _LETTERS) + ")?" * len(_LETTERS),
        "".join(f"[{some}]" for some in _LETTERS),
    ),
}


@cache
def slow_row(
    option: str, text: bytes, tokenizer: Tokenizer, stop_ids: Sequence[int], words: int
) -> Masks:
    """The mask behind ``text``."""
    form = SLOW_FORMS[option]
    may = np.zeros(words * 32, np.uint8)
    for token_id, piece in _pieces(tokenizer):
        may[token_id] = form.begins.fullmatch(text + piece) is not None
    may[list(stop_ids)] = form.whole.fullmatch(text) is not None
    return np.packbits(may, bitorder="little").view(np.uint32)


@cache
def _pieces(tokenizer: Tokenizer) -> list[tuple[int, bytes]]:
    added = {token.token_id for token in tokenizer.added.values()}
    plain = set(json.loads(tokenizer.plain_json())["model"]["vocab"].values()) - added
    return [(token_id, tokenizer.token_bytes(token_id)) for token_id in plain]


class SlowMasks:
    """Fills masks as `mtlqwen.forms.fill` does, for an engine without drafts."""

    def __init__(self) -> None:
        """Have filled none yet."""
        self.n_rows = 0
        self._told: dict[int, list[int]] = {}

    def fill(
        self,
        constraints: Mapping[int, Constraint],
        items: list[tuple[int, int, list[int], list[int], int]],
        masks: Masks,
    ) -> list[None]:
        """Write the masks of a pass."""
        for key, n_told, fresh, drafted, first_row in items:
            assert not drafted
            told = [*self._told.get(key, [])[:n_told], *fresh]
            self._told[key] = told
            masks[first_row] = self._row(constraints[key], told)
            self.n_rows += 1
        return [None] * len(items)

    def _row(self, constraint: Constraint, told: list[int]) -> Masks:
        vocabulary, opening = constraint._vocabulary, constraint._opening
        start = 0
        if opening:
            begin = told.index(opening[0])
            start = begin + len(opening)
            if len(told) < start:
                only = np.zeros(vocabulary.words * 32, np.uint8)
                only[opening[len(told) - begin]] = 1
                return np.packbits(only, bitorder="little").view(np.uint32)
        tokenizer = vocabulary._tokenizer
        text = b"".join(map(tokenizer.token_bytes, told[start:]))
        return slow_row(
            constraint._form.option, text, tokenizer, vocabulary.stop_ids, vocabulary.words
        )
