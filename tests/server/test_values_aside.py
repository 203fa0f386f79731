"""Sub-queries of a question that stand alone are read beside it, window functions go around it.

Over exposed views and over the relations; noise is off where answers are compared with PostgreSQL's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.server.asking import refused, say
from tests.server.exposing import plain

pytestmark = pytest.mark.server

PUBLIC = """
create table public.rate (r_status text, r_channel text, r_least numeric(10,2), r_day date, r_code bigint, r_c text collate "C");
insert into public.rate values ('open', 'web', 12.50, '2024-02-01', 30, 'note 3'), ('sent', 'web', 40, '2024-03-01', 40, 'note 1'),
  ('sent', 'shop', 41, null, null, null);
create table public.kind (k_status text primary key, k_group text not null);
insert into public.kind values ('open', 'a'), ('sent', 'b'), ('back', 'b');
alter table public.rate owner to owner1; alter table public.kind owner to owner1;
select dp.declare_public('public.rate'), dp.declare_public('public.kind');
grant select on public.rate to alice;
create view public.late as select r_day from public.rate where r_least > 20; grant select on public.late to alice;
create view public.peek as select o_amount, o_day from public."Orders"; grant select on public.peek to alice;
create materialized view public.copied as select o_amount, o_day from public."Orders"; grant select on public.copied to alice;
create table public.part (like public."Orders"); create table public.child () inherits (public.part);
"""
#: Exactly what PostgreSQL says of the relations, whatever is asked about: "{o}" and "{c}" are orders and customers.
VALUES = [
    'SELECT count(*) FROM {o} WHERE o_amount > (SELECT max(r_least) FROM rate)',
    'SELECT o_status, count(*) FROM {o} WHERE o_amount BETWEEN (SELECT min(r_least) FROM rate) AND (SELECT max(r_least) + 3 FROM rate) GROUP BY 1',
    'SELECT count(*), (SELECT count(*) FROM rate) AS rates FROM {o}',
    'SELECT o_status, (SELECT max(r_day) FROM rate) AS d, count(*) FROM {o} GROUP BY o_status ORDER BY (SELECT 1), 3 DESC',
    'SELECT count(*) FILTER (WHERE o_day >= (SELECT r_day FROM rate ORDER BY r_least LIMIT 1)) FROM {o}',
    "SELECT sum(o_amount) FROM (SELECT o_amount FROM {o} WHERE o_day < (SELECT r_day FROM rate WHERE r_status = 'open')) AS virtual_table",
    'SELECT o_status, count(*) FROM {o} GROUP BY 1 HAVING count(*) > (SELECT sum(r_code) FROM rate)',
    'SELECT count(*) FROM {o} JOIN {c} ON c_id = o_customer AND o_amount > (SELECT avg(r_least) FROM rate)',
    "SELECT count(*) FROM {o} WHERE o_status IN (SELECT r_status FROM rate WHERE r_channel = 'web' AND r_least < 20)",
    'SELECT count(*) FROM {o} WHERE o_day IN (SELECT r_day FROM rate)',
    'SELECT count(*) FROM {o} WHERE o_day IN (SELECT d FROM (SELECT r_day AS d FROM rate JOIN kind ON k_status = r_status) AS t WHERE d IS NOT NULL)',
    'SELECT count(*) FROM {o} WHERE o_day NOT IN (SELECT r_day FROM rate WHERE r_day IS NOT NULL)',
    'SELECT count(*) FROM {o} WHERE o_day IN (SELECT r_day FROM rate) OR o_amount > 50',
    'SELECT count(*) FROM {o} WHERE o_id IN (SELECT r_code FROM rate UNION SELECT 7)',
    'SELECT count(*) FROM {o} WHERE o_id = ANY (ARRAY(SELECT r_code FROM rate WHERE r_code > 0))',
    'SELECT count(*) FROM {o} WHERE o_id <> ALL (SELECT r_code FROM rate WHERE r_code > 0)',
    'SELECT count(*) FROM {o} WHERE o_id IN (VALUES (1), (2), (3)) AND o_id IN (SELECT * FROM generate_series(2, 9))',
    'SELECT count(*) FROM {o} WHERE o_note IN (SELECT r_c FROM rate) AND o_note > (SELECT min(r_c) FROM rate)',
    'SELECT count(*) FROM {o} WHERE EXISTS (SELECT 1 FROM rate WHERE r_least > 40) AND NOT EXISTS (SELECT FROM rate WHERE r_least > 400)',
    'SELECT count(*) FROM {o} WHERE o_day >= (SELECT min(r_day) FROM late)',
    'SELECT upper(o_status) || (SELECT min(r_status) FROM rate) AS s, count(*) FROM {o} GROUP BY upper(o_status) || (SELECT min(r_status) FROM rate)',
    'SELECT count(*) FROM {o} WHERE o_status IN (SELECT k_status FROM kind WHERE k_group = \'b\')',
    'SELECT CASE WHEN o_amount > (SELECT max(r_least) FROM rate) THEN 1 ELSE 0 END AS high, count(*) FROM {o} GROUP BY 1',
]  # fmt: skip
#: The values are answers themselves.
ANSWERS = [
    'SELECT count(*) FROM {o} WHERE o_amount > (SELECT avg(o_amount) FROM {o})',
    'SELECT o_status, count(*), (SELECT count(*) FROM {c}) AS customers FROM {o} GROUP BY o_status',
    'SELECT o_channel, count(*) FROM {o} WHERE o_status IN (SELECT o_status FROM {o} GROUP BY 1 ORDER BY count(*) DESC LIMIT 1) GROUP BY 1',
    'SELECT count(*) FROM {o} WHERE o_status NOT IN (SELECT o_status FROM {o} GROUP BY 1 HAVING count(*) > 150)',
    'SELECT count(*) FROM {o} WHERE o_status IN (SELECT s FROM (SELECT o_status AS s, count(*) AS n FROM {o} GROUP BY 1) AS t ORDER BY n LIMIT 2)',
    'SELECT count(*) FROM {o} WHERE o_status IN (SELECT s FROM (SELECT o_status AS s, count(*) AS n FROM {o} GROUP BY 1) AS t WHERE n > 150)',
    'SELECT o_status, count(*) * 100.0 / (SELECT count(*) FROM {o}) AS share FROM {o} GROUP BY o_status',
    'WITH o AS (SELECT * FROM {o} WHERE o_amount > 5) SELECT count(*) FROM o WHERE o_amount > (SELECT avg(o_amount) FROM o)',
    'SELECT o_status, count(*) FROM {o} WHERE o_day > (SELECT max(r_day) FROM rate WHERE r_least < (SELECT avg(o_amount) FROM {o})) GROUP BY 1',
]  # fmt: skip
#: Written with dp_count over the relations, as "{o}" with count over the views.
WINDOWS = [
    'SELECT o_status, {n}(*), rank() OVER (ORDER BY {n}(*) DESC) FROM {o} GROUP BY o_status',
    'SELECT o_status, {n}(*) * 100.0 / sum({n}(*)) OVER () AS share FROM {o} GROUP BY o_status ORDER BY 2',
    'SELECT k_group, sum({n}(*)) OVER (ORDER BY k_group) FROM {o} JOIN kind ON k_status = o_status GROUP BY k_group',
    'SELECT * FROM (SELECT o_day, {n}(*), lag({n}(*)) OVER (ORDER BY o_day) AS before FROM {o} GROUP BY o_day) AS t ORDER BY o_day LIMIT 5',
]  # fmt: skip
PARTS = [
    "SELECT {n}(*) FROM {o} WHERE o_amount > (SELECT max(o_amount) FROM {raw})",
    "SELECT {n}(*) FROM {o} WHERE o_amount > (SELECT o_amount FROM {raw} LIMIT 1)",
    "SELECT {n}(*) FROM {o} WHERE o_day IN (SELECT o_day FROM {raw})",
    "SELECT {n}(*), (SELECT max(o_amount) FROM {raw}) FROM {o}",
    "SELECT {n}(*) FROM {o} WHERE EXISTS (SELECT FROM {raw} WHERE o_amount > 3)",
    "SELECT {n}(*) FROM {o} WHERE o_id = ANY (ARRAY(SELECT o_customer FROM {raw}))",
    "SELECT {n}(*) FROM {o} WHERE o_amount > (SELECT max(x) FROM (SELECT o_amount AS x FROM {raw}) AS t)",
    "SELECT {n}(*) FROM {o} WHERE o_amount > (SELECT max(r_least) FROM rate WHERE r_day IN (SELECT o_day FROM {raw}))",
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(views: Any) -> Any:
    views.sql(PUBLIC)
    return views


@pytest.fixture(scope="module")
def quiet(prepared: Any, silent: Any) -> Any:
    """An administrator's session without noise."""
    return silent


