"""Every allowed function, through its guarded rewriting, on extreme values: never an error."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dpsql.errors import NotAnswerable
from dpsql.query import functions
from dpsql.query.ir import render
from dpsql.query.pipeline import analyse
from tests.server.analyser_catalog import LiveCatalog

INTEGERS = {
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
}
SMALL = ("-1", "0", "1", "2", "7")
HUGE = "9" * 131072
TINY = "0." + "0" * 16382 + "1"
FLOATS = ("NaN", "Infinity", "-Infinity", "0", "-0", "1.5", "-7", "1e15")
DATES = ("infinity", "-infinity", "1995-02-28", "2000-02-29", "0001-01-01", "0001-12-31 BC")
EXTREMES: dict[str, tuple[str, ...]] = {
    "boolean": ("t", "f"),
    **{name: (*bounds, *SMALL) for name, bounds in INTEGERS.items()},
    "numeric": (
        *("NaN", "Infinity", "-Infinity", "0", "0.00", "1.5", "-2.5", "1e100", "-1e101"),
        *("2147483647.5", "-2147483648.5", "9223372036854775807.5", TINY, HUGE, "-" + HUGE),
        *("1e308", "1e-400", "1e-308", "0.49999999999999999"),
    ),
    "numeric(10,2)": ("NaN", "99999999.99", "-99999999.99", "0.01", "0"),
    "real": (*FLOATS, "3.4028235e38", "1e-45", "-3.4028235e38", "2147483648", "1e18", "1e-19"),
    "double precision": (
        *FLOATS,
        *("1.7976931348623157e308", "5e-324", "-1.7976931348623157e308", "2147483647.5"),
        *("9223372036854775807", "9223372036854774784", "1e150", "1e-160", "32767.5", "1e300"),
    ),
    "text": ("", " ", "a", "a%", "\\", "a\\", "%\\%", "Ünïcödé", "x" * 3000, "1e5", "  pad "),
    "varchar(10)": ("", "a\\", "äöü"),
    "character(5)": ("", "a", "ab\\", "äöü"),
    '"char"': ("", "a", "\\", "\\303"),
    "date": (
        *DATES,
        *("4713-01-01 BC", "4714-11-24 BC", "5874897-12-31", "294276-12-31", "294277-01-01"),
    ),
    "time": ("00:00:00", "24:00:00", "12:34:56.789"),
    "timestamp": (
        *DATES,
        *("4714-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999", "1999-12-31 23:59:59"),
    ),
    "timestamptz": (
        *DATES,
        *("4714-11-24 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00", "2021-03-28 01:30:00+00"),
    ),
    "interval": ("0", "1 mon", "-178000000 years", "178000000 years", "2147483647 days", "1 us"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "bytea": ("", "\\x00ff", "a"),
}  # fmt: skip
NAMES = {name: f"c{i}" for i, name in enumerate(EXTREMES)}
BASE = {
    "varchar(10)": "text",
    "character(5)": "bpchar",
    "numeric(10,2)": "numeric",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
COLUMNS: dict[str, list[str]] = {}
for _name, _column in NAMES.items():
    COLUMNS.setdefault(BASE.get(_name, _name), []).append(_column)
CONSTANTS = {
    "smallint": ("'-1'::smallint", "3::smallint", "0::smallint"),
    "integer": ("(-1)", "3", "0", "'-2147483648'::integer"),
    "bigint": ("'-1'::bigint", "3::bigint", "0::bigint"),
    "numeric": ("3.5", "0.0", "1e-16000", "'NaN'::numeric"),
    "real": ("'2.5'::real", "'0'::real", "'1e-40'::real"),
    "double precision": ("'2.5'::float8", "'0'::float8", "'NaN'::float8", "'1e300'::float8"),
    "text": ("'a%'", "'a\\\\b'", "''"),
    "date": ("'2000-01-01'::date", "'infinity'::date", "'5874897-12-31'::date"),
    "interval": ("'1 month'::interval", "'-999 years'::interval", "'23:59:59'::interval"),
}
TARGETS = (
    "smallint", "integer", "bigint", "numeric", "numeric(4,2)", "numeric(3,0)", "real",
    "double precision", "text", "varchar", "varchar(2)", "character(2)", "boolean", "date",
    "time", "timestamp", "timestamptz", "interval", "uuid", '"char"',
)  # fmt: skip


def operator_expressions() -> list[str]:
    found = []
    for operator, left, right in functions.operators():
        lefts = COLUMNS.get(left, []) if left else [""]
        rights = COLUMNS.get(right, [])
        found += [f"{a} {operator} {b}" for a, b in itertools.product(lefts, rights)]
        found += [
            f"{a} {operator} {b}" for a, b in itertools.product(lefts, CONSTANTS.get(right, ()))
        ]
        if left:
            found += [f"{a} {operator} {b}" for a in CONSTANTS.get(left, ()) for b in rights]
    return [e.strip() for e in found]


def function_expressions() -> list[str]:
    fields = (
        *("year", "month", "day", "hour", "minute", "second", "epoch", "week", "dow", "isodow"),
        *("doy", "quarter", "decade", "century", "millennium", "milliseconds", "microseconds"),
        *("isoyear", "julian", "timezone"),
    )
    found = []
    for name, *types in functions.functions():
        columns = [COLUMNS.get(t, []) for t in types]
        if name in ("extract", "date_part", "date_trunc"):
            call = "extract({0} from {1})" if name == "extract" else name + "('{0}', {1})"
            found += [call.format(f, c) for f in fields for c in columns[1]]
        elif name == "timezone":
            found += [f"{c} at time zone '{z}'" for c in columns[1] for z in ("UTC", "Asia/Tokyo")]
        elif name == "width_bucket":
            bounds = "0.5, 10, 5" if types[0] == "numeric" else "'0.5'::float8, '1e300'::float8, 5"
            found += [f"{name}({c}, {bounds})" for c in columns[0]]
        elif name in ("left", "right", "substr", "substring", "round", "trunc") and types[1:]:
            numbers = ("0", "3", "'-3'::integer", "'-2147483648'::integer", "2147483647", "100")
            for c in columns[0]:
                found += [f'"{name}"({c}, {", ".join([n] * len(types[1:]))})' for n in numbers]
        elif name == "position":
            found += [f"position('a' in {c})" for c in columns[0]]
        elif types:
            constants = [CONSTANTS.get(t, ("'a'",)) for t in types[1:]]
            for c in columns[0]:
                found += [
                    f'"{name}"({", ".join([c, *rest])})' for rest in itertools.product(*constants)
                ]
                found += [
                    f'"{name}"({", ".join([c, *rest])})' for rest in itertools.product(*columns[1:])
                ]
        else:
            found.append(f"{name}()")
    return found


def cast_expressions() -> list[str]:
    return [f"cast({c} as {t})" for c in NAMES.values() for t in TARGETS]


def nested_expressions() -> list[str]:
    return [
        "c1 + c2 * c3 - c1", "(c1 * c2) / c3", "c3 / (c2 - c2)", "c3 % (c1 * c2)", "-c3", "abs(c3)",
        "c4 * c4 / c4", "c4 + c4 * c4", "round(c4 * c4, 3)", "c7 * c7 / c7", "c6 / c6 + c6",
        "c7::bigint * c7::bigint", "c6::integer * c6::bigint + c2", "c4::integer * c4::integer",
        "(c4 * c4)::integer + c2", "(c7 * 2)::bigint * c3", "upper(c8) || lower(c8) || c9",
        "replace(c8, 'x', 'yy')", "nullif(c2, 0) / nullif(c2, -1)", "coalesce(c4, 0) / c4",
        "date_trunc('month', c12)", "date_trunc('year', c12 + interval '1 month')",
        "c12 + c2", "(c12 - c12) * c2", "c14 - c14", "extract(epoch from c14 - c14)",
        "(c15 at time zone 'Europe/Berlin')::date - c12", "c12::timestamp + interval '1 day'",
        "case when c2 / c1 > 0 then c4 else c2 end", "greatest(c2 + c2, c1)",
        "c8 like 'a\\\\%'", "c10 like 'a%'", "c8 in ('a', null)", "c2 = any ('{1,2,null}'::int[])",
        "c4::float8 * c7", "c4::real", "c15 > c12", "c15 = c14", "c12 < c14", "c12 = c15",
    ]  # fmt: skip


#: What writes expressions over the columns, and how many of these are answered at least.
EXPRESSIONS = [
    (operator_expressions, 900),
    (function_expressions, 250),
    (cast_expressions, 90),
    (nested_expressions, 30),
]


def make_table(connection: Any, table: str, values: dict[str, tuple[str | None, ...]]) -> None:
    """Make a table with a column of each type, and rows of the values and of NULLs.

    All types advance together, and each value also meets rotated values of the others.
    """
    columns = ", ".join(f"{NAMES[t]} {t}" for t in values)
    connection.execute(f"create table public.{table} ({columns})")
    marks = ", ".join(["%s"] * len(values))
    for shift in range(4):
        for i in range(max(map(len, values.values()))):
            row = [v[(i * (1 + shift * k)) % len(v)] for k, v in enumerate(values.values())]
            connection.execute(f"insert into public.{table} values ({marks})", row)
    connection.execute(f"insert into public.{table} default values")


@pytest.fixture(scope="module")
def catalog(server: Any) -> Iterator[LiveCatalog]:
    database = server.create_database()
    connection = database.connect()
    make_table(connection, "x", EXTREMES)
    yield LiveCatalog(connection, {"public.x": True}, time_zone="Europe/Berlin")
    server.drop_database(database)


def run(catalog: LiveCatalog, expressions: list[str]) -> tuple[int, list[str], list[str]]:
    """Count rows by each expression's guarded form; return (run, failed, refused)."""
    done, failed, refused = 0, [], []
    for e in dict.fromkeys(expressions):
        try:
            analysis = catalog.analyze(f"select dp_count(*) from x where ({e}) is not null")
        except psycopg.Error:
            continue  # PostgreSQL has no such operation
        try:
            question = analyse(analysis, catalog)
        except NotAnswerable as error:
            refused.append(f"{e}: {error.message}")
            continue
        except psycopg.Error:
            continue  # an error of constant folding: about the text only
        where = " and ".join(map(render, question.aggregates[0].occurrences[0].filters)) or "true"
        try:
            catalog.connection.execute(f"select count(*) from public.x as r0 where {where}")  # type: ignore[arg-type]
            done += 1
        except psycopg.Error as error:
            failed.append(f"{e}: {error.sqlstate} {str(error)[:100]}\n    {where[:300]}")
    return done, failed, refused


