"""A service session analyses each text as PostgreSQL does: the guard of literals changes nothing.

The same text is analysed in a backend without the guard, whose result must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import made
from tests.server.in_service import in_service, value_in_service

SET_UP = """
create domain word as text;
create domain small as varchar(3);
create type mood as enum ('sad', 'glad');
create type pair as (a int, b text);
create table t (i int, n numeric, f float8, s text, v varchar(5), c char(4), w word, k small, m mood, d date,
                ts timestamp, tz timestamptz, iv interval, j jsonb, p pair, a int[], ta text[], b bit(4), u uuid);
select dp.protect('t');
"""
#: Literals of all kinds, with a type that they are read as.
LITERALS = {
    "int": ["'5'", "E'5'", "$$5$$", "$q$5$q$", "U&'5'", "N'5'", "int '5'", "'5'::int", "cast('5' as int)", "int4('5')"],
    "text": ["'a''b'", "E'a\\'\\n\\\\b'", "U&'d!0061t' uescape '!'", "'ä€'", "''", "'a' collate \"C\"", "text 'x'", "text('x')", "'x'::varchar(2)", "'x'\n 'y'"],
    "date": ["'2020-02-29'", "date '2020-02-29'", "date('2020-02-29')", "'2020-02-29'::date"],
    "interval": ["'1 day'", "interval '1' day", "interval '1-2' year to month", "interval(2) '1.234 s'", "'1 day'::interval day"],
    "timestamptz": ["'2020-02-29 1:00+02'", "timestamptz '2020-02-29 1:00+02'", "timestamptz(1) '2020-02-29 1:00:00.55+02'"],
    "numeric": ["'1.50'", "numeric '1.50'", "numeric(4,1) '1.55'", "'1e3'::numeric"],
    "mood": ["'sad'", "public.mood 'sad'", "'glad'::public.mood"],
    "bit": ["B'1010'", "X'A'", "'1010'::bit(4)"],
    "int[]": ["'{1,2}'", "'{1,2}'::int[]", "_int4 '{1,2}'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "small": ["'abc'", "'abcdef'::public.small", "public.small 'abc'"],
}  # fmt: skip
COLUMNS = {"int": "i", "text": "s", "date": "d", "interval": "iv", "timestamptz": "tz", "numeric": "n",
           "mood": "m", "bit": "b", "int[]": "a", "uuid": "u", "small": "k"}  # fmt: skip
PLACES = """
{c} = {l}
{l} <> {c}
{c} is distinct from {l}
{c} in ({l}, {l})
{c} not in ({l})
{c} = any (array[{l}, {c}])
{c} between {l} and {l}
{c} between symmetric {l} and {c}
case {c} when {l} then 'x' else 'y' end = 'x'
coalesce({c}, {l}) is null
nullif({c}, {l}) is null
greatest({c}, {l}) is null
({c}, 1) = ({l}, '1')
exists (select {c} union select {l})
exists (select from (values ({c}), ({l})) as q (z) where z = {l})
exists (select {l} as z group by 1 order by z limit '1' offset '0')
exists (select max({c}) filter (where {c} = {l}) from public.t having max({c}) = {l})
{l} is null
array[{l}] is not null
row({l}, {c}) is not null
"""
OTHERS = """
s like 'a\\%b' escape '\\'
s similar to 'a%' escape '#'
overlay(s placing 'x' from '1' for 2) = 'x'
position('a' in s) = '1'
substring(s from 'a#"b#"c' for '#') = 'b'
trim(both 'x' from s) = ''
extract('year' from d) = '2020'
extract(year from date '2020-01-01') = 2020
tz at time zone 'UTC' = '2020-01-01'
date_trunc('day', tz) = '2020-01-01'
s || 'x' = 'y'
'x' || s = 'y'
'a' || 'b' = s
s collate "C" < 'b' collate "C"
to_char(d, 'YYYY') = '2020'
j ->> 'a' = 'b'
j @> '{"a": 1}'
j -> '0' is null
(p).b = 'x'
p = row('1', 'x')
p = '(1,x)'::public.pair
ta = array['a', null, 'b']
ta[1] = 'a'
a[('1')] = '2'
a @> '{1}'
'{1}' <@ a
length('abc') = i
concat('a', 'b', s) = 'c'
format('%s', s) = 'x'
pg_typeof('x') = 'unknown'::regtype
num_nulls('a', null, 'b') = 1
'x' is null
i = '5' and s = '5' and n = '5'
i + '5' = 6
- '5'::int = i
f = 'NaN'
f < 'Infinity'
d + '1 day' = '2020-01-01'
d - '2020-01-01' = 5
ts - interval '1 day' < '2020-01-01'
generate_series('1', 3) = 2
exists (select from generate_series('1'::int, '3') as g where g = '2')
exists (select from unnest('{1,2}'::int[], '{a,b}'::text[]) as g (x, y) where x = '1' and y = 'a')
exists (with q as (select 'x' as z) select from q where z = 'x')
exists (with q (z) as (values ('x'), ('y')) select from q join public.t as r on r.s = q.z)
exists (select 'a' union all select 'b' order by 1)
exists (select '1' union select 1)
exists (select distinct 'a', s from public.t order by s)
exists (select distinct concat('a', i) from public.t order by concat('a', i))
exists (select concat('a', s, 'b') from public.t group by concat('a', s, 'b') having count(*) > '1')
exists (select from public.t group by row('a', s) having row('a', s) is null)
exists (select row_number() over (partition by s = 'x' order by 'y' || s) from public.t)
exists (select string_agg(s, ',' order by s || 'x') from public.t group by grouping sets ((s || 'x'), ()))
exists (select s || 'x' from public.t group by s || 'x' having s || 'x' <> 'y')
exists (select from public.t tablesample bernoulli ('5') repeatable ('1'))
exists (select from lateral (select 'x'::text as z) as q where q.z = 'x')
exists (select from rows from (unnest('{1}'::int[])) as r (x) where x = '1')
i = any ('{1,2}')
i = (select '5'::int)
s = (select 'x')
s in (select 'x' union select 'y')
w = 'x'
k in ('abc', 'x')
v = 'abcdefgh'
c = 'a'
m between 'sad' and 'glad'
upper('x' collate "C") = s
current_date = '2020-01-01'
f > float8(variadic '3.5')
xmlelement(name z, xmlattributes('x' as y), 'z')::text = s
/* a 'comment' */ s = 'x' -- another 'one'
s = 'a long é string, so that places in bytes and characters differ' and s <> 'x'
"""
TEXTS = [
    f"select public.dp_count(*) from public.t where {place.format(l=literal, c=COLUMNS[kind])}"
    for kind, literals in LITERALS.items()
    for literal in literals
    for place in PLACES.strip().splitlines()
] + [f"select public.dp_count(*) from public.t where {one}" for one in OTHERS.strip().splitlines()]
WITH_PARAMETERS = [
    ("i = $1 and s = $2", ["'5'::int4", "'x'::text"]),
    ("s = $1", ["'a''b'::varchar(3)"]),
    ("s = $1 or s = $1", ["E'\\\\'::text"]),
    ("d = $1 and 'x' = $2", ["'2020-01-01'::date", "NULL::text"]),
    ("i = any ($1)", ["'{1,2}'::int4[]"]),
]


REFUSED = {
    "i = $4294967295": "42P02",  # the scanner reads it as -1
    "i = $4294967295 and s = 'x'": "42P02",
    "i = $18446744073709551615": "42",
    "i = $2147483648": "42",
    "i = $0": "42P02",
    "i = $1": "42P02",
    "exists (select s from public.t order by 'x')": "42601",
    "exists (select s from public.t group by s, 'x')": "42601",
    "exists (select distinct on ('x') s from public.t)": "42601",
}


@pytest.fixture(scope="module")
def here(server: Any) -> Iterator[Any]:
    yield from made(server, SET_UP)


ANALYSES = """
import json
told = []
plan = plpy.prepare("select dp.analyze($1, $2) as analysed", ["text", "text[]"])
for text, parameters in json.loads({asked!r}):
    try:
        with plpy.subtransaction():
            told.append(plpy.execute(plan, [text, parameters])[0]["analysed"])
    except plpy.SPIError as error:
        told.append(error.sqlstate)
