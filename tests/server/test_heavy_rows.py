"""Rows as heavy as their types allow decide nothing: each allowed operation, on twin tables.

The second twin has heavy values where the first has light ones: texts of many matches, at the bound
of what is computed and far beyond it, letters whose other case is longer, numbers of very many
digits.  Operations on types that can be heavy are generated from the allow-list, alone and nested.
Each is asked as a filter, many in one statement, and some as keys and sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from dpsql.query import functions
from tests.server.asking import neighbours, state

pytestmark = pytest.mark.server

#: Types whose values can be heavy, with their columns.
HEAVY = {"text": "t", "bpchar": "b", "numeric": "n", "bytea": "y"}
COLUMNS = HEAVY | {"integer": "i", "double precision": "f"}
LONG = "a" * 100
CONSTANTS = {
    "text": ("'a'", f"'{'%a' * 200}'", f"'{LONG}'"),
    "integer": ("3", "1000"),
    "numeric": ("3.5", "1e-1000"),
    "double precision": ("2.5::float8",),
}
TARGETS = ("smallint", "bigint", "numeric(30,10)", "real", "double precision", "text", "char(9)", "varchar(9)")  # fmt: skip
#: What an operation's result goes through next, by its type.
NESTED = {
    "text": (
        "replace({0}, 'a', '" + LONG + "')",
        "replace(replace({0}, 'a', '" + LONG + "'), 'a', '" + LONG + "') like '" + "%a" * 200 + "'",
        "upper({0}) || lower({0}) || {0}",
        "length(initcap(reverse({0} || {0})))",
        "btrim(upper({0}), 'a')",
    ),
    "numeric": ("{0} * {0}", "{0} / 3 + {0}", "round({0}, 1000)", "({0})::bigint", "({0})::float8"),
    "integer": ("{0} * {0} + {0}",),
    "double precision": ("{0} * {0}", "({0})::numeric"),
}
SET_UP = """
create table heavy (id int primary key, t text, b bpchar, n numeric, y bytea, i int, f double precision);
insert into heavy select i, 'x', 'x', 1, 'x', i, 1 from generate_series(1, 40) as i;
select dp.protect('heavy'), dp.set_failure_limit('heavy', 1000);
select dp.grant_budget('alice', 1e6, 1e-3), dp.grant_budget('postgres', 1e6, 1e-3);
"""
VALUES = (
    ("repeat('a', 1048576)", "repeat('9', 131072)::numeric"),
    ("repeat('a', 1048577)", "('0.' || repeat('0', 16382) || '1')::numeric"),
    ("repeat('a', 12000000)", "('-' || repeat('9', 16000) || '.' || repeat('9', 16000))::numeric"),
    ("repeat('ɐȺ', 262144)", "'NaN'"),
    ("repeat('a%\\_', 262144)", "'Infinity'"),
    ("repeat(' ', 1048576)", "('1' || repeat('0', 100))::numeric"),
)
PLANTED = ";".join(
    f"update heavy set t = {text}, b = {text}, y = convert_to({text}, 'UTF8'), n = {number},"
    f" f = 1e308, i = 2147483647 where id = {row}"
    for row, (text, number) in enumerate(VALUES, 1)
)
#: Operations of one statement.
TOGETHER = 20


def operands(*types: str) -> Iterator[tuple[str, ...]]:
    """Yield columns and constants, at least one of them a column: of each kind in each place."""
    listed = [COLUMNS.get(type_) or CONSTANTS.get(type_, ("",))[0] for type_ in types]
    yield tuple(listed)
    for place, type_ in enumerate(types):
        for constant in CONSTANTS.get(type_, ())[:2] * (len(types) > 1):
            yield (*listed[:place], constant, *listed[place + 1 :])
    for number in range(2):  # most functions take but constants beside what they are applied to
        rest = [CONSTANTS.get(type_, ("",))[-number] for type_ in types[1:]]
        yield (listed[0], *rest)


def operations() -> Iterator[tuple[str, str]]:
    """Yield each operation of the allow-list on what can be heavy, with the type of its result."""
    for (operator, left, right), (_, result) in functions.operators().items():
        if {left, right} & HEAVY.keys():
            for listed in operands(left, right) if left else operands(right):
                yield f"({f' {operator} '.join(('', *listed)[-2:])})", result
    for (name, *types), (_, result) in functions.functions().items():
        if not set(types) & HEAVY.keys():
            continue
        if name == "position":
            yield "position('a' in t)", result
        elif name == "width_bucket":
            yield f"width_bucket({COLUMNS.get(types[0], 'n')}, 0.5, 10, 5)", result
        else:
            for listed in operands(*types):
                yield f'"{name}"({", ".join(listed)})', result
    for column, target in itertools.product(HEAVY.values(), TARGETS):
        yield f"cast({column} as {target})", target.split("(")[0]


def every() -> dict[str, str]:
    """Return operations, and with each one around it, with the types of the plain ones."""
    found = dict(operations())
    plain = dict(found) | {column: type_ for type_, column in HEAVY.items()}
    for at, (expression, type_) in enumerate(plain.items()):
        if nests := NESTED.get(type_, ()):
            found[nests[at % len(nests)].format(expression)] = ""
    return found


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


@pytest.fixture(scope="module")
def allowed(sessions: list[Any]) -> dict[str, str]:
    """Operations that a question may have: the others are refused for what they say."""
    explain = "select * from dp.explain($q$select dp_count(*) from heavy where ({}) is not null$q$)"
    return {e: type_ for e, type_ in every().items() if not state(sessions[0], explain.format(e))}


def test_no_operation_tells_of_heavy_rows(
    pair: Any, sessions: list[Any], allowed: dict[str, str]
) -> None:
    assert len(allowed) >= 250
    names = {name for name, *types in functions.functions() if set(types) & HEAVY.keys()}
    named = {name for name in names for e in allowed if f'"{name}"(' in e or f"{name}(" in e}
    assert len(named) >= 0.8 * len(names), names - named
    before = [len(charged(database)) for database in pair]
    statements = filters(list(allowed))
    assert not (found := differing(sessions, statements)), "\n".join(found)
    light, heavy = (charged(database)[n:] for database, n in zip(pair, before, strict=True))
    assert light == heavy
    assert len(light) == len(statements)


def test_no_key_and_no_sum_tells_of_heavy_rows(
    pair: Any, sessions: list[Any], allowed: dict[str, str]
) -> None:
    keys = [e for e, type_ in allowed.items() if type_ == "text"][::5]
    numbers = [e for e, type_ in allowed.items() if type_ == "numeric"]
    sums = [f"dp_sum({e}, 0, 9)" for e in numbers[:TOGETHER]]
    statements = [f"select dp_count(*) from heavy group by {key}" for key in keys]
    statements.append(f"select {', '.join(sums)} from heavy")
    assert len(keys) >= 5
    assert len(sums) >= 10
    assert not (found := differing(sessions, statements)), "\n".join(found)
    assert charged(pair[0]) == charged(pair[1])


def test_a_function_that_is_not_total_is_noticed(pair: Any) -> None:
    """A mutant: texts of any length are computed with."""
    opened = [database.connect() for database in pair]
    for session in opened:
        session.autocommit = True
        session.execute("select * from dp.explain('select dp_count(*) from heavy')")
        session.execute(
            "do language plpython3u $$ import dpsql.query.totality as t; t.MAX_OCTETS = 2**31 - 1 $$"
        )
    statements = filters([NESTED["text"][0].format("t")])
    found = differing(opened, statements)
    assert "PD900" in "".join(found)
