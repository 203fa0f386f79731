"""Amounts reach the database exactly, or rounded up."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.ledger.amounts import amount_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(10), "10"),
        (Fraction(1, 8), "0.125"),
        (Fraction(1, 10**9), "0.000000001"),
        (Fraction(1, 3), "0." + "3" * 59 + "4"),
    ],
)
def test_amount_is_written_as_a_plain_decimal(value: Fraction, text: str) -> None:
    assert amount_text(value) == text


@given(st.fractions(min_value=0, max_value=1000))
def test_amount_is_never_written_too_small(value: Fraction) -> None:
    written = Fraction(Decimal(amount_text(value)))
    assert value <= written <= value + Fraction(1, 10**60)
