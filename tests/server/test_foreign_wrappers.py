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
        # noise other than 0 has a probability of 2 exp(-50): no bound is drawn
        alice.execute("set dp.max_rows_contributed = 1")
        assert alice.execute(QUESTION).fetchone() == (5,)


#: A program that shows other rows each time that it is read, and notes that it was.
CHANGING = """
create extension file_fdw;
create server files foreign data wrapper file_fdw;
create foreign table public.visit (v_who int not null, v_place int) server files
  options (program 'echo >> {log}; seq -f 1,%g 300', format 'csv');
create foreign table public.place (p_id int) server files options (program 'echo >> {log}; echo 1', format 'csv');
create table public.own (o_who int primary key, o_place int);
insert into public.own select i, 1 from generate_series(1, 5) as i;
alter foreign table public.visit owner to owner1;
alter foreign table public.place owner to owner1;
alter table public.own owner to owner1;
grant pg_execute_server_program to dp_executor;
grant dp_owner to owner1;
set role owner1;
select dp.protect('public.visit', privacy_unit => 'v_who'), dp.protect('public.own'), dp.declare_public('public.place');
select dp.grant_budget('alice', epsilon => 1e4, delta => 1e-4);
"""


def test_what_shows_other_rows_each_time_is_read_once(database: Any) -> None:
    """Also where numbers are too large for bigint, which rows of one reading must not decide."""
    log = f"{database.name}.readings"  # in the folder of the server
    database.sql(CHANGING.format(log=log))

    def readings() -> int:
        return int(
            database.sql(f"select length(pg_read_file('{log}', 0, 100000, true))")[0][0] or 0
        )

    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 5; set dp.delta = 1e-7")
        for others in (0, 7):
            joins = (f" join visit x{i} on x{i}.v_who = a.v_who" for i in range(others))
            before = readings()
            alice.execute(f"select dp_count(*) from visit a{''.join(joins)}")
            # and twice, for no row, to see before and after the charge whether it can be read
            assert readings() - before == 1 + 2 + others


def test_a_public_one_is_not_joined_with_rows(database: Any) -> None:
    """The answer could be of other public rows than its bound."""
    database.sql(CHANGING.format(log="/dev/null"))
    join = "select dp_count(*) from own join place on o_place = p_id"
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 50; set dp.delta = 1e-6")
        for question in (join, f"{join} where o_who > 2"):
            said = refused(alice, question).diag
            assert (said.sqlstate, said.message_primary) == (
                "PD011",
                "a foreign table of another wrapper than postgres_fdw cannot be read as of one moment",
            )
        assert database.sql("select count(*) from dp.spend") == [(0,)]
        # units bear it; noise other than 0 has a probability of 2 exp(-50): no bound is drawn
        alice.execute("set dp.max_rows_contributed = 1")
        units = "select dp_count(*) from visit join place on v_place = p_id"
        assert alice.execute(units).fetchone() == (1,)
