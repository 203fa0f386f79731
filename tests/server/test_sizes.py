"""Size facts: what is expected of relations and of the parts of partitioned ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from dpsql.relation import Relation
from dpsql.statistics.sizes import Facts, read_facts
from tests.property.random_joins import SnapshotDatabase
from tests.server.walk_cases import join

# nobody analyses them meanwhile
PARTS = """
create table whole (a int, b int);
create table split (a int, b int) partition by list (a);
create table split_1 partition of split for values in (1) partition by list (b);
create table split_1_1 partition of split_1 for values in (1);
create table split_1_2 partition of split_1 for values in (2);
create table split_2 partition of split for values in (2);
alter table whole set (autovacuum_enabled = off);
alter table split_1_1 set (autovacuum_enabled = off);
alter table split_1_2 set (autovacuum_enabled = off);
alter table split_2 set (autovacuum_enabled = off);
insert into whole select 1 + i % 2, 1 + i / 2 % 2 from generate_series(1, 4000) i;
insert into split select * from whole;
create extension postgres_fdw;
create server far foreign data wrapper postgres_fdw options (host '{host}', dbname '{name}');
create user mapping for public server far options (user 'postgres', password_required 'false');
create foreign table split_3 partition of split for values in (3) server far options (table_name 'whole');
create foreign table alone (a int, b int) server far options (table_name 'whole');
"""


@pytest.fixture
def connection(database: Any) -> psycopg.Connection[Any]:
    database.sql(PARTS.format(host=database.cluster.socket, name=database.name))
    return database.connect()


def facts(connection: psycopg.Connection[Any]) -> dict[str, tuple[float | None, int | None]]:
    names = ["whole", "split", "alone"]
    query = join([(0, 1), (1, 2), (2, 3)], names)
    oids = {
        name: connection.execute("select %s::regclass::oid::int", (name,)).fetchone()[0]  # type: ignore[index]
        for name in names
    }

    def of(relation: Relation) -> Relation:
        return replace(relation, oid=oids[relation.name])

    occurrences = tuple(replace(o, relation=of(o.relation)) for o in query.occurrences)
    found: Facts = read_facts(
        replace(query, occurrences=occurrences),
        SnapshotDatabase(connection),  # type: ignore[arg-type]
    )
    return {name: (found.rows.get(oid), found.pages.get(oid)) for name, oid in oids.items()}


def test_parts_nobody_analysed_are_guessed_each(
    connection: psycopg.Connection[Any],
) -> None:
    """A part of unknown size must not make all of it look empty, nor hide what others hold."""
    found = facts(connection)
    pages = found["whole"][1]
    assert found["whole"] == (60.0 * pages, pages)  # type: ignore[operator]
    local = 60.0 * found["split"][1]  # type: ignore[operator]
    assert found["split"][0] == local + 100_000
    assert found["alone"] == (100_000, 0)


def test_rows_of_all_levels_are_added_up(connection: psycopg.Connection[Any]) -> None:
    connection.execute("analyze whole, split, alone")
    found = facts(connection)
    assert found["whole"][0] == found["alone"][0] == 4000
    # split_3 shows all of whole again: 4000 rows here and 4000 there
    assert found["split"][0] == 8000
    connection.execute("insert into split select * from whole; insert into whole table whole")
    found = facts(connection)
    assert 7900 < found["whole"][0] < 8400  # type: ignore[operator]
    # the pages that were added here are known, those far away are not
    assert 11000 < found["split"][0] < 13000  # type: ignore[operator]
