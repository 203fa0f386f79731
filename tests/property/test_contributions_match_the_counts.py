"""What units contribute is what the counts per group and unit say."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsql.counted import Contributions
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query.contribution_sql import per_unit
from dpsql.relation import Column, Relation
from dpsql.statistics.contributions import contributions
from dpsql.statistics.counts import count
from tests.expressions import parsed
from tests.property.random_joins import (
    SEVERAL_TEXTS,
    SnapshotDatabase,
    cases,
    connection,
    relaxed,
)

pytestmark = pytest.mark.server
__all__ = ["connection"]

BOUNDS = (1, 2, 3, 5, 8, 20)


def expected_contributions(connection: psycopg.Connection[Any], query: JoinQuery) -> Contributions:
    """Derive the histogram from the counts per group and unit."""
    counted = count(per_unit(query), (), SnapshotDatabase(connection), kernel="sql").groups
    names = per_unit(query).groups
    unit = names.index(query.unit)
    totals: Counter[Any] = Counter()
    for key, n in counted.items():
        totals[key[unit]] += n
    groups: dict[Any, dict[int, tuple[int, int]]] = {}
    for key, n in counted.items():
        shown = tuple(key[names.index(a)] for a in query.groups)
        total = totals[key[unit]]
        cell = groups.setdefault(shown, {})
        amount, share = cell.get(place := bisect_left(BOUNDS, total), (0, 0))
        cell[place] = amount + n, share + n * query.grid // total
    sizes = Counter(bisect_left(BOUNDS, total) for total in totals.values())
    units = tuple(sizes[j] for j in range(len(BOUNDS) + 1))
    return Contributions(BOUNDS, units, groups, query.grid)


@pytest.mark.parametrize("kernel", ["sql", "arrays"])
@settings(relaxed, max_examples=150)
@given(case=cases(simple=True), choice=st.integers(0, 20))
def test_contributions_of_units_are_those_of_the_counts(
    connection: psycopg.Connection[Any], kernel: Any, case: tuple[list[str], JoinQuery], choice: int
) -> None:
    statements, query = case
    joins = [a.id for a in query.attributes if a.join]
    # which of several texts of a group is shown is for the analyser to settle
    assume(joins and not any(query.attributes[a].type_name in SEVERAL_TEXTS for a in query.groups))
    query = replace(query, unit=joins[choice % len(joins)])
    with connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement)
        (found,) = contributions([query], [BOUNDS], SnapshotDatabase(connection), kernel=kernel)
        assert found == expected_contributions(connection, query)


@pytest.mark.parametrize("kernel", ["sql", "arrays"])
@pytest.mark.parametrize("grouped", [False, True])
def test_no_unit_has_results_where_a_part_of_the_join_apart_is_empty(
    connection: psycopg.Connection[Any], kernel: Any, grouped: bool
) -> None:
    def relation(oid: int, name: str) -> Relation:
        columns = (Column("u", 23, "integer", True), Column("x", 23, "integer", True))
        return Relation(oid, "pg_temp", name, True, oid, columns)

    occurrences = tuple(
        Occurrence(
            i,
            relation(10 + i, name),
            (
                AttributeUse(j, parsed(f"r{i}.u"), "u"),
                *((AttributeUse(2, parsed("r0.x"), "x"),) if i == 0 else ()),
            ),
        )
        for i, (name, j) in enumerate([("t", 0), ("t2", 0), ("e", 1), ("e2", 1)])
    )
    attributes = (
        Attribute(0, "integer", True),
        Attribute(1, "integer", True),
        Attribute(2, "integer", False),
    )
    query = JoinQuery(occurrences, attributes, groups=(2,) if grouped else (), unit=0)
    with connection.transaction(force_rollback=True):
        for name in ("t", "t2", "e", "e2"):
            connection.execute(f"CREATE TABLE pg_temp.{name} (u integer NOT NULL, x integer)")
        connection.execute("INSERT INTO pg_temp.t VALUES (1, 1), (1, 2), (2, 1)")
        connection.execute("INSERT INTO pg_temp.t2 VALUES (1, 1), (2, 1)")
        database = SnapshotDatabase(connection)
        (found,) = contributions([query], [BOUNDS], database, kernel=kernel)
        assert not any(found.units)
        assert not found.groups
        connection.execute("INSERT INTO pg_temp.e VALUES (7, 7)")
        connection.execute("INSERT INTO pg_temp.e2 VALUES (7, 7)")
        (found,) = contributions([query], [BOUNDS], database, kernel=kernel)
        assert sum(found.units) == 2


def test_groups_that_a_filter_lists_are_coded_without_reading_them(
    connection: psycopg.Connection[Any],
) -> None:
    columns = (Column("u", 23, "integer", True), Column("g", 1042, "character(2)", True))
    relations = [Relation(20 + i, "pg_temp", n, True, 20 + i, columns) for i, n in enumerate("vw")]
    listed = ("'a'::bpchar", "'b '::bpchar", "'none'::bpchar")
    inside = f"r0.g = ANY (ARRAY[{', '.join(listed)}])"
    occurrences = (
        Occurrence(
            0,
            relations[0],
            (AttributeUse(0, parsed("r0.u"), "u"), AttributeUse(1, parsed("r0.g"), "g")),
            (parsed(inside),),
        ),
        Occurrence(1, relations[1], (AttributeUse(0, parsed("r1.u"), "u"),)),
    )
    attributes = (
        Attribute(0, "integer", True),
        Attribute(1, "bpchar", False, tuple(map(parsed, listed))),
    )
    query = JoinQuery(occurrences, attributes, groups=(1,), unit=0)
    with connection.transaction(force_rollback=True):
        for name in "vw":
            connection.execute(
                f"CREATE TABLE pg_temp.{name} (u integer NOT NULL, g char(2) NOT NULL)"
            )
        connection.execute("INSERT INTO pg_temp.v VALUES (1, 'a'), (1, 'b'), (2, 'a'), (2, 'zz')")
        connection.execute("INSERT INTO pg_temp.w VALUES (1, ''), (1, ''), (2, '')")
        database = Recorder(connection)
        (found,) = contributions([query], [BOUNDS], database, kernel="arrays")
        assert any("unnest" in sql for sql in database.seen)
        assert not any("WITH" in sql for sql in database.seen)
        (expected,) = contributions([query], [BOUNDS], database, kernel="sql")
    assert found == expected
    amounts = {key: sum(n for n, _ in cells.values()) for key, cells in found.groups.items()}
    assert amounts == {("a",): 3, ("b",): 2}


class Recorder(SnapshotDatabase):
    """Keeps the statements."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self.seen: list[str] = []

    def execute(self, sql: str, *rest: Any) -> list[tuple[object, ...]]:
        self.seen.append(sql)
        return super().execute(sql, *rest)
