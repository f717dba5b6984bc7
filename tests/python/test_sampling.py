"""SamplingParams: what is accepted, and what each wrong value is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mtlqwen import SamplingParams

WRONG: list[tuple[str, object, type[Exception], str]] = [
    ("temperature", math.nan, ValueError, "got nan, want a finite number >= 0"),
    ("temperature", math.inf, ValueError, "got inf"),
    ("temperature", 10**400, ValueError, "got inf"),
    ("temperature", -0.1, ValueError, "got -0.1"),
    ("temperature", "0.7", TypeError, "not a number"),
    ("temperature", True, TypeError, "not a number"),
    ("seed", -1, ValueError, "got -1, want 0 to 2**64 - 1"),
    ("seed", 2**64, ValueError, "out of range"),
    ("seed", 1.0, TypeError, "not an integer"),
    ("seed", False, TypeError, "not an integer"),
    ("max_tokens", 0, ValueError, "got 0, want 1 to"),
    ("max_tokens", -5, ValueError, "got -5"),
    ("max_tokens", "12", TypeError, "not an integer"),
    ("stop", "", ValueError, "empty string"),
    ("stop", ["a", ""], ValueError, "empty string"),
    ("stop", ["a", 1], TypeError, "no string"),
    ("stop", b"a", TypeError, "not a string"),
    ("stop", 7, TypeError, "not a string"),
    ("ignore_eos", 1, TypeError, "not True or False"),
    ("thinking", 512, TypeError, "not True or False"),
]


@pytest.mark.parametrize(("name", "value", "error", "words"), WRONG)
def test_wrong_value_is_named(name: str, value: object, error: type[Exception], words: str) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(error) as caught:
        SamplingParams(**arguments)
    assert str(caught.value).startswith(f"[sampling] {name}:")
    assert words in str(caught.value)


def test_values_are_brought_to_one_form() -> None:
    params = SamplingParams(temperature=1, seed=np.int64(3), stop="x")  # type: ignore[arg-type]
    assert params.temperature == 1.0
    assert type(params.seed) is int
    assert params.stop_strings == ("x",)
    assert SamplingParams().stop_strings == ()


def test_merged_keeps_what_the_other_leaves_open() -> None:
    base = SamplingParams(temperature=0.5, seed=1, stop=["a"])
    merged = base.merged(SamplingParams(seed=2, stop=[]))
    assert merged == SamplingParams(temperature=0.5, seed=2, stop=())


def test_parameters_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 1.0  # type: ignore[misc]
