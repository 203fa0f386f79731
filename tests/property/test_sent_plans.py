"""Whatever is sent to other servers (sql/hook/sent.c), statements mean what they mean of rows here.

Random statements are read by dp_executor, for whom other servers join and group what they can, and
of copies of all relations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.shards import sharded

pytestmark = pytest.mark.server
STATEMENTS = 200
#: Of how the planner goes about it.
WAYS = (
    "select 1",
    "set enable_partitionwise_join = on; set enable_partitionwise_aggregate = on",
    "set enable_hashagg = off; set enable_partitionwise_join = on;"
    " set enable_partitionwise_aggregate = on",
    "set geqo_threshold = 2",
    "set enable_hashjoin = off; set enable_mergejoin = off",
)
COLUMNS = "k int, a int, t timestamp"
RELATIONS = ("r", "s", "r_0", "s_0", "r_1", "one", "nearby")
#: Between rows of two occurrences; some are sent, some are not.
CONDITIONS = (
    "{0}.k = {1}.k",
    "{0}.a = {1}.a",
    "{0}.k = {1}.k and {0}.a < {1}.a + 3",
    "{0}.k = {1}.k and random() >= 0 * {1}.a",
    "{0}.k = {1}.k and extract(day from {0}.t) >= extract(day from {1}.t)",
)
JOINS = ("join", "join", "join", "left join", "right join", "full join")
#: What is read of the rows of ``{text}``, of which ``{last}`` is an occurrence.
SHAPES = (
    "select count(*), sum(t0.a) from {text}",
    "select {last}.a, count(*), max(t0.k) from {text} group by 1",
    "select {last}.a, count(*) c from {text} group by 1 having count(*) > 1 order by c desc, 1 limit 3",
    "select {last}.a, t0.k, count(*) from {text} group by grouping sets ((1), (2), ())",
    "select distinct {last}.a, t0.k from {text} order by 1, 2 limit 4 offset 1",
    "select {last}.a, count(*) over (partition by t0.k) from {text}",
    "select sum(n) from (select {last}.a, count(*) n from {text} group by 1"
    " union all select a, count(*) from {other} group by a offset 0) v",
    "select 1 from {other}, (select count(*), max(t0.a) from {text}) v",
    "with w as materialized (select {last}.a x, count(*) n from {text} group by 1)"
    " select * from w union select a, 1 from {other} intersect select k, 1 from {other}",
    "select {last}.a, count(distinct t0.k), count(*) filter (where t0.a > 2) from {text} group by 1",
)


def statement(source: random.Random) -> str:
    """Return a statement whose rows, in any order, are those of one result."""
    count = source.choice([1, 1, 2, 2, 3, 3, 4])
    text = f"{source.choice(RELATIONS)} t0"
    for i in range(1, count):
        kind, other = source.choice(JOINS), f"t{source.randrange(i)}"
        condition = CONDITIONS[0] if kind == "full join" else source.choice(CONDITIONS)
        text += f" {kind} {source.choice(RELATIONS)} t{i} on {condition.format(other, f't{i}')}"
    if source.random() < 0.2:
        one = source.choice(RELATIONS)
        text += f", lateral (select max(a) from {one} y where y.k = t0.k) l"
    tests = ["true"]
    if source.random() < 0.3:
        tests.append("t0.a > 2")
    if source.random() < 0.3:
        told = source.choice(["", "not "])
        one = source.choice(RELATIONS)
        tests.append(f"{told}exists (select from {one} x where x.k = t0.k and x.a <= t0.a)")
    if source.random() < 0.2:
        tests.append(f"t0.k in (select k from {source.choice(RELATIONS)} where a < 4)")
    text += f" where {' and '.join(tests)}"
    other = source.choice(RELATIONS)
    return source.choice(SHAPES).format(text=text, last=f"t{count - 1}", other=other)


@pytest.fixture(scope="module")
def near(server: Any) -> Iterator[Any]:
    with sharded(server, 2) as shards:
        shards.table("r", COLUMNS, "k")
        shards.table("s", COLUMNS, "k")
        shards.far[0].sql(f"create table one ({COLUMNS}); grant all on one to public")
        shards.near.sql(
            f"create foreign table one ({COLUMNS}) server shard0; create table nearby ({COLUMNS})"
        )
        moment = "timestamp '2020-01-01' + i * interval '7 hours'"
        shards.near.sql(
            ";".join(
                f"insert into {name} select i % {k}, i % {a}, {moment} from generate_series(1, {n}) i"
                for name, k, a, n in (
                    ("r", 13, 7, 40),
                    ("s", 11, 5, 30),
                    ("one", 9, 3, 9),
                    ("nearby", 8, 4, 8),
                )
            )
        )
        copied = ";".join(f"create table copies.{r} as select * from {r}" for r in RELATIONS)
        shards.near.sql(f"create schema copies; {copied}")
        shards.near.sql("grant select on all tables in schema public to dp_executor; analyze")
        yield shards.near


def rows(session: psycopg.Connection[Any], text: str) -> list[str]:
    return sorted(map(repr, session.execute(text).fetchall()))


@pytest.mark.parametrize("way", WAYS)
def test_statements_say_the_same_wherever_they_are_computed(near: Any, way: str) -> None:
    source = random.Random(way)
    with near.connect() as executor, near.connect() as copies:
        executor.execute(f"{way}; set role dp_executor")
        copies.execute("set search_path = copies")
        for _ in range(STATEMENTS):
            text = statement(source)
            assert rows(executor, text) == rows(copies, text), text
