"""What is asked of the core: the wishes of a caller in the core's own words.

Knows tokens and their number; knows nothing of templates, threads and results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mtlqwen.sampling import SamplingParams
from mtlqwen.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `Core.submit`, checked, with the core's own defaults."""

    token_ids: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    stop_ids: Sequence[int]
    priority: int = 0
    deadline_s: float | None = None
    checkpoint_at: Sequence[int] = ()
    sample_index: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Sequence[tuple[int, float]] = ()
    allowed_ids: Sequence[int] = ()
    bad_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    recall: bool = True
    thinking_budget: tuple[int, int, Sequence[int]] | None = None
    constraint: tuple[int, int | None] | None = None

    def options(self) -> dict[str, Any]:
        """Return the keywords for the core: those that say more than its defaults."""
        return {
            name: value for name, default in _DEFAULTS if (value := getattr(self, name)) != default
        }


_DEFAULTS = [(field.name, field.default) for field in fields(Request) if field.name != "token_ids"]


class Wishes:
    """What sampling parameters mean for one vocabulary."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: Sequence[int]) -> None:
        """Speak of the tokens of one model, whose turns end with ``stop_ids``."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._stop_ids = stop_ids

    def options(self, params: SamplingParams, max_tokens: int) -> dict[str, Any]:
        """Return the fields of a `Request` that ``params`` decide, but for the seed.

        Raises:
            ValueError: a token or a word is not one of the vocabulary's, or no token is left.
        """
        stops = () if params.ignore_eos else self._stop_ids
        named = self._known("stop_token_ids", params.stop_token_ids or ())
        allowed = self._known("allowed_token_ids", params.allowed_token_ids or ())
        self._known("logit_bias", (token_id for token_id, _ in params.biases))
        options = {
            "max_tokens": max_tokens,
            "temperature": params.temperature,
            "stop_ids": tuple(dict.fromkeys((*stops, *named))),
            "top_k": params.top_k or 0,
            "top_p": params.top_p or 1.0,
            "min_p": params.min_p or 0.0,
            "presence_penalty": params.presence_penalty or 0.0,
            "frequency_penalty": params.frequency_penalty or 0.0,
            "repetition_penalty": params.repetition_penalty or 1.0,
            "logit_bias": params.biases,
            "allowed_ids": allowed,
            "bad_words": self._words(params.bad_words or ()),
            "min_tokens": min(params.min_tokens or 0, max_tokens),
            "logprobs": params.logprobs,
            "prompt_logprobs": params.prompt_logprobs,
            "recall": params.prompt_logprobs is None,
        }
        if allowed:
            _check_choice(allowed, options)
        return options

    def _words(self, words: Sequence[str | Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Return the token ids of words, each once."""
        found: dict[tuple[int, ...], None] = {}
        for word in words:
            if not isinstance(word, str):
                found[self._known("bad_words", word)] = None
                continue
            for text in (word,) if word[0].isspace() else (word, f" {word}"):
                found[tuple(self._tokenizer.encode(text))] = None
            if () in found:
                raise ValueError(
                    f"[sampling] bad_words: no token of this model spells a word (got {word!r})"
                )
        return tuple(found)

    def _known(self, name: str, token_ids: Iterable[int]) -> tuple[int, ...]:
        known = tuple(token_ids)
        if known and max(known) >= self._vocab_size:
            raise ValueError(
                f"[sampling] {name}: no token of this model (got {max(known)}, want 0 to "
                f"{self._vocab_size - 1})"
            )
        return known


def _check_choice(allowed: Sequence[int], options: dict[str, Any]) -> None:
    """Raise ValueError when every allowed token is forbidden as well."""
    left = set(allowed)
    left -= {token_id for token_id, bias in options["logit_bias"] if bias == -math.inf}
    left -= {word[0] for word in options["bad_words"] if len(word) == 1}
    if options["min_tokens"]:
        left -= set(options["stop_ids"])
    if not left:
        raise ValueError(
            f"[sampling] allowed_token_ids: no token could be chosen (got {len(allowed)}, all "
            "forbidden by logit_bias, bad_words or min_tokens); allow more"
        )
