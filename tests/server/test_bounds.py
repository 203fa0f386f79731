"""Bounds of expressions against the server: every value lies inside, whatever the rows hold."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from dpsql.errors import NotAnswerable
from dpsql.query import moments
from dpsql.query.bounds import Bounds, bounds_of
from dpsql.query.expressions import Builder
from dpsql.query.flatten import Flattener
from dpsql.query.ir import Expr, render
from dpsql.query.parse import parse
from tests.server.analyser_catalog import LiveCatalog
from tests.server.test_functions_total import (
    BASE,
    EXPRESSIONS,
    EXTREMES,
    NAMES,
    make_table,
)

NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean")
#: A table whose columns have declared bounds, to which a view of it clamps them.
COLUMNS = {
    "i": ("integer", Bounds(Fraction(-3), Fraction(40), 0, True)),
    "k": ("bigint not null", Bounds(Fraction(1), Fraction(9), 0, True)),
    "s": ("smallint", None),
    "n": ("numeric(6,2)", Bounds(Fraction(-1, 2), Fraction(300), 2, True)),
    "m": ("numeric(5,3)", None),
    "u": ("numeric", Bounds(Fraction(-7), Fraction(7), None, True)),
    "w": ("numeric", None),
    "f": ("double precision", Bounds(Fraction(-1), Fraction(10), None, True)),
    "g": ("double precision", None),
    "r": ("real", Bounds(Fraction(0), Fraction(2), None, True)),
    "b": ("boolean not null", None),
    "t": ("varchar(7)", None),
    "d": ("date", None),
    "e": ("date", Bounds(Fraction(-11000), Fraction(19000), 0, True)),
    "z": ("timestamp", Bounds(Fraction(10**9), Fraction(10**9 + 10**8), 6, True)),
}
VALUES: dict[str, tuple[str | None, ...]] = {
    "i": ("-3", "40", "0", "1", "-1", "17", None),
    "k": ("1", "9", "2", "5"),
    "s": ("-32768", "32767", "0", "-1", "3", None),
    "n": ("-0.5", "300", "0", "0.01", "299.99", None),
    "m": ("-99.999", "99.999", "0.001", "NaN", "0", "1.500", None),
    "u": ("-7", "7", "0", "0.333333333333333333333", "1e-300", None),
    "w": ("NaN", "Infinity", "-Infinity", "1e200", "-1e99", "0.5", "1e-16000", "-2", "7", None),
    "f": ("-1", "10", "0", "0.1", "9.999999999999998", "5e-324", None),
    "g": ("NaN", "Infinity", "-Infinity", "1e308", "-1e150", "0.1", "-3", "1e-200", "-0", None),
    "r": ("0", "2", "0.1", "1e-45", "1.9999999", None),
    "b": ("t", "f"),
    "t": ("", "äöüäöüä", "abc", None),
    "d": ("infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "2000-02-29", None),
    "e": ("1939-11-20", "2022-01-08", "1970-01-01", "2000-12-31", "2001-01-01", "1984-12-30", None),
    "z": (
        "2001-09-09 01:46:40",
        "2004-11-09 11:33:20",
        "2003-12-31 23:59:59.999999",
        "2004-01-01",
        None,
    ),
}


#: Ranges on one side of 0 for the columns of ``EXTREMES``: what is not finite leaves them.
SIDES = {
    "above": (("5", "7", "9"), ("2004-02-29", "2008-01-01", "2010-12-31"), "t"),
    "below": (("-9", "-8", "-5"), ("1950-12-31", "1960-02-29", "1961-01-01"), "f"),
    "one": (("1",), ("1970-01-02",), "t"),
}
NOT_FINITE = {
    **dict.fromkeys(("numeric", "real", "double precision"), ("NaN", "Infinity", "-Infinity")),
    "numeric(10,2)": ("NaN",),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), ("infinity", "-infinity")),
}


def values_on(side: str, type_: str) -> tuple[str | None, ...]:
    """Return what a column of a type holds in the table of a side."""
    numbers, dates, truth = SIDES[side]
    if type_ == "boolean":
        return (truth,)
    if BASE.get(type_, type_) in moments.SCALES:
        return (*dates, *NOT_FINITE[type_])
    if type_ in ("smallint", "integer", "bigint") or type_ in NOT_FINITE:
        return (*numbers, *NOT_FINITE.get(type_, ()))
    return EXTREMES[type_]


def bounds_on(side: str, type_: str) -> Bounds | None:
    """Bound the finite values of a column in the table of a side."""
    numbers, dates, truth = SIDES[side]
    special = type_ in NOT_FINITE
    if type_ == "boolean":
        return Bounds(Fraction(truth == "t"), Fraction(truth == "t"), 0)
    full = BASE.get(type_, type_)
    if full in moments.SCALES:
        low, high = (moments.number(full, text) for text in (dates[0], dates[-1]))
        return Bounds(low, high, moments.SCALES[full], special=special)
    if type_ in ("smallint", "integer", "bigint") or special:
        return Bounds(Fraction(numbers[0]), Fraction(numbers[-1]), 0, special=special)
    return None


def expression_of(catalog: LiveCatalog, sql: str, table: str) -> Expr:
    """Analyse one expression over the columns of a table."""
    query = parse(str(catalog.analyze(f"select ({sql}) as v from {table}")["sql"]))
    scope = Flattener(catalog).top(query)
    return Builder(catalog, scope.lookup).build(query.expressions[0].unalias())


def complaint(
    catalog: LiveCatalog, e: Expr, source: str, domain: Callable[[int, str], Bounds | None]
) -> str | None:
    """Evaluate an expression on every row and compare what comes with its bounds."""
    bounds = bounds_of(e, domain)
    if e.type not in NUMBERS:
        return None if (bounds.low, bounds.high, bounds.scale) == (None,) * 3 else f"{bounds}"
    text = render(e)
    if e.type == "boolean":
        text = f"({text})::integer"
    shown = "float8send(v::float8)" if e.type in ("real", "double precision") else "v::text"
    rows = catalog.connection.execute(
        f"select distinct v::text, {shown} from (select {text} as v from {source} as r0) as q"  # type: ignore[arg-type]
    ).fetchall()
    for value, sent in rows:
        problem = judged(bounds, value, sent)
        if problem:
            return f"{str(value)[:60]} {problem}: {str(bounds)[:300]}\n    {text[:300]}"
    return None


def judged(bounds: Bounds, value: str | None, sent: Any) -> str | None:
    if value is None:
        return None if bounds.may_be_null else "is not expected"
    if value in ("NaN", "Infinity", "-Infinity"):
        return None if bounds.special else "is not expected"
    if isinstance(sent, bytes):
        exact = Fraction(struct.unpack("!d", sent)[0])
    else:
        exact = Fraction(Decimal(value))
    if bounds.low is not None and exact < bounds.low:
        return "is too low"
    if bounds.high is not None and exact > bounds.high:
        return "is too high"
    if bounds.scale is not None and (exact * 10**bounds.scale).denominator != 1:
        return "is no multiple"
    return None


def check(
    catalog: LiveCatalog,
    expressions: list[str],
    source: str,
    table: str,
    domain: Callable[[int, str], Bounds | None],
) -> tuple[int, list[str]]:
    """Return how many expressions were evaluated, and what was wrong with which."""
    done, wrong = 0, []
    for sql in dict.fromkeys(expressions):
        try:
            e = expression_of(catalog, sql, table)
        except (psycopg.Error, NotAnswerable):
            continue  # PostgreSQL or the analyser has no such operation, which others test
        found = complaint(catalog, e, source, domain)
        done += 1
        if found:
            wrong.append(f"{sql}: {found}")
    return done, wrong


@pytest.fixture(scope="module")
def catalog(server: Any) -> Iterator[LiveCatalog]:
    database = server.create_database()
    connection = database.connect()
    make_table(connection, "x", EXTREMES)
    for side in SIDES:
        make_table(connection, side, {t: values_on(side, t) for t in EXTREMES})
    connection.execute(
        f"create table public.y ({', '.join(f'{c} {t}' for c, (t, _) in COLUMNS.items())})"
    )
    yield LiveCatalog(connection, {"public.x": True, "public.y": True}, time_zone="Europe/Berlin")
    server.drop_database(database)


@pytest.mark.parametrize(("make", "least"), EXPRESSIONS)
def test_every_value_of_an_allowed_operation_is_inside(
    catalog: LiveCatalog, make: Callable[[], list[str]], least: int
) -> None:
    done, wrong = check(catalog, make(), "public.x", "x", lambda occurrence, name: None)
    assert not wrong, "\n".join(wrong[:20])
    assert done >= least


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("make", "least"), EXPRESSIONS)
def test_what_becomes_of_infinite_values_is_inside(
    catalog: LiveCatalog, make: Callable[[], list[str]], least: int, side: str
) -> None:
    """An operation makes finite values of infinite ones: -1 of sign(-Infinity), 0 of 1 / Infinity."""
    types = {name: t for t, name in NAMES.items()}
    done, wrong = check(
        catalog, make(), f"public.{side}", "x", lambda o, name: bounds_on(side, types[name])
    )
    assert not wrong, "\n".join(wrong[:20])
    assert done >= least


@pytest.mark.parametrize("value", ["n::integer * 2", "-(n::integer)", "f::bigint * n::integer"])
def test_what_a_cast_rounded_stays_rounded(catalog: LiveCatalog, value: str) -> None:
    """Arithmetic of integers is done in numeric, which must not undo it."""
    e = expression_of(catalog, value, "public.y")
    row = "from (values (1.5::numeric(6,2), 2.5::float8), (2.4, 3.6)) as r0(n, f)"
    found = catalog.connection.execute(f"select {render(e)} {row}").fetchall()  # type: ignore[arg-type]
    assert found == catalog.connection.execute(f"select {value} {row}").fetchall()  # type: ignore[arg-type]


GROWING = ("year", "isoyear", "decade", "century", "millennium", "epoch", "month", "doy")
CONSTANTS = ("0", "1", "-2", "7", "0.5", "-0.25", "100", "3.333", "1e6", "0.001")


#: Finite values on one side of 0, and NaN and infinite ones.
ONE_SIDED = ("greatest(g, 5)", "least(g, -5)", "greatest(w, 2)", "least(w, -2)", "(m + 200)")


def random_expression(draw: random.Random, depth: int) -> str:
    """Write an expression of numbers; many are refused for the types that meet in them."""
    if depth == 0 or draw.random() < 0.1:
        if draw.random() < 0.25:
            return f"({draw.choice(CONSTANTS)})"
        return draw.choice([*(c for c in COLUMNS if c not in "btdez"), *ONE_SIDED])
    a, b, c = (random_expression(draw, depth - 1) for _ in range(3))
    compared = f"{a} {draw.choice(('<', '<=', '>', '>=', '=', '<>'))} {draw.choice((b, draw.choice(CONSTANTS)))}"
    forms = [
        *(f"({a} {operator} {b})" for operator in ("+", "-", "*", "/", "%", "*", "+")),
        *(f"{name}({a})" for name in ("abs", "-", "floor", "ceil", "round", "trunc", "sign")),
        *(f"round(({a})::numeric, {n})" for n in (0, 1, 3, -1)),
        f"trunc(({a})::numeric, {draw.choice((2, -2))})",
        f"greatest({a}, {b})",
        f"least({a}, {b})",
        f"greatest(least({a}, {draw.choice(CONSTANTS)}), {draw.choice(CONSTANTS)})",
        f"coalesce({a}, {b})",
        f"nullif({a}, {b})",
        f"case when {compared} then {a} else {b} end",
        f"case when {compared} and {a} > -5 then {a} when {compared} or b then {c} end",
        f"case when not ({compared}) then {a} when {a} in (1, 2, 3) then {a} * 2 else {b} end",
        f"({a} * {a})",
        *(
            f"({a})::{t}"
            for t in ("integer", "bigint", "numeric(7,2)", "float8", "numeric", "real")
        ),
        "b::integer",
        "length(t)",
        "octet_length(t)",
        "extract(year from d)",
        "extract(dow from d)",
        *(f"extract({draw.choice(GROWING)} from {c})" for c in "dez"),
        f"extract({draw.choice(GROWING)} from {draw.choice('dez')}::timestamptz)",
        f"extract({draw.choice(GROWING)} from greatest(e, '2010-05-05'))",
        f"({draw.choice('de')} - {draw.choice('de')})",
        "(date '2024-02-29' - e)",
        "(z::date - e)",
        f"date_part('year', {draw.choice('dez')})",
        f"width_bucket(({a})::numeric, 0, 10, 5)",
    ]
    return draw.choice(forms)


def test_random_expressions_stay_inside(catalog: LiveCatalog) -> None:
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    for _ in range(60):
        row = [draw.choice(VALUES[c]) for c in COLUMNS]
        marks = ", ".join(["%s"] * len(row))
        catalog.connection.execute(f"insert into public.y values ({marks})", row)  # type: ignore[arg-type]
    bounds = {name: b for name, (_, b) in COLUMNS.items()}
    expressions = [random_expression(draw, draw.randint(1, 4)) for _ in range(1500)]
    done, wrong = check(catalog, expressions, "public.y", "y", lambda o, name: bounds[name])
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong[:20])
    assert done >= 300, done
