"""Questions whose results can belong to several units, on random schemas with units of two kinds.

As `tests.property.test_units_match_the_join`; here every unit of either kind is deleted, and a
question counts only if the linear program answers it.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest

from tests.property.test_answers_match_the_join import Columns
from tests.property.test_units_match_the_join import (
    BOUND,
    MOST_CASES,
    UnitCase,
    answer,
)
from tests.server.asking import silent

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


def linear(session: Any) -> int:
    """Count the questions that the linear program answered."""
    found: int = session.execute(
        "select count(*) from dp.spend where mechanism = 'several'"
    ).fetchone()[0]
    return found


def test_units_of_two_kinds_on_random_schemas(server: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    database = server.create_database()
    asked = moved = cut = kinds = 0
    with database.connect() as owner:
        owner.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        source = random.Random(seed)
        for number in count():
            if number >= 4 and asked > 20 and moved > 20 and cut > 3 and kinds > 2:
                break
            assert number < MOST_CASES
            case = TwoKinds(owner, source)
            kinds += case.other is not None
            units = [("t0", u) for u in range(5)]
            if case.other is not None:
                rows = case.run(f"select id from s.t{case.other}").fetchall()
                units += [(f"t{case.other}", u) for (u,) in rows]
            with silent(database, "s.t0") as session:
                for _ in range(25):
                    statement, _ = case.question()
                    before = linear(session)
                    session.execute(BOUND.format(2**40))
                    full = answer(session, statement)
                    if full is None or linear(session) == before:
                        continue
                    plain = session.execute(statement.format("", "")).fetchall()
                    assert full == {row[:-1]: row[-1] for row in plain if row[-1]}, statement
                    asked += 1
                    tau = source.choice([1, 2, 4])
                    session.execute(BOUND.format(tau))
                    whole = answer(session, statement)
                    assert whole is not None
                    cut += whole != full
                    for table, unit in units:
                        session.execute("begin")
                        session.execute(f"delete from s.{table} where id = {unit}")
                        less = answer(session, statement)
                        session.execute("rollback")
                        assert less is not None
                        distance = whole.get((), 0) - less.get((), 0)
                        assert 0 <= distance <= tau, (statement, table, unit, tau)
                        moved += distance > 0
    server.drop_database(database)
