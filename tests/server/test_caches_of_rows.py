"""No row decides what a session's caches hold afterwards: EXPLAIN tells what a lookup reads.

A new session asks about a row that exists, another one about a row that does not.  Then the same
statements look up what the row could have made the session look up, and read the same buffers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.server.single_rows import make, statements

KINDS = {
    "count": "select dp_count(*) from {one}",
    "sum": "select dp_sum(x, 0, 50) from {one}",
    "distinct": "select dp_count(distinct said) from {one}",
    "median": "select dp_median(f) from {one}",
    "groups": "select felt, dp_count(*) from {one} group by felt",
    "enum": "select dp_count(*) from {one} and felt > 'sad'",
    "label": "select dp_count(*) from {one} and felt::text like '%h%'",
    "long": "select dp_count(*) from {one} and note like '%f%'",
    "collation": "select dp_count(*) from {one} and said > 'a' collate \"C.utf8\" and lower(said) like 'a%'",
    "list": "select dp_count(*) from {one} and said = any (array['a7', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'])",
}
#: Each of them looks something up that a row above may have made the session look up.
PROBES = [
    *(
        f"select enum_out(v) from (values ('{label}'::mood)) x(v) offset 0"
        for label in ("sad", "low", "well", "high", "glad")
    ),
    "select v < w from (values ('low'::mood, 'high'::mood)) x(v, w) offset 0",
    "select width_bucket(v, array[1, 2]::int8[]) from (values (1::int8)) x(v) offset 0",
    "select width_bucket(v, array[1, 2]::numeric[]) from (values (1::numeric)) x(v) offset 0",
    "select v < w from (values (array['a'], array['b'])) x(v, w) offset 0",
    "select v < w from (values (array[1.5::float8], array[2::float8])) x(v, w) offset 0",
    "select v < 'b' collate \"C.utf8\" from (values ('a')) x(v) offset 0",
    "select count(distinct v) from (values ('a'), ('b')) x(v)",
    "select percentile_disc(0.5) within group (order by v) from (values (1.5::float8), (2)) x(v)",
    "select v, count(*) from (values ('low'::mood), ('high')) x(v) group by v",
]
NUMBERS = count(1000)


@pytest.fixture(scope="module")
def world(server: Any) -> Iterator[Any]:
    yield from make(server)


def buffers(world: Any, statement: str, row: int) -> list[list[int]]:
    """Return what each lookup reads in a session that has asked about a row."""
    with world.connect() as alice:
        alice.execute("set dp.explain_buffers = on; set session authorization alice")
        alice.execute("set dp.epsilon = 0.01; set dp.delta = 1e-9; set client_min_messages = error")
        alice.execute(statement.format(id=row, n=next(NUMBERS)))
        found = []
        for probe in PROBES:
            explain = f"explain (analyze, buffers, costs off, timing off, summary off) {probe}"
            plan = [str(line[0]) for line in alice.execute(explain).fetchall()]
            # what others read meanwhile is in shared buffers or not
            pages = [sum(map(int, re.findall(r"(?:hit|read)=(\d+)", line))) for line in plan]
            found.append(pages)
        return found


@pytest.mark.parametrize("statement", statements(KINDS))
def test_what_a_lookup_reads_tells_of_no_row(world: Any, statement: str) -> None:
    without, with_row = (buffers(world, statement, row) for row in (-1, 7))
    assert dict(zip(PROBES, with_row, strict=True)) == dict(zip(PROBES, without, strict=True))
