"""Where each unit has one result, one pass finds what the general statement finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsql.counted import Contributions
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Weight
from dpsql.query import contribution_sql
from dpsql.relation import Column, Relation
from dpsql.statistics.contributions import contributions
from tests.expressions import parsed
from tests.property.random_joins import SnapshotDatabase, connection

pytestmark = pytest.mark.server
__all__ = ["connection"]

TYPES = {"u": "integer", "g": "text", "d": "integer", "x": "integer", "h": "integer"}
NAMES = list(TYPES)
DDL = """
create table pg_temp.person (u int primary key, g text, d int not null, x int not null);
create table pg_temp.place (d int primary key, h int not null);
"""
WEIGHTS = (
    Weight(parsed("coalesce(r0.x, 0)"), frozenset({0}), 0, -50, 50, True),
    Weight(parsed("r0.x::numeric / 4"), frozenset({0}), 2, -(10**4), 10**4, False),
)


def occurrence(index: int, name: str, columns: str) -> Occurrence:
    """Read a table whose first column is its key."""
    there = columns.split()
    relation = Relation(
        100 + index,
        "pg_temp",
        name,
        True,
        100 + index,
        tuple(Column(c, 0, TYPES[c], c != "g") for c in there),
        keys=((there[0],),),
    )
    uses = tuple(AttributeUse(NAMES.index(c), parsed(f"r{index}.{c}"), c) for c in there)
    return Occurrence(index, relation, uses, ())


@st.composite
def queries(draw: st.DrawFn) -> list[JoinQuery]:
    joined = draw(st.booleans())
    occurrences = [occurrence(0, "person", "u g d x")]
    occurrences += [occurrence(1, "place", "d h")] * joined
    there = [n for n in range(len(NAMES)) if NAMES[n] != "h" or joined]
    attributes = tuple(Attribute(n, TYPES[c], joined and c == "d") for n, c in enumerate(NAMES))
    groups = tuple(draw(st.lists(st.sampled_from(there), max_size=2)))
    query = JoinQuery(tuple(occurrences), attributes, (), groups, NAMES.index("u"))
    if draw(st.booleans()):
        distinct = draw(st.lists(st.sampled_from(there), min_size=1, max_size=2, unique=True))
        return [replace(query, distinct=tuple(distinct))]
    weights = draw(
        st.lists(st.sampled_from([(), *((w,) for w in WEIGHTS)]), min_size=1, unique=True)
    )
    return [replace(query, weights=weight) for weight in weights]


PEOPLE = st.lists(
    st.tuples(st.sampled_from([None, "a", "b"]), st.integers(0, 3), st.integers(-9, 9)), max_size=12
)
BOUNDS = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(sorted)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=queries(), people=PEOPLE, bounds=BOUNDS, reach=st.integers(0, 2))
def test_one_pass_finds_the_same(
    connection: Any, asked: list[JoinQuery], people: list[Any], bounds: list[int], reach: int
) -> None:
    def found(single: bool) -> list[Contributions]:
        with pytest.MonkeyPatch.context() as patched:
            if not single:
                never = property(lambda _: False, lambda *_: None)
                patched.setattr(contribution_sql._Statement, "single", never, raising=False)
            listed = [bounds] * len(asked)
            database = SnapshotDatabase(connection)
            return contributions(asked, listed, database, reach=reach, kernel="sql")

    with connection.transaction(force_rollback=True):
        connection.execute(DDL)
        connection.cursor().executemany(
            "insert into pg_temp.person values (%s, %s, %s, %s)",
            [(u, *person) for u, person in enumerate(people)],
        )
        connection.execute("insert into pg_temp.place select d, d % 2 from generate_series(0, 2) d")
        assert found(True) == found(False)
