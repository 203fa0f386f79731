"""Statistical audit of sums, averages, variances and distinct counts, with mutants to be caught.

Two databases differ in one row (`ROWS`) or in one unit with all its rows (`UNITS`), as extreme as
the schema allows.  As in `tests.server.test_audit`: an event that is likelier than the claim
allows refutes the code.  The code as it is must be acquitted (false alarms below 2e-10 each, so
below 1e-8 in 1000 runs of all), each mutant refuted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from scipy.stats import beta as beta_law

from tests.server import asking
from tests.server.test_audit import DELTA, FALSE_ALARM, FORGOTTEN_JOIN, patched, refuted

pytestmark = [pytest.mark.server, pytest.mark.stat]

EPSILON = 0.5
RUNS = 80
#: Runs of the code as it is, on each side.
ACQUITTAL = 30
ROWS = """
create table pay (v int);
insert into pay select 500 from generate_series(1, 40);
create table dept (d int);
create table work (d int, h int);
insert into work select 1, g from generate_series(1, 300) g;
select dp.protect(t, delta => 1) from unnest(array['pay', 'dept', 'work']::regclass[]) t;
select dp.grant_budget('alice', 1e6, 1);
"""
#: Each case looks at one of the two relations only.
ROW = "insert into pay values (2000000000); insert into dept values (1)"
UNITS = """
create table pay (v int);  -- public, for the first question of a session
select dp.declare_public('pay');
create table person (id int primary key);
insert into person select generate_series(1, 300);
create table visit (id int not null references person, place int, amount int, note int);
insert into visit select g, 1, 500 from generate_series(1, 300) g;
create table likes (id int not null references person, what int);
insert into likes select g, k * g from generate_series(1, 200) g, generate_series(0, 1) k;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('visit', 'place', 1, 400);
select dp.grant_budget('alice', 1e6, 1);
"""
UNIT = """
insert into person values (5000);
insert into visit select 5000, g, 2000000000, 7 from generate_series(1, 400) g;
insert into likes select 5000, g from generate_series(1, 200) g;
"""

NOT_CLAMPED = """
import dpsql.query.values as values
values.clamped = lambda x, low, high: x
"""
WITHOUT_THE_BOUND = """
from dpsql.model import Weight
Weight.bound = property(lambda self: 1)
"""
#: So many sums are asked for together to see that each gets its part of the budget only.
PARTS = 32
NOT_SPLIT = f"""
import dpsql.core.mechanisms.select as select
right = select.choose
select.choose = lambda m, **k: right(m, **(k | {{"epsilon": k["epsilon"] * {PARTS}}}))
"""
ANY_GROUP = """
import dpsql.core.mechanisms.threshold as threshold
threshold.cutoff = lambda bound, epsilon, delta, each=None: 1
"""
NOT_CUT = """
from dpsql.model import Contributions
Contributions.truncated = lambda self, j, groups: [
    self.grid * sum(amount for amount, _ in self.groups.get(key, {}).values()) for key in groups]
"""
EACH_GROUP_ALONE = """
from dpsql.model import Contributions
Contributions.truncated = lambda self, j, groups: [
    self.grid * sum(n if i <= j else min(n, self.bounds[j]) for i, (n, _) in cells.items())
    for cells in (self.groups.get(key, {}) for key in groups)]
"""
#: The value that others have as well comes last.
RANKED_BY_OTHERS = """
from dpsql.query.contribution_sql import _Statement
right = _Statement._distinct
def distinct(self):
    (value,) = self.query.distinct
    self.answer = f"SELECT x.*, count(*) OVER (PARTITION BY a{value}) AS held FROM ({self.answer}) AS x"
    return right(self).replace("ORDER BY ", f"ORDER BY held > 1, a{value}, ", 1)
_Statement._distinct = distinct
"""
R2T_UNSPLIT = """
from fractions import Fraction
from dpsql.core.mechanisms import truncation
def release(self, contributions, groups, noise):
    value = sum(amount for amount, _ in contributions.groups[()].values())
    return truncation.Release([value + noise.discrete_laplace(Fraction(1) / self.guarantee.epsilon)])
