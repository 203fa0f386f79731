"""Joins and groupings that another server can do are done there, whatever seems cheaper (sent.c)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.shards import Shards, sharded

ROWS = 5000
SET_UP = f"""
insert into r select i, -i, i % 3 from generate_series(1, {ROWS}) i;
insert into s select i, 2 * i from generate_series(1, {ROWS}) i;
"""
#: Rows travel for nothing.
PLANS = {
    "groups nearly as many as rows": "select a, b, count(*) from r_0 group by a, b",
    "no groups": "select count(*), sum(b) from r_0",
    "a largest group": "select b, count(*) as n from r_0 group by b order by n desc limit 1",
    "a join": "select r_0.a, s_0.d, count(*) from r_0 join s_0 on r_0.k = s_0.k group by 1, 2",
    "a join of three": "select count(*) from r_0 join s_0 on r_0.k = s_0.k join r_0 t on t.k = s_0.k",
    "a join with a condition of both": "select count(*) from r_0 join s_0 on r_0.k = s_0.k and r_0.a < s_0.d",
    "parts one after the other": "select a, sum(n) from (select a, count(*) as n from r_0 group by a"
    " union all select a, count(*) from r_1 group by a) as v group by a",
}


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        found.table("r", "k int, a int, b int", "k")
        found.table("s", "k int, d int", "k")
        found.near.sql(SET_UP)
        found.near.sql(
            "select dp.protect('r'), dp.protect('s'); select dp.declare_shards(r, written =>"
            " 'coordinator') from unnest(array['r', 's']::regclass[]) as r",
            user="owner1",
        )
        found.near.sql("analyze r, s")
        for number in (0, 1):
            found.near.sql(f"alter server shard{number} options (add fdw_tuple_cost '0')")
        yield found


def planned(shards: Shards, text: str, role: str, analyse: bool = True) -> tuple[list[str], float]:
    """Return what is asked of the shards, and how many rows these send."""
    with shards.near.connect() as session:
        session.execute(f"set role {role}")
        options = f"verbose, format json, analyze {analyse}"
        told = session.execute(f"explain ({options}) {text}").fetchone()[0]
    (plan,) = told if isinstance(told, list) else json.loads(told)
    found = list(_scans(plan["Plan"]))
    return [f["Remote SQL"] for f in found], sum(f.get("Actual Rows", 0) for f in found)


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if plan["Node Type"] == "Foreign Scan":
        yield plan
    for inner in plan.get("Plans", ()):
        yield from _scans(inner)


@pytest.mark.parametrize("name", PLANS)
def test_the_server_that_has_the_rows_counts_them(shards: Shards, name: str) -> None:
    remote, _ = planned(shards, PLANS[name], "dp_executor")
    assert len(remote) == PLANS[name].count("union all") + 1
    assert all("count(*)" in sql for sql in remote), remote
    assert all("LIMIT 1" in sql for sql in remote) == ("limit" in PLANS[name])
    if "limit" in PLANS[name]:
        assert planned(shards, PLANS[name], "dp_executor")[1] == 1


def test_plans_of_others_are_theirs(shards: Shards) -> None:
    """With these costs PostgreSQL fetches the rows: what the tests above see is dpsql's doing."""
    remote, rows = planned(shards, PLANS["a join"], "postgres")
    assert not any("count(*)" in sql for sql in remote)
    assert rows > ROWS / 4


def test_what_a_server_cannot_do_is_done_here(shards: Shards) -> None:
    """A volatile function is called here, for each row; servers do not join with each other."""
    text = "select sum(n) from (select random() < 2 as x, count(*) as n from r_0 group by 1) as v"
    remote, rows = planned(shards, text, "dp_executor")
    assert not any("count(*)" in sql for sql in remote)
    assert rows > ROWS / 4
    with shards.near.connect() as session:
        session.execute("set role dp_executor")
        (there,) = session.execute("select count(*) from r_0").fetchone()
        (here,) = session.execute(text).fetchone()
        assert here == there
        crossed = "select count(*) from r_0 join s_1 on r_0.k = s_1.k"
        assert session.execute(crossed).fetchone() == (0,)


UNREAD = {
    "a count": "select a from r_0, (select count(*) from s_0) as v",
    "a count of what belongs to each": "select a from r_0, lateral (select count(*) from s_0"
    " where s_0.k = r_0.k) as v",
    "a sum, sorted": "select a from r_0, (select sum(d) from s_0 order by 1) as v",
    "a count below a limit": "select a from r_0, (select count(*) from s_0 limit 1) as v",
    "with a test": "select a from r_0, (select count(*) from s_0 having count(*) > 1) as v",
    "of a join": "select a from r_0, (select max(d) from s_0 join r_0 as t on t.k = s_0.k) as v",
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_count_that_nobody_reads_is_one_row(shards: Shards, name: str) -> None:
    with shards.near.connect() as session:
        session.execute("set role dp_executor")
        (rows,) = session.execute("select count(*) from r_0").fetchone()
        assert session.execute(f"select count(*) from ({UNREAD[name]}) as w").fetchone() == (rows,)
