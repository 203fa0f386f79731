"""Statistical audit of values by rank through the server, with mutants that it must catch.

Two databases differ in one row or in one unit with all its rows.  As in `tests.server.test_audit`: an
event that is likelier than the claim allows refutes the code.  The code as it is must be acquitted
(false alarms below 2e-10 each, 1.2e-9 in all); each mutant is refuted but for a probability of less than 1e-9.
The noise is the operating system's, so that there is no seed to print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.server.test_audit import DELTA, patched, refuted

pytestmark = [pytest.mark.server, pytest.mark.stat]

EPSILON = 0.5
#: Runs of the code as it is, on each side: fewer than 49 could never refute the claim.
ACQUITTAL = 50
# Of "pay" the rank that 0.999 seeks lies near where 0 ends and 1 begins; one row more of 1 decides: the
# difference of their scores is 499 before and -500 after.  Of "work" there are results with the row of "dept" only.
SET_UP = """
create table public.known (v int);  -- public, for the first question of a session
select dp.declare_public('known');
create table pay (v int not null);
insert into pay select case when g = 1 then 1 else 0 end from generate_series(1, 1499) g;
create table dept (d int);
create table work (d int, h int);
insert into work select 1, 990 + g % 10 from generate_series(1, 300) g;
create table person (id int primary key);
insert into person select generate_series(1, 300);
create table visit (id int not null references person, amount int, day date);
insert into visit select g, 0, '2000-01-01' from generate_series(1, 300) g;
select dp.protect(t, delta => 1) from unnest(array['pay', 'dept', 'work']::regclass[]) t;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('pay', 'v', 0, 1);
select dp.grant_budget('alice', 1e6, 1);
"""
#: Each case looks at one of the three.
MORE = """
insert into pay values (1);
insert into dept values (1);
insert into person values (5000);
insert into visit select 5000, 1000, '2002-06-30' from generate_series(1, 3000) g;
"""
NO_NOISE = """
from dpsql.core.rng import SystemNoise
SystemNoise.geometric = lambda self, scale: 0
"""
DENOMINATOR_FORGOTTEN = """
from dpsql.core.mechanisms import percentile
right = percentile._seek
percentile._seek = lambda counts, sought, bound, epsilon, noise: right(
    counts, sought, bound, epsilon * sought.share.denominator, noise)
"""
SECOND_STAGE_EXACT = """
from fractions import Fraction
from dpsql.core.mechanisms import percentile
right = percentile._best
calls = []
def best(counts, rank, scale, noise):
    calls.append(1)
    return right(counts, rank, scale if len(calls) % 2 else Fraction(1, 10**6), noise)
percentile._best = best
"""
FORGOTTEN_JOIN = """
from fractions import Fraction
import dpsql.core.sensitivity as sensitivity
from dpsql.core.smooth import SmoothBound
sensitivity.bound = lambda *a, **k: SmoothBound(Fraction(1), (0,), 0)
"""
NOT_CUT = """
from dpsql.counted import Contributions
Contributions.truncated = lambda self, j, groups: [
    self.grid * sum(amount for amount, _ in self.groups.get(key, {}).values()) for key in groups]
"""
ONE_ROW_A_UNIT = """
from dpsql.core.mechanisms import percentile
from dpsql.model import GRID
right = percentile._seek
percentile._seek = lambda counts, sought, bound, epsilon, noise: right(
    counts, sought, GRID, epsilon, noise)
"""


@dataclass(frozen=True)
class Case:
    """A question, an event about its answer, and the mutation that the event gives away.

    The event is the likelier one with the row or unit, or (``rare``) without it.  160 runs suffice
    while it happens in 96 % of them and in 4 % on the other side; of 320 all did, and none.
    """

    question: str
    event: Callable[[Any], bool]
    mutant: str
    runs: int = 160
    settings: str = ""
    rare: bool = False


SHARE = "select dp_percentile(v, 0.999) from pay"
CASES = {
    "no noise": Case(SHARE, lambda v: v == 0, NO_NOISE, rare=True),
    "denominator": Case(SHARE, lambda v: v == 0, DENOMINATOR_FORGOTTEN, rare=True),
    "second stage": Case(SHARE, lambda v: v == 0, SECOND_STAGE_EXACT, 400, rare=True),  # of 1000 613, and none
    "forgotten join": Case(
        "select dp_median(h, 0, 999) from dept join work using (d)",
        lambda v: v >= 990,
        FORGOTTEN_JOIN,
        240,  # of 480 463, and 16
    ),
    "not cut": Case(  # of 320 all, and 4
        "select dp_median(amount, 0, 1000) from visit", lambda v: v >= 900, NOT_CUT, 200
    ),
    "one row a unit": Case(
        "select dp_median(day, '2000-01-01', '2002-06-30') from visit",
        lambda v: v.year == 2002,
        ONE_ROW_A_UNIT,
        settings="set dp.max_rows_contributed = 1000",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def neighbours(server: Any) -> Iterator[Any]:
    pair = server.create_database(), server.create_database()
    for database in pair:
        database.sql(SET_UP)
    pair[1].sql(MORE)
    yield pair
    for database in pair:
        server.drop_database(database)


def ask(database: Any, case: Case, patch: str) -> int:
    """Return how often the event happens."""
    with patched(database, "select dp_count(*) from known", patch) as connection:
        connection.execute(f"set dp.epsilon = {EPSILON}; set dp.delta = {DELTA}")
        connection.execute(f"set dp.fresh = on; {case.settings}")
        return sum(
            case.event(connection.execute(case.question).fetchone()[0]) for _ in range(case.runs)
        )


@pytest.mark.parametrize("name", CASES)
def test_the_audit_acquits_the_code_and_catches_its_mutant(neighbours: Any, name: str) -> None:
    asked = CASES[name]
    for patch in ("", asked.mutant):
        case = asked if patch else replace(asked, runs=ACQUITTAL)
        without, with_ = (ask(database, case, patch) for database in neighbours)
        likely, unlikely = (without, with_) if case.rare else (with_, without)
        assert refuted(likely, unlikely, case.runs, EPSILON, DELTA) == bool(patch)
