"""Aggregates that share nothing: no protected row, and no privacy unit, changes two of a block.

For random pairs of FILTER conditions over small random tables the server says whether they share the
budget; then every row (every unit with all its rows) is taken away in turn, and the true numbers are
counted again.  The joint change of a block is thereby that of one of its numbers, as
docs/proofs/composition.md claims; mutants of the rule must be met by a counterexample.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.in_service import in_service

pytestmark = pytest.mark.server

SCHEMA = """
create table r (id int primary key, x int, b boolean);
create table q (id int primary key, x int, b boolean);
create table pub (x int, b boolean);
create table cu (c int primary key, x int, b boolean);
create table ord (o int primary key, c int not null references cu on delete cascade, y int);
select dp.protect('r'), dp.protect('q'), dp.protect('cu', privacy_unit => 'c');
select dp.declare_public('pub');
select dp.grant_budget('postgres', 1000);
"""
# sources with the columns that conditions may use
SOURCES = {
    "r": (("x", "int"), ("b", "boolean")),
    "r join pub on pub.x = r.x": (("r.x", "int"), ("r.b", "boolean"), ("pub.b", "boolean")),
    "r join r s on s.x = r.x": (("r.b", "boolean"), ("s.b", "boolean"), ("r.x", "int")),
    "r join q on q.x = r.x": (("r.b", "boolean"), ("q.b", "boolean"), ("r.id", "int")),
    "cu": (("x", "int"), ("b", "boolean")),
    "ord": (("y", "int"), ("o", "int")),
    "cu join ord on ord.c = cu.c": (("cu.x", "int"), ("cu.b", "boolean"), ("ord.y", "int")),
    "cu join cu d on d.c = cu.c": (("cu.b", "boolean"), ("d.x", "int"), ("cu.x", "int")),
}
NEIGHBOURS = ("r", "q", "cu")
EVERY_PRIVATE = in_service("""
from dpsql.query import disjoint
disjoint._deciding = lambda graph: {o for o in graph.alive if graph.relations[o].private}
""")
EVERY_RELATION = in_service("""
from dpsql.query import disjoint
disjoint._deciding = lambda graph: set(graph.alive)
""")
TOUCHING = in_service("""
from dpsql.query import disjoint
def below(high, low):
    return bool(high and low) and high[0][0] == low[0][0] and high[0] <= low[0]
disjoint._below = below
""")


def fill(connection: Any, chance: random.Random) -> None:
    def values(keys: list[str], rows: int) -> str:
        return ", ".join(
            f"({i}, {', '.join(cell(key) for key in keys)})" for i in range(1, rows + 1)
        )

    def cell(key: str) -> str:
        choices = {"x": ["0", "1", "2", "null"], "b": ["true", "false", "null"], "c": "123"}
        return str(chance.choice(choices[key]))

    connection.execute("truncate r, q, pub, cu, ord")
    connection.execute(f"insert into r values {values(['x', 'b'], 5)}")
    connection.execute(f"insert into q values {values(['x', 'b'], 4)}")
    connection.execute(f"insert into cu values {values(['x', 'b'], 3)}")
    connection.execute(f"insert into ord values {values(['c', 'x'], 7)}")
    rows = ", ".join(f"({cell('x')}, {cell('b')})" for _ in range(5))
    connection.execute(f"insert into pub values {rows}")


def condition(chance: random.Random, columns: tuple[tuple[str, str], ...]) -> str:
    name, kind = chance.choice(columns)
    if kind == "boolean":
        return chance.choice([name, f"not {name}", f"{name} is null"])
    operator = chance.choice(["=", "=", "<", "<=", ">", ">="])
    return f"{name} {operator} {chance.randrange(3)}"


def pairs(chance: random.Random) -> Iterator[tuple[str, str, str]]:
    while True:
        source = chance.choice(list(SOURCES))
        yield source, condition(chance, SOURCES[source]), condition(chance, SOURCES[source])


def apart(session: Any, source: str, one: str, other: str) -> bool:
    """Ask the server whether two counts share the budget."""
    text = (
        f"select dp_count(*) filter (where {one}), dp_count(*) filter (where {other}) from {source}"
    )
    rows = session.execute(
        "select epsilon = 1 from dp.estimate(%s) where aggregate <> 'total'", (text,)
    ).fetchall()
    return len(rows) == 2 and all(row[0] for row in rows)


def changes(admin: Any, source: str, one: str, other: str) -> int:
    """Return the most numbers of the two that one row or unit changes."""
    text = f"select count(*) filter (where {one}), count(*) filter (where {other}) from {source}"
    whole = admin.execute(text).fetchone()
    most = 0
    for relation in NEIGHBOURS:
        key = "c" if relation == "cu" else "id"
        for (number,) in admin.execute(f"select {key} from {relation}").fetchall():
            with admin.transaction(force_rollback=True):
                admin.execute(f"delete from {relation} where {key} = {number}")
                less = admin.execute(text).fetchone()
            most = max(most, sum(a != b for a, b in zip(whole, less, strict=True)))
    return most


def search(
    database: Any, seed: int, mutant: str | None, enough: int
) -> tuple[int, list[tuple[str, str, str]]]:
    """Look at pairs that share nothing; return how many there were and the counterexamples."""
    chance = random.Random(seed)
    seen, wrong = 0, []
    with database.connect() as session, database.connect() as admin:
        session.execute("select * from dp.estimate('select dp_count(*) from r')")
        if mutant is not None:
            session.execute(mutant)
        for number, (source, one, other) in enumerate(pairs(chance)):
            if number % 40 == 0:
                fill(admin, chance)
            if seen >= enough or number > 4000 or (mutant and wrong):
                break
            if not apart(session, source, one, other):
                continue
            seen += 1
            if changes(admin, source, one, other) > 1:
                wrong.append((source, one, other))
    return seen, wrong


@pytest.fixture
def tables(database: Any) -> Any:
    database.sql(SCHEMA)
    return database


def test_one_row_or_unit_changes_one_number_of_a_block(tables: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    seen, wrong = search(tables, seed, None, 60)
    assert wrong == [], f"seed {seed}"
    assert seen == 60, f"seed {seed}"


@pytest.mark.parametrize(
    "mutant", [EVERY_PRIVATE, EVERY_RELATION, TOUCHING], ids=["private", "public", "touching"]
)
def test_mutants_are_met_by_a_counterexample(tables: Any, mutant: str) -> None:
    """Over 60 pairs that a mutant tells apart; fixed seeds, so that a miss is a change of the rule."""
    assert any(search(tables, seed, mutant, 60)[1] for seed in (1, 2, 3))
