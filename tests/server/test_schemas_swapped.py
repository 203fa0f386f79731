"""A name that means another relation while a question is read, and the old one again afterwards."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.in_service import after_the_charge, in_service

pytestmark = pytest.mark.server

MADE = """
create schema mine authorization mallory;
create schema other authorization mallory;
grant dp_owner to mallory;
grant create on database {database} to mallory;
grant usage on schema mine, other to alice, dp_executor;
"""
TABLES = """
create table mine.list (k int primary key, v int);
insert into mine.list select i, i from generate_series(1, 10) i;
create table other.list (k int, v int);
insert into other.list select 1 + i % 10, i from generate_series(1, 100000) i;
grant select on mine.list, other.list to dp_executor, alice;
select dp.declare_public('mine.list');
"""
THERE = "alter schema mine rename to spare; alter schema other rename to mine"
BACK = "alter schema mine rename to other; alter schema spare rename to mine"
QUESTION = "select dp_count(*) from client join mine.list on k = c_id where v < 11"


@pytest.mark.parametrize(
    "question", [QUESTION, QUESTION.replace("dp_count(*)", "dp_sum(v, 0, 10)")]
)
def test_what_took_the_name_of_a_relation_is_not_read(shop: Any, question: str) -> None:
    shop.sql(MADE.format(database=shop.name))
    shop.sql(TABLES, user="mallory")
    owner = shop.conninfo("mallory")
    with shop.connect() as session:
        session.execute(after_the_charge(owner, THERE))
        session.execute(
            in_service(
                f"""
                import psycopg
                import dpsql.engine.answer as answer
                confirm = answer.confirm_read
                def confirm_read(*given):
                    with psycopg.connect({owner!r}, autocommit=True) as other:
                        other.execute({BACK!r})
                    confirm(*given)
                answer.confirm_read = confirm_read
                """
            )
        )
        session.execute("set session authorization alice")
        session.execute("set dp.epsilon = 1")
        with pytest.raises(psycopg.Error) as caught:
            session.execute(question)
    assert caught.value.sqlstate == "PD900"
    assert shop.sql("select state from dp.spend") == [("failed",)]
    assert shop.sql("select * from dp.failures where failures > 0") == []
