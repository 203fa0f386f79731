"""Columns whose types are domains of a role that is no superuser: an answer or a free refusal.

A domain belongs to whoever made it and may check by that role's code.  Questions read such a
column as the type that the domain is over.  Each type is put into each place where a column can be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import state

MAKE = """
create function fine(anyelement) returns boolean language plpgsql immutable as
  $$begin return $1 is not null or true; end$$;
create type mood as enum ('sad', 'well');
create type pair as (a int, b text);
create type span as range (subtype = int);
create domain d_int as integer check (value between 0 and 9000);
create domain d_int2 as d_int check (fine(value));
create domain d_big as bigint not null;
create domain d_num as numeric(8, 2) check (value >= 0);
create domain d_float as double precision;
create domain d_text as text check (fine(value));
create domain d_char as char(3);
create domain d_bool as boolean;
create domain d_date as date check (value > '1900-01-01');
create domain d_tz as timestamptz;
create domain d_uuid as uuid;
create domain d_bytes as bytea;
create domain d_json as jsonb;
create domain d_mood as mood;
create domain d_mood2 as d_mood check (fine(value));
create domain d_ints as integer[] check (fine(value));
create domain d_interval as interval;
create domain d_pair as pair;
"""
#: Of each type: the type that it is over, one value, and another.
TYPES = {
    "d_int2": ("integer", "7", "8"),
    "d_big": ("bigint", "7", "8"),
    "d_num": ("numeric", "7", "8"),
    "d_float": ("double precision", "7", "8"),
    "d_text": ("text", "a", "b"),
    "d_char": ("bpchar", "a", "b"),
    "d_bool": ("boolean", "t", "f"),
    "d_date": ("date", "2020-01-01", "2021-01-01"),
    "d_tz": ("timestamptz", "2020-01-01", "2021-01-01"),
    "d_uuid": ("uuid", f"{1:032}", f"{2:032}"),
    "d_bytes": ("bytea", "\\x01", "\\x02"),
    "d_json": ("jsonb", "1", "2"),
    "d_mood2": ("mood", "sad", "well"),
    "d_ints": ("integer[]", "{1}", "{2}"),
    "d_interval": ("interval", "1 day", "2 days"),
    "d_pair": ("pair", "(1,a)", "(2,b)"),
    "d_int2[]": ("d_int2[]", "{1}", "{2}"),
    "pair": ("pair", "(1,a)", "(2,b)"),
    "span": ("span", "[1,2)", "[3,4)"),
    "mood[]": ("mood[]", "{sad}", "{well}"),
    "tsvector": ("tsvector", "a", "b"),
}
#: Statements about a column c of relation t, with c as {c}, its base type, and two constants.
PLACES = (
    "SELECT dp_count(*) FROM t WHERE {c} IS NOT NULL",
    "SELECT dp_count(*) FROM t WHERE {c} = {k}",
    "SELECT dp_count(*) FROM t WHERE {c} <> {k}",
    "SELECT dp_count(*) FROM t WHERE NOT {c} > {k}",
    "SELECT dp_count(*) FROM t WHERE {c} IN ({k}, {l})",
    "SELECT dp_count(*) FROM t WHERE {c} BETWEEN {k} AND {l}",
    "SELECT dp_count(*) FROM t WHERE {c} IS DISTINCT FROM {k}",
    "SELECT dp_count(*) FROM t WHERE CAST({c} AS {b}) = {k}",
    "SELECT dp_count(*) FROM t WHERE CAST({c} AS text) = 'a'",
    "SELECT dp_count(*) FROM t WHERE {c} LIKE 'a%'",
    "SELECT dp_count(*) FROM t WHERE coalesce({c}, {k}) = {k}",
    "SELECT dp_count(*) FROM t WHERE coalesce({c}, {c}) = {k}",
    "SELECT dp_count(*) FROM t WHERE nullif({c}, {k}) IS NULL",
    "SELECT dp_count(*) FROM t WHERE greatest({c}, {c}) = {k}",
    "SELECT dp_count(*) FROM t WHERE CASE WHEN {c} = {k} THEN {c} ELSE {c} END = {k}",
    "SELECT dp_count(*) FROM t WHERE {c} + 1 > 3",
    "SELECT dp_count(*) FROM t WHERE length({c}) = 1",
    "SELECT dp_count(*) FROM t WHERE extract(year FROM {c}) = 2020",
    "SELECT dp_count(*) FROM t WHERE ({c})[1] = 1",
    "SELECT dp_count(*) FROM t WHERE {c}",
    "SELECT dp_count({c}) FROM t",
    "SELECT dp_count(DISTINCT {c}) FROM t",
    "SELECT dp_count(DISTINCT CAST({c} AS {b})) FROM t",
    "SELECT dp_sum({c}, 0, 10) FROM t",
    "SELECT dp_avg({c}, 0, 10) FROM t",
    "SELECT dp_var_pop({c}, 0, 10) FROM t",
    "SELECT dp_median({c}, 0, 10) FROM t",
    "SELECT dp_median({c}, {k}, {l}) FROM t",
    "SELECT dp_min({c}, 0, 10) FROM t",
    "SELECT dp_sum({c}) FROM t",
    "SELECT dp_sum({c}, 0, 10), dp_count(*) FROM t GROUP BY n HAVING dp_count(*) > 1",
    "SELECT {c}, dp_count(*) FROM t GROUP BY {c}",
    "SELECT CAST({c} AS {b}), dp_count(*) FROM t GROUP BY CAST({c} AS {b})",
    "SELECT CAST({c} AS {b}) AS x, dp_count(*) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT CAST({c} AS text), dp_count(*) FROM t GROUP BY 1",
    "SELECT {c} IS NULL, dp_count(*) FROM t GROUP BY 1",
    "SELECT {c} = {k}, dp_count(*) FROM t GROUP BY 1",
    "SELECT CASE WHEN {c} = {k} THEN 1 ELSE 2 END, dp_count(*) FROM t GROUP BY 1",
    "SELECT width_bucket({c}, 0, 10, 2), dp_count(*) FROM t GROUP BY 1",
    "SELECT date_trunc('year', {c}), dp_count(*) FROM t GROUP BY 1",
    "SELECT DISTINCT {c}, dp_count(*) FROM t GROUP BY {c}",
    "SELECT dp_count(*) FROM t WHERE {c} = ANY (SELECT {c} FROM t)",
    "SELECT dp_count(*) FROM t a JOIN t b ON a.{c} = b.{c}",
    "SELECT dp_count(*) FROM t a JOIN t b USING ({c})",
    "SELECT dp_count(*) FROM t a LEFT JOIN t b ON a.{c} = b.{c}",
    "SELECT dp_count(*) FROM t a WHERE EXISTS (SELECT FROM t b WHERE a.{c} = b.{c})",
    "SELECT dp_count(*) FROM t a, p WHERE a.{c} = p.{c}",
    "SELECT p.n, dp_count(*) FROM t a, p WHERE a.{c} = p.{c} GROUP BY p.n",
    "SELECT p.{c}, dp_count(*) FROM t a, p WHERE a.n = p.n GROUP BY p.{c}",
    "SELECT dp_count(*) FROM (SELECT {c} AS x FROM t) s WHERE x = {k}",
    "SELECT dp_count(*) FROM (SELECT DISTINCT {c} FROM t) s",
    "SELECT dp_count(*) FROM (SELECT u, max({c}) AS x FROM t GROUP BY u) s WHERE x IS NOT NULL",
    "WITH s AS (SELECT {c} FROM t) SELECT dp_count(*) FROM s WHERE {c} = {k}",
    "SELECT count(*) FROM dpv.t WHERE {c} = {k}",
    "SELECT {c}, count(*) FROM dpv.t GROUP BY {c}",
    "SELECT * FROM dp.suggest_bounds('t', '{c}')",
    "SELECT * FROM dp.explain($$SELECT dp_count(*) FROM t WHERE {c} = {k}$$)",
    "SELECT * FROM dp.estimate($$SELECT dp_sum({c}, 0, 10) FROM t$$)",
    "SELECT dp.release('r_{i}', $$SELECT {c}, dp_count(*) FROM t GROUP BY {c}$$)",
    "SELECT dp.release('s_{i}', $$SELECT CAST({c} AS {b}) AS x, dp_count(*) FROM t GROUP BY 1$$)",
    "SELECT dp.release('q_{i}', $$SELECT n, dp_sum({c}, 0, 10) FROM t WHERE {c} = {k} GROUP BY n$$)",
)
#: Types that questions do not take, whoever owns them.
OUTSIDE = ("d_json", "d_ints", "d_pair", "d_int2[]", "pair", "span", "mood[]", "tsvector")
#: Failures after something was read.
FAILED = ("PD900", "PD901")


def names() -> dict[str, str]:
    """Name the column of each type."""
    return {f"c{i}": type_ for i, type_ in enumerate(TYPES)}


def literal(value: str, type_: str) -> str:
    """Write a constant; of an array of a domain as an array of what that is over."""
    base = "integer[]" if type_.endswith("[]") and type_.startswith("d_") else type_
    return f"CAST('{value}' AS {base})"


@pytest.fixture(scope="module")
def world(server: Any, request: Any) -> Iterator[Any]:
    """Make a relation with a column of each type, and a public one; of single rows or of units."""
    database = server.create_database()
    database.sql("grant dp_owner to owner1; grant create on schema public to owner1, alice")
    columns = ", ".join(f"{name} {type_}" for name, type_ in names().items())
    first = ", ".join(f"'{TYPES[t][1]}'" for t in names().values())
    second = ", ".join(f"'{TYPES[t][2]}'" for t in names().values())
    unit = ", privacy_unit => 'u'" if request.param == "units" else ""
    with database.connect(user="owner1") as owner:
        owner.execute(MAKE)
        owner.execute(f"""
            create table t (n int, u int not null, {columns});
            create table p (n int, u int, {columns});
            insert into p values (1, 1, {first});
            insert into p values (2, 2, {second});
            insert into t select p.n, i, {", ".join("p." + n for n in names())}
              from p, generate_series(1, 20) as i;
            insert into t (n, u, c1) values (null, 99, 1);
            select dp.protect('t'{unit});
            select dp.declare_public('p');
            select dp.set_domain('t', 'n', 1, 2);
            grant select on t, p to alice;
            select dp.expose('t', readers => '{{alice}}');
        """)
        for name, type_ in names().items():
            base, *values = TYPES[type_]
            given = ", ".join(literal(v, base) for v in values)
            declaring = f"select dp.set_domain('t', '{name}', array[{given}])"
            assert state(owner, declaring) in (None, "PD040"), type_
    # from now on a check that runs is an error
    database.sql("""
        create or replace function fine(anyelement) returns boolean language plpgsql immutable as
          $$begin raise exception 'a check ran'; end$$;
        select dp.set_root_cap('t', 1e6); select dp.grant_budget('alice', 1e6)""")
    yield database
    server.drop_database(database)


#: Over units some of the types, since all places cost a second each type.
KINDS = [
    (kind, n)
    for kind in ("rows", "units")
    for n, t in names().items()
    if kind == "rows" or t in ("d_int2", "d_num", "d_mood2", "d_ints")
]


@pytest.mark.parametrize(("world", "name"), KINDS, indirect=["world"])
def test_is_answered_or_refused_for_nothing(world: Any, name: str) -> None:
    base, first, second = TYPES[names()[name]]
    session = world.connect(user="alice")
    session.autocommit = True
    session.execute("set dp.epsilon = 0.5; set dp.delta = 1e-9")
    answered, wrong = 0, []
    for i, place in enumerate(PLACES):
        text = place.format(
            c=name, b=base, k=literal(first, base), l=literal(second, base), i=f"{name}_{i}"
        )
        before = world.sql("select count(*) from dp.spend")
        try:
            session.execute(text)
            answered += 1
        except psycopg.Error as error:
            failed = error.sqlstate in FAILED or (error.sqlstate or "XX").startswith("XX")
            if failed or world.sql("select count(*) from dp.spend") != before:
                wrong.append((names()[name], text, str(error)))
    assert not wrong
    if names()[name] in OUTSIDE:
        assert not answered
    else:
        assert answered >= 10


@pytest.mark.parametrize(
    ("world", "name"), [k for k in KINDS if k[0] == "rows"], indirect=["world"]
)
def test_the_hint_works_word_for_word(world: Any, name: str) -> None:
    if not names()[name].startswith("d_") or names()[name] in (*OUTSIDE, "d_interval"):
        return
    session = world.connect(user="alice")
    for shown in (name, f"t.{name}", f"{name} AS another"):
        with pytest.raises(psycopg.Error) as caught:
            session.execute(f"SELECT {shown}, dp_count(*) FROM t GROUP BY {name}")
        session.rollback()
        assert caught.value.sqlstate == "PD011"
        written = re.search(
            r"CAST\(.*\)(?=, and group by that)", str(caught.value.diag.message_hint)
        )
        assert written is not None, caught.value.diag.message_hint
        text = f"SELECT {written[0]}, dp_count(*) FROM t GROUP BY {written[0]}"
        session.execute(text)  # groups of a float show only if they are large
        session.rollback()


@pytest.mark.parametrize("world", ["rows"], indirect=True)
def test_bounds_are_suggested(world: Any) -> None:
    session = world.connect(user="alice")
    for name, type_ in names().items():
        if type_ in ("d_int2", "d_big", "d_num", "d_float", "d_date", "d_tz"):
            suggested = f"select statement from dp.suggest_bounds('t', '{name}', 50)"
            assert session.execute(suggested).fetchone() != (None,), type_
