"""Statistical audit of sums, averages, variances and distinct counts, with mutants to be caught.

Two databases differ in one row (`ROWS`) or in one unit with all its rows (`UNITS`), as extreme as
the schema allows.  As in `tests.server.test_audit`: an event that is likelier than the claim
allows refutes the code.  The code as it is must be acquitted (false alarms below 2e-10 each), each
mutant refuted but for a probability below 1e-9 (`tests.server.auditing`).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.auditing import Case, Sessions, audit, audited, copies, first, fixtures
from tests.server.test_audit import FORGOTTEN_JOIN
from tests.server.test_audit_units import EACH_GROUP_ALONE, NOT_CUT, R2T_UNSPLIT

pytestmark = [pytest.mark.server, pytest.mark.stat]

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
#: So many sums are asked for together that it shows when each gets the budget of all.
PARTS = 20
NOT_SPLIT = f"""
import dpsql.core.mechanisms.select as select
right = select.choose
select.choose = lambda m, **k: right(m, **(k | {{"epsilon": k["epsilon"] * {PARTS}}}))
"""
ANY_GROUP = """
import dpsql.core.mechanisms.threshold as threshold
threshold.cutoff = lambda bound, epsilon, delta, each=None: 1
"""
#: The value that others have as well comes last.
RANKED_BY_OTHERS = """
from sqlglot import exp
from dpsql.query.contribution_sql import _Statement
from dpsql.sqltree import column, sql
right = _Statement._distinct
def distinct(self):
    value = column("", f"a{self.query.distinct[0]}")
    self.answer = sql("SELECT x.*, count(*) OVER (PARTITION BY :v) AS held FROM :answer AS x",
                      v=value, answer=self.answer)
    found = right(self)
    ranked = next(w for w in found.find_all(exp.Window) if w.args.get("order"))
    ranked.set("order", sql("SELECT 1 ORDER BY held > 1, :v, :more", v=value,
                            more=[key.this for key in ranked.args["order"].expressions]).args["order"])
    return found
_Statement._distinct = distinct
"""
PAID = "from pay"
JOINED = "from dept join work using (d)"
ROW_CASES = {
    "sum, not clamped": Case(copies("dp_sum(v, 0, 1000)", "v"), PAID, first(60_000), NOT_CLAMPED),
    "sum": Case(copies("dp_sum(v, 0, 1000)", "v"), PAID, first(20_500), WITHOUT_THE_BOUND),
    "average": Case(copies("dp_avg(v, 0, 1000)", "v"), PAID, first(506), WITHOUT_THE_BOUND),
    "variance": Case(copies("dp_var_pop(v, 0, 1000)", "v"), PAID, first(2000), WITHOUT_THE_BOUND),
    "sum over a join": Case(copies("dp_sum(h, 0, 10)", "h"), JOINED, first(1500), FORGOTTEN_JOIN),
    "distinct": Case(copies("dp_count(distinct h)", "h"), JOINED, first(150), FORGOTTEN_JOIN),
    "split": Case(
        copies("dp_sum((v > 1000)::int)", "v", PARTS), PAID, first(1), NOT_SPLIT, acquittal=3
    ),
    "selection": Case(
        ("dp_sum(h, 0, 10)",),
        f"{JOINED} group by h",
        lambda r: True,
        ANY_GROUP,
        statements=40,
        acquittal=40,
    ),
}
VISITS = "from visit"
#: A bound is now and then drawn far too large; this keeps the noise small enough for the audit.
MOST = "set dp.max_contribution = 400"
AMOUNTS = copies("dp_sum(amount, 0, 1000)", "amount")
UNIT_CASES = {
    "sum": Case(AMOUNTS, VISITS, first(350_000), NOT_CUT, MOST),
    "sum by r2t": Case(AMOUNTS, VISITS, first(350_000), R2T_UNSPLIT, "set dp.mechanism = r2t"),
    # of 480 draws without the unit 12 were like those with it
    "average": Case(copies("dp_avg(amount, 0, 1000)", "amount"), VISITS, first(560), NOT_CUT, MOST),
    "variance": Case(
        copies("dp_var_pop(amount + 10000, 10000, 11000)", "amount"),
        VISITS,
        first(20_000),
        NOT_CUT,
        MOST,
    ),
    "sums of groups": Case(
        AMOUNTS,
        f"{VISITS} group by place",
        lambda totals: sum(totals) >= 250_000,
        EACH_GROUP_ALONE,
        "set dp.max_contribution = 1",
        epsilon=1,
        statements=24,  # of 80 draws without the unit one alone that looks like it hid the mutant
        acquittal=8,
    ),
    "distinct": Case(
        copies("dp_count(distinct place)", "amount"), VISITS, first(200), NOT_CUT, MOST
    ),
    "ranks": Case(
        copies("dp_count(distinct what)", "what"),
        "from likes",
        lambda values: values[0] <= 50,
        RANKED_BY_OTHERS,
        "set dp.max_rows_contributed = 1",
    ),
    "selection": Case(
        ("dp_sum(amount, 0, 1000)",),
        f"{VISITS} where note is not null group by note",
        lambda r: True,
        ANY_GROUP,
        statements=80,  # 139 of 240 showed it, and six refute the code: missed below 1e-20
        acquittal=40,
    ),
}


neighbours, sessions = fixtures("pay", rows=(ROWS, ROW), units=(UNITS, UNIT))


@audited(ROW_CASES, "rows")
def test_one_row_is_not_seen_and_the_mutant_shows_it(
    sessions: Sessions, neighbours: Any, name: str
) -> None:
    audit(sessions, neighbours, ROW_CASES[name], hidden=name == "selection")


@audited(UNIT_CASES, "units")
def test_one_unit_is_not_seen_and_the_mutant_shows_it(
    sessions: Sessions, neighbours: Any, name: str
) -> None:
    audit(sessions, neighbours, UNIT_CASES[name], hidden=name == "selection")
