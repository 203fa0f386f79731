"""Random nests of sub-queries, WITH queries, joins and views: the same answers as over the relations.

Noise is off.  The seeds are fixed, so that every run asks the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.server import asking
from tests.server.exposing import EXPOSE, SET_UP

pytestmark = pytest.mark.server

#: Views of somebody's own, over exposed views and over the relations themselves.
OWN = """
create view public.renamed_{0} as select o_id as id, o_customer as customer, o_status as status, o_amount as amount, o_day as day from {1};
create view public.large_{0} as with x as (select * from renamed_{0}) select id, status, amount, day, customer from x where amount > 20;
"""
COLUMNS = ["id", "customer", "status", "amount", "day"]
FILTERS = [
    "{}.amount < 60", "{}.status in ('open', 'sent')", "{}.status <> 'back'", "{}.id % 3 = 1",
    "{}.day >= '2024-02-01'", "{}.customer between 5 and 40", "{}.amount is not null",
]  # fmt: skip


class Writer:
    """Writes statements over {o}, {c} and the views {v}; an expression is asked under an alias."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.visible: list[list[str]] = []

    def name(self) -> str:
        self.number += 1
        return self.random.choice(["t{}", '"T {}"', "orders{}"]).format(self.number)

    def source(self, depth: int) -> str:
        """A FROM item with all columns, without its alias."""
        kinds = (
            ["relation", "view"] if depth == 0 else ["relation", "view", "query", "query", "with"]
        )
        known = [name for names in self.visible for name in names]
        kind = self.random.choice([*kinds, *["known"] * bool(known)])
        if kind == "known":
            return self.random.choice(known)
        if kind == "view":
            return self.random.choice(["{v}renamed_{k}", "{v}large_{k}"])
        if kind == "relation":
            return ("(select o_id as id, o_customer as customer, o_status as status, o_amount as amount,"
                    " o_day as day from {o})")  # fmt: skip
        return f"({self.rows(depth - 1, with_query=kind == 'with')})"

    def rows(self, depth: int, *, with_query: bool) -> str:
        """A query that only selects, filters and joins."""
        head = self.with_clause(depth) if with_query else ""
        alias = self.name()
        text = f"select {', '.join(f'{alias}.{c}' for c in COLUMNS)} from {self.source(depth)} as {alias}"
        condition = self.random.choice([None, *FILTERS])
        if self.random.random() < 0.2:
            other = self.name()
            text += self.random.choice([
                f" join {self.source(0)} as {other} on {alias}.id = {other}.id",
                f" join {{c}} as {other} on {alias}.customer = {other}.c_id",
            ])  # fmt: skip
        text += f" where {condition.format(alias)}" if condition else ""
        if head:
            self.visible.pop()
        return head + text

    def with_clause(self, depth: int) -> str:
        parts = []
        self.visible.append([])
        for _ in range(self.random.randint(1, 3)):
            name = self.name()
            renamed = self.random.random() < 0.3
            columns = f" ({', '.join(COLUMNS)})" if renamed else ""
            parts.append(f"{name}{columns} as ({self.rows(depth, with_query=False)})")
            self.visible[-1].append(name)
        return f"with {', '.join(parts)} "

    def answer(self, depth: int) -> str:
        """A query that groups; n is the number of rows of a group."""
        head = self.with_clause(depth) if self.random.random() < 0.4 else ""
        alias = self.name()
        key = self.random.choice(["''", "status", "date_trunc('month', day)::date"])
        key = key.replace("status", f"{alias}.status").replace("day)", f"{alias}.day)")
        more = self.random.choice(["count(*)", f"sum({alias}.amount)", f"count(distinct {alias}.status)",
                                   f"count(*) filter (where {alias}.amount < 30)"])  # fmt: skip
        text = f"from {self.source(depth)} as {alias}"
        condition = self.random.choice([None, None, *FILTERS])
        text += f" where {condition.format(alias)}" if condition else ""
        group = "" if key == "''" else " group by 1"
        if head:
            self.visible.pop()
        return f"{head}select {key} as k, count(*) as n, {more} as x {text}{group}"

    def statement(self) -> str:
        answer = self.answer(self.random.randint(0, 3))
        return self.random.choice([
            answer,
            f"select * from ({answer}) as s",
            f"select sum(n) as n, sum(x) from ({answer}) as s",
            f"with a as ({answer}), b as (select * from a) select b.*, a.n from a join b using (k)",
            f"select n from ({answer}) as s union all select n from ({self.answer(1)}) as u",
        ])  # fmt: skip


@pytest.fixture(scope="module")
def silent(server: Any) -> Iterator[Any]:
    views = (
        SET_UP
        + EXPOSE
        + "reset role;"
        + OWN.format("exposed", 'dpv."Orders"')
        + OWN.format("own", '"Orders"')
    )
    for database in asking.made(server, views):
        with asking.silent(database, "customer") as session:
            session.execute("set client_min_messages = error; set dp.epsilon = 1")
            yield session


def plain(rows: list[Any]) -> list[Any]:
    """Groups that have rows, in an order; groups of public domains show without rows, too."""
    found = [[float(v) if isinstance(v, Decimal) else v for v in row] for row in rows]
    return sorted((row for row in found if 0 not in row[:2]), key=str)


def ask(session: Any, statement: str) -> tuple[list[Any], str | None]:
    """Return the rows, or the SQLSTATE of the refusal."""
    try:
        return session.execute(statement).fetchall(), None
    except psycopg.Error as error:
        return [], str(error.sqlstate)


@pytest.mark.parametrize("block", range(4))
def test_nested_statements_are_answered_as_over_the_relations(silent: Any, block: int) -> None:
    answered = 0
    for seed in range(block * 20, block * 20 + 20):
        statement = Writer(seed).statement()
        truth = statement.format(o='"Orders"', c="customer", v="public.", k="own")
        known = silent.execute(truth).fetchall()
        asked = statement.format(o='dpv."Orders"', c="dpv.customer", v="public.", k="exposed")
        found, refusal = ask(silent, asked)
        if refusal is not None:
            assert refusal.startswith("PD01"), (seed, statement, refusal)
            continue
        assert plain(found) == plain(known), (seed, statement)
        answered += 1
    assert answered >= 15, answered
