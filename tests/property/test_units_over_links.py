"""Units found by parents on other servers: no unit moves an answer by more than it may.

Instances are whatever the shards hold: keys twice, in both parts, without owner or with several.  A
neighbour lacks one unit and all rows that reach it, by any parent anywhere (PRIVACY.md section 1).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.in_service import in_service
from tests.server.shards import UNCUT, Shards, sharded

pytestmark = pytest.mark.server
SET_UP = """
select dp.protect('person', privacy_unit => 'p_house');
select dp.link('orders', 'person', array['o_who'], nulls => 'excluded');
select dp.link('line', 'orders', array['l_order'], array['o_id'], nulls => 'excluded');
select dp.declare_shards('orders', written => 'coordinator');
select dp.declare_shards('line', written => 'coordinator');
select dp.set_domain('line', 'l_amount', 0, 3);
select dp.grant_budget('postgres', 1e7, 1);
"""
#: What a plain join of the parents would count.
MUTANT = in_service("""
from dataclasses import replace
import dpsql.query.units as units
units.agreed = lambda parent, key, onward: replace(parent, keys=(tuple(key),))
""")
QUESTIONS = (
    "select dp_count(*) from line",
    "select dp_sum(l_amount) from line",
    "select dp_count(*) from orders",
    "select dp_count(*) from line join orders on l_order = o_id",
    "select dp_count(*) from line a join line b on a.l_order = b.l_order",
    "select dp_count(*) from line a join line b on a.l_amount = b.l_amount",
)
INSTANCES = 10
Row = tuple[int, int | None, int | None]


@dataclass
class Instance:
    """People and their households; orders and lines with the shard that they are on."""

    people: dict[int, int]
    orders: list[Row]
    lines: list[Row]

    def houses(self, order: int | None) -> set[int]:
        """Return the units that a key of an order reaches, by any row."""
        owners = {who for _, key, who in self.orders if key == order and order is not None}
        return {self.people[who] for who in owners if who in self.people}

    def without(self, house: int) -> Instance:
        return Instance(
            {who: of for who, of in self.people.items() if of != house},
            [row for row in self.orders if self.people.get(row[2] or 0) != house],
            [row for row in self.lines if house not in self.houses(row[1])],
        )

    def counted(self) -> int:
        """Count lines whose orders name one person, who is there."""
        found = 0
        for _, order, _ in self.lines:
            owners = {who for _, key, who in self.orders if key == order and who is not None}
            found += order is not None and len(owners) == 1 and owners <= set(self.people)
        return found

    def load(self, shards: Shards) -> None:
        people = values(list(self.people.items()))
        shards.near.sql(f"truncate person; insert into person select * from {people} v(a, b)")
        for number, far in enumerate(shards.far):
            text = "truncate orders, line"
            for name, rows in (("orders", self.orders), ("line", self.lines)):
                here = values([row[1:] for row in rows if row[0] == number])
                text += f"; insert into {name} select * from {here} v(a, b)"
            far.sql(text)


def values(rows: list[tuple[int | None, ...]]) -> str:
    """Write rows of two integers, of which there may be none."""
    listed = [f"({', '.join('null' if v is None else str(v) for v in row)})" for row in rows]
    return f"(values {', '.join(['(null::int, null::int)', *listed])} offset 1)"


def drawn(source: random.Random) -> Instance:
    keys = [1, 2, 3, 4, None]
    return Instance(
        {who: source.randint(1, 2) for who in range(1, source.randint(3, 4))},
        [
            (source.randint(0, 1), source.choice(keys), source.choice([1, 2, 3, 1, None]))
            for _ in range(source.randint(2, 6))
        ],
        [
            (source.randint(0, 1), source.choice(keys), source.choice([0, 1, 2, 3]))
            for _ in range(source.randint(2, 6))
        ],
    )


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        found.near.sql(
            "create table person (p_id int primary key, p_house int not null);"
            "alter table person owner to owner1"
        )
        found.table("orders", "o_id int, o_who int", "o_id")
        found.table("line", "l_order int, l_amount int", "l_order")
        found.near.sql(SET_UP, user="owner1")
        yield found


def moved(session: Any, shards: Shards, instance: Instance) -> dict[str, float]:
    """Tell by how much any unit moves each answer."""

    def answers() -> dict[str, float]:
        return {q: float(session.execute(q).fetchone()[0] or 0) for q in QUESTIONS}

    instance.load(shards)
    whole = answers()
    found = dict.fromkeys(QUESTIONS, 0.0)
    for house in sorted(set(instance.people.values())):
        instance.without(house).load(shards)
        for question, answer in answers().items():
            found[question] = max(found[question], abs(whole[question] - answer))
    return found


def test_no_unit_moves_an_answer_by_more(shards: Shards) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    for number in range(INSTANCES):
        instance = drawn(source)
        most = 1 + number % 2
        cut = UNCUT.replace("10**9", str(most))
        with silent(shards.near, "person", cut) as session:
            for question, by in moved(session, shards, instance).items():
                assert by <= most + 1e-6, (question, instance)
        instance.load(shards)
        with silent(shards.near, "person", UNCUT) as session:
            answer = session.execute("select dp_count(*) from line").fetchone()
            assert answer == (instance.counted(),), instance


def test_parents_of_several_units_would_move_it(shards: Shards) -> None:
    instance = Instance({1: 1, 2: 2, 3: 3}, [(0, 1, 1), (0, 1, 2), (0, 1, 3)], [(0, 1, 1)])
    cut = UNCUT.replace("10**9", "1")
    with silent(shards.near, "person", cut, MUTANT) as session:
        assert moved(session, shards, instance)["select dp_count(*) from line"] == 3
    with silent(shards.near, "person", cut) as session:
        assert max(moved(session, shards, instance).values()) <= 1