truncation.RaceToTheTop.release = release
"""


@dataclass(frozen=True)
class Case:
    """A question, an event about its rows, and the mutation that the event gives away."""

    question: str
    event: Callable[[list[Any]], bool]
    mutant: str
    settings: str = ""
    epsilon: float = EPSILON
    runs: int = RUNS


def first(limit: float) -> Callable[[list[Any]], bool]:
    """Make the event that the only value is at least so large."""
    return lambda rows: rows[0][0] >= limit


PAID = "from pay"
JOINED = "from dept join work using (d)"
ROW_CASES = {
    "sum, not clamped": Case(f"select dp_sum(v, 0, 1000) {PAID}", first(60_000), NOT_CLAMPED),
    "sum": Case(f"select dp_sum(v, 0, 1000) {PAID}", first(20_500), WITHOUT_THE_BOUND),
    "average": Case(f"select dp_avg(v, 0, 1000) {PAID}", first(506), WITHOUT_THE_BOUND),
    "variance": Case(f"select dp_var_pop(v, 0, 1000) {PAID}", first(2000), WITHOUT_THE_BOUND),
    "sum over a join": Case(f"select dp_sum(h, 0, 10) {JOINED}", first(1500), FORGOTTEN_JOIN),
    "distinct": Case(f"select dp_count(distinct h) {JOINED}", first(150), FORGOTTEN_JOIN),
    "split": Case(
        f"select {', '.join(f'dp_sum((v > {1000 + n})::int)' for n in range(PARTS))} {PAID}",
        lambda rows: sum(total >= 1 for total in rows[0]) >= 18,
        NOT_SPLIT,
        epsilon=0.7,
        runs=150,
    ),
    "selection": Case(
        f"select h, dp_sum(h, 0, 10) {JOINED} group by h", lambda r: len(r) > 0, ANY_GROUP
    ),
}
VISITS = "from visit"
#: A bound is now and then drawn far too large; this keeps the noise small enough for the audit.
MOST = "set dp.max_contribution = 400"
UNIT_CASES = {
    "sum": Case(f"select dp_sum(amount, 0, 1000) {VISITS}", first(350_000), NOT_CUT, MOST),
    "sum by r2t": Case(
        f"select dp_sum(amount, 0, 1000) {VISITS}",
        first(350_000),
        R2T_UNSPLIT,
        "set dp.mechanism = r2t",
    ),
    "average": Case(f"select dp_avg(amount, 0, 1000) {VISITS}", first(560), NOT_CUT, MOST),
    "variance": Case(f"select dp_var_pop(amount, 0, 1000) {VISITS}", first(20_000), NOT_CUT, MOST),
    "sums of groups": Case(
        f"select place, dp_sum(amount, 0, 1000) {VISITS} group by place",
        lambda rows: sum(total for _, total in rows) >= 250_000,
        EACH_GROUP_ALONE,
        "set dp.max_contribution = 1",
        epsilon=1,
    ),
    "distinct": Case(f"select dp_count(distinct place) {VISITS}", first(200), NOT_CUT, MOST),
    "ranks": Case(
        "select dp_count(distinct what) from likes",
        lambda rows: rows[0][0] <= 50,
        RANKED_BY_OTHERS,
        "set dp.max_rows_contributed = 1",
    ),
    "selection": Case(
        f"select note, dp_sum(amount, 0, 1000) {VISITS} where note is not null group by note",
        lambda rows: len(rows) > 0,
        ANY_GROUP,
    ),
}


def ask(database: Any, case: Case, patch: str) -> int:
    """Return how often the event happens; the analysis is patched as well."""
    with patched(database, "select dp_count(*) from pay", patch) as connection:
        connection.execute(f"set dp.epsilon = {case.epsilon}; set dp.delta = {DELTA}")
        connection.execute(f"set dp.fresh = on; {case.settings}")
        return sum(
            case.event(connection.execute(case.question).fetchall()) for _ in range(case.runs)
        )


def audit(without: Any, with_: Any, asked: Case, *, hidden: bool) -> None:
    """Acquit the code, refute the mutant."""
    for patch in ("", asked.mutant):
        case = asked if patch else replace(asked, runs=ACQUITTAL)
        hits, other = ask(with_, case, patch), ask(without, case, patch)
        if hidden:  # without the row or unit there is no group, whatever the noise
            assert other == 0
            low = beta_law.ppf(FALSE_ALARM, hits, case.runs - hits + 1) if hits else 0.0
            assert (low > DELTA) == bool(patch)
        else:
            assert refuted(hits, other, case.runs, case.epsilon, DELTA) == bool(patch)


@pytest.fixture(scope="module")
def neighbours(server: Any, request: Any) -> Any:
    set_up, more = (ROWS, ROW) if request.param == "rows" else (UNITS, UNIT)
    yield from asking.neighbours(server, set_up, more)


@pytest.mark.parametrize("neighbours", ["rows"], indirect=True)
@pytest.mark.parametrize("name", ROW_CASES)
def test_one_row_is_not_seen_and_the_mutant_shows_it(neighbours: Any, name: str) -> None:
    audit(*neighbours, ROW_CASES[name], hidden=name == "selection")


@pytest.mark.parametrize("neighbours", ["units"], indirect=True)
@pytest.mark.parametrize("name", UNIT_CASES)
def test_one_unit_is_not_seen_and_the_mutant_shows_it(neighbours: Any, name: str) -> None:
    audit(*neighbours, UNIT_CASES[name], hidden=name == "selection")
