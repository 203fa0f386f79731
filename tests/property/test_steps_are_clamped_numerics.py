"""``dp.steps`` is what the arithmetic of numerics gives, for every way a numeric can be written."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.random_joins import connection

pytestmark = pytest.mark.server
__all__ = ["connection"]

TOP = 2**63
_ENDS = st.one_of(
    st.integers(-TOP, TOP - 1),
    st.integers(-(10**6), 10**6),
    st.sampled_from([-TOP, -1, 0, 1, TOP - 1]),
)
_DIGITS = st.one_of(st.integers(0, 20), st.sampled_from([0, 2, 100, 1000]))
#: What is asked in numeric arithmetic: the clamped value in steps.
ASKED = """
select trunc(v)::bigint
  from (select least(greatest(
            case when x = 'Infinity' then 'NaN' when x = '-Infinity' then -1e200
            else x * ('1e' || d)::numeric end, low), high) as v
          from (values (%s::numeric, %s::numeric, %s::numeric, %s::int)) as t (x, low, high, d)) as t
"""


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """Texts of numerics: of short and long headers, with zeros, fractions and special values."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from(["NaN", "Infinity", "-Infinity", "0", "-0.000", "1e300"]))
    whole = draw(st.one_of(st.integers(-(10**6), 10**6), st.integers(-(10**40), 10**40)))
    shift = draw(st.one_of(st.integers(-6, 6), st.integers(-300, 30)))
    return format(Decimal(whole).scaleb(shift), "f")


def test_steps_are_what_numeric_arithmetic_gives(connection: psycopg.Connection[Any]) -> None:
    """Without bounds errors are 22003, and only where the value is no integer of eight bytes."""
    seen = {"error": 0, "inside": 0}

    @settings(max_examples=1500, deadline=None)
    @given(numbers(), _ENDS, _ENDS, _DIGITS)
    @example("92233720368547758.07", -TOP, TOP - 1, 2)
    @example("-92233720368547758.08", -TOP, TOP - 1, 2)
    @example("92233720368547758.08", -TOP, TOP - 2, 2)
    @example("9223372036854775.1234", -TOP, TOP - 1, 3)
    @example("0.00009", 0, 1, 4)
    @example("-0.00009", 0, 1, 4)
    @example("10000", 0, 10, 0)
    def check(x: str, one: int, other: int, digits: int) -> None:
        low, high = min(one, other), max(one, other)
        ((expected,),) = connection.execute(ASKED, (x, low, high, digits)).fetchall()
        asked = "select dp.steps(%s::numeric, %s::bigint, %s::bigint, %s)"
        ((found,),) = connection.execute(asked, (x, low, high, digits)).fetchall()
        assert found == expected
        whole = Decimal(x).is_finite() and Fraction(x) * 10**digits
        try:
            with connection.transaction():
                asked = "select dp.steps(%s::numeric, %s)"
                ((found,),) = connection.execute(asked, (x, digits)).fetchall()
            assert found == whole
            seen["inside"] += 1
        except psycopg.errors.NumericValueOutOfRange:
            seen["error"] += 1
            assert not Decimal(x).is_finite() or whole.denominator > 1 or abs(whole) >= TOP

    check()
    assert min(seen.values()) > 20, seen


def test_steps_of_stored_values(connection: psycopg.Connection[Any]) -> None:
    """A stored numeric has a header of one byte, is not aligned, or is compressed."""
    with connection.transaction(force_rollback=True):
        connection.execute('create temp table s (a "char", x numeric, y numeric)')
        connection.execute(
            "insert into s select 'a', (i - 50) / 8.0, (i - 50) * ('1' || repeat('0', 9000))::numeric"
            " + i from generate_series(1, 100) as i"
        )
        rows = connection.execute(
            "select dp.steps(x, -5000, 5000, 3), (least(greatest(x, -5), 5) * 1000)::bigint,"
            " dp.steps(y, -70, 70, 0), least(greatest(y, -70), 70)::bigint from s"
        ).fetchall()
    assert len(rows) == 100
    assert all(a == b and c == d for a, b, c, d in rows)