return json.dumps(told)
"""


def plain(session: Any, text: str, parameters: list[str] | None) -> str:
    try:
        row = session.execute("select dp.analyze(%s, %s::text[])", (text, parameters)).fetchone()
        return str(row[0])
    except psycopg.Error as error:
        return str(error.sqlstate)


def test_a_text_is_the_same_question_with_and_without_the_guard(here: Any) -> None:
    asked: list[tuple[str, list[str] | None]] = [(text, None) for text in TEXTS]
    asked += [(f"select public.dp_count(*) from public.t where {w}", p) for w, p in WITH_PARAMETERS]
    with here.connect() as session:
        session.execute("set search_path = pg_catalog, pg_temp")
        session.execute(in_service("pass"))
        without = [plain(session, *one) for one in asked]
        code = ANALYSES.format(asked=json.dumps(asked))
        guarded = json.loads(session.execute(f"select {value_in_service(code)}").fetchone()[0])
    different = [
        (text, found, expected)
        for (text, _), found, expected in zip(asked, guarded, without, strict=True)
        if found != expected
    ]
    assert not different, different[:5]
    answered = [found for found in without if found.startswith("{")]
    assert len(answered) > 0.6 * len(asked)


def test_what_postgresql_refuses_is_refused_with_the_guard(here: Any) -> None:
    asked = [(f"select public.dp_count(*) from public.t where {where}", None) for where in REFUSED]
    with here.connect() as session:
        session.execute(in_service("pass"))
        code = ANALYSES.format(asked=json.dumps(asked))
        told = json.loads(session.execute(f"select {value_in_service(code)}").fetchone()[0])
        for (text, _), state, expected in zip(asked, told, REFUSED.values(), strict=True):
            assert state.startswith(expected), text
            assert plain(session, text, None).startswith(expected), text
            with pytest.raises(psycopg.Error) as caught:
                session.execute("select * from dp.run(%s, null) as t (n bigint)", [text])
            assert str(caught.value.sqlstate).startswith(("42", "PD01")), text
