"""Releases read parts here as of the moment of the other servers, however often they read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.in_service import everywhere
from tests.server.releasing import release, values
from tests.server.shards import Shards, sharded
from tests.server.test_shards_moment import LATER
from tests.server.waiting import wait_until, waits

WORKLOAD = """select a_branch, a_kind, dp_count(*) from account
 group by grouping sets ((a_branch), (a_kind))"""
#: As if the table of all combinations did not fit: one statement for each marginal.
SMALL = everywhere("""
import dpsql.statistics.tabulation as tabulation
from dpsql.statistics.tabulation import MEMORY_LIMIT, Marginals
def tabulate(query, levels, rows, database):
    return Marginals(query, levels, rows, database, MEMORY_LIMIT, numeric=False)
tabulation.tabulate = tabulate
tabulation._TOGETHER = 1
""")
LARGE = "select"


@pytest.fixture
def bank(server: Any) -> Iterator[Shards]:
    """Accounts by branch: two on each of two servers, and branch 4 here."""
    with sharded(server, 2) as shards:
        shards.table(
            "account",
            "a_branch int not null, a_kind int not null",
            "a_branch",
            method="list",
            bounds=[f"in ({i})" for i in range(5)],
            local=[4],
            declare="select dp.protect('account');"
            " select dp.declare_shards('account', written => 'coordinator');"
            " select dp.set_domain('account', 'a_branch', array(select generate_series(0, 4)));"
            " select dp.set_domain('account', 'a_kind', array(select generate_series(0, 199)));"
            " select dp.grant_budget('postgres', 1e7, 1)",
        )
        shards.near.sql(
            "insert into account select i % 5, i from generate_series(0, 199) i", user="owner1"
        )
        yield shards


@pytest.mark.parametrize("memory", [SMALL, LARGE])
def test_a_row_that_comes_from_another_server_is_released_once(bank: Shards, memory: str) -> None:
    """It was there when the servers were met after the charge, and is here when the release reads."""
    with (
        silent(bank.near, "account", LATER, memory) as session,
        bank.far[1].connect(autocommit=False) as keeper,
    ):
        keeper.execute("lock account_3")
        found: list[Any] = []
        releasing = threading.Thread(
            target=lambda: found.extend(release(session, "moved", WORKLOAD))
        )
        releasing.start()
        wait_until(lambda: waits(bank.far[1]))
        bank.near.sql(
            "delete from account where a_branch = 0 and a_kind = 5;"
            " insert into account values (4, 5)",
            user="owner1",
        )
        keeper.rollback()
        releasing.join(120)
    branches = {k[0]: v for k, v in values(found, "a_branch", "a_kind").items() if k[1] is None}
    assert branches == pytest.approx(dict.fromkeys(range(5), 40), abs=1e-6)
