"""What a charge needs to know of the catalog is looked up once, and again after each change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.in_service import function_in_service, in_service
from tests.server.vacuuming import without_autovacuum

QUESTION = "select round(dp_count(*)) from log where id > 0"
#: Counts statements of the service session that look up accounts, and that compute select lists.
COUNTING = in_service("""
from dpsql.server.spi import SpiDatabase
run = SpiDatabase.execute
def execute(self, sql, parameters=()):
    for name, mark in (("accounts", "dp.coverage("), ("lists", "WITH noisy")):
        if mark in sql:
            GD[name] = GD.get(name, 0) + 1
    return run(self, sql, parameters)
SpiDatabase.execute = execute
""")
COUNTED = function_in_service(
    "counted", "int[]", "return f\"{{{GD.pop('accounts', 0)},{GD.pop('lists', 0)}}}\""
)


@pytest.fixture
def log(server: Any, database: Any) -> Iterator[Any]:
    """A protected relation with a partition, and one that was protected, asked about and dropped."""
    with without_autovacuum(server):
        with database.connect() as owner:
            owner.execute(
                "create table log (id int primary key) partition by range (id);"
                "create table log_a partition of log for values from (0) to (100);"
                "create table log_b partition of log for values from (100) to (200);"
                "insert into log select generate_series(1, 99);"
                "create table gone (id int primary key);"
                "select dp.protect('log'); select dp.protect('gone');"
                "select dp.grant_budget('alice', epsilon => 1000, delta => 1e-5)"
            )
        database.sql("select dp_count(*) from gone", user="alice")
        database.sql("drop table gone")
        yield database


@pytest.fixture
def alice(log: Any) -> Iterator[Any]:
    """An analyst whose session has asked the question."""
    with log.connect(autocommit=True) as session:
        session.execute("select * from dp.explain('select dp_count(*) from log')")  # imports
        session.execute(COUNTING)
        session.execute(COUNTED)
        session.execute("set session authorization alice")
        session.execute("set dp.fresh = on")
        session.execute(QUESTION)
        session.execute(QUESTION)
        session.execute("select counted()")
        yield session


def lookups(session: Any) -> list[int]:
    """Ask, and return how often accounts were looked up and the select list was computed."""
    session.execute(QUESTION)
    found: list[int] = session.execute("select counted()").fetchone()[0]
    return found


def spends(log: Any) -> int:
    return int(log.sql("select count(*) from dp.spend")[0][0])


def test_a_question_that_is_known_looks_nothing_up(alice: Any) -> None:
    assert lookups(alice) == [0, 1]


@pytest.mark.parametrize(
    "change",
    ["alter table log_b rename to log_c", "create table other (i int)", "analyze log_a"],
)
def test_after_each_change_everything_is_looked_up_once(log: Any, alice: Any, change: str) -> None:
    log.sql(change)
    assert lookups(alice) == [1, 2]
    assert lookups(alice) == [0, 1]


@pytest.mark.parametrize("begin", ["begin isolation level repeatable read", "begin"])
def test_a_transaction_of_the_asker_makes_nothing_be_looked_up(
    log: Any, alice: Any, begin: str
) -> None:
    """The service session is told of changes in any case."""
    alice.execute(begin)
    alice.execute("create temp table own (i int)")
    assert lookups(alice) == [0, 1]
    log.sql("alter table log_b rename to log_c")
    assert lookups(alice) == [1, 2]
    assert lookups(alice) == [0, 1]
    alice.execute("rollback")
    assert lookups(alice) == [0, 1]


def test_a_partition_that_takes_the_name_of_lost_rows_is_refused(log: Any, alice: Any) -> None:
    """The fingerprint does not contain names of partitions."""
    before = spends(log)
    log.sql("alter table log_b rename to gone")
    error = refused(alice, QUESTION)
    assert error.sqlstate == "PD012"
    assert "recorded" in str(error.diag.message_primary)
    assert spends(log) == before
    explained = f"select value from dp.explain($${QUESTION}$$) where item = 'refused'"
    assert alice.execute(explained).fetchone()[0] == (
        f"{error.diag.message_primary}. {error.diag.message_detail} {error.diag.message_hint} (PD012)"
    )
    estimated = (
        f"select refused_by, note from dp.estimate($${QUESTION}$$) where aggregate = 'total'"
    )
    assert alice.execute(estimated).fetchone() == (
        "relation",
        f"{error.diag.message_primary}. {error.diag.message_detail}",
    )
    log.sql("alter table gone rename to log_b")
    assert alice.execute(explained).fetchone() is None


def test_losses_that_another_account_shows_meanwhile_are_seen(log: Any, alice: Any) -> None:
    before = spends(log)
    log.sql(
        "insert into dp.covered select 'log'::regclass, 'public', 'log', c.root, 'row', 'row'"
        " from dp.covered as c where c.relation_name = 'gone'"
    )
    error = refused(alice, QUESTION)
    assert error.sqlstate == "PD012"
    assert "recorded" in str(error.diag.message_primary)
    assert spends(log) == before


def test_a_select_list_that_nobody_may_compute_any_more_is_not_charged(
    log: Any, alice: Any
) -> None:
    before = spends(log)
    log.sql("revoke execute on function pg_catalog.round(double precision) from public")
    error = refused(alice, QUESTION)
    assert str(error.sqlstate).startswith("PD0")
    assert spends(log) == before
