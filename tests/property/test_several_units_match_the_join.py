"""Questions whose results can belong to several units, on random schemas with units of two kinds.

As `tests.property.test_units_match_the_join`; here every unit of either kind is deleted, and a
question counts only if the linear program answers it.  What is bounded are the numbers before
noise: one for a count or a sum, two or three for averages and variances.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import pytest

from dpsql.model import GRID
from tests.property.committed import changed
from tests.property.test_answers_match_the_join import Columns, agree
from tests.property.test_units_match_the_join import (
    BOUND,
    MOST_CASES,
    UnitCase,
    answer,
)
from tests.server.asking import silent
from tests.server.in_service import function_in_service, in_service

pytestmark = pytest.mark.server


class TwoKinds(UnitCase):
    """Rows of ``t0`` are units of one kind, those of one public relation become another."""

    def __init__(self, owner: Any, source: random.Random) -> None:
        self.other: int | None = None
        super().__init__(owner, source)

    def make_table(self, i: int) -> Columns:
        columns = super().make_table(i)
        if i and self.other is None and i not in self.members:
            self.other = i
            self.members.append(i)
            self.run(f"select dp.undeclare_public('s.t{i}')")
            self.run(f"select dp.protect('s.t{i}', privacy_unit => 'id', delta => 0.001)")
        return columns


#: Keeps what is cut before noise, the bound, and what the largest unit has.
WATCH = in_service("""
from dpsql.core.mechanisms import linear_quantile
plan = linear_quantile.LinearQuantile
original = plan.cut
plan.seen = []
def cut(self, memberships, tau, tick):
    found = original(self, memberships, tau, tick)
    plan.seen.append((found, tau, memberships.sizes.heaviest))
    return found
plan.cut = cut
""")
TAKE = function_in_service(
    "pg_temp.vectors",
    "text",
    """
import json
from dpsql.core.mechanisms.linear_quantile import LinearQuantile as plan
found, plan.seen[:] = json.dumps(plan.seen), []
return found
""",
)
#: The largest bound that has whole steps.
WHOLE = 2**31 - 1


def cuts(session: Any) -> list[tuple[int, int, float]]:
    """Return what was seen since it was asked last."""
    found: list[tuple[int, int, float]] = json.loads(
        session.execute("select pg_temp.vectors()").fetchone()[0]
    )
    return found


def linear(session: Any) -> int:
    """Count the questions that the linear program answered."""
    found: int = session.execute(
        "select count(*) from dp.spend where mechanism = 'several'"
    ).fetchone()[0]
    return found


def asked_whole(session: Any, statement: str) -> tuple[dict[Any, Any], bool] | None:
    """Ask without a cut; ``None`` unless the linear program answers.

    Where nothing was cut off the answer must be PostgreSQL's own; says whether that was so.
    """
    before = linear(session)
    session.execute(BOUND.format(WHOLE))
    full = answer(session, statement)
    if full is None or linear(session) == before:
        return None
    uncut = all(heaviest <= tau for _, tau, heaviest in cuts(session))
    if uncut:
        plain = session.execute(statement.format("", "")).fetchall()
        found = [(*key, value) for key, value in full.items()]
        assert agree(found, plain), (statement, found, plain)
    return full, uncut


def moves(
    session: Any,
    statement: str,
    tau: int,
    whole: list[tuple[int, int, float]],
    units: Iterable[tuple[str, int]],
) -> Iterator[tuple[str, int, int]]:
    """Delete each unit, (table, key), and yield by how much that moves what is published."""
    for table, unit in units:
        with changed(session, f"delete from s.{table} where id = {unit}"):
            answer(session, statement)
        for (one, _, _), (other, _, _) in zip(whole, cuts(session), strict=True):
            # programs of so few sets are solved to their end
            assert abs(one - other) <= tau * GRID * 1.0001, (statement, table, unit)
            yield table, unit, one - other


def test_units_of_two_kinds_on_random_schemas(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    database = server.create_database()
    asked = moved = cut = kinds = sums = both = 0
    with database.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        source = random.Random(seed)
        for number in count():
            if number >= 4 and min(asked, moved) > 20 and min(cut, kinds, sums, both) > 3:
                break
            assert number < MOST_CASES
            case = TwoKinds(owner, source)
            kinds += case.other is not None
            units = [("t0", u) for u in range(5)]
            if case.other is not None:
                rows = case.run(f"select id from s.t{case.other}").fetchall()
                units += [(f"t{case.other}", u) for (u,) in rows]
            with silent(database, "s.t0", WATCH, TAKE) as session:
                for _ in range(25):
                    statement, _ = case.question()
                    outcome = asked_whole(session, statement)
                    if outcome is None:
                        continue
                    asked += outcome[1]
                    tau = source.choice([1, 2, 4, 9, 10**8])
                    session.execute(BOUND.format(tau))
                    answer(session, statement)
                    whole = cuts(session)
                    assert whole
                    cut += any(heaviest > tau for _, tau, heaviest in whole)
                    for table, unit, distance in moves(session, statement, tau, whole, units):
                        if "count" in statement:
                            assert distance >= 0, (statement, table, unit, tau)
                        moved += distance != 0
                        sums += distance != 0 and "count" not in statement
                        both += distance < 0
    server.drop_database(database)
