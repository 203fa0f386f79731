"""Statistical audit of the settings that bound what a unit contributes, with mutants to be caught.

Two databases differ in one unit with all its rows: a hub at 399 places, and with notes that nobody
else has.  ``dp.max_groups_contributed`` and ``dp.max_rows_contributed`` make the bound of a unit a
public number: nothing is drawn, and the noise is made for it.  As in
`tests.server.test_audit_units`: the code as it is must be acquitted (false alarms below 2e-11 each, 2e-10 in all), each mutant refuted
but for a probability below 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.server.auditing import Case, Sessions, audit, audited, copies, first, fixtures
from tests.server.test_audit import DELTA, refuted
from tests.server.test_audit_units import EACH_GROUP_ALONE, NOT_CUT

pytestmark = [pytest.mark.server, pytest.mark.stat]

EPSILON = 1.0
ALARM = 1e-11
#: With ten draws each.
STATEMENTS = 24
#: Of the code as it is; fewer than 81 draws could never refute the claim.
ACQUITTAL = 12
NOTES = 4000
# Places 1 and 2 have as many people; the hub is at 1, and at all others but 2.
SET_UP = """
create table person (id int primary key);
create table visit (id int not null references person, place int not null);
create table note (id int not null references person, said int not null);
insert into person select generate_series(1, 60);
insert into visit select g, k from generate_series(1, 60) g, generate_series(1, 2) k;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('visit', 'place', 1, 400);
select dp.grant_budget('alice', 1e6, 1);
"""
HUB = f"""
insert into person values (1000);
insert into visit select 1000, g from generate_series(1, 400) g where g <> 2;
insert into note select 1000, g from generate_series(1, {NOTES}) g;
"""
NO_REACH = """
from dpsql.query import contribution_sql
contribution_sql.within_reach = lambda answer, query, most: answer
"""
#: A unit keeps the groups that the fewest others have.
BY_OTHERS = """
from dpsql.query import contribution_sql
from dpsql.sqltree import column, number, sql
def by_others(answer, query, most):
    unit, group = (column("", f"a{a}") for a in (query.unit, query.groups[0]))
    return sql("SELECT * FROM (SELECT r.*, dense_rank() OVER (PARTITION BY :unit ORDER BY size, :own) AS reach"
               " FROM (SELECT q.*, count(*) OVER (PARTITION BY :own) AS size FROM :answer AS q) AS r)"
               " AS k WHERE reach <= :most", unit=unit, own=group, answer=answer, most=number(most))
contribution_sql.within_reach = by_others
"""
#: The noise of units of one row, whatever bound they are cut off at.
NOISE_OF_ONE_ROW = """
from dpsql.core.mechanisms.truncation import Quantile
right = Quantile.release
def release(self, contributions, groups, noise):
    (bound,) = self.bounds
    class Narrow:
        discrete_laplace = staticmethod(lambda scale: noise.discrete_laplace(scale / bound))
        geometric = staticmethod(lambda scale: 0)
    return right(self, contributions, groups, Narrow)
Quantile.release = release
"""
COUNTS = copies("dp_count(*)", "place")
PEOPLE = copies("dp_count(distinct id)", "place")


def case(
    columns: tuple[str, ...],
    source: str,
    event: Callable[[Sequence[Any]], bool],
    mutant: str,
    **limits: int,
) -> Case:
    """Ask at the same price for every case."""
    settings = "; ".join(f"set dp.max_{name} = {value}" for name, value in limits.items())
    return Case(columns, source, event, mutant, settings, EPSILON, STATEMENTS, ACQUITTAL, ALARM)


def together(limit: int) -> Callable[[Sequence[Any]], bool]:
    """Make the event that all groups together count so many."""
    return lambda values: sum(values) >= limit


VISITS = "from visit"
PLACES = "from visit group by place order by place"
CASES = {
    "groups chosen by others": case(
        COUNTS,
        PLACES,
        lambda values: values[0] <= 12,
        BY_OTHERS,
        groups_contributed=1,
        contribution=1,
    ),
    "groups not bounded": case(
        PEOPLE, PLACES, together(250), NO_REACH + NOT_CUT, groups_contributed=1
    ),
    "groups not bounded, nor rows": case(
        COUNTS,
        PLACES,
        together(250),
        NO_REACH + NOT_CUT,
        groups_contributed=1,
        rows_contributed=1,
    ),
    "rows not bounded": case(COUNTS, VISITS, first(300), NOT_CUT, rows_contributed=1),
    "rows bounded in each group alone": case(
        COUNTS, PLACES, together(320), EACH_GROUP_ALONE, rows_contributed=1
    ),
    "values not bounded": case(
        copies("dp_count(distinct place)", "id"), VISITS, first(200), NOT_CUT, rows_contributed=1
    ),
    "noise of one row": case(COUNTS, VISITS, first(145), NOISE_OF_ONE_ROW, rows_contributed=50),
}
#: Which group is shown is for one vector to decide, so that one number is asked for.
SHOWN = replace(
    case(
        ("dp_count(distinct id)",),
        "from note group by said",
        lambda values: True,
        NO_REACH + NOT_CUT,
        groups_contributed=1,
    ),
    statements=80,
    acquittal=40,
)


neighbours, sessions = fixtures("visit", units=(SET_UP, HUB))


@audited(CASES, "units")
def test_the_audit_acquits_the_code_and_catches_its_mutant(
    sessions: Sessions, neighbours: Any, name: str
) -> None:
    audit(sessions, neighbours, CASES[name], hidden=False)


def test_groups_of_one_unit_stay_hidden_and_the_mutant_shows_them(
    sessions: Sessions, neighbours: Any
) -> None:
    """The mutant shows one of its notes with a chance of 0.6; six of 80 refute it: missed below 1e-20."""
    audit(sessions, neighbours, SHOWN, hidden=True)


@pytest.mark.parametrize("patch", [NO_REACH, NOT_CUT], ids=["reach", "cut"])
def test_either_bound_of_the_groups_is_enough(
    sessions: Sessions, neighbours: Any, patch: str
) -> None:
    """Privacy rests on what cuts off; who is in one place alone has nothing to be cut off."""
    asked = CASES["groups not bounded"]
    without, with_ = neighbours
    draws = ACQUITTAL * len(asked.columns)
    hits, other = (sessions.ask(one, asked, patch, ACQUITTAL) for one in (with_, without))
    assert not refuted(hits, other, draws, asked.epsilon, DELTA, ALARM)
