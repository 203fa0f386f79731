"""psycopg 3: every way in which it sends a statement and reads an answer."""

from __future__ import annotations

import asyncio
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

STATUS = 'select o_status, count(*) from dpv."Orders" where o_amount < {} group by 1 order by 1'
PRIVATE = 'select o_status, dp_count(*) from "Orders" where o_amount < {} group by 1 order by 1'

LEVELS = [None, *psycopg.IsolationLevel]


def test_all_protocols_get_one_answer(shop: Any) -> None:
    with shop.costs(1), shop.connect(autocommit=True) as session:
        simple = psycopg.ClientCursor(session).execute(STATUS.format("%s"), [50]).fetchall()
        assert [row[0] for row in simple] == ["back", "open", "sent"]
        raw = psycopg.RawCursor(session)
        for statement, given in (
            (STATUS.format(50), None),
            (STATUS.format("%s"), [50]),
            (STATUS.format("%s"), [Decimal("50")]),
            (STATUS.format("%s::int"), ["50"]),
        ):
            for way in ({}, {"binary": True}, {"prepare": True}, {"prepare": True, "binary": True}):
                assert session.execute(statement, given, **way).fetchall() == simple
        assert raw.execute(STATUS.format("$1"), [50]).fetchall() == simple
        both = session.execute(f"{STATUS.format(50)}; {STATUS.format(50)}")
        assert both.fetchall() == simple
        assert both.nextset()
        assert both.fetchall() == simple
    assert shop.stored(PRIVATE.format(50)) == simple


def test_types_arrive_in_text_and_in_binary(shop: Any) -> None:
    question = """select date_trunc('month', o_at) as month, o_day, count(*) as n, sum(o_amount) as total, avg(o_amount) as mean,
        stddev(o_amount) as spread, count(distinct o_note) as notes from dpv."Orders" where o_day < '2024-01-03' group by 1, 2 order by 1, 2"""
    with shop.connect() as session:
        answers = [session.execute(question, binary=binary) for binary in (False, True)]
        assert (
            len({str([(c.name, c.type_code) for c in a.description or ()]) for a in answers}) == 1
        )
        text, binary = (answer.fetchall() for answer in answers)
    assert text == binary
    assert {len(text) > 0} == {True}
    for row in text:
        assert [type(value) for value in row] == [
            datetime,
            date,
            int,
            Decimal,
            Decimal,
            Decimal,
            int,
        ]


def test_cursors_of_the_server_fetch_piece_by_piece(shop: Any) -> None:
    question = 'select o_day, count(*) from dpv."Orders" group by 1 order by 1'
    with shop.costs(1), shop.connect() as session:
        known = session.execute(question).fetchall()
        assert len(known) == 91
        with session.cursor("piecewise") as cursor:
            cursor.itersize = 10
            assert list(cursor.execute(question)) == known
        with session.cursor("back", scrollable=True) as cursor:
            cursor.execute(question)
            cursor.scroll(90)
            assert cursor.fetchone() == known[90]
            cursor.scroll(0, mode="absolute")
            assert cursor.fetchmany(3) == known[:3]
        with session.cursor("held", withhold=True) as cursor:
            cursor.execute(question)
            session.commit()
            assert cursor.fetchall() == known


def test_a_pipeline_answers_what_it_can(shop: Any) -> None:
    with shop.costs(2), shop.connect(autocommit=True) as session:
        with session.pipeline():
            one = session.execute("select count(*) from dpv.customer where c_id < %s", [31])
            two = session.execute("select count(*) from dpv.customer where c_id < %s", [32])
        assert isinstance(one.fetchone()[0], int)
        assert isinstance(two.fetchone()[0], int)

        def fail() -> None:
            with session.pipeline():
                session.execute("select count(*) from dpv.customer where c_id < %s", [31])
                session.execute("select * from dpv.customer")

        with pytest.raises(psycopg.Error) as caught:
            fail()
        assert caught.value.sqlstate == "PD010"
        again = session.execute("select count(*) from dpv.customer where c_id < 31")
        assert (
            again.fetchone() == shop.stored("select dp_count(*) from customer where c_id < 31")[0]
        )


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_sessions_that_only_read_ask(shop: Any, autocommit: bool, level: Any) -> None:
    with shop.connect(autocommit=autocommit) as session:
        session.read_only = True
        session.isolation_level = level
        with session.transaction():
            first = session.execute("select count(*) from dpv.customer").fetchone()
        assert session.execute("select count(*) from dpv.customer").fetchone() == first
    assert shop.stored("select dp_count(*) from customer") == [first]


