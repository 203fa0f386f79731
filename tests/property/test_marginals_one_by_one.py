"""Where the combinations of levels do not fit memory, marginals are counted one by one: the same.

A failure there would tell how many combinations there are (PRIVACY.md section 2).
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import psycopg
import pytest

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.relation import Column, Relation
from dpsql.statistics.tabulation import Marginals, Tabulation, tabulate
from dpsql.statistics.tabulation_sql import Levels
from tests.expressions import parsed
from tests.property.random_joins import SnapshotDatabase, connection

pytestmark = pytest.mark.server
__all__ = ["connection"]

SIZES = (3, 4, 50)


def rows_of(rng: random.Random, number: int) -> list[tuple[int, ...]]:
    """Draw rows of a unit and three keys, some outside the levels."""
    return [(rng.randrange(1000), *(rng.randrange(n + 1) for n in SIZES)) for _ in range(number)]


def query(*, units: bool) -> JoinQuery:
    """Count t by three columns, those of a unit together if asked."""
    names = ("u", "a", "b", "c")
    relation = Relation(
        oid=1,
        schema="pg_temp",
        name="t",
        private=True,
        root=1,
        columns=tuple(Column(name, 0, "integer", True) for name in names),
        keys=(),
    )
    uses = tuple(AttributeUse(i, parsed(f"r0.{name}"), name) for i, name in enumerate(names))
    attributes = tuple(Attribute(i, "integer", False) for i in range(4))
    one = Occurrence(0, relation, uses if units else uses[1:], ())
    return JoinQuery((one,), attributes, (), (1, 2, 3), 0 if units else None)


LEVELS = tuple(
    Levels((i,), tuple((str(value),) for value in range(size))) for i, size in enumerate(SIZES)
)


@pytest.mark.parametrize("units", [False, True])
def test_both_ways_count_the_same(connection: psycopg.Connection[Any], units: bool) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    rows = rows_of(random.Random(seed), 4000)
    with connection.transaction(force_rollback=True):
        connection.execute("create temp table t (u int, a int, b int, c int)")
        with connection.cursor().copy("copy t from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        database: Any = SnapshotDatabase(connection)
        whole = tabulate(query(units=units), LEVELS, 3, database)
        # hundreds of combinations of 8 bytes; the largest of other marginals has 200 cells of 16
        parts = tabulate(query(units=units), LEVELS, 3, database, memory_limit=3250)
        assert isinstance(whole, Tabulation)
        assert isinstance(parts, Marginals)
        some = [c for k in range(3) for c in combinations(range(3), k)]
        for attributes in some:
            found = parts.marginal(attributes)
            assert found.dtype == np.int64
            assert (found == whole.marginal(attributes)).all(), (seed, attributes)
        twice = [*some, *some[:3]]
        for attributes, found in zip(twice, parts.marginals(twice), strict=True):
            assert (found == whole.marginal(attributes)).all(), (seed, attributes)
        total = int(whole.marginal(()))
    inside = sum(all(v < n for v, n in zip(row[1:], SIZES, strict=True)) for row in rows)
    assert total == inside if not units else 0 < total < inside
