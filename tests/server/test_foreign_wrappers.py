"""Foreign tables of wrappers that take no snapshot: rows could change while a question is answered."""

from __future__ import annotations

from typing import Any

from tests.server.asking import refused

SET_UP = """
create extension file_fdw;
create server files foreign data wrapper file_fdw;
create foreign table public.visit (v_who int not null, v_what int) server files
  options (program 'seq -f %g,1 5', format 'csv');
alter foreign table public.visit owner to owner1;
grant pg_execute_server_program to dp_executor;
grant dp_owner to owner1;
set role owner1;
select dp.protect('public.visit');
select dp.grant_budget('alice', epsilon => 1e4, delta => 1e-4);
"""
QUESTION = "select dp_count(*) from public.visit"
UNIT = """
select dp.unprotect('public.visit');
select dp.protect('public.visit', privacy_unit => 'v_who');
"""


def test_one_without_snapshots_is_asked_about_by_units_only(database: Any) -> None:
    database.sql(SET_UP)
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 50; set dp.delta = 1e-6")
        said = refused(alice, QUESTION).diag
        assert (said.sqlstate, said.message_primary, said.message_detail, said.message_hint) == (
            "PD012",
            "relation public.visit cannot be queried privately",
            "The reason: server files is not one of postgres_fdw, and could show other rows from"
            " statement to statement, while it is protected row by row.",
            "Ask its owner to run SELECT dp.protect('public.visit', privacy_unit => ...), or query"
            " other relations.",
        )
        assert database.sql("select count(*) from dp.spend") == [(0,)]
        database.sql(UNIT, user="owner1")
        (found,) = alice.execute(QUESTION).fetchone()
        assert 0 <= found <= 30
