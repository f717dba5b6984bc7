"""SamplingParams: how the tokens of one generation are chosen and when it ends.

Knows the ranges of the values; knows nothing of models and their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from mtlqwen.checks import MAX_SEED, check_flag, check_integer, to_number

MAX_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Everything a caller may say about one generation; ``None`` means the model's default.

    Args:
        temperature: 0 is greedy; the higher, the more varied. Unset: the model's
            generation_config, else 0.
        seed: 0 to 2**64 - 1; the same seed gives the same text. Unset: a fresh random one. Without
            effect at temperature 0.
        max_tokens: how many tokens to generate at most, 1 or more; the end of the context ends a
            generation too. Unset: the model's generation_config, else 4096.
        stop: a string or strings that end the text; the text ends before the first one that
            appears. In a chat they are looked for in the answer, not in reasoning or tool calls.
        ignore_eos: go on past the model's own end-of-turn tokens.
        thinking: for chats: reason before the answer, or not. Unset: as the model's template says.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a value is out of its range.

    Example:
        >>> SamplingParams(temperature=0.7, seed=42, stop="END").stop
        ('END',)
    """

    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    ignore_eos: bool | None = None
    thinking: bool | None = None

    def __post_init__(self) -> None:
        """Check every value that was given and bring it to one form."""
        if self.temperature is not None:
            object.__setattr__(self, "temperature", _temperature(self.temperature))
        if self.seed is not None:
            object.__setattr__(self, "seed", _integer("seed", self.seed, 0, MAX_SEED))
        if self.max_tokens is not None:
            tokens = _integer("max_tokens", self.max_tokens, 1, MAX_TOKENS)
            object.__setattr__(self, "max_tokens", tokens)
        if self.stop is not None:
            object.__setattr__(self, "stop", _stop(self.stop))
        for name in ("ignore_eos", "thinking"):
            if getattr(self, name) is not None:
                check_flag("sampling", name, getattr(self, name))

    def merged(self, over: SamplingParams) -> SamplingParams:
        """Return these parameters with every value that ``over`` sets taken from it."""
        given = {f.name: getattr(over, f.name) for f in fields(over)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings, as a tuple that may be empty."""
        return self.stop if isinstance(self.stop, tuple) else ()


def _integer(name: str, value: object, low: int, high: int) -> int:
    return check_integer("sampling", name, value, low, high)


def _temperature(value: object) -> float:
    number = to_number("sampling", "temperature", value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(
            f"[sampling] temperature: not usable (got {number}, want a finite number >= 0); "
            "0 is greedy"
        )
    return number


def _stop(value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or isinstance(items, (bytes, bytearray)):
        raise TypeError(f"[sampling] stop: not a string or a list of strings (got {value!r})")
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"[sampling] stop: holds something that is no string (got {item!r})")
        if not item:
            raise ValueError("[sampling] stop: an empty string would end every text at once")
    return tuple(items)
