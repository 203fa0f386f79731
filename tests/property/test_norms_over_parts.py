"""Norms that are counted when they are needed are those of the rows, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import psycopg
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsql.core.sketching import joining
from dpsql.model import JoinQuery
from dpsql.statistics.norms import MAX_COLUMNS, count_norms
from tests.property.in_parts import in_parts
from tests.property.random_joins import SnapshotDatabase, cases, plain, relaxed

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def connection(server: Any) -> Iterator[psycopg.Connection[Any]]:
    database = server.create_database()
    with database.connect() as connection:
        yield connection
    server.drop_database(database)


@settings(relaxed, max_examples=100)
@given(case=cases(), cut=st.booleans())
def test_norms_are_those_of_the_frequencies(
    connection: psycopg.Connection[Any], case: tuple[list[str], JoinQuery], cut: bool
) -> None:
    statements, query = case
    with connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement)
        query, told = in_parts(connection, query) if cut else (query, query)
        shared = joining(query.shape())
        assume(max(map(len, shared)) <= MAX_COLUMNS)
        found = count_norms(query, SnapshotDatabase(connection))  # type: ignore[arg-type]
        for index, attributes in enumerate(shared):
            expected = norms(connection, told, index, sorted(attributes))
            assert found.norms[index] == expected


def norms(
    connection: psycopg.Connection[Any], query: JoinQuery, index: int, attributes: list[int]
) -> dict[frozenset[int], int]:
    """Add up squares of what the plain statement counts; keys are numbered by their equality."""
    inner = plain(query, frozenset({index}), attributes)
    found = {}
    for size in range(len(attributes) + 1):
        for fixed in combinations(attributes, size):
            by = ", ".join(f"a{a}" for a in fixed)
            sums = f"SELECT sum(n * n) AS s FROM ({inner}) AS f" + (f" GROUP BY {by}" if by else "")
            row = connection.execute(f"SELECT coalesce(max(s), 0) FROM ({sums}) AS t").fetchone()
            found[frozenset(fixed)] = int(row[0]) if row else 0
    return found
