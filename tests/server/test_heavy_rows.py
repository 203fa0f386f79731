"""Rows as heavy as their types allow decide nothing: each allowed operation, on twin tables.

The second twin has heavy values where the first has light ones: texts of many matches, at the bound
of what is computed and far beyond it, letters whose other case is longer, numbers of very many
digits, the ends of dates and integers.  Operations are generated from the allow-list, alone and nested.
Each is asked as a filter, many in one statement, and some in each other place of a question, over
rows, units and joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from dpsql.query import functions
from tests.server.asking import neighbours, state
from tests.server.hostile.operations import (
    DEFINED,
    LIGHT,
    NESTED,
    nested,
    operations,
    planted,
    signatures,
)
from tests.server.in_service import in_service

pytestmark = pytest.mark.server

#: Protected row by row, by a unit, and by two units.
RELATIONS = ("heavy", "owned", "shared")
SET_UP = f"""
create type mood as enum ('a', 'b');
create table person (who int primary key); insert into person select generate_series(1, 40);
create table shop (what int primary key); insert into shop select generate_series(1, 40);
create table heavy (id int primary key, {DEFINED});
insert into heavy select i, {LIGHT} from generate_series(1, 40) as i;
create table owned (like heavy including all, person int not null references person);
insert into owned select *, id from heavy;
create table shared (like owned including all, shop int not null references shop);
alter table shared add foreign key (person) references person;
insert into shared select *, person from owned;
select dp.protect('heavy'), dp.protect('person', privacy_unit => 'who'), dp.protect('shop', privacy_unit => 'what');
select dp.set_failure_limit(r, 1000) from unnest(array['heavy', 'person', 'shop']::regclass[]) as r;
select dp.grant_budget('alice', 1e6, 1e-3), dp.grant_budget('postgres', 1e6, 1e-3);
"""
PLANTED = "; ".join(planted(relation) for relation in RELATIONS)
#: Operations of one statement.
TOGETHER = 20
#: Where an expression can stand, beside a filter of rows.
PLACES = {
    "a condition over units": "select dp_count(*) from owned where ({0}) is not null",
    "a condition on a joined row": "select dp_count(*) from owned join person on person = who where ({0}) is not null and who < 30",
    "a condition over several units": "select dp_count(*) from shared where ({0}) is not null",
    "a branch of CASE": "select dp_sum(case when id > 3 then 1 when ({0}) is null then 2 else 3 end, 0, 3) from heavy",
    "a result of CASE": "select dp_count(case when id < 5 then ({0}) end) from owned",
    "a group key": "select dp_count(*) from heavy group by ({0})",
    "a group key of units": "select dp_count(*) from owned group by ({0})",
    "a condition as a group key": "select ({0}) is null, dp_count(*) from heavy group by 1",
    "different values": "select dp_count(distinct ({0})) from owned",
    "keys of a join": "select dp_count(*) from (select id, ({0}) as e from heavy) as x join (select id, ({0}) as e from heavy) as y on x.e = y.e",
    "HAVING": "select id % 2, dp_count(*) from heavy group by 1 having dp_sum(case when ({0}) is null then 1 else 2 end, 0, 3) > -1e15",
    "ORDER BY": "select id % 2, dp_count(*) from owned group by 1 order by dp_count(({0}))",
    "a sub-query": "select dp_count(*) from (select person, ({0}) as e from owned) as o join person on person = who where e is not null",
    "a part of a sum": "select dp_sum(coalesce(length(({0})::text), 0), 0, 9) from heavy",
    "a release": "select dp.release('r{n}', $q$ select ({0}) is null, dp_count(*) from heavy group by 1 $q$)",
}  # fmt: skip
#: Expressions that are tried in each place.
TRIED = 4


def ask(session: Any, statement: str) -> tuple[str, ...]:
    """Return whether a statement is answered, or why not, in words."""
    try:
        session.execute(statement)
    except psycopg.Error as error:
        told = error.sqlstate, error.diag.message_primary, error.diag.message_detail
        return tuple(map(str, told))
    return ()


def differing(sessions: Sequence[Any], statements: Sequence[str]) -> list[str]:
    """Return what is told of statements whose outcomes are not the same."""
    found = []
    for statement in statements:
        light, heavy = (ask(session, statement) for session in sessions)
        if light != heavy:
            found.append(f"{statement[:3000]}: {light}, with heavy rows {heavy}")
    return found


def charged(database: Any) -> list[Any]:
    return database.sql("select epsilon, delta, mechanism, question from dp.spend order by id")


def filters(expressions: Sequence[str]) -> list[str]:
    """Write statements of many filters each."""
    wheres = [f"dp_count(*) filter (where ({e}) is not null)" for e in expressions]
    return [
        f"select {', '.join(wheres[at : at + TOGETHER])} from heavy"
        for at in range(0, len(wheres), TOGETHER)
    ]


@pytest.fixture(scope="module")
def pair(server: Any) -> Iterator[Any]:
    yield from neighbours(server, SET_UP, PLANTED)


@pytest.fixture(scope="module")
def sessions(pair: Any) -> list[Any]:
    opened = [database.connect(user="alice") for database in pair]
    for session in opened:
        session.autocommit = True
        session.execute("set dp.epsilon = 0.01; set dp.delta = 1e-9; set dp.fresh = on")
        session.execute("set client_min_messages = error")
    return opened


EXPLAIN = "select * from dp.explain($q$select dp_count(*) from heavy where ({}) is not null$q$)"


@pytest.fixture(scope="module")
def covered(sessions: list[Any]) -> dict[tuple[str, ...], dict[str, str]]:
    """For each operation of the allow-list the expressions that are not refused for what they say."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for signature, expression, type_ in operations():
        if not state(sessions[0], EXPLAIN.format(expression)):
            found.setdefault(signature, {})[expression] = type_
    return found


