"""The comparison itself: what is wrong must fail."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check, nmse
from reference import FORMATS, chain_bound, linear, random_weights

EXPECTED = np.array([[1.0, -2.0], [0.0, 4.0]])


def test_values_within_their_bounds_pass() -> None:
    got = np.array([[1.0, -2.1], [0.0, 4.0]], np.float32)
    check(got, EXPECTED, np.array([[0.0, 0.11], [0.0, 0.0]]))
    assert nmse(got, EXPECTED) == pytest.approx(0.01 / 21, rel=1e-5)


@pytest.mark.parametrize("wrong", [4.5, np.nan, np.inf])
def test_a_value_out_of_bounds_fails_and_is_named(wrong: float) -> None:
    got = EXPECTED.astype(np.float32)
    got[1, 1] = wrong
    with pytest.raises(AssertionError, match=r"1 of 4 values .* worst at \(1, 1\)"):
        check(got, EXPECTED, 0.25)


def test_nan_belongs_only_where_it_is_expected() -> None:
    expected = np.array([np.nan, 1.0])
    check(np.array([np.nan, 1.0], np.float32), expected, 0.0)
    with pytest.raises(AssertionError, match="out of bounds"):
        check(np.array([0.0, 1.0], np.float32), expected, 0.5)


def test_nmse_may_be_measured_against_another_scale() -> None:
    got = (EXPECTED * 1.01).astype(np.float32)
    assert nmse(got, EXPECTED) == pytest.approx(1e-4, rel=1e-3)
    assert nmse(got, EXPECTED, 10 * EXPECTED) == pytest.approx(1e-6, rel=1e-3)


def test_a_shape_that_differs_fails() -> None:
    with pytest.raises(AssertionError, match="shape"):
        check(np.zeros((2, 1), np.float32), EXPECTED, 9.0)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("k", [64, 17408])
def test_one_wrong_weight_exceeds_the_bounds_of_linear_layers(fmt: str, k: int) -> None:
    rng = np.random.default_rng(2)
    weights = random_weights(rng, fmt, n=4, k=k)
    x = rng.standard_normal((3, k)).astype(np.float32)
    expected, norms = linear(x, weights)
    weights.values[2, k // 2] += 0.5
    got, _ = linear(x, weights)
    with pytest.raises(AssertionError, match=r"of 12 values out of bounds; worst at \(\d, 2\)"):
        check(got.astype(np.float32), expected, chain_bound(norms, k))
