"""An answer as a plain join is the answer by elimination, whichever is faster."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given, settings

from dpsql.model import JoinQuery
from dpsql.query.flat_sql import flat_sql
from dpsql.sqltree import render
from dpsql.statistics.counts import count
from tests.property.random_joins import (
    SEVERAL_TEXTS,
    SnapshotDatabase,
    cases,
    connection,
    relaxed,
)

pytestmark = pytest.mark.server
__all__ = ["connection"]


@pytest.mark.parametrize("number", ["bigint", "numeric"])
@settings(relaxed, max_examples=100)
@given(case=cases())
def test_both_forms_give_the_same_counts(
    connection: psycopg.Connection[Any],
    number: str,
    case: tuple[list[str], JoinQuery],
) -> None:
    statements, query = case
    if any(query.attributes[a].type_name in SEVERAL_TEXTS for a in query.groups):
        return  # which of several texts of a group is shown is for the analyser to settle
    columns = tuple(dict.fromkeys(query.groups))
    keys = "".join(f"c.a{a}::text AS k{i}, " for i, a in enumerate(query.groups))
    with connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement)
        answer = render(flat_sql(query, columns, number))
        rows = connection.execute(f"SELECT {keys}c.n FROM ({answer}) AS c").fetchall()
        expected = count(query, (), SnapshotDatabase(connection), kernel="sql").groups
    found = {tuple(row[:-1]): int(row[-1]) for row in rows}
    assert {k: n for k, n in found.items() if n} == {k: n for k, n in expected.items() if n}