@pytest.mark.parametrize(("make", "least"), EXPRESSIONS)
def test_no_allowed_expression_raises_on_extreme_values(
    catalog: LiveCatalog, make: Any, least: int
) -> None:
    done, failed, refused = run(catalog, make())
    assert not failed, "\n".join(failed)
    assert done >= least, "\n".join(refused)


def test_stored_oids_are_the_servers(database: Any) -> None:
    connection = database.connect()
    connection.execute("set search_path = pg_catalog")
    for (name, *types), (oid, result) in functions.functions().items():
        row = connection.execute(
            "select oid::int, format_type(prorettype, -1) from pg_proc"
            " where oid = to_regprocedure(%s)",
            (f'pg_catalog."{name}"({", ".join(types)})',),
        ).fetchone()
        assert row == (oid, result), (name, types)
    for (name, left, right), (oid, result) in functions.operators().items():
        row = connection.execute(
            "select oprcode::int, format_type(oprresult, -1) from pg_operator"
            " where oid = to_regoperator(%s)",
            (f"pg_catalog.{name}({left or 'none'}, {right})",),
        ).fetchone()
        assert row == (oid, result), (name, left, right)
    for (source, target), oid in functions.casts().items():
        row = connection.execute(
            "select castfunc::int from pg_cast where castsource = to_regtype(%s)"
            " and casttarget = to_regtype(%s)",
            (source, target),
        ).fetchone()
        assert row == (oid,), (source, target)
