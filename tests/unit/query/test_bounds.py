"""Bounds of expressions that are known exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.query import ranges
from dpsql.query.bounds import Bounds, bounds_of, domain_bounds
from dpsql.query.ir import Expr, column, constant
from dpsql.query.totality import narrow, wide
from dpsql.relation import Domain

F = Fraction
PRICE = column(0, "price", "numeric", "numeric(15,2)", True)
DISCOUNT = column(0, "discount", "numeric", "numeric(15,2)", True)
COUNT = column(0, "count", "integer", "integer", False)
RATE = column(0, "rate", "double precision", "double precision", False)
LOOSE = column(0, "loose", "numeric", "numeric", False)
DECLARED = {
    "price": Bounds(F(0), F(105000), 2, True),
    "discount": Bounds(F(0), F(1, 10), 2, True),
    "rate": Bounds(F(0), F(1), None, True),
}


def bounds(e: Expr) -> Bounds:
    return bounds_of(e, lambda occurrence, name: DECLARED.get(name))


def op(operator: str, *args: Expr) -> Expr:
    return Expr("op", args[0].type, args, operator)


def number(text: str, type_: str = "numeric") -> Expr:
    return constant(type_, text)


def fn(name: str, *args: Expr) -> Expr:
    return Expr("fn", args[0].type, args, name)


def compare(left: Expr, operator: str, right: Expr) -> Expr:
    return Expr("op", "boolean", (left, right), operator)


REVENUE = op("*", PRICE, op("-", number("1"), DISCOUNT))
CASES = [
    (REVENUE, Bounds(F(0), F(105000), 4, False)),
    (op("-", PRICE), Bounds(F(-105000), F(0), 2, False)),
    (op("-", PRICE, PRICE), Bounds(F(-105000), F(105000), 2, False)),
    (COUNT, Bounds(F(-(2**31)), F(2**31 - 1), 0, True)),
    (op("*", wide(COUNT), wide(COUNT)), Bounds(F(0), F(2**62), 0, True)),
    (narrow(op("*", wide(COUNT), wide(COUNT)), "integer"), Bounds(F(0), F(2**31 - 1), 0, True)),
    (op("*", DISCOUNT, number("-5")), Bounds(F(-1, 2), F(0), 2, False)),
    (op("/", DISCOUNT, number("4")), Bounds(F(0), F(1, 40), None, False)),
    (fn("round", op("/", PRICE, number("7")), constant("integer", "1")), Bounds(F(0), F(15000), 1, False)),
    (fn("round", PRICE, constant("integer", "-3")), Bounds(F(0), F(105000), 0, False)),
    (fn("abs", op("-", DISCOUNT, number("0.1"))), Bounds(F(0), F(1, 10), 2, False)),
    (op("%", PRICE, number("10")), Bounds(F(0), F(999, 100), 2, False)),
    (LOOSE, Bounds(None, None, None, True, True)),
    (Expr("greatest", "numeric", (Expr("least", "numeric", (LOOSE, number("10"))), number("-2.5"))),
     Bounds(F(-5, 2), F(10), None, False, False)),
    (Expr("least", "numeric", (LOOSE, number("10"))), Bounds(None, F(10), None, False, True)),
    (Expr("coalesce", "integer", (COUNT, constant("integer", "0"))), Bounds(F(-(2**31)), F(2**31 - 1), 0, False)),
    (Expr("case", "numeric", (compare(LOOSE, ">", number("5")), number("5"),
                              compare(LOOSE, "<", number("0")), constant("numeric", None), LOOSE)),
     Bounds(F(0), F(5), None, True, False)),
    (Expr("guard", "integer", (compare(COUNT, ">", constant("integer", "0")), COUNT)),
     Bounds(F(1), F(2**31 - 1), 0, True)),
    (op("+", RATE, constant("double precision", "0.1")), Bounds(F(0.1), F(1.1), None, True, False)),
    (Expr("cast", "integer", (constant("boolean", "t"),), "integer"), Bounds(F(1), F(1), 0, False)),
    (constant("numeric", None), Bounds(F(0), F(0), 0, True)),
    (constant("numeric", "1.500"), Bounds(F(3, 2), F(3, 2), 1, False)),
    (Expr("cast", "numeric", (PRICE,), "numeric(6,1)"), Bounds(F(0), F(999999, 10), 1, False)),
    (column(0, "day", "date", "date", True), Bounds(None, None, None, False)),
    (Expr("extract", "numeric", (column(0, "day", "date", "date", True),), "month"), Bounds(F(1), F(12), 0, True)),
]  # fmt: skip


@pytest.mark.parametrize(("e", "expected"), CASES)
def test_bounds_are_as_tight_as_the_facts(e: Expr, expected: Bounds) -> None:
    assert bounds(e) == expected


def test_a_clamped_value_can_be_an_end_finer_than_its_type() -> None:
    fine = Bounds(F(1, 1000), F(1), 3, True)
    assert bounds_of(PRICE, lambda o, n: fine) == Bounds(F(1, 1000), F(1), 3, False)
    vague = Bounds(F(0), F(1), None, True)
    assert bounds_of(PRICE, lambda o, n: vague).scale is None


def test_a_negated_condition_knows_nothing_of_what_it_does_not_compare() -> None:
    both = Expr(
        "and",
        "boolean",
        (compare(COUNT, ">", constant("integer", "9")), compare(PRICE, ">", number("1"))),
    )
    e = Expr("case", "integer", (both, constant("integer", "0"), COUNT))
    assert bounds(e).high == 2**31 - 1
    either = Expr("or", "boolean", both.args)
    e = Expr("case", "integer", (either, constant("integer", "0"), COUNT))
    assert bounds(e).high == 9


@pytest.mark.parametrize("type_", ["real", "double precision"])
def test_rounding_to_floats_is_the_nearest(type_: str) -> None:
    for numerator in (1, 3, 10**20 + 1, 2**60 + 1, 7**30):
        for denominator in (1, 3, 10, 7**25, 10**300):
            exact = F(numerator, denominator)
            got = ranges.as_float(exact, type_)
            if type_ == "double precision":
                assert got == F(float(exact))
            assert ranges.as_float(-exact, type_) == -got
            unit = abs(got) / 2 ** (24 if type_ == "real" else 53) or F(1, 2**149)
            assert abs(got - exact) <= unit


def test_numbers_too_long_or_too_fine_to_handle_lose_their_bounds() -> None:
    assert bounds(number("9" * 5000)).high is None
    tiny = number("0." + "0" * 2500 + "1")
    found = bounds(op("*", tiny, tiny))
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 0 < found.high


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Domain("c", ("3", "-1", "2"), True, type_name="integer"), Bounds(F(-1), F(3), 0)),
        (Domain("c", (), False, "0.50", "9.00", "numeric(5,2)", False), Bounds(F(1, 2), F(9), 2)),
        (Domain("c", ("1.5", "NaN"), False, type_name="numeric"), Bounds(F(3, 2), F(3, 2), None)),
        (Domain("c", (), False, "-1e+300", "0.1", "double precision", False), Bounds(F(-1e300), F(0.1), None)),
        (Domain("c", (), False, "0", "0.1", "real", False), Bounds(F(0), F(13421773, 2**27), None)),
        (Domain("c", ("NaN",), False, type_name="numeric"), Bounds(None, None, None)),
        (Domain("c", (), True, type_name="integer"), Bounds(None, None, None)),
        (Domain("c", ("1", "2"), False, type_name="text"), Bounds(None, None, None)),
    ],
)  # fmt: skip
def test_bounds_of_a_domain(domain: Domain, expected: Bounds) -> None:
    assert domain_bounds(domain) == expected
