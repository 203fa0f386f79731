"""Parts that are cut into parts: joined place by place, to the depth to which both are cut in one way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.shards import READER, WRITER, Shards, sharded
from tests.server.test_parts_facts import parts_of
from tests.server.test_parts_pushed import sent

pytestmark = pytest.mark.server
COLUMNS = "k int not null, d date not null, v int"
#: Ranges of days that the parts of a part are cut by.
YEARS = (("2023-01-01", "2024-01-01"), ("2024-01-01", "2025-01-01"))
HALVES = (("2023-01-01", "2024-07-01"), ("2024-07-01", "2025-01-01"))
DECLARE = """
select dp.protect('{name}'); select dp.declare_shards('{name}', written => 'coordinator');
select dp.grant_budget('owner1', epsilon => 1e6, delta => 1e-3), dp.grant_budget('postgres', 1e6, 1e-3);
"""
ROWS = 400


def nested(
    shards: Shards, name: str, ranges: tuple[tuple[str, str], ...], places: tuple[int, ...]
) -> None:
    """Cut by the hash of ``k`` in two and these by days; ``places`` are the shards of the parts."""
    made = [f"create table {name} ({COLUMNS}) partition by hash (k)"]
    for i in range(2):
        of = f"partition of {name} for values with (modulus 2, remainder {i})"
        made.append(f"create table {name}_{i} {of} partition by range (d)")
        for j, (low, high) in enumerate(ranges):
            place = places[len(ranges) * i + j]
            far = f"{name}_{i}_{j}"
            shards.far[place].sql(
                f"create table {far} ({COLUMNS}); grant select on {far} to {READER};"
                f" grant all on {far} to {WRITER}"
            )
            made.append(
                f"create foreign table {far} partition of {name}_{i}"
                f" for values from ('{low}') to ('{high}') server shard{place}"
            )
    made += [f"alter table {name}{end} owner to owner1" for end in ("", "_0", "_1")]
    made += [f"alter foreign table {name}_{i}_{j} owner to owner1" for i in (0, 1) for j in (0, 1)]
    made.append(
        f"insert into {name} select i % 97, date '2023-01-01' + i % 700, i"
        f" from generate_series(1, {ROWS}) i"
    )
    shards.near.sql("; ".join(made))
    shards.near.sql(DECLARE.format(name=name), user="owner1")


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        nested(found, "years", YEARS, (0, 0, 1, 1))
        nested(found, "same", YEARS, (0, 0, 1, 1))
        nested(found, "halves", HALVES, (0, 0, 1, 1))
        nested(found, "spread", YEARS, (0, 1, 1, 0))
        nested(found, "spread_so", YEARS, (0, 1, 1, 0))
        found.table("plain", COLUMNS, "k", declare=DECLARE.format(name="plain"))
        found.near.sql(
            f"insert into plain select i % 89, date '2023-01-01' + i % 700, i from generate_series(1, {ROWS}) i"
        )
        yield found


def levels(shards: Shards, name: str) -> list[Any]:
    found = parts_of(shards, name)
    assert found is not None
    return found["levels"] or []


def test_each_depth_says_how_it_is_cut(shards: Shards) -> None:
    plain = parts_of(shards, "plain")
    assert plain is not None
    assert plain["levels"] is None
    top, leaf = levels(shards, "years")
    assert top[0] == ["k"]
    assert top[1] == plain["layout"]
    assert sorted(top[2]) == [0, 0, 1, 1]
    assert leaf[0] == ["k", "d"]
    assert sorted(leaf[2]) == [0, 1, 2, 3]
    assert levels(shards, "same") == [top, leaf]
    other_top, other_leaf = levels(shards, "halves")
    assert other_top[1] == top[1]
    assert other_leaf[1] != leaf[1]


def test_depths_that_are_cut_in_several_ways_are_not_told(shards: Shards) -> None:
    """One part is not cut again, or by something else; what is above it still counts."""
    near = shards.near
    near.sql(
        "create table uneven (k int, d date) partition by hash (k);"
        "create foreign table uneven_0 partition of uneven for values with (modulus 2, remainder 0) server shard0;"
        "create table uneven_1 partition of uneven for values with (modulus 2, remainder 1) partition by range (d);"
        "create foreign table uneven_1_0 partition of uneven_1 default server shard1;"
        "create table mixed (k int, d date) partition by hash (k);"
        "create table mixed_0 partition of mixed for values with (modulus 2, remainder 0) partition by hash (d);"
        "create foreign table mixed_0_0 partition of mixed_0 for values with (modulus 1, remainder 0) server shard0;"
        "create table mixed_1 partition of mixed for values with (modulus 2, remainder 1) partition by range (d);"
        "create foreign table mixed_1_0 partition of mixed_1 default server shard1;"
        "create table computed (k int, d date) partition by hash ((k + 1));"
        "create table computed_0 partition of computed for values with (modulus 1, remainder 0) partition by hash (k);"
        "create foreign table computed_0_0 partition of computed_0 for values with (modulus 1, remainder 0) server shard1;"
        "grant select on uneven_0, uneven_1_0, mixed_0_0, mixed_1_0, computed_0_0 to dp_executor"
    )
    (top,) = levels(shards, "uneven")
    assert top[0] == ["k"]
    (top,) = levels(shards, "mixed")
    assert top[0] == ["k"]
    assert levels(shards, "computed") == []


@pytest.mark.parametrize(
    ("one", "other", "on", "joins"),
    [
        ("years", "plain", "k", 4),
        ("years", "same", "k", 8),
        ("years", "same", "k, d", 4),
        ("years", "halves", "k, d", 8),
        ("spread", "spread_so", "k, d", 4),
        ("spread", "spread_so", "k", 0),
        ("years", "spread", "k, d", 0),
    ],
)
def test_what_is_joined_where_it_is(
    shards: Shards, one: str, other: str, on: str, joins: int
) -> None:
    """Of parts on different servers, or of other columns, groups are sent."""
    conditions = " and ".join(f"a.{c} = b.{c}" for c in on.split(", "))
    question = f"select {{}}count(*) from {one} a join {other} b on {conditions}"
    remote, _ = sent(shards, question.format("dp_"))
    assert all("GROUP BY" in sql or "count(*)" in sql for sql in remote)
    answered = [sql for sql in remote if "JOIN" in sql]
    assert len(answered) == joins, remote
    with silent(shards.near, one) as session:
        (plain,) = session.execute(question.format("")).fetchone() or (None,)
        assert plain
        assert session.execute(question.format("dp_")).fetchone() == (plain,)
