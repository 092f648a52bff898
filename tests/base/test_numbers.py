"""Numbers given as options: Python's and numpy's alike, and nothing that only resembles one."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from penstock.base.numbers import is_positive, is_whole


@pytest.mark.parametrize("value", [1, 7, np.int8(1), np.uint64(7), np.array(3)])
def test_whole_numbers_within_their_bounds_are_taken(value):
    assert is_whole(value, 1, 7)
    assert not is_whole(value, 8, 9)


@pytest.mark.parametrize(
    "value", [True, np.True_, 3.0, np.float64(3), "3", None, [3], np.array([3]), math.nan, 2**63, 0]
)
def test_what_only_resembles_a_whole_number_is_not_taken(value):
    assert not is_whole(value, 1, 7)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(2), np.int64(3), Fraction(1, 3), 5e-324])
def test_finite_numbers_above_nothing_are_taken(value):
    assert is_positive(value)


@pytest.mark.parametrize("value", [0, -1, True, np.True_, math.nan, math.inf, "1", None, [1], Decimal(1), 1j])
def test_what_is_no_such_number_is_not_taken(value):
    assert not is_positive(value)
