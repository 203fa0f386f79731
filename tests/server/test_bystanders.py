"""A role that owns nothing of a question cannot disturb it: no token of others moves."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

QUESTIONS = (
    "select dp_count(*) from bt",
    "select e, dp_count(*) from bt group by e",
    "select p, dp_count(*) from bt join bp on p = a group by p",
    "select dp_count(*) from bv",
)
TEMPORARY = "create type pg_temp.te as enum ('x')"
# what a role may do that has a right to read the public relation and a column, TEMP, and nothing else
DISTURBANCES = {
    "cast of integer": f"{TEMPORARY}; create cast (int as pg_temp.te) with inout",
    "cast of the column's type": f"{TEMPORARY}; create cast (be as pg_temp.te) with inout as implicit",
    "cast to the column's type": f"{TEMPORARY}; create cast (pg_temp.te as be) with inout",
    "cast of the array": (
        f"{TEMPORARY}; create function pg_temp.f(be[]) returns pg_temp.te language sql"
        " as $$ select 'x'::pg_temp.te $$;"
        " create cast (be[] as pg_temp.te) with function pg_temp.f(be[])"
    ),
    "grant of what one may not grant": "grant select on bp to bob",
    "revoke of what one may not revoke": "revoke select on bp from bob",
    "grant on a column": "grant select (a) on bt to bob",
    "grant on a type": "grant usage on type be to bob",
    "revoke on a type": "revoke usage on type be from public",
    "grant on the schema": "grant usage on schema public to bob",
    "temporary relations": (
        "create temp table tt (a int primary key, b int references tt); create index on tt (b);"
        " create temp view tv as select * from bp; drop view tv; drop table tt"
    ),
    "temporary functions": (
        "create function pg_temp.g() returns int language sql as 'select 1'; drop function pg_temp.g()"
    ),
}
# what an owner does there must be seen
CHANGES = (
    "create cast (be as text) with inout as implicit",
    "create cast (be[] as text) with inout as assignment",
    "create cast (be as be2) with inout",
    "alter type be rename value 'y' to 'z'",
    "alter type be rename to be9; alter type be9 rename to be",
    "alter type be2 add value 'v'",
    "alter table bt rename to bt9; alter table bt9 rename to bt",
    "alter table bt owner to bob",
    "alter table bt rename a to a9",
    "alter table bt alter a drop not null",
    "alter table bt alter f type be using null",
    "revoke select on bt from dp_executor",
    "revoke select (a) on bt from mallory",
    "alter table bt set unlogged",
    "truncate bt",
)
TOKENS = """select dp.fingerprint(array['bt'::regclass, 'bp'::regclass, 'bv'::regclass]::oid[]
    || array['be'::regtype, 'be2'::regtype]::oid[])"""


@pytest.fixture
def shop(database: Any) -> Any:
    """Declare relations with an enum column, and mallory, who may read a little."""
    database.sql(
        "create type be as enum ('x', 'y'); create type be2 as enum ('v1', 'w');"
        " create table bt (a int not null, e be, f be2); create table bp (p int primary key);"
        " insert into bt select i % 3, 'x' from generate_series(1, 100) i;"
        " insert into bp values (0), (1), (2);"
        " create view bv as select a from bt where e = 'x'::be;"
        " grant select on bp to mallory; grant select (a) on bt to mallory;"
        " select dp.protect('bt'), dp.declare_public('bp'), dp.declare_view('bv');"
        " select dp.set_domain('bt', 'e', array['x', 'y']);"
        " select dp.grant_budget('alice', 1000)"
    )
    return database


@pytest.mark.parametrize("how", DISTURBANCES)
def test_nothing_that_a_bystander_does_moves_a_token(shop: Any, how: str) -> None:
    with shop.connect(user="alice") as alice, shop.connect(user="mallory") as mallory:
        told: list[str] = []
        alice.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        first = [alice.execute(question).fetchall() for question in QUESTIONS]
        spent = shop.sql("select sum(epsilon) from dp.ledger")
        before = shop.sql(TOKENS)
        told.clear()
        mallory.execute(DISTURBANCES[how])
        assert shop.sql(TOKENS) == before
        # nor is anything refused that is analysed anew
        with shop.connect(user="alice") as again:
            for asker in (alice, again):
                assert [asker.execute(question).fetchall() for question in QUESTIONS] == first
        assert shop.sql("select sum(epsilon) from dp.ledger") == spent
        shop.sql("select dp.set_domain('bt', 'e', array['x'])")


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_owner_changes_moves_it(shop: Any, change: str) -> None:
    before = shop.sql(TOKENS)
    shop.sql(change)
    assert shop.sql(TOKENS) != before


def test_a_type_inside_a_view_counts(shop: Any) -> None:
    """With the cast the view's comparison means nothing any more: it is analysed again."""
    shop.sql("create view bw as select a from bt where 'x'::be < 'y'::be")
    shop.sql("select dp.declare_view('bw')")
    shop.sql("alter table bt drop column e cascade")
    with shop.connect(user="alice") as alice:
        first = alice.execute("select dp_count(*) from bw").fetchall()
        assert alice.execute("select dp_count(*) from bw").fetchall() == first
        shop.sql("create cast (be as text) with inout as implicit")
        with pytest.raises(psycopg.Error, match="operator is not unique"):
            alice.execute("select dp_count(*) from bw")


def test_casts_in_a_loop_beside_questions(shop: Any) -> None:
    """No question fails and none is charged for nothing, however often the cast comes and goes."""
    stop = threading.Event()

    def loop() -> None:
        with shop.connect(user="mallory") as mallory:
            mallory.execute(TEMPORARY)
            while not stop.is_set():
                mallory.execute("create cast (int as pg_temp.te) with inout")
                mallory.execute("drop cast (int as pg_temp.te)")
                mallory.execute("grant select on bp to bob; grant usage on type be to bob")

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        with shop.connect(user="alice") as alice:
            for k in itertools.count():
                alice.execute(f"select e, dp_count(*) from bt where a > {-k} group by e")
                if k == 60:
                    break
    except psycopg.Error as error:
        pytest.fail(f"{error.sqlstate} {error} {error.diag.message_detail}")
    finally:
        stop.set()
        thread.join()
