"""``dp_count(DISTINCT x)`` never exceeds the size of a public domain of x (PRIVACY.md section 2 (b))."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking

pytestmark = pytest.mark.server

SET_UP = """
create type hue as enum ('red', 'green', 'blue');
create table t (k int, code varchar(5), size int not null, hue hue, flag boolean, free int);
insert into t select nullif(i % 6, 0), 'c' || i % 4, i % 7, 'red', true, i % 8 from generate_series(1, 500) i;
create table open (k int);
insert into open select generate_series(1, 5);
select dp.protect('t', delta => 1), dp.declare_public('open');
select dp.set_domain('t', 'k', array[1, 2, 3]);
select dp.set_domain('t', 'code', array['c0', 'c1']);
select dp.set_domain('t', 'size', 0, 4);
select dp.set_domain('open', 'k', 1, 2);
select dp.grant_budget('postgres', 1e6, 1);
"""
#: What is counted, as it is, and the most that may be told: the owner's word stands for rows too.
EXACT = {
    "k": (5, 3),
    "code": (4, 2),
    "code || ''": (4, 3),
    "k + 1": (5, 4),
    "coalesce(k, 9)": (6, 4),
    "size": (7, 5),
    "size * 2": (7, 6),
    "k + 10 * size": (35, 24),
    "k > 2": (2, 2),
    "hue": (1, 1),
    "free": (8, 8),
    "k + 10 * free": (20, 20),
}
#: What has noise, and the size of its domain.
NOISY = {"k": 3, "size": 5, "hue": 3, "flag": 2, "case when free > 2 then 'a' else 'b' end": 2}
#: Of so many answers all are below the truth, or all below the size, with probability 2**-60.
REPEATS = 60


@pytest.fixture(scope="module")
def things(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


def test_values_beyond_a_domain_are_not_told(things: Any) -> None:
    with asking.silent(things, "t") as session:
        for expression, (true, most) in EXACT.items():
            row = session.execute(f"select count(distinct {expression}) from t").fetchone()
            assert row == (true,), expression
            row = session.execute(f"select dp_count(distinct {expression}) from t").fetchone()
            assert row == (most,), expression
        grouped = session.execute(
            "select flag, dp_count(distinct k) as n, dp_count(*) from t group by flag"
            " having dp_count(distinct k) > 0"
        ).fetchall()
        assert grouped == [(True, 3, 500)]


def test_of_public_rows_all_are_counted(things: Any) -> None:
    with asking.silent(things, "t") as session:
        assert session.execute("select dp_count(distinct k) from open").fetchone() == (5,)


def test_noise_does_not_lead_beyond_a_domain(things: Any) -> None:
    """False alarms: 5 domains, 2**-60 each for every answer to be below the size."""
    columns = ", ".join(f"dp_count(distinct {e}) as n{i}" for i, e in enumerate(NOISY))
    with things.connect() as session:
        session.execute("set dp.fresh = on; set dp.epsilon = 0.01")
        rows = [
            session.execute(f"select {columns}, dp_count(distinct free) from t").fetchone()
            for _ in range(REPEATS)
        ]
        told = [
            session.execute(
                "select * from dp.query(%s, intervals => 0.9)", (f"select {columns} from t",)
            ).fetchone()[0]
            for _ in range(3)
        ]
    for i, most in enumerate(NOISY.values()):
        assert max(row[i] for row in rows) == most
        for answer in told:
            low, n, high = (answer[f"n{i}{end}"] for end in ("_low", "", "_high"))
            assert low <= n <= high <= most
    assert max(row[-1] for row in rows) > 8
