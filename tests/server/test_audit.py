"""Statistical audit through the real server, with mutants that it must catch (PRIVACY.md section 9).

Two databases that differ in one row of a protected relation answer the same question many
times.  For each event of a fixed family (answer at least t) the audit computes a lower
confidence bound of ``P(event | I) - e^epsilon P(event | I')``, both ways; a bound above delta
refutes the claim.  Confidence: all bounds hold together with probability 1 - 1e-10.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import beta as beta_law

pytestmark = [pytest.mark.server, pytest.mark.stat]

RUNS = 1500
FALSE_ALARM = 1e-10
DELTA = 5e-4

# One hub: client 1 has all purchases, so that one client row decides about many results.
HUB = """
create table public.client (c_id int, c_kind text);
create table public.purchase (p_client int);
insert into public.client select 2, 'a' from generate_series(1, 1);
insert into public.purchase select 1 from generate_series(1, 12);
alter table public.client owner to owner1;
alter table public.purchase owner to owner1;
grant dp_owner to owner1;
"""
QUERY = "select dp_count(*) from client join purchase on p_client = c_id"


def prepare(database: Any, extra_row: bool) -> Any:
    database.sql(HUB)
    if extra_row:
        database.sql("insert into client values (1, 'a')")
    with database.connect(user="owner1") as owner:
        owner.execute("select dp.protect('client', delta => 1)")
        owner.execute("select dp.protect('purchase', delta => 1)")
        owner.execute("select dp.grant_budget('alice', epsilon => 1e6, delta => 1)")
    return database


def draw(database: Any, epsilon: float, delta: float, mechanism: str, patch: str = "") -> list[int]:
    connection = database.connect()
    if patch:
        connection.execute("select * from dp.explain(%s)", (QUERY,))  # imports the package
        connection.execute(f"do language plpython3u $body${patch}$body$")
    connection.execute("set session authorization alice")
    connection.execute(f"set dp.epsilon = {epsilon}")
    connection.execute(f"set dp.delta = {delta}")
    connection.execute(f"set dp.mechanism = {mechanism}")
    connection.execute("set dp.fresh = on")
    return [connection.execute(QUERY).fetchone()[0] for _ in range(RUNS)]


def excess(first: list[int], second: list[int], epsilon: float) -> float:
    """Largest lower confidence bound of ``P(first >= t) - e^epsilon P(second >= t)`` and mirror."""
    thresholds = range(-40, 60, 2)
    level = FALSE_ALARM / (8 * len(thresholds))
    worst = -math.inf
    for one, other in ((first, second), (second, first)):
        for sign in (1, -1):
            for t in thresholds:
                a = sum(sign * x >= t for x in one)
                b = sum(sign * x >= t for x in other)
                low = beta_law.ppf(level, a, len(one) - a + 1) if a else 0.0
                high = beta_law.isf(level, b + 1, len(other) - b) if b < len(other) else 1.0
                worst = max(worst, low - math.exp(epsilon) * high)
    return worst


@pytest.fixture
def neighbours(server: Any, database: Any) -> Any:
    other = server.create_database()
    yield prepare(database, extra_row=False), prepare(other, extra_row=True)
    server.drop_database(other)


@pytest.mark.parametrize("mechanism", ["laplace", "cauchy", "calibrated"])
def test_worst_case_neighbours_are_not_told_apart_beyond_the_claim(
    neighbours: Any, mechanism: str
) -> None:
    without, with_row = neighbours
    delta = 0.0 if mechanism == "cauchy" else DELTA
    samples = [draw(d, 0.7, delta, mechanism) for d in (without, with_row)]
    assert excess(*samples, epsilon=0.7) <= delta


MUTANT = """
from fractions import Fraction
import dpsql.core.sensitivity as sensitivity
from dpsql.core.smooth import SmoothBound
sensitivity.bound = lambda *a, **k: SmoothBound(Fraction(1), (0,), 0)
"""


def test_the_audit_catches_a_sensitivity_that_forgets_the_join(neighbours: Any) -> None:
    without, with_row = neighbours
    samples = [draw(d, 0.7, DELTA, "laplace", MUTANT) for d in (without, with_row)]
    assert excess(*samples, epsilon=0.7) > DELTA
