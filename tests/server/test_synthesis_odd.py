"""``CALL dp.synthesize`` on odd schemas: every constraint of the original is on the copy.

Numbers of rows are declared, and nothing here depends on how large the noise is; where rows must
satisfy constraints on what is learnt, there is hardly any: noise alone can leave no row that does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

CONSTRAINTS = """
select c.relname::text, k.conname::text, k.contype::text,
  replace(replace(pg_get_constraintdef(k.oid), 'syn.', ''), 'public.', '')
  from pg_constraint as k join pg_class as c on c.oid = k.conrelid
 where c.relnamespace = %(schema)s::regnamespace and k.contype in ('p', 'u', 'f', 'c', 'x')
   and c.relname = any (%(tables)s) and not c.relispartition
 order by 1, 2
"""
COLUMNS = """
select c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
  a.attidentity::text, a.attgenerated::text
  from pg_attribute as a join pg_class as c on c.oid = a.attrelid
 where c.relnamespace = %(schema)s::regnamespace and c.relname = any (%(tables)s)
   and a.attnum > 0 and not a.attisdropped order by 1, a.attnum
"""


@dataclass(frozen=True)
class Odd:
    """A schema: statements that make and declare it, what is copied, and what the copy lacks."""

    made: str
    declared: str
    tables: tuple[str, ...]
    rows: dict[str, int]
    d_max: dict[str, int]
    lacks: frozenset[str] = frozenset()
    more: str = ""
    epsilon: float = 0


def one(made: str, declared: str = "", rows: int = 200, **more: Any) -> Odd:
    """One table ``t`` that is protected row by row."""
    return Odd(made, f"select dp.protect('t'); {declared}", ("t",), {"t": rows}, {}, **more)


def people(made: str, declared: str, rows: dict[str, int], d_max: int = 8, **more: Any) -> Odd:
    """Tables below ``person``, which is the unit, by ``p_id``."""
    first = "create table person (p_id int primary key, p_kind text not null); insert into person select i, 'a' from generate_series(1, 60) i;"
    units = "select dp.protect('person', privacy_unit => 'p_id'); select dp.set_domain('person', 'p_kind', array['a', 'b']);"
    sizes = {"person": 60} | rows
    return Odd(
        first + made, units + declared, tuple(sizes), sizes, dict.fromkeys(rows, d_max), **more
    )


def synthesized(database: Any, odd: Odd, target: str = "syn", epsilon: float = 8) -> list[str]:
    """Make the schema and copy it, with more epsilon where it asks for that; returns what was told."""
    for text in (odd.made, odd.declared):
        for statement in text.split(";"):
            if statement.strip():
                database.sql(statement)
    database.sql("select dp.grant_budget('alice', epsilon => 10000, delta => 0.01)")
    for root in database.sql(
        "select format('%I.%I', schema_name, relation_name) from dp.relations"
        " where kind = 'protected' and declared_by is not null"
    ):
        database.sql(f"select dp.set_root_cap('{root[0]}', 10000, 0.1)")
    database.sql(f"grant create on database {database.name} to alice")
    for (public,) in database.sql(
        "select format('%I.%I', schema_name, relation_name) from dp.relations where kind = 'public'"
    ):
        database.sql(f"grant select, references on {public} to alice")
    alice = database.connect(user="alice")
    told: list[str] = []
    alice.add_notice_handler(lambda d: told.append(str(d.message_primary)))
    alice.execute(
        f"call dp.synthesize('{target}', %s::regclass[], epsilon => {max(epsilon, odd.epsilon)}, delta => 1e-6, d_max => %s,"
        f" row_counts => %s, placeholders => true{odd.more})",
        (list(odd.tables), json.dumps(odd.d_max), json.dumps(odd.rows)),
    )
    return told


def facts(session: Any, query: str, schema: str, tables: list[str]) -> list[Any]:
    return session.execute(query, {"schema": schema, "tables": tables}).fetchall()


def same_constraints(database: Any, odd: Odd) -> None:
    names = [t.strip('"').partition(".")[2] or t.strip('"') for t in odd.tables]
    admin = database.connect()
    admin.execute("set search_path = pg_catalog")
    for query in (COLUMNS, CONSTRAINTS):
        true, made = (facts(admin, query, s, names) for s in ("public", "syn"))
        assert made == [row for row in true if row[1] not in odd.lacks]
    invalid = admin.execute(
        "select count(*) from pg_constraint where connamespace = 'syn'::regnamespace and not convalidated"
    )
    assert invalid.fetchone() == (0,)


SCHEMAS = {
    "no primary key": one("create table t (a int, b text)", "select dp.set_domain('t', 'a', 1, 9)"),
    "nothing learnt": one("create table t (a int, b text)"),
    "one row": one(
        "create table t (id int primary key, a boolean not null); insert into t values (1, true)",
        rows=1,
    ),
    "no row": one("create table t (id int primary key, a boolean not null)", rows=0),
    "no column": one("create table t ()", rows=5),
    "identity": one(
        "create table t (id bigint generated always as identity primary key,"
        " other int generated by default as identity (start 100 increment 5), s smallserial, flag boolean not null)",
    ),
    "serial of a sequence elsewhere": one(
        "create sequence numbers; create table t (id int primary key default nextval('numbers'), n int not null default nextval('numbers'))",
    ),
    "generated": one(
        "create table t (id int primary key, a int, b int generated always as (a * 2) stored unique, c text generated always as (id || '-') stored not null)",
        "select dp.set_domain('t', 'a', 0, 1000)",
        lacks=frozenset({"t_b_key"}),
    ),
    "domains": one(
        "create domain percent as int check (value between 0 and 100); create domain share as percent not null;"
        "create table t (id int primary key, a percent, b share default 5, c percent not null default 7)",
    ),
    "arrays and json": one(
        "create table t (id uuid primary key, a int[], b jsonb not null default '{}', c json, d bytea not null, e text[] not null default '{}')",
    ),
    "citext": one(
        "create extension citext; create table t (id citext primary key, a citext not null, b citext unique)",
    ),
    "enum": one(
        "create type mood as enum ('sad', 'it''s \"ok\"', 'glad'); create table t (m mood not null, k mood unique, id int)",
    ),
    "indexes": one(
        "create table t (id int primary key, a text not null, b int);"
        "create unique index t_lower on t (lower(a)); create unique index t_some on t (b) where b > 3;"
        "create index t_plain on t (b desc nulls last) include (a) with (fillfactor = 70); create unique index t_include on t (id) include (a)",
        "select dp.set_domain('t', 'b', 1, 9)",
    ),
    "deferrable": people(
        "create table visit (v_id int primary key deferrable initially deferred, v_person int not null references person, v_other int references person deferrable, v_no int unique deferrable);"
        "create table bill (b_visit int not null references person deferrable initially deferred, b_up int references person deferrable)",
        "select dp.link('visit', 'person', array['v_other'], follow => false); select dp.link('bill', 'person', array['b_up'], follow => false);"
        "select dp.link('bill', 'person', array['b_visit'], nulls => 'excluded')",
        {"visit": 100, "bill": 80},
    ),
    "nulls not distinct": one(
        "create table t (a int, b boolean, unique nulls not distinct (a, b))",
        # many more pairs than rows, so that all that repeat find room in 60 tries: 40 of 150 pairs
        # did not in one case of 10^4, and 23 tries were the most of 12,000 cases of 600 pairs
        "select dp.set_domain('t', 'a', 1, 400)",
        rows=40,
    ),
    "types": one(
        'create table t (id int primary key, a "char" not null, a2 json not null, a3 int[] not null, a4 inet not null, b money, c interval, d timestamptz(0), e numeric(5,2), f int4range, g bit(3), h inet, i point, j xml, k tsvector, l real, m char(3) not null, n time, o numeric(3,-2), p varchar)',
        "select dp.set_domain('t', 'd', '2020-01-01', '2020-12-31'); select dp.set_domain('t', 'e', 0, 999.99);"
        "select dp.set_domain('t', 'l', 0, 1)",
    ),
    "types of keys": one(
        "create table t (a timestamptz primary key, b date unique, c numeric(4,1) unique, d char(3) unique, e real unique, f name unique, g varchar(3) not null unique, h numeric(4,-1) unique)",
    ),
    "more types of keys": one(
        "create domain code as char(4) check (value <> '0'); create table t (a inet primary key, b time not null unique, c interval unique, d macaddr unique, e bytea unique, f cidr unique,"
        " g timetz unique, h time(0) unique, i bit(9) unique, j varbit unique, k double precision unique, l oid unique, m pg_lsn unique, n jsonb unique, o money unique, p macaddr8 unique, q code not null unique, r bit(80) unique, s varbit(9) unique)",
    ),
    "keys of domains": people(
        "create domain number as bigint check (value > 0); create domain grade as smallint not null check (value between 1 and 5); create domain word as varchar(8) check (value ~ '^[a-z]+$'); create domain short as word check (length(value) < 4);"
        "create function even(int) returns boolean language sql immutable as 'select $1 % 2 = 0'; create domain pair as int check (even(value)); create type mood as enum ('sad', 'glad'); create domain feeling as mood not null;"
        "create table room (r_id number primary key, r_word short not null, r_person number not null references person); insert into room select i, 'ab', 1 + i % 60 from generate_series(1, 300) i;"
        "create table seat (s_id uuid primary key, s_room number not null references room, s_grade grade, s_word word, s_pair pair not null, s_mood feeling, s_sum pair generated always as (s_pair * 2) stored, check (s_pair > s_grade));"
        "insert into seat select gen_random_uuid(), 1 + i % 300, 1 + i % 5, 'ab', 8, 'sad' from generate_series(1, 480) i",
        "select dp.set_domain('seat', 's_grade', 0, 9); select dp.set_domain('seat', 's_word', array['ab', 'cd', 'A']); select dp.set_domain('room', 'r_word', array['ab', 'cd', 'abcd']); select dp.set_domain('seat', 's_pair', 0, 9)",
        {"room": 300, "seat": 480},
        # counts are off by some ten of 480: with less than 1e-12 so many that no row is good
        epsilon=30,
    ),
    "names": Odd(
        'create table "odd.na""me" ("the id" int primary key, "é.ü" text not null, "select" int check ("select" > 0), "Big" int references "odd.na""me");'
        'create index "an.index" on "odd.na""me" ("select")',
        """select dp.protect('"odd.na""me"'); select dp.set_domain('"odd.na""me"', 'é.ü', array['ä', '"', 'b''c', '\\d', ''])""",
        ('"odd.na""me"',),
        {'odd.na"me': 50},
        {},
    ),
    "check between columns": one(
        "create table t (id int primary key, a int not null, b int not null, check (a <= b), check (a + b < 15) no inherit, constraint later check (id > 0) not valid)",
        "select dp.set_domain('t', 'a', 0, 9); select dp.set_domain('t', 'b', 0, 9)",
    ),
    "partitioned": one(
        "create table t (id int, day date not null, kind text, primary key (id, day), check (id > 0)) partition by range (day);"
        "create table t1 partition of t for values from ('2020-01-01') to ('2021-01-01'); create table t2 partition of t default",
        "select dp.set_domain('t', 'day', date '2020-01-01', date '2021-12-31')",
    ),
    "exclusion": one(
        "create table t (id int primary key, r int4range, exclude using gist (r with &&))",
        lacks=frozenset({"t_r_excl"}),
    ),
    "d_max of 1": people(
        "create table visit (v_id int primary key, v_person int not null references person)",
        "",
        {"visit": 30},
        d_max=1,
    ),
    "composite keys": people(
        "create table card (c_person int references person, c_no int, c_kind boolean not null, primary key (c_person, c_no));"
        "create table pay (y_person int, y_card int, y_no smallint, y_ok boolean, primary key (y_person, y_card, y_no), foreign key (y_person, y_card) references card);"
        "insert into card select p_id, k, k = 1 from person, generate_series(1, 3) k;"
        "insert into pay select c_person, c_no, k, true from card, generate_series(1, 2) k",
        "",
        {"card": 120, "pay": 300},
    ),
    "a chain of five": people(
        "create table a (id int primary key, up int not null references person on delete cascade, f boolean not null);"
        "create table b (id int primary key, up int not null references a on delete restrict on update cascade, f boolean not null);"
        "create table c (id int primary key, up int references b on delete set null, f boolean not null);"
        "create table d (id int primary key, up int not null references c, f boolean not null)",
        "select dp.link('c', 'b', array['up'], nulls => 'excluded')",
        {"a": 100, "b": 150, "c": 160, "d": 170},
    ),
    "a tree": people(
        "alter table person add p_boss int references person; create table visit (v_id int primary key, v_person int not null references person, v_up int references visit, v_first int not null references visit)",
        "select dp.link('person', 'person', array['p_boss'], follow => false); select dp.link('visit', 'visit', array['v_up'], follow => false); select dp.link('visit', 'visit', array['v_first'], follow => false)",
        {"visit": 100, "person": 60},
    ),
    "two keys to one table": people(
        "create table mail (m_from int not null references person, m_to int references person, m_ok boolean not null, unique (m_from, m_to))",
        "select dp.link('mail', 'person', array['m_to'], follow => false)",
        {"mail": 300},
    ),
    "a link table": people(
        "create table club (k_id int primary key, k_kind text not null); insert into club select i, 'x' from generate_series(1, 20) i;"
        "create table member (n_person int references person, n_club int references club, n_role boolean not null, n_since date, primary key (n_person, n_club));"
        "insert into member select p_id, k_id, p_id = k_id, null from person, club where (p_id + k_id) % 5 = 0",
        "select dp.declare_public('club'); select dp.set_domain('club', 'k_kind', array['x', 'y']); select dp.set_domain('member', 'n_since', date '2020-01-01', date '2020-12-31', includes_null => true)",
        {"member": 240},
    ),
    "a link table between protected ones": people(
        "create table book (k_id int primary key, k_owner int not null references person, k_f boolean not null);"
        "create table reads (r_person int references person, r_book int references book, r_f boolean, primary key (r_person, r_book))",
        "select dp.link('reads', 'book', array['r_book'], follow => false)",
        {"book": 50, "reads": 200},
    ),
    "checks over links": people(
        "create table place (a_id int primary key); insert into place select generate_series(1, 300);"
        "create table friend (f_one int references person, f_other int references person, f_new boolean, primary key (f_one, f_other), check (f_one < f_other));"
        "create table post (o_id int primary key, o_person int not null references person, o_kind text not null, o_place int references place, o_at int references place, o_before int references post, check (o_before < o_id),"
        " check ((o_kind = 'place') = (o_place is not null)), check (num_nonnulls(o_place, o_at) = 1), check (o_at <> o_person));"
        "insert into friend select i, i + 1, true from generate_series(1, 40) i;"
        "insert into post select i, 1 + i % 60, (array['place', 'time'])[1 + i % 2], case i % 2 when 0 then 1 + i % 300 end, case i % 2 when 1 then 1 + (i + 100) % 300 end, null from generate_series(1, 450) i",
        "select dp.declare_public('place'); select dp.link('friend', 'person', array['f_other'], follow => false); select dp.link('post', 'post', array['o_before'], follow => false);"
        "select dp.set_domain('post', 'o_kind', array['place', 'time'])",
        {"friend": 40, "post": 450},
        # rows of both kinds lend their links: none is left after 100 tries with one less than 1e-12
        epsilon=30,
    ),
    "match full": people(
        "create table room (a int, b int, primary key (a, b)); insert into room select i, i % 3 from generate_series(1, 300) i;"
        "create table seat (s_id int primary key, s_person int not null references person, s_a int, s_b int, foreign key (s_a, s_b) references room match full on delete set null)",
        "select dp.declare_public('room')",
        {"seat": 100},
    ),
    "a key with one column that can be NULL": people(
        "create table room (a int, b int, primary key (a, b)); insert into room select i, i % 3 from generate_series(1, 300) i;"
        "create table seat (s_id int primary key, s_person int not null references person, s_a int not null, s_b int, foreign key (s_a, s_b) references room)",
        "select dp.declare_public('room')",
        {"seat": 100},
    ),
    "public tables": people(
        "create table nowhere (id int primary key, v0 text); create table land (code char(2) not null unique, name text unique, v0 int, c0 text); insert into land values ('de', 'Germany', 1), ('fr', null, 2);"
        "create table stay (s_id int primary key, s_person int not null references person, s_land char(2) not null references land (code), s_name text references land (name), s_no int references nowhere)",
        "select dp.declare_public('land'); select dp.declare_public('nowhere')",
        {"stay": 100},
    ),
    "one child each": people(
        "create table pass (s_person int primary key references person, s_f boolean not null);"
        "create table stamp (t_pass int not null unique references pass, t_no int generated by default as identity primary key)",
        "",
        {"pass": 40, "stamp": 20},
        d_max=1,
    ),
    "keys that are unique in a generated column": people(
        "create table visit (v_id int primary key, v_person int not null references person, v_twice int generated always as (v_id * 2) stored unique)",
        "",
        {"visit": 100},
    ),
    "nulls that are not distinct": one(
        "create table t (a int, b jsonb, c jsonb not null default '[]', unique nulls not distinct (a, b), unique (c))",
        "select dp.set_domain('t', 'a', 1, 400)",
        rows=40,
    ),
    "a table with children": one(
        "create table t (a int check (a > 0), k text default 'x'); create table t2 (id int primary key) inherits (t); insert into t2 select i, 'k', i from generate_series(1, 50) i",
        "select dp.set_domain('t', 'a', 1, 9)",
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_copy_has_columns_and_constraints_of_the_original(database: Any, name: str) -> None:
    odd = SCHEMAS[name]
    told = synthesized(database, odd)
    same_constraints(database, odd)
    for table, number in odd.rows.items():
        quoted = '"' + table.replace('"', '""') + '"'
        assert database.sql(f"select count(*) from syn.{quoted}") == [(number,)], told


def test_degrees_of_keys_that_name_the_unit_are_learnt(database: Any) -> None:
    """They have a part of the budget, and noise for the cards that count of a person."""
    odd = replace(SCHEMAS["composite keys"], d_max={"card": 3, "pay": 6})
    told = synthesized(database, odd)
    assert not any(text.startswith("the number of children") for text in told), told
    parts = database.connect("alice").execute(
        "select relation, note from dp.synthesis_report('syn') where what = 'share of degrees'"
    )
    notes = dict(parts.fetchall())
    note = notes["public.pay (pay_y_person_y_card_fkey)"]
    assert note.endswith("a unit changes counts of parents by at most 3")


def test_a_key_that_references_computed_columns_is_refused_before_it_is_paid(database: Any) -> None:
    odd = people(
        "create table room (r_id int primary key, r_person int not null references person, r_code int generated always as (r_id * 2) stored unique);"
        "create table door (d_id int primary key, d_person int not null references person, d_room int references room (r_code))",
        "select dp.link('door', 'room', array['d_room'], follow => false)",
        {"room": 10, "door": 10},
    )
    with pytest.raises(psycopg.Error, match="the foreign key door_d_room_fkey of") as raised:
        synthesized(database, odd)
    assert "without => array['door_d_room_fkey']" in str(raised.value.diag.message_hint)
    assert database.sql("select count(*) from dp.synthesis") == [(0,)]
    assert database.sql("select sum(epsilon_spent) from dp.budgets where role = 'alice'") == [(0,)]


def test_a_check_that_a_made_up_constant_breaks_is_refused_before_it_is_paid(database: Any) -> None:
    odd = one("create table t (id int primary key, a jsonb not null, check (a ? 'b'))")
    with pytest.raises(psycopg.Error, match='can satisfy the constraint "t_a_check"'):
        synthesized(database, odd)
    assert database.sql("select count(*) from dp.synthesis") == [(0,)]


@pytest.mark.parametrize(
    "default",
    [
        "create function next_no() returns int language sql as 'select 7';"
        " alter function next_no() owner to owner1;"
        " create table t (id int primary key, a int not null default next_no())",
        "create sequence numbers;"
        " create table t (id int primary key, a numeric not null default nextval('numbers'))",
        "create sequence numbers;"
        " create table t (id int primary key, a numeric not null default 1 + nextval('numbers'))",
    ],
    ids=["a function of others", "a sequence of another type", "an expression of a sequence"],
)
def test_a_default_that_the_copy_does_not_have_is_none(database: Any, default: str) -> None:
    """A column of the copy that must not be NULL would be refused when it is written, and paid for."""
    for statement in (*default.split(";"), "select dp.protect('t', epsilon => 100, delta => 0.1)"):
        database.sql(statement)
    database.sql("select dp.grant_budget('alice', epsilon => 100, delta => 0.01)")
    database.sql(f"grant create on database {database.name} to alice")
    call = "call dp.synthesize('syn', array['t']::regclass[], epsilon => 8, delta => 1e-6{})"
    with database.connect("alice", autocommit=True) as alice:
        with pytest.raises(psycopg.Error) as refused:
            alice.execute(call.format(""))
        assert refused.value.sqlstate == "PD020"
        assert database.sql("select count(*) from dp.synthesis") == [(0,)]
        alice.execute(call.format(", row_counts => '{\"t\": 50}', placeholders => true"))
        made = alice.execute("select count(*), count(a) from syn.t").fetchone()
    assert made == (50, 50)
