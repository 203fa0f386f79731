"""Declared domains: checked when declared, read back in order."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

TABLE = """
create type mood as enum ('sad', 'ok');
create domain small as integer check (value < 10);
create table public.t (i integer, s smallint, v varchar(3), c char(4), n numeric(5, 2), d date,
                       tz timestamptz, b boolean, m mood, u uuid, f float8, o small);
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
    ("column", "arguments", "said"),
    [
        ("i", "array['1', 'x1']", "x1"),
        ("i", "array[1, 1]", "'1'"),
        ("n", "array['1.0', '1.00']", "twice"),
        ("n", "array[1.005]", "1.005"),
        ("v", "array['abcd']", "abcd"),
        ("i", "array[1, null]", "null"),
        ("i", "array[]::int[]", "between 1 and 1000000"),
        ("i", "1, 2000000", "between 1 and 1000000"),
        ("i", "2, 1", "between 1 and 1000000"),
        ("i", "1, 2, 0", "step"),
        ("d", "'1995-01-01', 'infinity'", "infinity"),
        ("d", "'1995-01-01', '1996-01-01', '1 hour'", "step"),
        ("v", "'a', 'b'", "range"),
        ("f", "array[1.5]", "cannot have a domain"),
        ("o", "array[1]", "cannot have a domain"),
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
