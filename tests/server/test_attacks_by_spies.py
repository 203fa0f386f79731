"""What a spy tries through PostgreSQL: all that he sees is the same with and without the planted person.

Open, with `dp.lockdown`, and through exposed views where there is a way through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import spying
from tests.server.asking import PARALLEL, major
from tests.server.spying import Attack

MORE = """
create extension postgres_fdw;
create extension dblink;
grant usage on foreign data wrapper postgres_fdw to spy_one;
grant execute on function dblink_connect_u(text, text) to spy_one;
"""
COUNT = "select dp_count(*) from person where "
VIEW = "select count(*) from dpv.person where "
LEAK = """create function spies.leak{0} returns boolean language plpgsql cost 0.0000001 as
 $$ begin raise notice 'saw %', {1}; return true; end $$"""
#: On one row only they raise an error, if they are evaluated as they are written.
RAISING = [
    "1 / (id - 777) < 5", "weight * 10 > 1", "weight::real > 1", "(age * 100000000) > 7", "(kind || '')::int > 0", "substr(note, 1, 0 - age) = 'x'",
    "(1000000 * (id - 776))::smallint = 1", "sqrt(30.0 - age) > 0", "ln(age - 33) > 0", "chr(age - 33) = 'x'", "repeat(note, 1000000000) = 'x'",
    "note::regclass is not null", "note::json is not null", "to_date(note, 'YYYY') > '2000-01-01'", "('2020-01-' || age)::date > '2000-01-01'",
    "width_bucket(weight, 0, 1, age - 33) = 1", "note ~ kind", "note like kind || '\\'", "pg_sleep((id = 777)::int) is null", "lo_get(id) is null",
    "(select note::int from town limit 1) = 3", "array_fill(1, array[id * 1000000]) is null", "case when id = 777 then 1/0 else 1 end = 1", "factorial(id * 100) > 0",
]  # fmt: skip
RAISING_VISITS = [
    "extract(epoch from at + interval '200000 years') > 0",
    "at + paid * interval '100000 years' > now()",
    "paid * 1e6 * 1e6 > 3",
    "(paid ^ 1000) > 3",
]
SUMS = [
    "1 / (id - 777)",
    "weight * weight",
    "age / (id - 777)",
    "(weight * 1e10)::int",
    "power(age, 1000)",
]

ATTACKS: dict[str, Attack] = {
    # D: errors, side effects
    "errors of rows": Attack([way + text for text in RAISING for way in (COUNT, VIEW)] + ["select 1"], "", noisy=True),
    "errors of rows of many": Attack([f"select {way} where {text}" for text in RAISING_VISITS for way in ("dp_count(*) from visit", "count(*) from dpv.visit")]
                                     + ["select 1"], "", noisy=True),
    "errors in sums": Attack([f"select dp_{kind}({text}, 0, 10) from {place}" for text in SUMS for kind, place in (("sum", "person"), ("avg", "dpv.person"), ("median", "person"))]
                             + ["select 1"], "", noisy=True),
    "a function in a condition": Attack([LEAK.format("(int)", "$1"), COUNT + "spies.leak(id)"], "PD013"),
    "a function in a condition of a view": Attack([LEAK.format("(int)", "$1"), VIEW + "spies.leak(id)"], "PD013"),
    "a function before the filter of a view": Attack([LEAK.format("(int)", "$1"), "select * from dpv.person where spies.leak(id)"], "PD010"),
    "a function that is inlined": Attack(["create function spies.f(int) returns boolean language sql immutable as 'select $1 = 777'", COUNT + "spies.f(id)"], "PD013"),
    "a set that is inlined": Attack(["create function spies.s() returns setof person language sql stable as 'select * from public.person'", "select dp_count(*) from spies.s()"], "PD011"),
    "a set that is inlined, read": Attack(["create function spies.s() returns setof person language sql stable as 'select * from public.person'", "select * from spies.s()"], "42501"),
    "an operator": Attack([LEAK.format("(int, int)", "$1"), "create operator spies.= (function = spies.leak, leftarg = int, rightarg = int)",
                           "set search_path = spies, pg_catalog, public", "select dp_count(*) from public.person where id = 777"], "PD011"),
    "an operator behind USING": Attack([LEAK.format("(int, int)", "$1"), "create operator spies.= (function = spies.leak, leftarg = int, rightarg = int)",
                                        "set search_path = spies, pg_catalog, public", "select dp_count(*) from public.person join public.visit using (id)"], "PD013"),
    "a cast": Attack(["create type spies.note as (a text)", LEAK.format("(spies.note)", "$1"), "create cast (spies.note as boolean) with function spies.leak(spies.note)",
                      COUNT + "row(note)::spies.note::boolean"], "PD011"),
    "a domain": Attack([LEAK.format("(int)", "$1"), "create domain spies.d as int check (spies.leak(value))", COUNT + "id::spies.d = 7"], "PD013"),
    "a type's own text": Attack(["create type spies.t as enum ('a', 'b')", COUNT + "kind::spies.t = 'a'"], "PD013"),
    "an aggregate of the same name": Attack(["create aggregate spies.dp_count(*) (sfunc = int8inc, stype = int8, initcond = '0')", "set search_path = spies, public",
                                             "select dp_count(*) from person"], "42501"),
    "a post-processor": Attack(["create table spies.log (n bigint)", "create function spies.keep(bigint) returns boolean language plpgsql as $$ begin raise notice 'once'; return true; end $$",
                                "select spies.keep(n) from (select dp_count(*) as n from person) as s"], "", noisy=True),
    # E: PostgreSQL's surfaces
    "EXPLAIN of the question": Attack(["explain select dp_count(*) from person where note = 'x'"], ""),
    "EXPLAIN of the question, all": Attack(["explain (verbose, settings) select kind, dp_count(*) from person join visit on person = person.id group by kind"], ""),
    "EXPLAIN of a view": Attack(["explain (verbose) select kind, count(*) from dpv.person where note = 'x' group by kind"], ""),
    "EXPLAIN ANALYZE": Attack(["explain (analyze, costs off, timing off, summary off, buffers off) select dp_count(*) from person where kind = 'a'"], ""),
    "EXPLAIN of the relation": Attack(["explain select * from person where kind = 'x'"], "42501"),
    "EXPLAIN of somebody's view": Attack(["explain select * from seen"], "42501"),
    "statistics through an operator": Attack([LEAK.format("(int, int)", "$1"), "create operator spies.<<< (function = spies.leak, leftarg = int, rightarg = int, restrict = scalarltsel, join = scalarltjoinsel)",
                                              "explain select * from person where age operator(spies.<<<) 50"], "42501"),
    "statistics through a join": Attack([LEAK.format("(int, int)", "$1"), "create operator spies.=== (function = spies.leak, leftarg = int, rightarg = int, restrict = eqsel, join = eqjoinsel, hashes, merges)",
                                         "explain select * from person join visit on person.id operator(spies.===) person"], "42501"),
    "statistics": Attack(["select * from pg_stats where tablename in ('person', 'visit')", "select stxname from pg_statistic_ext", "select * from pg_statistic"], "42501"),
    "an index of one's own": Attack(["create index on person ((1 / (id - 777)))"], "42501"),
    "a constraint of one's own": Attack(["create table spies.child (id int references person)"], "42501"),
    "a view swapped below a plan": Attack(["create table spies.own (id int)", "create view spies.v as select id from spies.own", "prepare p as select count(*) from spies.v", "execute p",
                                           "create or replace view spies.v as select id from public.person", "execute p"], "42501"),
    "a table swapped below a plan": Attack(["create table spies.person (id int)", "set search_path = spies, public", "prepare p as select count(*) from person", "execute p",
                                            "prepare q as select * from person", "drop table spies.person", "execute q", "execute p"], "42501"),
    "parallel workers": Attack([PARALLEL, "set parallel_setup_cost = 0", "set parallel_tuple_cost = 0", "set min_parallel_table_scan_size = 0",
                                "set max_parallel_workers_per_gather = 4", "set debug_print_plan = on", "set client_min_messages = notice", COUNT + "age = 33"], "", noisy=True),
    "locks while reading": Attack(["begin isolation level serializable", COUNT + "id = 777", "rollback", "begin isolation level repeatable read", COUNT + "id = 777",
                                   "select count(*) from pg_locks where locktype in ('tuple', 'page')"], "", noisy=True),
    "COPY TO PROGRAM": Attack(["copy person to program 'cat > /tmp/stolen'"], "42501"),
    "COPY of a query TO PROGRAM": Attack([f"copy ({COUNT} id = 777) to program 'cat > /tmp/stolen'"], "42501"),
    "COPY TO a file": Attack(["copy person to '/tmp/stolen'"], "42501"),
    "COPY TO the client": Attack(["copy person to stdout"], "42501"),
    "COPY of a view": Attack(["copy (select * from dpv.person) to stdout"], "PD010"),
    "COPY FROM": Attack(["copy person from program 'echo 1'"], "42501"),
    "dblink to oneself": Attack(["select dblink_connect('dbname=' || current_database())"], "2F003"),
    "dblink as somebody else": Attack(["select * from dblink('dbname=' || current_database() || ' user=postgres', 'select note from public.person') as t(a text)"], "2F003"),
    "postgres_fdw to oneself": Attack(["create server me foreign data wrapper postgres_fdw options (host 'HOST', port 'PORT', dbname 'DBNAME')",
                                       "create user mapping for current_user server me options (user 'postgres')",
                                       "create foreign table spies.person (id int, note text) server me options (schema_name 'public', table_name 'person')",
                                       "select count(*) from spies.person"], "2F003"),
    "a foreign table in a question": Attack(["create server me foreign data wrapper postgres_fdw options (dbname 'DBNAME')",
                                             "create foreign table spies.more (id int, note text) server me", "select dp_count(*) from spies.more, person"], "PD012"),
    "logical decoding": Attack(["select * from pg_create_logical_replication_slot('spy', 'test_decoding')"], "42501"),
    "a publication": Attack(["create publication mine for table person"], "42501"),
    "a subscription": Attack(["create subscription mine connection 'dbname=postgres' publication p with (connect = false)"], "42501"),
    "a trigger": Attack(["create trigger t after insert on person execute function suppress_redundant_updates_trigger()"], "42501"),
    "a rule": Attack(["create rule r as on select to person do instead select 1"], "42501"),
    "a policy": Attack(["create policy p on person using (true)"], "42501"),
    "inheritance": Attack(["create table spies.child () inherits (person)"], "42501"),
    "a snapshot of somebody": Attack(["begin isolation level repeatable read", "set transaction snapshot '00000003-0000001B-1'"], "22023"),
    "text that runs": Attack(["select query_to_xml('select * from public.person', true, true, '')"], "42501"),
    "text that runs, of a table": Attack(["select table_to_xml('public.person', true, true, '')"], "42501"),
    "a cursor of a table": Attack(["begin", "declare c cursor for select * from person"], "42501"),
    "row locks": Attack(["select 1 from person where id = 777 for key share"], "42501"),
    "row locks of a view": Attack(["select 1 from dpv.person where id = 777 for share"], "42501"),
    "a conflict": Attack(["insert into person (id) values (777) on conflict do nothing"], "42501"),
    "a conflict with a view": Attack(["insert into dpv.person (id) values (777)"], "55000"),
    "one view, many evaluations": Attack(["create temp view asked as select dp_count(*) as n from person", "select * from asked limit 0", "explain select * from asked"], ""),
    "false conditions": Attack(["select kind, count(*) from dpv.person where 1 <> 1 group by kind", "select * from dpv.person limit 0", "select note from dpv.person where false"], ""),
    "the owner's functions": Attack(["select dp.query('select note from public.person')"], "PD011"),
    "the owner's inspection": Attack(["select * from dp.sensitivity('select dp_count(*) from person')"], "PD070"),
    "the library's own functions": Attack(["select dp.draw('x', 1, 1, 1)"], "42501"),
    "a seed": Attack(["set dp.seed = 1"], "42602"),
    "no noise": Attack(["set dp.noise = off"], "42602"),
    "an epsilon without noise": Attack(["set dp.epsilon = 1e20"], "22023"),
    "sums without bounds": Attack(["select dp_sum(weight) from person"], "PD011"),
    "averages without bounds": Attack(["select dp_avg(weight + weight) from person"], "PD011"),
    "groups that are not declared": Attack(["set dp.delta = 1e-12", "select note, dp_count(*) from person group by note having dp_count(*) < 5"], "", noisy=True),
    "values outside of the domain": Attack(["select kind, dp_count(*) from person group by kind", "select distinct kind from dpv.person"], "", noisy=True),
    "an undeclared relation": Attack(["select dp_count(*) from seen"], "PD012"),
}  # fmt: skip
CLEAN = """drop schema spies cascade; create schema spies; grant all on schema spies to public;
drop server if exists me cascade"""
#: How those end that lockdown stops earlier.
CLOSED = {
    "locks while reading": "42501",
    "one view, many evaluations": "42P01",
    "dblink to oneself": "42501",
    "dblink as somebody else": "42501",
}


@pytest.fixture(scope="module", params=["open", "locked"])
def pair(server: Any, request: Any) -> Iterator[tuple[Any, Any]]:
    with spying.spies(server):
        made = spying.make(server, MORE)
        if request.param == "locked":
            for database in made:
                database.sql("select dp.lockdown()")
                database.sql("grant create, usage on schema spies to spy_one")
        yield made
        for database in made:
            server.drop_database(database)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_spy_sees_the_same_with_and_without_the_person(
    pair: tuple[Any, Any], request: Any, name: str
) -> None:
    attack = ATTACKS[name]
    if "locked" in request.node.callspec.id and name in CLOSED:
        attack = Attack(attack.script, CLOSED[name], attack.noisy)
    if name == "a snapshot of somebody" and major(pair[0]) >= 17:
        attack = Attack(attack.script, "42704")  # PostgreSQL's own state for it
    fewer, more = (spying.visible(database, attack) for database in pair)
    assert fewer == more
    if any("spies." in statement for statement in attack.script):
        for database in pair:
            database.sql(CLEAN)


def test_a_spy_who_may_read_sees_the_difference(pair: tuple[Any, Any]) -> None:
    """The comparison finds what it looks for."""
    seen = []
    for database in pair:
        database.sql("grant select (id) on person to spy_two")
        attack = Attack(["select count(id) from person"], "")
        seen.append(spying.visible(database, attack, "spy_two"))
        database.sql("revoke select (id) on person from spy_two")
    assert seen[0] != seen[1]
