"""Statistical audit of counts over privacy units, with mutants that it must catch.

Two databases differ in one unit with all its rows: a hub of 300 visits to 100 places.  As in
`tests.server.test_audit`: an event that is likelier than the claim allows refutes the code; the
code as it is must be acquitted (false alarms below 2e-10 each), each mutant refuted but for a
probability below 1e-9 (`tests.server.auditing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.server.auditing import Case, Sessions, audit, audited, copies, first, fixtures

pytestmark = [pytest.mark.server, pytest.mark.stat]

#: With ten draws each.
STATEMENTS = 24
#: Of the code as it is: fewer than 73 draws could never refute the claim.
ACQUITTAL = 12
EPSILON = 1.0
Event = Callable[[Sequence[Any]], bool]
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
from dpsql.counted import Contributions
Contributions.truncated = lambda self, j, groups: [
    self.grid * sum(amount for amount, _ in self.groups.get(key, {}).values()) for key in groups]
"""
BOUND_FROM_DATA = """
from dpsql.core.mechanisms.truncation import Quantile
Quantile.draw = lambda self, contributions, noise: max(
    j for j, n in enumerate(contributions.units) if n)
"""
EACH_GROUP_ALONE = """
from dpsql.counted import Contributions
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
ALL = copies("dp_count(*)", "place")


def case(
    source: str,
    event: Event,
    mutant: str,
    settings: str = "",
    columns: tuple[str, ...] = ALL,
    statements: int = STATEMENTS,
    acquittal: int = ACQUITTAL,
) -> Case:
    """Ask at the same price for every case."""
    return Case(columns, source, event, mutant, settings, EPSILON, statements, acquittal)


CASES = {
    "not cut": case("from visit", first(150), NOT_CUT),
    "not cut in a join": case(
        "from person p join visit v on v.id = p.id where v.place <= 90", first(150), NOT_CUT
    ),
    # 1154 of 1200 draws were so wide
    "bound from data": case(
        "from visit", lambda values: abs(values[0] - 60) >= 30, BOUND_FROM_DATA, statements=32
    ),
    "each group alone": case(
        "from visit group by place",
        lambda values: sum(values) >= 110,
        EACH_GROUP_ALONE,
        # with a bound of 2, drawn now and then, the noise of all groups together is too wide
        "set dp.max_contribution = 1",
    ),
    "r2t without truncation": case("from visit", first(150), R2T_UNSPLIT, "set dp.mechanism = r2t"),
    "low threshold": case(
        "from visit where note is not null group by note",
        lambda values: True,
        LOW_THRESHOLD,
        columns=("dp_count(*)",),
        # 154 of 240 showed it, and six refute the code: missed below 1e-20
        statements=80,
        acquittal=40,
    ),
}


neighbours, sessions = fixtures("visit", units=(SET_UP, HUB))


@audited(CASES, "units")
def test_the_audit_acquits_the_code_and_catches_its_mutant(
    sessions: Sessions, neighbours: Any, name: str
) -> None:
    audit(sessions, neighbours, CASES[name], hidden=name == "low threshold")
