"""Statistical audit of counts over privacy units, with mutants that it must catch.

Two databases differ in one unit with all its rows: a hub of 300 visits to 100 places.  As in
`tests.server.test_audit`: an event that is likelier than the claim allows refutes the code; the
code as it is must be acquitted (false alarms below 2e-10 each), each mutant refuted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scipy.stats import beta as beta_law

from tests.server import asking
from tests.server.test_audit import DELTA, FALSE_ALARM, Case, ask, refuted

pytestmark = [pytest.mark.server, pytest.mark.stat]

RUNS = 120
EPSILON = 1.0
Event = Callable[[list[Any]], bool]
SET_UP = """
create table person (id int primary key);
create table visit (id int not null references person, place int not null, note int);
insert into person select generate_series(1, 60);
insert into visit select g, 1, null from generate_series(1, 60) g;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('visit', 'place', 1, 100);
select dp.grant_budget('alice', 1e6, 1);
"""
HUB = """
insert into person values (1000);
insert into visit select 1000, 1 + g % 100, 7 from generate_series(1, 300) g;
"""
NOT_CUT = """
from dpsql.model import Contributions
Contributions.truncated = lambda self, j, groups: [
    self.grid * sum(amount for amount, _ in self.groups.get(key, {}).values()) for key in groups]
"""
BOUND_FROM_DATA = """
from dpsql.core.mechanisms.truncation import Quantile
Quantile.draw = lambda self, contributions, noise: max(
    j for j, n in enumerate(contributions.units) if n)
"""
EACH_GROUP_ALONE = """
from dpsql.model import Contributions
Contributions.truncated = lambda self, j, groups: [
    self.grid * sum(n if i <= j else min(n, self.bounds[j]) for i, (n, _) in cells.items())
    for cells in (self.groups.get(key, {}) for key in groups)]
"""
R2T_UNSPLIT = """
from fractions import Fraction
from dpsql.core.mechanisms import truncation
def release(self, contributions, groups, noise):
    value = sum(amount for amount, _ in contributions.groups[()].values())
    scale = Fraction(1) / self.guarantee.epsilon
    return truncation.Release([value + noise.discrete_laplace(scale)])
truncation.RaceToTheTop.release = release
"""
LOW_THRESHOLD = """
from dpsql.core.mechanisms import threshold
threshold.cutoff = lambda bound, epsilon, delta, each: 1
"""
COUNT = "select dp_count(*) from visit"
JOINED = "select dp_count(*) from person p join visit v on v.id = p.id where v.place <= 90"
BY_PLACE = "select place, dp_count(*) from visit group by place"
BY_NOTE = "select note, dp_count(*) from visit where note is not null group by note"


def case(question: str, event: Event, mutant: str, mechanism: str = "auto") -> Case:
    """Ask as often and at the same price for every case."""
    return Case(question, event, mutant, EPSILON, RUNS, mechanism)


CASES = {
    "not cut": case(COUNT, lambda r: r[0][0] >= 150, NOT_CUT),
    "not cut in a join": case(JOINED, lambda r: r[0][0] >= 150, NOT_CUT),
    "bound from data": case(COUNT, lambda r: abs(r[0][0] - 60) >= 30, BOUND_FROM_DATA),
    "each group alone": case(BY_PLACE, lambda r: sum(n for _, n in r) >= 110, EACH_GROUP_ALONE),
    "r2t without truncation": case(COUNT, lambda r: r[0][0] >= 150, R2T_UNSPLIT, "r2t"),
    "low threshold": case(BY_NOTE, lambda r: len(r) > 0, LOW_THRESHOLD),
}


@pytest.fixture(scope="module")
def neighbours(server: Any) -> Any:
    yield from asking.neighbours(server, SET_UP, HUB)


@pytest.mark.parametrize("name", CASES)
def test_the_audit_acquits_the_code_and_catches_its_mutant(neighbours: Any, name: str) -> None:
    without, with_hub = neighbours
    asked = CASES[name]
    for patch in ("", asked.mutant):
        hits, other = ask(with_hub, asked, patch), ask(without, asked, patch)
        if name == "low threshold":  # without the hub there is no group, whatever the noise
            assert other == 0
            low = beta_law.ppf(FALSE_ALARM, hits, RUNS - hits + 1) if hits else 0.0
            assert (low > DELTA) == bool(patch)
        else:
            delta = 0.0
            assert refuted(hits, other, RUNS, EPSILON, delta) == bool(patch)
