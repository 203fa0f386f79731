"""Distinct values within units: rows as they are and rows grouped before give the same, and what rows say."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from dpsql.counted import Contributions
from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence
from dpsql.query import contribution_sql
from dpsql.relation import Column, Relation
from dpsql.statistics.contributions import contributions
from tests.expressions import parsed
from tests.property.random_joins import SnapshotDatabase, connection

pytestmark = pytest.mark.server
__all__ = ["connection"]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-2, 2),
    "text": st.sampled_from(["", "a", "A", "a "]),
    "bpchar": st.sampled_from(["a", "a  ", "b"]),
    "numeric": st.sampled_from([Decimal("1"), Decimal("1.0"), Decimal("2.50")]),
    "double precision": st.sampled_from([0.0, -0.0, 1.5]),
}
GROUP, VALUE, UNIT = 0, 1, 2


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Draw types of group and value, and rows of unit, group and value."""
    types = [draw(st.sampled_from([*VALUES])) for _ in range(2)]
    cells = [st.none() | VALUES[t] for t in types]
    rows = draw(st.lists(st.tuples(*cells, st.integers(0, 3)), max_size=16))
    return types, rows


def question(types: list[str], grouped: bool) -> JoinQuery:
    columns = tuple(Column(c, 0, t, False) for c, t in zip("gdu", [*types, "integer"], strict=True))
    relation = Relation(100, "pg_temp", "lone", True, 100, columns)
    uses = tuple(AttributeUse(n, parsed(f"r0.{c.name}"), c.name) for n, c in enumerate(columns))
    attributes = tuple(Attribute(n, t, join=False) for n, t in enumerate((*types, "integer")))
    groups = (GROUP,) if grouped else ()
    occurrence = Occurrence(0, relation, uses, ())
    return JoinQuery((occurrence,), attributes, (), groups, UNIT, distinct=(VALUE,))


def expected(types: list[str], rows: list[Any], grouped: bool) -> tuple[list[int], dict[Any, int]]:
    """Count values per unit, and per group, from the rows."""
    units: dict[int, set[Any]] = {}
    groups: dict[Any, set[Any]] = {}
    for group, value, unit in rows:
        if value is None:
            continue
        shown = [
            v.rstrip(" ") if t == "bpchar" and v else v
            for t, v in zip(types, (group, value), strict=True)
        ]
        key = shown[0] if grouped else ()
        units.setdefault(unit, set()).add((key, shown[1]))
        groups.setdefault(key, set()).add(shown[1])
    return sorted(map(len, units.values())), {k: len(v) for k, v in groups.items()}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), grouped=st.booleans(), bounds=st.just([1, 2, 3, 4, 5]))
def test_rows_as_they_are_give_the_same(
    connection: Any, table: Any, grouped: bool, bounds: list[int]
) -> None:
    types, rows = table
    query = question(types, grouped)

    def found(bag: bool) -> Contributions:
        with pytest.MonkeyPatch.context() as patched:
            if not bag:
                patched.setattr(contribution_sql, "_may_repeat", lambda *_: False)
            (one,) = contributions([query], [bounds], SnapshotDatabase(connection), kernel="sql")
            return one

    with connection.transaction(force_rollback=True):
        connection.execute(
            f"create table pg_temp.lone (g {types[0]}, d {types[1]}, u integer not null)"
        )
        connection.cursor().executemany("insert into pg_temp.lone values (%s, %s, %s)", rows)
        one = found(True)
        assert one == found(False)
    sizes, numbers = expected(types, rows, grouped)
    told = [size + 1 for size, count in enumerate(one.units) for _ in range(count)]
    assert told == [min(size, 6) for size in sizes]
    amounts = sorted(sum(n for n, _ in buckets.values()) for buckets in one.groups.values())
    assert amounts == sorted(numbers.values())


def test_a_repeated_row_is_no_value_more(connection: Any) -> None:
    query = question(["text", "text"], False)
    statement = {}
    with connection.transaction(force_rollback=True):
        connection.execute("create table pg_temp.lone (g text, d text, u integer not null)")
        connection.execute("insert into pg_temp.lone select 'g', 'd', 1 from generate_series(1, 9)")
        for rank in ("dense_rank", "row_number"):
            with pytest.MonkeyPatch.context() as patched:
                written = contribution_sql._Statement._distinct

                def ranked(self: Any, written: Any = written, rank: str = rank) -> Any:
                    found = written(self)
                    for call in found.find_all(exp.Anonymous):
                        if call.name == "dense_rank":
                            call.set("this", rank)
                    return found

                patched.setattr(contribution_sql._Statement, "_distinct", ranked)
                (one,) = contributions(
                    [query], [[1, 2, 4]], SnapshotDatabase(connection), kernel="sql"
                )
                statement[rank] = one.units
    assert statement == {"dense_rank": (1, 0, 0, 0), "row_number": (0, 0, 0, 1)}
