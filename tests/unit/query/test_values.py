"""The steps of values whose sums are told of sets of units."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import UnsupportedConstruct
from dpsql.query.ir import Expr
from dpsql.query.measures import Value
from dpsql.query.values import WIDEST, fitted

X = Expr("attribute", "numeric", data=0)


@given(
    st.integers(0, 30),
    st.fractions(-(10**40), 10**40),
    st.fractions(0, 10**20),
    st.booleans(),
)
def test_steps_are_as_fine_as_they_can_be(
    digits: int, low: Fraction, width: Fraction, loose: bool
) -> None:
    given = Value(X, digits, low, low + width, loose)
    largest = max(-given.low, given.high)
    if not loose and largest > WIDEST + 1:
        with pytest.raises(UnsupportedConstruct):
            fitted(given)
        return
    if not loose and largest > WIDEST - 1:
        return  # rounding decides
    found = fitted(given)
    steps = max(map(abs, found.steps))
    assert found.digits <= digits
    assert found.digits == digits or largest * 10 ** (found.digits + 1) > WIDEST
    assert steps <= WIDEST + 1 or (loose and found.digits <= 6)
    assert found.digits >= (min(digits, 6) if loose else 0)
    # rounding keeps values inside of the bounds, at most half a step away
    half = Fraction(1, 2 * 10**found.digits)
    assert abs(found.low - given.low) <= half
    assert abs(found.high - given.high) <= half
    assert (found.expression == X) == (found.digits == digits)
    assert found.loose == loose


def test_what_fits_stays_as_it_is() -> None:
    value = Value(X, 2, Fraction(-5), Fraction(10**13))
    assert fitted(value) == value