def test_what_was_asked_in_a_transaction_stays_charged(shop: Any) -> None:
    question = "select count(*) from dpv.customer where c_id < 17"
    with shop.costs(1), shop.connect() as session:
        first = session.execute(question).fetchone()
        session.rollback()
        assert session.execute(question).fetchone() == first
        with session.transaction():
            assert session.execute(question).fetchone() == first
            raise psycopg.Rollback
        assert session.execute(question).fetchone() == first


@pytest.mark.parametrize("form", ["text", "csv header", "binary"])
def test_answers_are_copied_out(shop: Any, form: str) -> None:
    question = STATUS.format(20)
    kind, *more = form.split()
    options = f"format {kind}" + "".join(f", {word}" for word in more)
    with shop.connect() as session:
        known = session.execute(question).fetchall()
        with session.cursor().copy(f"copy ({question}) to stdout ({options})") as copy:
            if kind == "csv":
                found = b"".join(bytes(block) for block in copy).decode().splitlines()
                assert found == ["o_status,count", *(f"{s},{n}" for s, n in known)]
            else:
                copy.set_types(["text", "int8"])
                assert list(copy.rows()) == known
        for statement, state in (
            ('copy (select * from dpv."Orders") to stdout', "PD010"),
            ('copy dpv."Orders" to stdout', "42809"),
            ('copy "Orders" to stdout', "42501"),
        ):
            with pytest.raises(psycopg.Error) as caught, session.cursor().copy(statement) as copy:
                list(copy)
            assert caught.value.sqlstate == state
            session.rollback()


def test_errors_are_told_and_the_session_goes_on(shop: Any) -> None:
    with shop.costs(0), shop.connect() as session:
        for statement, state, told in (
            ('select * from dpv."Orders"', "PD010", 'SELECT count(*) FROM dpv."Orders"'),
            ("select o_status from dpv.\"Orders\" where o_id = 1", "PD010", "Numbers:"),
            ("select string_agg(o_note, ',') from dpv.\"Orders\"", "PD011", "Use count"),
            ("select count(*) from dpv.customer full join dpv.\"Orders\" on c_id = o_customer", "PD011", "inner join"),
        ):  # fmt: skip
            for way in ({}, {"prepare": True}, {"binary": True}):
                with pytest.raises(psycopg.errors.DatabaseError) as caught:
                    session.execute(statement, **way)
                assert caught.value.sqlstate == state
                assert told in str(caught.value.diag.message_hint)
                session.rollback()
        with session.transaction():
            with pytest.raises(psycopg.Error), session.transaction():
                session.execute('select * from dpv."Orders"')
            assert session.execute("select 1").fetchone() == (1,)


def test_names_are_composed_and_probes_cost_nothing(shop: Any) -> None:
    with shop.costs(0), shop.connect() as session:
        table = sql.Identifier("dpv", "Orders")
        probe = session.execute(sql.SQL("select * from {} limit 0").format(table))
        assert [c.name for c in probe.description or ()][:2] == ["o_id", "o_customer"]
        assert [c.type_display for c in probe.description or ()][:4] == [
            "int8",
            "int4",
            "text",
            "numeric(10,2)",
        ]
        assert session.execute("select * from dpv.customer where false").fetchall() == []
        described = session.pgconn
        described.prepare(b"described", b'select o_status, count(*) from dpv."Orders" group by 1')
        shape = described.describe_prepared(b"described")
        assert [shape.fname(i) for i in range(shape.nfields)] == [b"o_status", b"count"]


def test_answers_are_stored_and_inserted(shop: Any) -> None:
    with shop.costs(1), shop.connect(autocommit=True) as session:
        session.execute(f"create table public.answers as {STATUS.format(30)}")
        session.execute(f"insert into public.answers {STATUS.format(30)}")
        found = session.execute(
            "select o_status, count(*), min(count), max(count) from answers group by 1"
        ).fetchall()
        assert len(found) == 3
        assert all(n == 2 and low == high for _, n, low, high in found)
        session.execute("drop table public.answers")


def test_several_at_once_ask_without_waiting_in_vain(shop: Any) -> None:
    async def ask(number: int) -> Any:
        session = await psycopg.AsyncConnection.connect(shop.conninfo(), autocommit=True)
        async with session:
            cursor = await session.execute("select count(*) from dpv.customer where c_id > 9")
            return await cursor.fetchone()

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*map(ask, range(4)))

    with shop.costs(1):
        assert len(set(asyncio.run(all_of_them()))) == 1
