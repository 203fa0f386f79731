"""Declared domains: checked when declared, read back in order."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

TABLE = """
create type mood as enum ('sad', 'ok');
create domain small as integer check (value < 10);
create table public.t (i integer, s smallint, v varchar(3), c char(4), n numeric(5, 2), d date,
                       tz timestamptz, b boolean, m mood, u uuid, f float8, o small,
                       g bigint, w numeric, r real, ts timestamp);
create table public.nation (k integer, name text);
insert into public.nation values (2, 'b'), (1, 'a'), (1, 'a'), (null, null);
select dp.protect('t'), dp.declare_public('nation');
"""


@pytest.fixture
def admin(database: Any) -> Any:
    connection = database.connect()
    connection.execute(TABLE)
    return connection


def members(connection: Any, column: str) -> list[str | None]:
    rows = connection.execute(
        "select member from dp.domain_members('t', %s) order by ordinal", (column,)
    ).fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("column", "arguments", "expected"),
    [
        ("v", "array['b', 'a', 'xyz'], true", ["b", "a", "xyz", None]),
        ("c", "array['ab', 'abcd']", ["ab", "abcd"]),
        ("n", "array[1, 2.5]", ["1.00", "2.50"]),
        ("b", "array[true, false]", ["true", "false"]),
        ("m", "array['ok', 'sad']", ["ok", "sad"]),
        ("tz", "array['2020-01-01 00:00+02']", ["2019-12-31 22:00:00+00"]),
        ("i", "3, 9, 3", ["3", "6", "9"]),
        ("i", "7, 7", ["7"]),
        ("s", "lower => -1, upper => 1, includes_null => true", ["-1", "0", "1", None]),
        ("n", "0, 0.5, 0.25", ["0.00", "0.25", "0.50"]),
        ("n", "'-1', '1.9', '1', true", ["-1.00", "0.00", "1.00", None]),
        ("w", "1.5, 3.5, step => 1", ["1.5", "2.5", "3.5"]),
        (
            "g",
            "9223372036854775800, 9223372036854775807, 7",
            ["9223372036854775800", "9223372036854775807"],
        ),
        ("d", "'1995-01-01', '1995-03-01', '1 month'", ["1995-01-01", "1995-02-01", "1995-03-01"]),
        ("d", "date '1995-01-01', date '1995-01-02'", ["1995-01-01", "1995-01-02"]),
        ("i", "reference => 'nation', reference_column => 'k'", ["1", "2"]),
    ],
)
def test_domains_are_read_back_as_declared(
    admin: Any, column: str, arguments: str, expected: list[str | None]
) -> None:
    admin.execute(f"select dp.set_domain('t', '{column}', {arguments})")
    assert members(admin, column) == expected


@pytest.mark.parametrize(
    ("column", "arguments", "other"),
    [
        ("v", "array['a', 'b'], other => 'o'", "o"),
        ("c", "array['ab'], other => 'etc'", "etc"),
        ("n", "array[1, 2], other => 0.5", "0.50"),
        ("m", "array['ok'], true, 'sad'", "sad"),
        (
            "tz",
            "array['2020-01-01 00:00+02'], other => '1999-01-01 00:00+02'",
            "1998-12-31 22:00:00+00",
        ),
        ("v", "array['a', 'b'], other => null", None),
    ],
)
def test_a_value_for_all_others_is_read_back(
    admin: Any, column: str, arguments: str, other: str | None
) -> None:
    admin.execute(f"select dp.set_domain('t', '{column}', {arguments})")
    found = admin.execute(
        "select other from dp.domains where relation_name = 't' and column_name = %s", (column,)
    ).fetchone()
    assert found == (other,)


@pytest.mark.parametrize(
    ("column", "arguments", "said"),
    [
        ("i", "array['1', 'x1']", "x1"),
        ("i", "array[1, 1]", "'1'"),
        ("i", "array[1, 2], other => 2", "one of the domain's values"),
        ("n", "array[1.5, 2], other => 1.50", "one of the domain's values"),
        ("w", "array[1.5, 2], other => '1.50'::numeric", "twice"),
        ("v", "array['a', 'b'], other => 'abcd'", "abcd"),
        ("i", "array['1', '2'], other => 'rest'", "rest"),
        ("m", "array['ok'], other => 'fine'", "fine"),
        ("v", "array[]::text[], true, other => 'o'", "between 1 and 10000"),
        ("i", "array(select generate_series(1, 10001)), other => 0", "between 1 and 10000"),
        ("n", "array['1.0', '1.00']", "twice"),
        ("n", "array[1.005]", "1.005"),
        ("v", "array['abcd']", "abcd"),
        ("i", "array[1, null]", "null"),
        ("i", "array[]::int[]", "between 1 and 1000000"),
        ("i", "1, 2000000, 1", "between 1 and 1000000"),
        ("i", "1, 2.5", "2.5"),
        ("n", "0, 1000", "1000"),
        ("n", "0, 0.005", "0.005"),
        ("n", "0, 1, 0.001", "0.001"),
        ("n", "0, 1, 0", "step"),
        ("n", "0, 1, -1", "step"),
        ("n", "0, 1, 'NaN'", "step"),
        ("w", "0, 1, 'Infinity'", "step"),
        ("w", "0, 1, 0.0000001", "between 1 and 1000000"),
        ("n", "'NaN', 1", "finite"),
        ("n", "'0', 'nan'", "finite"),
        ("w", "'0', 'Infinity'", "finite"),
        ("f", "'-inf', '1'", "finite"),
        ("f", "'0', 'NaN'", "finite"),
        ("ts", "'-infinity', 'infinity'", "finite"),
        ("f", "0, 1, 0.5", "step"),
        ("ts", "'2020-01-01', '2021-01-01', '1 day'", "step"),
        ("f", "1, 0", "lower bound first"),
        ("w", "1, 0.5", "lower bound first"),
        ("ts", "'2021-01-01', '2020-01-01'", "lower bound first"),
        ("g", "0, 1e30", "1000000000000000000000000000000"),
        ("r", "'0', '1e39'", "1e39"),
        ("w", "0, null::numeric", "null"),
        ("f", "0, 1, includes_null => true", "includes_null"),
        ("b", "0, 1", "range"),
        ("i", "2, 1", "lower bound first"),
        ("i", "1, 2, 0", "step"),
        ("d", "'1995-01-01', 'infinity'", "infinity"),
        ("d", "date '2020-01-01', date '20000-01-01'", "Give a longer step"),
        ("d", "'1995-01-01', '1996-01-01', '1 hour'", "step"),
        ("v", "'a', 'b'", "range"),
        ("f", "array[1.5]", "cannot have a domain"),
        ("nothing", "array[1]", "does not exist"),
        ("i", "reference => 't', reference_column => 'i'", "not public"),
        ("i", "reference => 'nation', reference_column => 'name'", "different types"),
    ],
)
def test_domains_that_mean_nothing_are_refused(
    admin: Any, column: str, arguments: str, said: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        admin.execute(f"select dp.set_domain('t', '{column}', {arguments})")
    assert caught.value.sqlstate == "PD040"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("column", "arguments", "bounds"),
    [
        ("i", "7, -3", ("7", "-3")),
        ("d", "date '2021-01-02', date '2021-01-01'", ("2021-01-02", "2021-01-01")),
        (
            "d",
            "date '2021-03-01', date '2021-02-28', interval '7 days'",
            ("2021-03-01", "2021-02-28"),
        ),
        ("w", "1, 0.5, 0.25", ("1", "0.5")),
        ("w", "1, 0.5, 0.25, true", ("1", "0.5")),
    ],
)
def test_a_range_without_values_is_refused_with_the_call_that_is_meant(
    admin: Any, column: str, arguments: str, bounds: tuple[str, str]
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        admin.execute(f"select dp.set_domain('t', '{column}', {arguments})")
    error = caught.value.diag
    low, high = bounds
    assert f"a range from {low} to {high} is empty" in str(error.message_primary)
    hint = str(error.message_hint)
    assert f"'{high}', '{low}'" in hint
    admin.execute(hint[hint.index("SELECT") :])
    found = members(admin, column)
    assert found[0] == high
    assert (found[-1] is None) == arguments.endswith("true")


def test_a_domain_of_an_altered_column_is_not_used(admin: Any) -> None:
    admin.execute("select dp.set_domain('t', 'i', 1, 3)")
    admin.execute("alter table t alter i type bigint")
    assert members(admin, "i") == []
    assert "changed" in admin.execute("select problem from dp.domains").fetchone()[0]


def test_a_domain_by_reference_needs_the_relation_to_stay_public(admin: Any) -> None:
    admin.execute("select dp.set_domain('t', 'i', reference => 'nation', reference_column => 'k')")
    admin.execute("select dp.undeclare_public('nation')")
    assert members(admin, "i") == []


def test_a_million_values_are_taken(admin: Any) -> None:
    admin.execute("select dp.set_domain('t', 'i', array(select generate_series(1, 1000000)))")
    with pytest.raises(psycopg.Error) as caught:
        admin.execute("select dp.set_domain('t', 'i', array(select generate_series(0, 1000000)))")
    assert caught.value.sqlstate == "PD040"


@pytest.mark.parametrize(
    ("column", "arguments", "lower", "upper"),
    [
        ("f", "0, 1e3", "0", "1000"),
        ("f", "'-1e300', '0.1'", "-1e+300", "0.1"),
        ("r", "0.1, 7", "0.1", "7"),
        ("n", "-1, 99.5", "-1.00", "99.50"),
        ("w", "0.10, 5", "0.10", "5"),
        ("w", "5, 5", "5", "5"),
        ("i", "-1000000, 1000000", "-1000000", "1000000"),
        (
            "g",
            "'-9223372036854775808', '9223372036854775807'",
            "-9223372036854775808",
            "9223372036854775807",
        ),
        ("ts", "'2020-01-01', '2020-12-31 12:00'", "2020-01-01 00:00:00", "2020-12-31 12:00:00"),
        (
            "tz",
            "'2020-01-01 00:00+02', '2021-01-01 00:00+02'",
            "2019-12-31 22:00:00+00",
            "2020-12-31 22:00:00+00",
        ),
    ],
)
def test_a_range_without_step_is_mere_bounds(
    admin: Any, column: str, arguments: str, lower: str, upper: str
) -> None:
    admin.execute("set extra_float_digits = -10")
    admin.execute(f"select dp.set_domain('t', '{column}', {arguments})")
    assert members(admin, column) == []
    rows = admin.execute("select kind, lower, upper, step, members, problem from dp.domains")
    assert rows.fetchall() == [("bounds", lower, upper, None, None, None)]
    admin.execute(f"select dp.drop_domain('t', '{column}')")
    assert admin.execute("select count(*) from dp.domains").fetchone() == (0,)


def test_a_column_of_a_domain_is_one_of_the_type_that_this_is_over(admin: Any) -> None:
    """What is declared is no value of the domain, whose CHECK could be anybody's code."""
    admin.execute("select dp.set_domain('t', 'o', array[1, 20])")
    assert admin.execute(
        "select type_name, members, problem from dp.domains where column_name = 'o'"
    ).fetchone() == ("integer", ["1", "20"], None)
    admin.execute("create domain smaller as small not null check (value < 5)")
    admin.execute("select dp.set_domain('t', 'o', 0, 9); alter table t alter o type smaller")
    assert admin.execute("select problem from dp.domains where column_name = 'o'").fetchone() == (
        None,
    )
    admin.execute("insert into t (o) select i % 3 from generate_series(1, 300) i")
    admin.execute(
        "select dp.grant_budget('postgres', epsilon => 100), dp.set_root_cap('t', 100, 1e-6)"
    )
    admin.execute("set dp.epsilon = 50")
    with pytest.raises(psycopg.Error, match="of the domain") as caught:
        admin.execute("select o, dp_count(*) from t group by o")
    assert "CAST(o AS integer)" in str(caught.value.diag.message_hint)
    assert admin.execute("select sum(epsilon_spent) from dp.budgets").fetchone() == (0,)
    query = "select o::int, dp_count(*) from t where o <> 2 group by 1 order by 1"
    counts = dict(admin.execute(query).fetchall())
    # noise of epsilon 50 is below 20 but for exp(-1000)
    assert set(counts) == {0, 1, *range(3, 10)}
    assert abs(counts[0] - 100) < 20
    assert admin.execute("select abs(dp_count(*) - 100) < 20 from t where o = 2").fetchone() == (
        True,
    )