@pytest.fixture(scope="module")
def alice(prepared: Any) -> Iterator[Any]:
    with prepared.connect("alice") as session:
        session.execute("set dp.epsilon = 50; set client_min_messages = error")
        yield session


def _private(statement: str) -> str:
    """The statement over the relations with private aggregates."""
    for name in ("count", "sum", "avg"):
        statement = statement.replace(f"{name}(", f"dp_{name}(")
    return statement


@pytest.mark.parametrize("statement", [*VALUES, *ANSWERS])
def test_values_are_what_postgresql_makes_of_them(quiet: Any, statement: str) -> None:
    truth = quiet.execute(statement.format(o='public."Orders"', c="public.customer"))
    known = truth.fetchall()
    asked = quiet.execute(statement.format(o='dpv."Orders"', c="dpv.customer"))
    found = asked.fetchall()
    assert [c.name for c in asked.description] == [c.name for c in truth.description]
    if "OVER" not in statement and "ORDER BY (SELECT 1)" not in statement:
        found, known = sorted(found, key=str), sorted(known, key=str)
    assert known
    assert plain(found) == plain(known)


@pytest.mark.parametrize("statement", WINDOWS)
def test_windows_go_around_questions_over_relations(quiet: Any, statement: str) -> None:
    found = quiet.execute(statement.format(n="dp_count", o='public."Orders"')).fetchall()
    known = quiet.execute(statement.format(n="count", o='public."Orders"')).fetchall()
    assert plain(sorted(found, key=str)) == plain(sorted(known, key=str))


