"""What is said of parts on other servers, and nobody enforces, changes no answer.

Settings of who asks cannot let the planner believe it either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.shards import Shards, sharded


@pytest.fixture(scope="module")
def shop(server: Any) -> Iterator[Shards]:
    """Sales by branch and goods, of which ten are on a shard that its bounds exclude."""
    with sharded(server, 2) as shards:
        shards.table(
            "sale",
            "s_branch int not null, s_who int not null, s_price int",
            "s_branch",
            method="list",
            bounds=[f"in ({i})" for i in range(4)],
            local=[3],
            declare="select dp.protect('sale', privacy_unit => 's_who');"
            " select dp.declare_shards('sale', written => 'coordinator');"
            " select dp.grant_budget('postgres', 1e7, 1)",
        )
        for part in (0, 1, 2):
            shards.near.sql(f"alter foreign table sale_{part} add check (s_price > 10)")
        shards.near.sql(
            "insert into sale select i % 4, i, 20 from generate_series(1, 40) i", user="owner1"
        )
        shards.far[0].sql("insert into sale select 1, 100 + i, 5 from generate_series(1, 10) i")
        yield shards


@pytest.mark.parametrize("setting", ["off", "partition", "on"])
def test_bounds_and_checks_of_other_servers_exclude_nothing(shop: Shards, setting: str) -> None:
    with silent(shop.near, "sale") as session:
        session.execute(f"set constraint_exclusion = {setting}")
        for condition, count in (
            ("s_branch = 1", 20),
            ("s_price < 10", 10),
            ("s_branch in (1, 3)", 30),
            ("s_branch = 1 and s_price < 10", 10),
        ):
            found = session.execute(f"select dp_count(*) from sale where {condition}").fetchone()
            assert found == (count,), condition
        assert session.execute("show constraint_exclusion").fetchone() == (setting,)
