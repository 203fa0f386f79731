"""What Citus makes of our statements, and what we make of its tables: `make test-citus`.

The file's name keeps it out of `make test`: where no Citus is installed these tests are skipped,
which no other server test may be.  One server is coordinator and worker; its shards are as many as
of a large cluster, and Citus plans for them alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsql.model import JoinQuery
from dpsql.relation import quote_identifier
from dpsql.statistics.counts import count
from tests.conftest import Database, start_server
from tests.property.random_joins import SnapshotDatabase, canonical, cases, some_boundaries
from tests.server.asking import refused

pytestmark = pytest.mark.server

SETTINGS = {
    "shared_preload_libraries": "'citus,dpsql'",  # Citus wants to be the first
    "max_prepared_transactions": "20",
    "citus.node_conninfo": "'sslmode=prefer'",
    "citus.shard_count": "4",
}
CLUSTER = """
create extension citus;
select citus_set_coordinator_host('{host}', 5432);
select citus_set_node_property('{host}', 5432, 'shouldhaveshards', true);
"""
SHOP = """
create table place (p_id int primary key);
create table client (c_id int primary key, c_place int);
create table purchase (p_client int, p_amount int);
insert into place select i from generate_series(1, 5) i;
insert into client select i, 1 + i % 5 from generate_series(1, 200) i;
insert into purchase select 1 + i % 200, i from generate_series(1, 1000) i;
alter table place owner to owner1; alter table client owner to owner1; alter table purchase owner to owner1;
grant dp_owner to owner1;
"""
PROTECT = """
select dp.protect('client'), dp.protect('purchase'), dp.declare_public('place');
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""
HOW = ("distributed", "reference", "local")


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Any]:
    """A server with Citus, or nothing to test."""
    available = Database(server.cluster, "postgres").sql(
        "select 1 from pg_available_extensions where name = 'citus'"
    )
    if not available:
        pytest.skip("pg_available_extensions has no citus")
    own = start_server(**SETTINGS)
    yield own
    own.remove()


@pytest.fixture
def database(shards: Any) -> Iterator[Any]:
    """A database whose tables Citus can distribute."""
    database = shards.create_database()
    database.sql(CLUSTER.format(host=shards.cluster.socket))
    yield database
    shards.drop_database(database)


def distribute(connection: psycopg.Connection[Any], table: str, column: str, how: str) -> None:
    """Give a table to Citus, or leave it alone."""
    if how == "distributed":
        connection.execute("select create_distributed_table(%s, %s)", (table, column))
    elif how == "reference":
        connection.execute("select create_reference_table(%s)", (table,))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    case=cases(types=("integer", "bigint", "date", "uuid"), schema="public"),
    how=st.lists(st.sampled_from(HOW), min_size=3, max_size=3),
)
def test_counting_statements_say_the_same_of_distributed_tables(
    database: Any, case: tuple[list[str], JoinQuery], how: list[str]
) -> None:
    """Materialised steps, joins of groups, maxima: all that a counting statement is made of."""
    statements, query = case
    tables = {o.relation.sql for o in query.occurrences}
    with database.connect() as connection:
        for statement in statements:
            connection.execute(statement)
        try:
            before = counted(connection, query)
            for table, kind in zip(sorted(tables), how, strict=False):
                distribute(connection, table, "c0", kind)
            connection.execute("set citus.enable_repartition_joins = on")
            assert counted(connection, query) == before
        finally:
            for table in made(statements):
                connection.execute(f"drop table if exists public.{table}")


def made(statements: list[str]) -> list[str]:
    """Name the tables that a case makes."""
    names = (f'tabl"e {r}' if r == 1 else f"t{r}" for r in range(3))
    return [quote_identifier(n) for n in names if any(quote_identifier(n) in s for s in statements)]


def counted(connection: psycopg.Connection[Any], query: JoinQuery) -> Any:
    """Count answer and boundaries by one statement, as an answer does."""
    found = count(query, some_boundaries(query), SnapshotDatabase(connection), kernel="sql")  # type: ignore[arg-type]
    return canonical(query, found.groups or {}), found.boundaries


@pytest.mark.parametrize(("table", "column"), [("client", "c_id"), ("place", "p_id")])
@pytest.mark.parametrize("how", ["distributed", "reference"])
def test_what_citus_keeps_is_refused(database: Any, table: str, column: str, how: str) -> None:
    database.sql(SHOP)
    database.sql(PROTECT, user="owner1")
    question = f"select dp_count(*) from client join {table} as x on x.{column} = c_place"
    question = question if table == "place" else "select dp_count(*) from client"
    with database.connect() as owner, database.connect(user="alice") as alice:
        alice.execute(question)
        distribute(owner, table, column, how)
        spent = database.sql("select sum(epsilon_spent) from dp.budgets")
        error = refused(alice, question)
        assert "Citus" in str(error.diag.message_detail)
        assert "Citus" in str(refused(alice, f"{question} where c_id > 3").diag.message_detail)
        assert database.sql("select sum(epsilon_spent) from dp.budgets") == spent
        owner.execute("select undistribute_table(%s)", (table,))
    with database.connect(user="alice") as alice:
        # another relation has the rows now: its owner declares it anew
        assert "Citus" not in str(refused(alice, question).diag.message_detail)


def test_its_changes_are_not_counted(database: Any) -> None:
    """Triggers of distributed tables need a setting that Citus calls unsafe; ours are not made."""
    database.sql(SHOP)
    database.sql(PROTECT, user="owner1")
    with database.connect() as connection:
        distribute(connection, "purchase", "p_client", "distributed")
    with database.connect(user="owner1") as owner:
        error = refused(owner, "select dp.collect_statistics('purchase')")
        assert "Citus" in str(error.diag.message_detail)