def test_values_of_questions_over_relations(quiet: Any) -> None:
    asked = (
        'select dp_count(*), (select max(r_least) from rate) from "Orders"'
        ' where o_amount > (select dp_avg(o_amount, 0, 100) from "Orders") and o_day in (select r_day from rate)'
    )
    truth = asked.replace("dp_count", "count").replace("dp_avg(o_amount, 0, 100)", "avg(o_amount)")
    assert quiet.execute(asked).fetchone() == quiet.execute(truth).fetchone()


def test_ends_of_intervals_beside_window_functions(alice: Any) -> None:
    rows = alice.execute(
        "select o_status, dp_count(*), dp_interval_low(dp_count(*)), rank() over (order by dp_interval_low(dp_count(*)) desc)"
        ' from "Orders" group by o_status order by 2 desc'
    ).fetchall()
    assert [r[3] for r in rows] == [1, 2, 3]
    assert all(low <= count for _, count, low, _ in rows)


@pytest.mark.parametrize("statement", PARTS)
@pytest.mark.parametrize("raw", ['public."Orders"', "public.peek", "public.copied", 'dpv."Orders"'])
def test_no_protected_row_comes_in_as_a_value(prepared: Any, statement: str, raw: str) -> None:
    """Not even for an administrator, who may read it: he would take the answer for a private one."""
    with prepared.connect() as owner:
        before = owner.execute("select count(*) from dp.spend").fetchone()
        for name, about in (("dp_count", 'public."Orders"'), ("count", 'dpv."Orders"')):
            asked = statement.format(n=name, o=about, raw=raw)
            if raw == 'dpv."Orders"' and "SELECT max(" in asked:
                continue  # a question of its own
            error = refused(owner, asked)
            assert str(error.sqlstate).startswith("PD01"), (asked, error)
        assert owner.execute("select count(*) from dp.spend").fetchone() == before


def test_parts_of_protected_relations_are_protected(prepared: Any) -> None:
    with prepared.connect() as owner:
        owner.execute("select dp.protect('part')")
        for relation in ("part", "child"):
            asked = (
                f"select dp_count(*) from customer where c_id > (select count(*) from {relation})"
            )
            assert refused(owner, asked).sqlstate == "PD011"
        owner.execute("create table lone (x int); create table above (x int)")
        asked = "select dp_count(*) from customer where c_id > (select count(*) from above)"
        assert say(owner, asked).startswith("[")
        owner.execute("select dp.protect('lone')")
        owner.execute("alter table lone inherit above")
        assert refused(owner, asked).sqlstate == "PD011"
        owner.rollback()


def test_values_are_read_with_the_privileges_of_who_asks(prepared: Any, alice: Any) -> None:
    asked = "select count(*) from dpv.customer where c_country = (select min(k_group) from kind)"
    error = refused(alice, asked)
    assert error.sqlstate == "42501"
    assert error.diag.message_hint == (
        "Questions may join it without a privilege; where it is read by itself, as in the sub-query of a value,"
        " its owner must allow that: GRANT SELECT ON public.kind TO alice."
    )
    prepared.sql(
        "create function public.who() returns text language sql as 'select current_user::text'"
    )
    assert alice.execute(
        "select count(*), (select who()) from dpv.customer"
    ).fetchone()[1] == "alice"  # fmt: skip


def test_a_value_that_fails_costs_nothing(prepared: Any, alice: Any) -> None:
    before = prepared.sql("select count(*) from dp.spend")
    for value, state in (("select r_least from rate", "21000"), ("select 1 / 0", "22012"),
                         ("select pg_sleep(0), r_least from rate", "42601")):  # fmt: skip
        asked = f"select count(*) from dpv.customer where c_id > ({value})"
        assert refused(alice, asked).sqlstate == state
    assert prepared.sql("select count(*) from dp.spend") == before


