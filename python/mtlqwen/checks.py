"""Values that callers give, checked one by one: what all options and parameters share.

Knows nothing of what they are for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeGuard

MAX_SEED = 2**64 - 1


def check_integer(area: str, name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` as an int from low to high; bool is not an int here, NumPy's ints are.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of the range.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"[{area}] {name}: not an integer (got {value!r})")
    number = int(value.__index__())
    if not low <= number <= high:
        limit = "2**64 - 1" if high == MAX_SEED else high
        raise ValueError(f"[{area}] {name}: out of range (got {number}, want {low} to {limit})")
    return number


def check_number(area: str, name: str, value: object, low: float, high: float) -> float:
    """Return ``value`` as a float from low to high.

    Raises:
        TypeError: it is not a number.
        ValueError: it is out of the range, or not a number's value at all (NaN).
    """
    number = to_number(area, name, value)
    if not low <= number <= high:
        raise ValueError(
            f"[{area}] {name}: out of range (got {number:g}, want {low:g} to {high:g})"
        )
    return number


def to_number(area: str, name: str, value: object) -> float:
    """Return ``value`` as a float, finite or not; raise TypeError if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"[{area}] {name}: not a number (got {value!r})")
    try:
        return float(value)
    except OverflowError:  # an int beyond any float
        return -math.inf if value < 0 else math.inf


def check_flag(area: str, name: str, value: object) -> None:
    """Raise TypeError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"[{area}] {name}: not True or False (got {value!r})")


def is_listing(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether ``value`` is a sequence that is neither text nor bytes."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def listed(value: object) -> object:
    """Return an array as a list, and everything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value
