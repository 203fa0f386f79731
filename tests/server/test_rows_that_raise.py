"""Statements that would fail on some rows only are refused before they cost anything."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

SET_UP = """
create schema p; grant usage on schema p to public;
create table p.plain (id int primary key, salary int, tx text);
insert into p.plain values (1, 10, 'x'), (2, 99, 'Z');
create table p.prot (id int primary key, name text collate "C", other text collate "POSIX");
insert into p.prot values (1, 'x', 'y'), (2, 'secret', 'z');
create table p.open (id int, at timestamptz, tx text);
insert into p.open select i, timestamptz '2020-10-24 20:00+00' + i * interval '20 minutes', 'a'
  from generate_series(1, 60) i;
select dp.protect('p.plain'), dp.protect('p.prot'), dp.declare_public('p.open');
select dp.grant_budget('alice', 100, 1e-3);
"""
LONG = "a" * 100
GROWN = "(case when id = 2 and salary > 50 then 'a' else 'b' end)::varchar(1)"
for _ in range(5):
    GROWN = f"replace({GROWN}, 'a', '{LONG}')"
BYTE = "(case when id = 2 and salary > 50 then 'é' else 'a' end)::\"char\""
REFUSED = [
    f"select dp_count(*) from p.plain where {BYTE}::char(3) = 'q'",
    f"select dp_count(*) from p.plain where {BYTE}::bpchar ilike 'q'",
    f"select dp_count(*) from p.plain group by {BYTE}::char(3)",
    "select dp_count(*) from p.plain where id = 2 and (tx || '0')::char(10485760) = 'q'",
    "select dp_count(*) from p.prot where case when name = 'secret' then name < other end",
    "select dp_count(*) from p.prot where id = 2 and starts_with(name, other)",
    "select dp_count(*) from p.prot where lower(case id when 2 then name else other end) = 'a'",
    "select dp_count(*) from p.prot where name || other = 'a'",
    "select dp_count(*) from p.prot x, p.prot y where x.name = y.other",
    "select dp_count(*) from p.prot x, p.prot y where x.id = y.id and x.name < y.other",
    "select dp_count(*) from p.prot group by case id when 2 then name else other end",
    'select dp_count(*) from (select tx collate "C" a, tx collate "POSIX" b from p.plain) z'
    " where a < b",
]


BIG = " and ".join(
    f"replace(x.tx, 'a', '{'a' * i}') = replace(y.tx, 'a', '{'a' * i}')" for i in range(20, 99)
)
REFUSED += [
    f"select dp_count(*) from p.plain where tx like '{'%a' * 100_000}'",
    f"select dp_count(*) from p.plain x, p.plain y where {BIG}",
]


@pytest.fixture
def shop(database: Any) -> Any:
    """Protected relations with a row that statements try to make fail."""
    database.sql(SET_UP)
    return database


@pytest.mark.parametrize("statement", REFUSED)
def test_refused_at_no_cost(shop: Any, statement: str) -> None:
    with shop.connect(user="alice") as alice:
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(statement)
        # 42P21 is PostgreSQL's own, of the text alone
        assert caught.value.sqlstate in ("PD011", "PD013", "PD014", "42P21"), caught.value
    assert shop.sql("select count(*) from dp.spend") == [(0,)]


def test_long_texts_do_not_fail(shop: Any) -> None:
    """Neither trimming nor what two relations exchange."""
    shop.sql("insert into p.open select 1000, now(), repeat('a', 140000000)")
    with shop.connect(user="alice") as alice:
        for condition in ("btrim(tx)", "btrim(tx, 'x')", "ltrim(tx)", "rtrim(tx, tx)"):
            text = f"select dp_count(*) from p.open where {condition} = 'a'"
            assert alice.execute(text).fetchone() is not None
        joined = " and ".join(f"substr(x.tx, {i}) = substr(y.tx, {i})" for i in range(1, 12))
        found = alice.execute(
            f"select dp_count(*) from p.open x, p.open y where x.id > 999 and y.id > 999 and {joined}"
        ).fetchone()
        assert found == (0,)  # longer than 1 MB


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("smallint", "32767.45::numeric"),
        ("smallint", "(-32768.49)::numeric"),
        ("smallint", "32767.45::float8"),
        ("smallint", "(-32768.5)::float8"),
        ("integer", "2147483647.45::numeric"),
        ("integer", "2147483647.45::float8"),
        ("bigint", "9223372036854775807.49::numeric"),
    ],
)
def test_what_rounds_into_a_type_is_kept(shop: Any, type_: str, value: str) -> None:
    shop.sql(f"create table p.n as select {value} as n; select dp.declare_public('p.n')")
    with shop.connect(user="alice") as alice:
        text = f"select dp_count(*) from p.n where n::{type_} is not null"
        assert alice.execute(text).fetchone() == (1,)


def test_date_part_is_postgresqls_own(shop: Any) -> None:
    shop.sql(
        "create table p.tm as select time '00:00' + i * interval '7.588829 s' as t,"
        " timestamp '2000-01-01' + i * interval '91234.588829 s' as s,"
        " i * interval '91.588829 s' as d from generate_series(1, 2000) i;"
        "create table p.known as select date_part('second', t) as a, date_part('second', s) as b,"
        " date_part('epoch', d) as c from p.tm;"
        "select dp.declare_public('p.tm'), dp.declare_public('p.known')"
    )
    with shop.connect(user="alice") as alice:
        for known, of in (("a", "'second', t"), ("b", "'second', s"), ("c", "'epoch', d")):
            text = f"select {{}}(*) from p.tm join p.known on date_part({of}) = {known}"
            found = alice.execute(text.format("dp_count")).fetchone()
            assert found == shop.sql(text.format("count"))[0], of


def test_a_text_that_grows_is_bounded(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        for least in (50, 100):
            text = GROWN.replace("> 50", f"> {least}")
            alice.execute(f"select dp_count(*) from p.plain where {text} = 'x'")


@pytest.mark.parametrize(
    "condition",
    [
        "octet_length('a'::char(3)) = 3",
        "'a'::char(3) like '_  '",
        "not 'a'::char(3) like '_'",
        "coalesce(tx::char(3), 'a'::char(3)) like '_  '",
        "'a   '::char(2) ilike 'a '",
        "'a  '::char(3) = 'a'",
    ],
)
def test_padding_is_kept(shop: Any, condition: str) -> None:
    with shop.connect(user="alice") as alice:
        text = f"select {{}}(*) from p.open where {condition}"
        found = alice.execute(text.format("dp_count")).fetchone()
    assert found == shop.sql(text.format("count"))[0] == (60,)


@pytest.mark.parametrize("field", ["microseconds", "second", "minute", "hour", "day", "week"])
def test_truncation_in_the_hour_that_a_clock_repeats(shop: Any, field: str) -> None:
    text = "select date_trunc('{}', at) as t, {}(*) as n from p.open group by 1 order by 1"
    with shop.connect(user="alice") as alice, shop.connect() as admin:
        for connection in (alice, admin):
            connection.execute("set timezone = 'Europe/Berlin'")
        found = alice.execute(text.format(field, "dp_count")).fetchall()
        assert found == admin.execute(text.format(field, "count")).fetchall()
