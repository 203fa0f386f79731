"""Parts of odd kinds: each is answered as on one server, or refused for a reason that is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.shards import READER, WRITER, Shards, sharded

pytestmark = pytest.mark.server
BUDGET = "select dp.grant_budget('postgres', 1e7, 1);"
#: Questions over ``t (k, v)`` and ``w (k, v)``, which are cut alike or not.
QUESTIONS = (
    "select {}count(*) from t",
    "select {}count(*) from t where v is null",
    "select {}count(*) from t where k is null",
    "select {}count(k) from t",
    "select {}sum(v{}) from t",
    "select {}count(*) from t join w on t.k = w.k",
    "select {}count(*) from t a join t b on a.v = b.v",
    "select {}count(distinct v) from t",
)


@pytest.fixture
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        found.near.sql(BUDGET, user="owner1")
        yield found


def declare(shards: Shards, *names: str) -> None:
    for name in names:
        shards.near.sql(
            f"select dp.protect('{name}'); select dp.declare_shards('{name}', written => 'coordinator')",
            user="owner1",
        )


def agree(shards: Shards, *questions: str) -> None:
    """Compare with what PostgreSQL counts of the same relation."""
    with silent(shards.near, "t") as session:
        for question in questions or QUESTIONS:
            plain = session.execute(question.format("", "")).fetchone()
            private = session.execute(question.format("dp_", ", 0, 100")).fetchone()
            assert [int(v or 0) for v in private] == [int(v or 0) for v in plain], question


def far(shards: Shards, place: int, name: str, columns: str = "k int, v int") -> None:
    shards.far[place].sql(
        f"create table {name} ({columns}); grant select on {name} to {READER};"
        f" grant all on {name} to {WRITER}"
    )


FILL = "insert into {name} select nullif(i % 9, 8), nullif(i % 5, 4) from generate_series(1, 60) i"


def test_default_parts_and_lists_with_null(shards: Shards) -> None:
    bounds = ("in (1, 2, null)", "in (3)", "default")
    for name in ("t", "w"):
        shards.table(name, "k int, v int", "k", method="list", bounds=bounds)
        shards.near.sql(FILL.format(name=name))
    declare(shards, "t", "w")
    agree(shards)


def test_null_keys_of_hash_and_range_parts(shards: Shards) -> None:
    shards.table("t", "k int, v int", "k")
    bounds = ("from (minvalue) to (4)", "default")
    shards.table("w", "k int, v int", "k", method="range", bounds=bounds, local=[1])
    for name in ("t", "w"):
        shards.near.sql(FILL.format(name=name))
    declare(shards, "t", "w")
    agree(shards)


def test_parts_that_come_and_go(shards: Shards) -> None:
    for name in ("t", "w"):
        shards.table(
            name, "k int, v int", "k", method="list", bounds=("in (1, 2, null)", "default")
        )
        shards.near.sql(FILL.format(name=name))
    declare(shards, "t", "w")
    agree(shards)
    shards.near.sql("alter table t detach partition t_1")
    agree(shards)
    for name in ("t_1", "w_0"):  # neither is declared: a part never is, and what left is no part
        with pytest.raises(psycopg.Error) as caught:
            shards.near.sql(f"select dp_count(*) from {name}")
        assert caught.value.sqlstate == "PD012"
    far(shards, 1, "t_2")
    shards.near.sql(
        "create foreign table t_2 (k int, v int) server shard1;"
        "alter foreign table t_2 owner to owner1;"
        "alter table t attach partition t_2 for values in (5)"
    )
    shards.near.sql("insert into t values (5, 1)")
    with pytest.raises(psycopg.Error) as caught:
        shards.near.sql("select dp_count(*) from t")
    assert "dp_executor may not read parts of it" in (caught.value.diag.message_detail or "")
    declare(shards, "t")
    agree(shards)


def test_parts_that_change_while_a_session_asks(shards: Shards) -> None:
    """One session knows the plan of before; what it reads is what is there."""
    for name in ("t", "w"):
        shards.table(
            name, "k int, v int", "k", method="list", bounds=("in (1, 2, null)", "default")
        )
        shards.near.sql(FILL.format(name=name))
    declare(shards, "t", "w")
    far(shards, 0, "t_2")
    shards.far[0].sql("insert into t_2 values (11, 1), (11, 2)")
    shards.near.sql(
        "create foreign table t_2 (k int, v int) server shard0; alter foreign table t_2 owner to owner1;"
        "grant select on t_2 to dp_executor"
    )
    with silent(shards.near, "t") as session:
        for change, size in (
            ("select 1", 60),
            ("alter table t attach partition t_2 for values in (11)", 62),
            ("alter table t detach partition t_2", 60),
            ("alter table t attach partition t_2 for values in (11)", 62),
            ("drop foreign table t_2", 60),
        ):
            shards.near.sql(change)
            assert session.execute("select dp_count(*) from t").fetchone() == (size,), change
            session.execute("select dp_count(*) from t join w on t.k = w.k")


def test_parts_that_are_partitioned_on_their_shard(shards: Shards) -> None:
    for name in ("t", "w"):
        shards.table(name, "k int, v int", "k")
        for database in shards.far:
            database.sql(
                f"drop table {name}; create table {name} (k int, v int) partition by range (v);"
                f" create table {name}_low partition of {name} for values from (minvalue) to (2);"
                f" create table {name}_rest partition of {name} default;"
                f" grant select on {name} to {READER}; grant all on {name} to {WRITER}"
            )
        shards.near.sql(FILL.format(name=name))
    declare(shards, "t", "w")
    agree(shards)


def test_other_names_orders_and_dropped_columns(shards: Shards) -> None:
    """Columns are found by their names; what is elsewhere has names of its own."""
    shards.far[0].sql(
        f"create schema deep; grant usage on schema deep to {READER}, {WRITER};"
        f' create table deep."odd ""name" (gone int, "the v" int, extra text default \'x\', k int);'
        f' alter table deep."odd ""name" drop column gone;'
        f' grant select on deep."odd ""name" to {READER}; grant all on deep."odd ""name" to {WRITER}'
    )
    far(shards, 1, "plain", "v int, k int")
    shards.near.sql(
        "create table t (gone text, k int, more int, v int) partition by hash (k);"
        "alter table t drop column gone; alter table t drop column more;"
        "create foreign table t_0 (lost int, v int options (column_name 'the v'), k int) server shard0"
        " options (schema_name 'deep', table_name 'odd \"name');"
        "alter foreign table t_0 drop column lost;"
        "create foreign table t_1 (k int, v int) server shard1 options (table_name 'plain');"
        "alter table t attach partition t_0 for values with (modulus 2, remainder 0);"
        "alter table t attach partition t_1 for values with (modulus 2, remainder 1);"
        "alter table t owner to owner1; alter foreign table t_0 owner to owner1;"
        "alter foreign table t_1 owner to owner1"
    )
    shards.table("w", "k int, v int", "k")
    for name in ("t", "w"):
        shards.near.sql(FILL.format(name=f"{name} (k, v)"))
    declare(shards, "t", "w")
    agree(shards)


def test_foreign_tables_that_inherit(shards: Shards) -> None:
    """Children are no partitions: nothing says which rows they have, and nothing is joined there."""
    far(shards, 0, "t_0")
    far(shards, 1, "t_1", "k int, v int, more int")
    shards.near.sql(
        "create table t (k int, v int); alter table t owner to owner1;"
        "create foreign table t_0 () inherits (t) server shard0;"
        "create foreign table t_1 (more int) inherits (t) server shard1;"
        "alter foreign table t_0 owner to owner1; alter foreign table t_1 owner to owner1;"
    )
    for name in ("t", "t_0", "t_1"):
        shards.near.sql(FILL.format(name=name).replace("9", "7"))
    shards.table("w", "k int, v int", "k")
    shards.near.sql(FILL.format(name="w"))
    declare(shards, "t", "w")
    agree(shards)


def test_one_table_in_two_parts_is_refused(shards: Shards) -> None:
    """A mistake of the owner: each row would be two."""
    far(shards, 0, "twice")
    shards.near.sql(
        "create table t (k int, v int) partition by hash (k);"
        "create foreign table t_0 partition of t for values with (modulus 2, remainder 0)"
        " server shard0 options (table_name 'twice');"
        "create foreign table t_1 partition of t for values with (modulus 2, remainder 1)"
        " server shard0 options (table_name 'twice');"
        "alter table t owner to owner1; alter foreign table t_0 owner to owner1;"
        "alter foreign table t_1 owner to owner1; insert into t values (1, 1), (2, 2), (3, 3)"
    )
    declare(shards, "t")
    with shards.near.connect() as session, pytest.raises(psycopg.Error) as caught:
        session.execute("select dp.explain('select dp_count(*) from t')")
    assert caught.value.sqlstate == "PD012"
    assert "t_0 and public.t_1 are one table of another server" in caught.value.diag.message_detail
    assert caught.value.diag.message_hint.startswith("Ask its owner to change that,")
