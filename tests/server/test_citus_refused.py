"""Relations that Citus keeps, without Citus: its catalogue alone makes them so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused

SET_UP = """
create table shop (s_id int primary key, s_kind text);
create table visit (v_shop int references shop, v_day date);
insert into shop select i, 'a' from generate_series(1, 50) i;
insert into visit select 1 + i % 50, '2024-01-01' from generate_series(1, 200) i;
alter table shop owner to owner1; alter table visit owner to owner1;
grant dp_owner to owner1;
set role owner1;
select dp.protect('shop'), dp.protect('visit');
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
reset role;
set allow_system_table_mods = on;
create table pg_catalog.pg_dist_partition (logicalrelid regclass not null, partmethod "char" not null);
grant select on pg_catalog.pg_dist_partition to public;
-- Citus invalidates the relation by a trigger of its own
create trigger dist_partition_cache_invalidate after insert or update or delete
  on pg_catalog.pg_dist_partition for each statement execute function dp.tell_sessions();
"""
#: What create_distributed_table writes.
DISTRIBUTE = "insert into pg_catalog.pg_dist_partition values ('{}', 'h')"
VISITS = "select dp_count(*) from visit"
SHOPS = "select dp_count(*) from shop"


@pytest.fixture
def shop(database: Any) -> Any:
    database.sql(SET_UP)
    return database


def test_what_citus_keeps_is_refused_before_anything_is_charged(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 1")
        alice.execute(VISITS)  # stored, and yet not given out of what cannot be asked any more
        shop.sql(DISTRIBUTE.format("visit"))
        spent = shop.sql("select sum(epsilon_spent) from dp.budgets")
        for statement in (VISITS, f"{VISITS} where v_shop > 1", f"{VISITS} join shop on v_shop = s_id"):  # fmt: skip
            error = refused(alice, statement)
            assert "visit cannot be queried privately" in str(error)
            assert "Citus" in str(error.diag.message_detail)
        assert shop.sql("select sum(epsilon_spent) from dp.budgets") == spent
        alice.execute(SHOPS)


def test_it_cannot_be_protected_or_counted(shop: Any) -> None:
    shop.sql("create table more (m_id int); alter table more owner to owner1")
    shop.sql(DISTRIBUTE.format("more") + ";" + DISTRIBUTE.format("shop"))
    with shop.connect(user="owner1") as owner:
        for call in ("protect('more')", "declare_public('more')"):
            assert "cannot be declared: Citus" in str(refused(owner, f"select dp.{call}"))
        error = refused(owner, "select dp.collect_statistics('shop')")
        assert "Citus" in str(error.diag.message_detail)


def test_one_part_is_enough(shop: Any) -> None:
    shop.sql(
        "create table log (l_day date) partition by range (l_day);"
        "create table log_24 partition of log for values from ('2024-01-01') to ('2025-01-01');"
        "alter table log owner to owner1; alter table log_24 owner to owner1"
    )
    shop.sql("select dp.protect('log')", user="owner1")
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 1")
        alice.execute("select dp_count(*) from log")
        shop.sql(DISTRIBUTE.format("log_24"))
        assert "Citus" in str(refused(alice, "select dp_count(*) from log").diag.message_detail)