def test_the_same_value_is_the_same_question(prepared: Any, alice: Any) -> None:
    def spends() -> int:
        return int(prepared.sql("select count(*) from dp.spend")[0][0])

    asked = "select count(*) from dpv.customer where c_id > (select min(r_code) from rate)"
    first = alice.execute(asked).fetchone()
    paid = spends()
    for again in (asked, "select count(*) from dpv.customer where c_id > (select 30::bigint)",
                  "select dp_count(*) from customer where c_id > (select 30::bigint)"):  # fmt: skip
        assert alice.execute(again).fetchone() == first
    assert spends() == paid
    alice.execute(
        "select count(*) from dpv.customer where c_id > (select count(*) / 100 + 11 from dpv.customer where c_id < 57)"
    )
    assert spends() == paid + 2


def test_parameters_reach_into_values(alice: Any) -> None:
    asked = "select count(*), (select %s::int + 1) from dpv.customer where c_id > (select max(r_code) from rate where r_least < %s)"
    for prepare in (False, True):
        row = alice.execute(asked, (6, Decimal(20)), prepare=prepare).fetchone()
        assert row[1] == 7
        assert abs(row[0] - 30) <= 1
    alice.execute(
        "create temp view kept as select count(*) as n from dpv.customer where c_id > (select max(r_code) from rate)"
    )
    assert abs(alice.execute("select n from kept").fetchone()[0] - 20) <= 1


def test_explain_asks_nothing(prepared: Any, alice: Any) -> None:
    before = prepared.sql("select count(*) from dp.spend")
    plan = alice.execute(
        "explain (costs off) select count(*) from dpv.customer where c_id > (select 3 + count(*) from dpv.customer)"
    ).fetchall()
    assert "customer" not in str(plan)
    assert prepared.sql("select count(*) from dp.spend") == before


ROWS = [
    'SELECT * FROM dpv."Orders" LIMIT 1',
    "SELECT * FROM (SELECT o_id, o_status FROM dpv.\"Orders\" WHERE o_amount > 3) AS virtual_table LIMIT 1",
    'SELECT o_id, c_country FROM dpv."Orders" JOIN dpv.customer ON c_id = o_customer ORDER BY 1 FETCH FIRST 1 ROW WITH TIES',
    'SELECT DISTINCT ON (o_status) o_status, o_id FROM dpv."Orders"',
    "SELECT row_number() OVER (), c_id FROM dpv.customer",
]  # fmt: skip


@pytest.mark.parametrize("statement", ROWS)
def test_tools_may_learn_columns_from_no_row(prepared: Any, statement: str) -> None:
    with prepared.connect("alice") as session:
        assert refused(session, statement).sqlstate == "PD010"
        session.rollback()
        told: list[str | None] = []
        session.add_notice_handler(lambda notice: told.append(notice.message_primary))
        session.execute("set dp.refused_rows = none")
        cursor = session.execute(statement)
        assert cursor.fetchall() == []
        assert [c.name for c in cursor.description] != []
        assert told == ["rows of protected relations are not shown: these are the columns alone"]


def test_nothing_else_takes_no_rows_for_an_answer(prepared: Any) -> None:
    with prepared.connect("alice", autocommit=True) as session:
        session.execute(
            "set dp.refused_rows = none; set client_min_messages = error; set dp.epsilon = 50"
        )
        rows = 'SELECT o_id FROM dpv."Orders"'
        session.execute("create temp table kept (o_id bigint)")
        for statement in (f"insert into kept {rows}", f"create temp table other as {rows}",
                          "do 'begin perform o_id from dpv.\"Orders\"; end'", f"select (({rows} LIMIT 1))",
                          f"select exists ({rows})"):  # fmt: skip
            assert refused(session, statement).sqlstate == "PD010", statement
        assert abs(session.execute(f"select count(*) from ({rows}) as t").fetchone()[0] - 600) <= 1
        assert session.execute("select 1 as x").fetchall() == [(1,)]


def test_what_becomes_protected_is_no_value_any_more(prepared: Any) -> None:
    """A prepared statement is looked at again; a stored view is listed as a way to rows."""
    with prepared.connect("owner1", autocommit=True) as owner:
        owner.execute("set client_min_messages = error; set dp.epsilon = 50")
        owner.execute("create table later (x int); insert into later values (3)")
        asked = "select count(*) from dpv.customer where c_id > (select max(x) from later)"
        owner.execute(f"prepare kept as {asked}; create view kept_view as {asked}")
        owner.execute("grant select on kept_view to alice")
        prepared.sql("select dp.grant_budget('owner1', epsilon => 1000, delta => 1e-4)")
        assert abs(owner.execute("execute kept").fetchone()[0] - 57) <= 1
        owner.execute("select dp.protect('later')")
        assert refused(owner, "execute kept").sqlstate == "PD011"
        holes = owner.execute(
            "select hole from dp.check_lockdown() where object like '%kept_view%'"
        )
        assert ("view",) in holes.fetchall()
