"""Rows in parts whose bounds they do not respect: every neighbour stays within the sensitivity.

PRIVACY.md section 1: a foreign part's bounds are claims.  What is counted is defined by where rows
are stored, and so is each neighbour: one row more or less, in any part.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.shards import Shards, sharded

pytestmark = pytest.mark.server

#: Rows are (part, key, other); ``x`` has one part, which is here.
Row = tuple[int, int, int]
Data = dict[str, tuple[Row, ...]]
BETA = 0.3
DOMAIN = (1, 2)
#: Both keys are in both parts.
FIRST: Data = {
    "r": ((0, 1, 1), (1, 1, 2), (0, 2, 1), (1, 2, 1), (1, 2, 2)),
    "s": ((0, 1, 2), (1, 1, 2), (1, 1, 1), (0, 2, 2), (1, 2, 2)),
    "x": ((0, 1, 1), (0, 1, 2), (0, 2, 2)),
}
STATEMENTS = {
    "two": "select dp_count(*) from r join s on r.k = s.k",
    "itself": "select dp_count(*) from r a join r b on a.k = b.k",
    "path": "select dp_count(*) from r join s on r.k = s.k join x on x.v = s.v",
    "filtered": "select dp_count(*) from r join s on r.k = s.k where r.v < s.v",
}


def number(name: str, data: Data) -> int:
    """Count by the definition: rows join in the part that they are stored in."""
    r, s, x = data["r"], data["s"], data["x"]
    pairs = [(a, b) for a in r for b in (r if name == "itself" else s) if a[:2] == b[:2]]
    if name == "path":
        return sum(b[2] == c[2] for _, b in pairs for c in x)
    if name == "filtered":
        return sum(a[2] < b[2] for a, b in pairs)
    return len(pairs)


def neighbours(data: Data) -> Iterator[Data]:
    for name, rows in data.items():
        for i in range(len(rows)):
            yield {**data, name: rows[:i] + rows[i + 1 :]}
        for part, k, v in itertools.product((0, 1), DOMAIN, DOMAIN):
            if name != "x" or part == 0:
                yield {**data, name: (*rows, (part, k, v))}


def store(shards: Shards, data: Data) -> None:
    """Write rows into the shards themselves, where nothing looks at bounds."""
    for part, database in enumerate(shards.far):
        for name in ("r", "s"):
            rows = [f"({k}, {v})" for p, k, v in data[name] if p == part]
            values = f"; insert into {name} values {', '.join(rows)}" if rows else ""
            database.sql(f"truncate {name}{values}")
    rows = [f"({k}, {v})" for _, k, v in data["x"]]
    shards.near.sql("truncate x" + (f"; insert into x values {', '.join(rows)}" if rows else ""))


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, 2) as found:
        for name in ("r", "s"):
            found.table(name, "k int, v int", "k")
        found.near.sql("create table x (k int, v int); alter table x owner to owner1")
        found.near.sql(
            "select dp.protect('r'), dp.protect('s'), dp.protect('x');"
            " select dp.declare_shards('r', written => 'coordinator');"
            " select dp.declare_shards('s', written => 'coordinator');"
            " select dp.grant_budget('postgres', epsilon => 1000000, delta => 1e-3)",
            user="owner1",
        )
        yield found


def test_no_neighbour_changes_a_count_by_more(shards: Shards) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    with silent(shards.near, "r") as session, shards.near.connect("owner1") as owner:
        for number_of_case in range(6):
            data: Data = (
                FIRST
                if not number_of_case
                else {
                    name: tuple(
                        (source.randrange(1 if name == "x" else 2), *source.choices(DOMAIN, k=2))
                        for _ in range(source.randrange(6))
                    )
                    for name in ("r", "s", "x")
                }
            )
            store(shards, data)
            near = [*neighbours(data)]
            other = source.choice(near)
            for name, statement in STATEMENTS.items():
                assert session.execute(statement).fetchone() == (number(name, data),)
                (smooth,) = owner.execute(
                    "select dp.sensitivity(%s, 'residual', %s)", (statement, BETA)
                ).fetchone()
                changes = [abs(number(name, n) - number(name, data)) for n in near]
                assert max(changes) <= smooth, (name, data)
                store(shards, other)
                (next_,) = owner.execute(
                    "select dp.sensitivity(%s, 'residual', %s)", (statement, BETA)
                ).fetchone()
                assert next_ <= smooth * math.exp(BETA) + 1e-9, (name, data, other)
                store(shards, data)
