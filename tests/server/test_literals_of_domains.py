"""The service session reads no literal whose type has a domain in it, wherever the literal stands.

A CHECK that is false shows in the analyst's own session that PostgreSQL reads the literal as such a
type there.  Then the CHECK is one that fails as ``dp_executor`` only, and tells so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import made

SET_UP = """
create table client (c_id int primary key);
select dp.protect('client'), dp.grant_budget('alice', 1);
grant select on client to alice;
create schema mine authorization alice;
"""
TYPES = """
create domain mine.word as text;
create type mine.pair as (a mine.word);
create type mine.uescape as (a mine.word);
create type mine.span as range (subtype = mine.word, multirange_type_name = mine.spans);
create domain mine.words as mine.word[];
create type mine.none as enum ('b');
create table mine.t (x mine.word[], y mine.words, r mine.pair, s mine.span, i int);
create view mine.seen as select x, i from mine.t;
"""
CHECKS = {
    "false": "false",
    "telling": "greatest(session_user, 'b'::name)::mine.none is not null",
}
CONDITIONS = """
x = '{a}'
'{a}' = x
'{a}' <> x
y = '{a}'
r = '(a)'::mine.pair
s = '[a,b]'
x is distinct from '{a}'
'{a}' is not distinct from x
row(x) is distinct from row('{a}')
(x, 1) = ('{a}', 1)
(x, 1) < ('{a}', 1)
x in ('{a}', '{b}')
x not in ('{a}')
x = any (array['{a}', x])
x <> all (array[x, '{a}'])
x between '{a}' and x
x between symmetric '{a}' and x
case x when '{a}' then true end
case when i = 1 then '{a}' else x end is null
coalesce(x, '{a}') is null
nullif(x, '{a}') is null
greatest(x, '{a}') is null
array[x, '{a}'] is null
array_cat(x, '{a}') is null
x || '{a}' is null
x @> '{a}'
exists (select x union select '{a}')
exists (select '{b}' except all select x)
exists (select from (values (x), ('{a}')) as v (z))
exists (select from unnest('{a}'::mine.word[]))
exists (select from generate_series(1, 2) as g, lateral (select x = '{a}') as l)
exists (with w as (select x = '{a}') select from w)
exists (select from rows from (unnest('{a}'::mine.word[]), generate_series(1, 2)))
exists (select from mine.t as u join mine.t as v on u.x = '{a}')
exists (select from mine.seen as u where u.x = '{a}')
exists (select from mine.t as u group by u.x = '{a}')
exists (select count(*) from mine.t as u having min(u.x) = '{a}')
exists (select from mine.t as u order by u.x = '{a}')
exists (select from mine.t as u limit ('{a}'::mine.word[] is null)::int)
exists (select from mine.t as u offset ('{a}'::mine.word[] is null)::int)
exists (select from mine.t as u tablesample bernoulli (cardinality('{a}'::mine.word[])))
exists (select row_number() over (partition by u.x = '{a}') from mine.t as u)
exists (select row_number() over w from mine.t as u window w as (order by u.x = '{a}'))
exists (select array_agg(u.i order by u.x = '{a}') filter (where u.x <> '{b}') from mine.t as u)
exists (select distinct on (u.x = '{a}') u.i from mine.t as u)
exists (select from mine.t as u group by grouping sets ((u.x = '{a}'), ()))
exists (with recursive w (n) as (select 1 union all select n + 1 from w) cycle n set c to mine._word '{a}' default mine._word '{b}' using p select from w)
exists (with recursive w (n) as (select 1 union all select n + 1 from w) cycle n set c to mine.uescape '(a)' default mine.uescape '(b)' using p select from w)
exists (select from xmltable('/a' passing ('<a/>'::xml) columns z mine.word[] default '{a}'))
xmlelement(name a, '{a}'::mine.word[]) is not null
'{a}'::mine.word[] is null
cast('{a}' as mine.word[]) is null
mine._word '{a}' is null
mine._word('{a}') is null
'{a}'::mine.words is null
'{{a},{b}}'::mine.word[][] is null
('(a)'::mine.pair).a is null
('{"(a)"}'::mine.pair[])[1].a is null
'[a,b]'::mine.span is null
'{[a,b]}'::mine.spans is null
i = any (array_fill(1, array[cardinality('{a}'::mine.word[])]))
(array[1, 2])[cardinality('{a}'::mine.word[])] = 1
e'{a}'::mine.word[] is null
u&'{a}'::mine.word[] is null
u&'{!0061}' uescape '!' = x
$q${a}$q$::mine.word[] is null
'{a'\\n'}'::mine.word[] is null
"""
PLACES = [line.replace("\\n", "\n") for line in CONDITIONS.strip().splitlines()]
NAMED = "select public.dp_count(*) from public.client, mine.t where "


@pytest.fixture(scope="module")
def here(server: Any) -> Iterator[Any]:
    yield from made(server, SET_UP)


@pytest.fixture(scope="module")
def types(here: Any) -> Any:
    with here.connect("alice") as alice:
        alice.execute(TYPES)
    return here


def check(session: Any, name: str) -> None:
    session.execute("alter domain mine.word drop constraint if exists checked")
    session.execute(
        f"alter domain mine.word add constraint checked check ({CHECKS[name]}) not valid"
    )


@pytest.mark.parametrize("place", PLACES)
def test_no_literal_of_a_domain_is_read_in_the_service(types: Any, place: str) -> None:
    with types.connect("alice") as alice:
        check(alice, "false")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(f"prepare p as {NAMED}{place}")
        assert caught.value.sqlstate == "23514", caught.value
        check(alice, "telling")
        alice.execute("prepare p as select 1")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select * from dp.run(%s, null) as t (n bigint)", [NAMED + place])
        assert "dp_executor" not in str(caught.value)
        assert caught.value.sqlstate in ("PD011", "PD013"), caught.value
    assert types.sql("select count(*) from dp.spend") == [(0,)]


@pytest.mark.parametrize(
    "literal", ["'{a}'::mine.word[]", "'(a)'::mine.pair", "'[a,b]'::mine.span"]
)
def test_no_parameter_of_a_domain_is_read_in_the_service(types: Any, literal: str) -> None:
    with types.connect("alice") as alice:
        check(alice, "telling")
        asked = "select * from dp.run(%s, array[%s]) as t (n bigint)"
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(asked, [f"{NAMED} $1 is null", literal])
        assert "dp_executor" not in str(caught.value)
        assert caught.value.sqlstate == "PD013", caught.value


def test_types_that_change_names_meanwhile_are_judged_as_they_are_read(types: Any) -> None:
    """Judged by name in an analysis of its own, one literal in six was read as the other type."""
    swap = """begin; alter type mine.plain rename to swapped; alter type mine.pair rename to plain;
        alter type mine.swapped rename to pair; commit"""
    ended = threading.Event()

    def swapping() -> None:
        with types.connect("alice", autocommit=True) as other:
            while not ended.is_set():
                other.execute(swap)

    with types.connect("alice") as alice:
        check(alice, "telling")
        alice.execute("create type mine.plain as (a text)")
        alice.commit()
        thread = threading.Thread(target=swapping)
        thread.start()
        try:
            told = set()
            for n in range(250):
                asked = f"{NAMED} '(a)'::mine.plain is null and c_id <> {n}"
                with pytest.raises(psycopg.Error) as caught:
                    alice.execute("select * from dp.run(%s, null) as t (n bigint)", [asked])
                told.add(str(caught.value))
                alice.rollback()
        finally:
            ended.set()
            thread.join()
    assert len(told) > 1
    assert not [text for text in told if "dp_executor" in text]
