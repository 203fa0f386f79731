"""Edges of bins, and that the CASE which numbers them agrees."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.engine.synthesis_bins import edges

BINS = st.integers(2, 40)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**6), BINS)
def test_integers_fall_into_bins_of_nearly_equal_width(low: int, width: int, bins: int) -> None:
    found = [int(e) for e in edges("bigint", str(low), str(low + width), bins)]
    assert (found[0], found[-1]) == (low, low + width + 1)
    assert len(found) == min(bins, width + 1) + 1
    widths = {b - a for a, b in pairwise(found)}
    assert min(widths) >= 1
    assert max(widths) - min(widths) <= 1


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**5), BINS)
def test_numerics_with_a_scale_are_cut_at_values_that_they_have(
    low: int, width: int, bins: int
) -> None:
    ends = [str(Decimal(n).scaleb(-2)) for n in (low, low + width)]
    found = [Decimal(e) for e in edges("numeric(12,2)", *ends, bins)]
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (Decimal(ends[0]), Decimal(ends[1]) + Decimal("0.01"))
    assert all(e.as_tuple().exponent == -2 for e in found)


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    BINS,
)
def test_floats_increase_whatever_the_range(one: float, other: float, bins: int) -> None:
    low, high = min(one, other), max(one, other)
    found = [float(e) for e in edges("double precision", repr(low), repr(high), bins)]
    assert (found[0], found[-1]) == (low, high)
    if low < high:
        assert found == sorted(set(found))
    else:
        assert found == [low, low]


@given(st.decimals(-1000, 1000, places=4), st.decimals(0, 10, places=9), BINS)
def test_numerics_without_a_scale_get_digits_enough(
    low: Decimal, width: Decimal, bins: int
) -> None:
    found = [Fraction(e) for e in edges("numeric", str(low), str(low + width), bins)]
    assert (found[0], found[-1]) == (Fraction(low), Fraction(low + width))
    if width:
        assert found == sorted(set(found))
        assert len(found) == bins + 1
    else:
        assert len(found) == 2


@given(st.dates(date(1, 1, 1), date(9990, 1, 1)), st.integers(0, 3000), BINS)
def test_dates_are_cut_between_days(low: date, width: int, bins: int) -> None:
    high = date.fromordinal(low.toordinal() + width)
    found = [date.fromisoformat(e) for e in edges("date", low.isoformat(), high.isoformat(), bins)]
    assert found == sorted(set(found))
    assert len(found) == min(bins, width + 1) + 1
    assert (found[0], found[-1].toordinal()) == (low, high.toordinal() + 1)


def test_bins_of_ranges_with_steps_begin_with_members() -> None:
    months = [f"2024-{m:02}-01" for m in range(1, 13)]
    found = edges("date", months[0], months[-1], 4, months)
    assert found == ("2024-01-01", "2024-04-01", "2024-07-01", "2024-10-01", "2024-12-02")
    halves = ("0", "0.5", "1.0")
    assert [float(e) for e in edges("numeric", "0", "1.0", 3, halves)] == [0, 0.5, 1, 1]
    tens = [str(n) for n in range(0, 100, 10)]
    assert edges("integer", "0", "95", 3, tens) == ("0", "30", "60", "96")


def test_timestamps_keep_their_time_zone() -> None:
    low, high = "2024-01-01 00:00:00+00", "2024-01-02 00:00:00+00"
    assert edges("timestamp with time zone", low, high, 2) == (
        "2024-01-01 00:00:00+00:00",
        "2024-01-01 12:00:00+00:00",
        "2024-01-02 00:00:00+00:00",
    )


@pytest.mark.parametrize("low", ["4713-01-01 BC", "10000-01-01"])
def test_years_that_cannot_be_cut_raise(low: str) -> None:
    with pytest.raises(ValueError, match="isoformat"):
        edges("date", low, "10001-01-01", 4)
