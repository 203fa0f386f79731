"""Functions of the extension may be altered while they answer: the server must survive it."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

SECONDS = 6.0
#: So many answers beside alterations, however long they take on a busy machine.
LEAST, PATIENCE = 11, 180.0
#: What an analyst may call, and a question through it.
CALLS = {
    "dp.run(text, text[])": "select k, dp_count(*) from ar group by k",
    "dp.run_json(text, double precision, text)": (
        "select count(*) from dp.query($$ select k, dp_count(*) from ar group by k $$)"
    ),
    "dp.explain_query(text, text)": (
        "select * from dp.explain($$ select k, dp_count(*) from ar group by k $$)"
    ),
    "dp.estimate_query(text, text)": (
        "select * from dp.estimate($$ select k, dp_count(*), dp_sum(k, 0, 9) from ar group by k $$)"
    ),
}
#: The procedure in PL/Python that answers all of them.  A procedure has no cost.
SERVE = "procedure dp.python_serve(text[], text, text, text[], text, oid, integer, boolean, oid, text, text)"
STEPS = ("cost 90", "cost 100")


@pytest.fixture
def shop(database: Any) -> Any:
    """Declare a relation with many groups, each of which is a row that is returned."""
    database.sql(
        "create table ar (k int); insert into ar select i % 300 from generate_series(1, 3000) i;"
        " select dp.protect('ar'), dp.set_domain('ar', 'k', array(select generate_series(0, 299)::text));"
        " select dp.grant_budget('alice', 1000)"
    )
    return database


def test_no_python_function_returns_rows_one_by_one(shop: Any) -> None:
    """PL/Python frees the function between two rows of one call when its pg_proc row changed."""
    assert (
        shop.sql(
            "select p.oid::regprocedure::text from pg_proc p join pg_language l on l.oid = p.prolang"
            " where l.lanname = 'plpython3u' and p.proretset"
        )
        == []
    )


@pytest.mark.parametrize("function", CALLS)
def test_altering_beside_questions(shop: Any, function: str) -> None:
    stop = threading.Event()

    def loop() -> None:
        with shop.connect() as owner:
            while not stop.is_set():
                for step in STEPS:
                    owner.execute(f"alter function {function} {step}")
                    owner.execute(f"alter {SERVE} security invoker")

    thread = threading.Thread(target=loop)
    with shop.connect(user="alice") as alice:
        rows = len(alice.execute(CALLS[function]).fetchall())
        thread.start()
        try:
            start, asked = time.monotonic(), 0
            while (passed := time.monotonic() - start) < SECONDS or asked < LEAST:
                assert passed < PATIENCE, asked
                assert len(alice.execute(CALLS[function]).fetchall()) == rows
                asked += 1
        finally:
            stop.set()
            thread.join()


def test_no_function_is_called_again_below_itself(shop: Any) -> None:
    """Analysis would read the array with the asker's code, which asks again.

    PostgreSQL runs that code in the asker's backend, where it asks a question of its own.
    """
    shop.sql(
        "create function ask(int) returns bool language plpgsql set search_path = public as $$"
        " begin perform n from (select dp_count(*) as n from ar) s; return true; end $$;"
        " create domain asks as int check (ask(value));"
        " select dp.grant_budget('postgres', 10)"
    )
    asked = "select dp_count(*) from ar where k = any ('{1}'::asks[])"
    for sql in (asked, f"select dp.release('r', $$ {asked} $$, 1)"):
        with pytest.raises(psycopg.Error) as caught:
            shop.sql(sql)
        assert caught.value.sqlstate == "PD013", sql
    assert shop.sql("select question, state from dp.spend where question ~ 'any'") == []
    shop.sql("select dp_count(*) from ar")


@pytest.mark.parametrize("before", ["select 1", "create table other (a int)"])
def test_code_that_analysis_could_run_alters_nothing(shop: Any, before: str) -> None:
    """It would alter the procedure below itself."""
    shop.sql(
        f"create function alters(int) returns bool language plpgsql as $$"
        f" begin alter {SERVE} security invoker; return true; end $$;"
        " create domain altering as int check (alters(value));"
        " create table said (a int);"
        " create function says(int) returns bool language plpgsql set search_path = public as $$"
        " begin insert into said values (1); return true; end $$;"
        " create domain saying as int check (says(value));"
        " select dp.grant_budget('postgres', 10)"
    )
    for domain in ("altering", "saying"):
        with shop.connect() as asker:
            asker.execute(f"begin; {before}; set local statement_timeout = '60s'")
            with pytest.raises(psycopg.Error, match="CHECK of a domain") as caught:
                asker.execute(f"select dp_count(*) from ar where k = any ('{{1}}'::{domain}[])")
            assert caught.value.sqlstate == "PD013"
            asker.execute("rollback")
    assert shop.sql("select count(*) from said") == [(0,)]
    assert shop.sql("select count(*) from dp.spend") == [(0,)]
    shop.sql("select dp_count(*) from ar")