@pytest.fixture(scope="module")
def allowed(sessions: list[Any], covered: dict[tuple[str, ...], dict[str, str]]) -> dict[str, str]:
    """Operations that a question may have."""
    inner = {e: t for e, t in nested() if not state(sessions[0], EXPLAIN.format(e))}
    return {e: type_ for listed in covered.values() for e, type_ in listed.items()} | inner


def test_each_operation_has_a_heavy_input(covered: dict[tuple[str, ...], dict[str, str]]) -> None:
    """What is new on the allow-list needs a line in `operations.py`."""
    assert not (missing := signatures() - covered.keys()), sorted(missing)
    assert {"cast"} == {signature[0] for signature in covered.keys() - signatures()}


def test_an_operation_without_an_input_is_noticed(
    covered: dict[tuple[str, ...], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant: the list has one function more, of which nobody wrote what it is applied to."""
    listed = {**functions.functions(), ("spread", "point"): (1, "text")}
    monkeypatch.setattr(functions, "functions", lambda: listed)
    assert signatures() - covered.keys() == {("spread", "point")}
    with pytest.raises(AssertionError, match="spread"):
        test_each_operation_has_a_heavy_input(covered)


def test_no_operation_tells_of_heavy_rows(
    pair: Any, sessions: list[Any], allowed: dict[str, str]
) -> None:
    assert len(allowed) >= 700
    before = [len(charged(database)) for database in pair]
    statements = filters(list(allowed))
    assert not (found := differing(sessions, statements)), "\n".join(found)
    light, heavy = (charged(database)[n:] for database, n in zip(pair, before, strict=True))
    assert light == heavy
    assert len(light) == len(statements)


@pytest.mark.parametrize("place", PLACES)
def test_no_place_tells_of_heavy_rows(
    pair: Any, sessions: list[Any], allowed: dict[str, str], place: str
) -> None:
    """Each place takes other expressions, of those whose inputs can be long and of all."""
    at = list(PLACES).index(place)
    long = [e for e in allowed if any(name in e for name in ("replace", "like", "||", "n *"))]
    tried = [
        *(long[(at + k * len(PLACES)) % len(long)] for k in range(TRIED)),
        *list(allowed)[at :: max(1, len(allowed) // TRIED)],
    ]
    statements = [
        PLACES[place].replace("{0}", e).replace("{n}", str(n)) for n, e in enumerate(tried)
    ]
    before = [len(charged(database)) for database in pair]
    assert not (found := differing(sessions, statements)), "\n".join(found)
    light, heavy = (charged(database)[n:] for database, n in zip(pair, before, strict=True))
    assert light == heavy
    assert len(light) >= len(statements) / 2, place


def test_no_sum_tells_of_heavy_rows(
    pair: Any, sessions: list[Any], allowed: dict[str, str]
) -> None:
    numbers = [e for e, type_ in allowed.items() if type_ == "numeric"]
    sums = [f"dp_sum({e}, 0, 9)" for e in numbers[:TOGETHER]]
    assert len(sums) >= 10
    statements = [f"select {', '.join(sums)} from {relation}" for relation in RELATIONS[:2]]
    assert not (found := differing(sessions, statements)), "\n".join(found)
    assert charged(pair[0]) == charged(pair[1])


def test_a_function_that_is_not_total_is_noticed(pair: Any) -> None:
    """A mutant: texts of any length are computed with."""
    opened = [database.connect() for database in pair]
    for session in opened:
        session.autocommit = True
        session.execute(in_service("import dpsql.query.totality as t\nt.MAX_OCTETS = 2**31 - 1"))
    statements = filters([NESTED["text"][0].format("t")])
    found = differing(opened, statements)
    assert "PD900" in "".join(found)
