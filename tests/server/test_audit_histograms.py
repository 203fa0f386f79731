"""Statistical audit of histograms under row and unit neighbours, with mutants that it must catch.

Two databases differ in one row, which decides about three hundred results of a join (`ROWS`), or in
one unit with all its rows (`UNITS`): three hundred in one cell, and three hundred in cells of their
own.  As in `tests.server.test_audit`: an event that is likelier than the claim allows refutes the
code; the code as it is must be acquitted (false alarms below 2e-11 each, 2e-10 in all), each mutant
refuted but for a probability below 1e-9.  The noise is the operating system's: there is no seed to print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.server.auditing import Case, Sessions, audit, audited, copies, fixtures
from tests.server.test_audit import FORGOTTEN_JOIN
from tests.server.test_audit_sums import NOT_SPLIT, PARTS
from tests.server.test_audit_units import BOUND_FROM_DATA, EACH_GROUP_ALONE, NOT_CUT

pytestmark = [pytest.mark.server, pytest.mark.stat]

# Of "pay" the first cell is empty; of "work" a row of "dept" makes results in one cell.
ROWS = """
create table pay (v int);
insert into pay select 99 from generate_series(1, 40);
create table dept (d int);
create table work (d int, h int);
insert into work select 1, 990 + g % 10 from generate_series(1, 300) g;
select dp.protect(t, delta => 1) from unnest(array['pay', 'dept', 'work']::regclass[]) t;
select dp.grant_budget('alice', 1e6, 1);
"""
#: Each case looks at one of the two relations only.
ROW = "insert into pay values (0); insert into dept values (1)"
UNITS = """
create table pay (v int);  -- public, for the first question of a session
select dp.declare_public('pay');
create table person (id int primary key);
insert into person select generate_series(1, 60);
create table visit (id int not null references person, h int not null);
insert into visit select g, 0 from generate_series(1, 60) g;
create table stay (id int not null references person, place int not null, h int not null);
insert into stay select g, 1, 0 from generate_series(1, 60) g;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('stay', 'place', 0, 2);
select dp.grant_budget('alice', 1e6, 1);
"""
#: In all groups and cells of "stay" one each.
UNIT = """
insert into person values (5000);
insert into visit select 5000, 99 from generate_series(1, 300) g;
insert into stay select 5000, g % 3, g % 100 from generate_series(1, 300) g;
"""
#: A row is in every cell from its own on, and the noise is that of one cell.
RUNNING_TOTALS = """
from itertools import accumulate
from dpsql.core.mechanisms.laplace import GlobalLaplace
right = GlobalLaplace.release
GlobalLaplace.release = lambda self, counts, *more: right(self, list(accumulate(counts)), *more)
"""
EMPTY_ARE_SILENT = """
from dpsql.core.mechanisms.laplace import GlobalLaplace
right = GlobalLaplace.release
def release(self, counts, *more):
    found = right(self, counts, *more)
    found.values[:] = [v if n else 0 for n, v in zip(counts, found.values)]
    return found
GlobalLaplace.release = release
"""
EMPTY_OF_UNITS_ARE_SILENT = """
from dpsql.core.mechanisms.truncation import Quantile
right = Quantile.release
def release(self, contributions, groups, noise):
    found = right(self, contributions, groups, noise)
    found.values[:] = [v if k in contributions.groups else 0 for k, v in zip(groups, found.values)]
    return found
Quantile.release = release
"""
EPSILON = 1.0
ALARM = 1e-11
#: With ten draws each.
STATEMENTS = 24
#: For what not nearly every answer of the mutant shows: 83 % at least.
MORE = 32
#: Of the code as it is; fewer than 81 draws could never refute the claim.
ACQUITTAL = 20


def case(
    cells: str,
    source: str,
    event: Any,
    mutant: str,
    settings: str = "",
    number: int = 10,
    runs: int = STATEMENTS,
) -> Case:
    """Ask for histograms of the column ``h`` or ``v``, by its bounds and number of cells."""
    columns = copies(f"dp_histogram({cells})", cells[0], number)
    return Case(columns, source, event, mutant, settings, EPSILON, runs, ACQUITTAL, ALARM)


PAID = "from pay"
JOINED = "from dept join work using (d)"
ROW_CASES = {
    "forgotten join": case(
        "h, 0, 1000, 4", JOINED, lambda values: values[0][-1] >= 150, FORGOTTEN_JOIN
    ),
    "running totals": case(
        "v, 0, 100, 50", PAID, lambda values: sum(values[0]) >= 65, RUNNING_TOTALS, runs=MORE
    ),
    "empty cells": case(
        "v, 0, 100, 4", PAID, lambda values: values[0][0] != 0, EMPTY_ARE_SILENT, runs=MORE
    ),
    "split": case("v, 0, 100, 4", PAID, lambda values: values[0][0] >= 1, NOT_SPLIT, number=PARTS),
}
#: One bound, so that the noise of many cells is small enough for the audit.
ONE = "set dp.max_contribution = 1"


def many(limit: int) -> Callable[[Sequence[Any]], bool]:
    """Make the event that the cells but the first have so many, of all groups together."""
    return lambda values: sum(sum(cells[1:]) for cells in values) >= limit


UNIT_CASES = {
    "not cut": case("h, 0, 100, 4", "from visit", lambda values: values[0][-1] >= 150, NOT_CUT),
    "each cell alone": case("h, 0, 100, 100", "from stay", many(50), EACH_GROUP_ALONE, ONE),
    "each group alone": case(
        "h, 0, 100, 100",
        "from stay group by place",
        many(150),
        EACH_GROUP_ALONE,
        ONE,
    ),
    "bound from data": case(
        "h, 0, 100, 4",
        "from visit",
        lambda values: abs(values[0][0] - 60) >= 30,
        BOUND_FROM_DATA,
        runs=MORE,
    ),
    "empty cells": case(
        "h, 0, 100, 4",
        "from visit",
        lambda values: values[0][-1] != 0,
        EMPTY_OF_UNITS_ARE_SILENT,
        runs=MORE,
    ),
}


neighbours, sessions = fixtures("pay", rows=(ROWS, ROW), units=(UNITS, UNIT))


@audited(ROW_CASES, "rows")
def test_one_row_is_not_seen_and_the_mutant_shows_it(
    sessions: Sessions, neighbours: Any, name: str
) -> None:
    audit(sessions, neighbours, ROW_CASES[name], hidden=False)


@audited(UNIT_CASES, "units")
def test_one_unit_is_not_seen_and_the_mutant_shows_it(
    sessions: Sessions, neighbours: Any, name: str
) -> None:
    audit(sessions, neighbours, UNIT_CASES[name], hidden=False)
