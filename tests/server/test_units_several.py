"""Results that belong to several privacy units: what is answered, by which bound, at which price."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.asking import refused
from tests.server.in_service import in_service, value_in_service
from tests.server.waiting import wait_until, worked

pytestmark = pytest.mark.server

# a circle of 600 people, each linked to the next four; every third lives in town 1 and has a note;
# people work at 40 firms; nobody knows person 1000
SET_UP = """
create table person (id int primary key, town int not null);
insert into person select g, 1 + g % 3 from generate_series(0, 599) g;
insert into person values (1000, 1);
create table firm (f text primary key);
insert into firm select 'firm ' || g from generate_series(1, 40) g;
create table knows (a int not null references person, b int not null references person);
insert into knows select g, (g + d) % 600 from generate_series(0, 599) g, generate_series(1, 4) d;
insert into knows select b, a from knows;
create table works (p int not null references person, f text not null references firm,
  note text);
insert into works select g, 'firm ' || 1 + g % 40, case when g % 3 = 0 then 'x' end
  from generate_series(0, 599) g;
create table owes (a int not null references person, b int not null references person,
  w int, cents numeric(8,2) not null, share float8);
insert into owes select a, b, nullif((a * 7 + b * 3) % 41 - 20, 5), ((a * 5 + b) % 997 - 400) / 100.0,
  ((a + b) % 11 - 5) / 8.0 from knows;
select dp.protect('person', privacy_unit => 'id');
select dp.protect('firm', privacy_unit => 'f');
grant usage on schema public to alice;
select dp.grant_budget('alice', 100000, 1e-3);
"""
EDGES = "select dp_count(*) from knows where a < b"
PATHS = (
    "select dp_count(*) from person r1, person r2, person r3, knows e1, knows e2 where e1.b = e2.a"
    " and r1.id = e1.a and r2.id = e2.a and r3.id = e2.b and r1.id < r3.id"
)
TRIANGLES = (
    "select dp_count(*) from knows x, knows y, knows z where x.b = y.a and y.b = z.b and z.a = x.a"
    " and x.a < x.b and y.a < y.b"
)
WORK = "select dp_count(*) from works"
#: answers without noise and without a shift: the largest bound in whole steps cuts nobody off
SILENT = """
from fractions import Fraction
from dpsql.core.mechanisms.linear import LinearRace
from dpsql.core.mechanisms.linear_quantile import LinearQuantile
LinearRace._handicap = lambda self, tau, noise: 0
LinearQuantile.draw = lambda self, *given: sum(tau < 2**31 for tau in self.bounds) - 1
LinearQuantile.scale = lambda self, tau: Fraction(1, 10**9)
"""
#: nothing fits into memory
ON_DISK = """
import dpsql.core.space, dpsql.core.deletion, dpsql.core.programs, dpsql.statistics.limits
import dpsql.statistics.memberships as m
m.memberships.__kwdefaults__['memory_limit'] = 0
dpsql.statistics.limits.BUDGET = 100
dpsql.core.space.IN_MEMORY = 0
dpsql.core.space.BLOCK = 256
"""
#: what a person with all others is too many for
FEW = """
import dpsql.statistics.memberships as m
m.memberships.__kwdefaults__['memory_limit'] = 6 * 12 * 200
"""
#: what was done before
REFUSED = """
import dpsql.statistics.memberships as m
from dpsql.errors import ReleaseFailed
def refuse(*given):
    raise ReleaseFailed('the answer could not be computed')
m._Reading.in_pieces = refuse
"""
#: programs that take seconds: many random triples
LONG_PROGRAMS = """
from dataclasses import replace
import numpy as np
import dpsql.statistics.memberships as m
from dpsql.core import programs, streamed
from dpsql.core.space import Space
from dpsql.core.packing import Memberships
from dpsql.core.mechanisms.linear import LinearRace
source = np.random.default_rng(1)
columns = [source.integers(0, 1500, 60000) for _ in range(3)]
big = Memberships.of(columns, [1, 1, 1], np.ones(60000, np.int64))
m.memberships = lambda query, database: replace(big, space=Space(database.tick))
LinearRace._handicap = lambda self, tau, noise: 0 if tau == 16 else -2**80
programs.SIMPLEX = 10**9
"""
SERVICE = value_in_service("import os; return os.getpid()")
#: passes that do not end
LONG_PASSES = """
from dpsql.core import programs, streamed
programs.SIMPLEX = 0
streamed._FIRST_LOOK = 10**9
"""


@pytest.fixture
def town(database: Any) -> Any:
    database.sql(SET_UP)
    return database


@pytest.fixture
def asker(town: Any) -> Any:
    with town.connect("alice") as connection:
        connection.execute("set dp.epsilon = 50")
        yield connection


@contextmanager
def patched(town: Any, patch: str) -> Iterator[Any]:
    """Open a session of an owner with budget in which the package is changed."""
    with town.connect() as session:
        session.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        session.execute(f"select * from dp.explain('{EDGES}')")  # imports
        session.execute(in_service(patch))
        yield session


SUMS = [
    "select dp_sum(w, -100, 100) from owes",
    "select dp_sum(w, 0, 100) from owes",
    "select dp_sum(w, -100, 0) from owes",
    "select dp_sum(w) from owes",
    "select dp_sum(cents, -50, 50) from owes",
    "select dp_sum(cents) filter (where a < 300) from owes",
    "select dp_sum(w, -100, 100) from owes where a > 5000",
    "select dp_sum(share, -1, 1) from owes",
    "select dp_sum(town, 0, 9) from person join knows on id = a",
    "select dp_sum(v.town - w.town, -5, 5) from person v join knows on v.id = a join person w on w.id = b",
    "select dp_sum(x.w * y.w, -9000, 9000) from owes x join owes y on x.b = y.a",
    "select dp_sum(v.town) from person v cross join person w where v.id < 40 and w.id < 40",
    "select dp_sum(w, -100, 100), dp_count(*), dp_sum(cents, -50, 50) from owes",
    "select dp_avg(w, -100, 100) from owes",
    "select dp_avg(w) from owes",
    "select dp_var_pop(w, -100, 100), dp_avg(cents, -50, 50) from owes",
    "select dp_stddev_samp(town, 0, 9) from person join knows on id = a",
]
QUESTIONS = [
    EDGES,
    PATHS,
    TRIANGLES,
    WORK,
    "select dp_count(*) from knows",
    "select dp_count(note) from works",
    "select dp_count(*) filter (where note = 'x') from works",
    "select dp_count(*) from works v join works w on v.f = w.f",
    "select dp_count(*) from knows join person on id = a where town = 2",
    "select dp_count(*) from knows join works on p = a",
    "select dp_count(*) from person v join person w on v.town = w.town and v.id < 40 and w.id < 60",
    "select dp_count(*) from person v cross join person w where v.id < 40 and w.id < 40",
    "select dp_count(*) from knows where a > 5000",
]


def plain(statement: str) -> str:
    """Write PostgreSQL's own statement; no value here is outside of its bounds, or the sign says."""
    clamped = {"(w, 0, 100)": "(greatest(w, 0))", "(w, -100, 0)": "(least(w, 0))"}
    for written, meant in clamped.items():
        statement = statement.replace(written, meant)
    return re.sub(r", -?[0-9]+, [0-9]+\)", ")", statement).replace("dp_", "")


@pytest.mark.parametrize("mechanism", ["auto", "r2t"])
@pytest.mark.parametrize(
    ("statements", "settings"),
    [(QUESTIONS, ""), (SUMS, "set dp.max_contribution = 20000")],
    ids=["counts", "sums"],
)
def test_answers_without_noise_are_those_of_postgres(
    town: Any, statements: list[str], settings: str, mechanism: str
) -> None:
    """Here no unit has 2^31 steps, from where on bounds have coarser ones."""
    with patched(town, SILENT) as session:
        session.execute(f"set dp.mechanism = {mechanism}; {settings}")
        for statement in statements:
            (found,) = session.execute(statement).fetchall()
            (expected,) = session.execute(plain(statement)).fetchall()
            for value, sought in zip(found, expected, strict=True):
                # averages are rounded to the digits of their type
                assert abs(float(value) - float(sought or 0)) <= 1e-9, (statement, found, expected)


def test_sums_beyond_all_steps_are_near(town: Any) -> None:
    """Of values that nobody bounded, and of 28 digits; in steps of a 2^30th of the bound."""
    town.sql(
        "create table much (a int not null references person, b int not null references person,"
        " w bigint, d numeric(28,14))"
    )
    town.sql(
        "insert into much select a, b, 9000000000000000 * (1 - 2 * (a % 2)) + a, a / 7.0 - 30"
        " from knows where a < 50"
    )
    near = SILENT.replace(
        "sum(tau < 2**31 for tau in self.bounds) - 1",
        "sum(tau < 1.01 * given[0].heaviest for tau in self.bounds)",
    )
    with patched(town, near) as session:
        for of in ("w", "d"):
            ((value,),) = session.execute(f"select dp_sum({of}) from much").fetchall()
            ((expected, size),) = session.execute(
                f"select sum({of}), sum(abs({of})) from much"
            ).fetchall()
            assert abs(value - expected) <= size / 10**6, (of, value, expected)
        assert refused(session, "select dp_sum(w, 0, 1e17) from much").sqlstate == "PD011"


def test_two_counts_of_one_question(town: Any) -> None:
    with patched(town, SILENT) as session:
        rows = session.execute(
            "select dp_count(*), dp_count(note), dp_count(*) filter (where p < 10) from works"
        ).fetchall()
        assert rows == [(600, 200, 10)]


@pytest.mark.parametrize(("statement", "largest"), [(EDGES, 8), (WORK, 15), (TRIANGLES, 18)])
def test_answers_stay_within_the_bound_of_the_race(
    town: Any, asker: Any, statement: str, largest: int
) -> None:
    """2 L ln(L/beta) 4 tau/epsilon, and 1/16 of it more; outside with probability below 1e-10."""
    asker.execute("set dp.epsilon = 100; set dp.max_contribution = 32; set dp.mechanism = r2t")
    ((value,),) = asker.execute(statement).fetchall()
    ((expected,),) = town.sql(statement.replace("dp_count", "count"))
    # L = 3, and each noise is beyond 25 scales, of 1.02 at most, with probability below 1e-10; its
    # margin is 5 there, and a value may be 32/16 above
    low = expected - 8 * 3 * 25 * largest * 17 / 16 / 100 - 1
    assert low <= value <= expected + 23


@pytest.mark.parametrize(("statement", "largest"), [(EDGES, 8), (WORK, 15), (TRIANGLES, 18)])
def test_answers_are_within_the_noise_of_the_bound(
    town: Any, asker: Any, statement: str, largest: int
) -> None:
    """tau is at most 64: beyond 25 scales, or below half of every unit, with less than 1e-10.

    A bound below half of the largest unit needs noise of 25 scales, since hundreds exceed it.
    """
    asker.execute("set dp.epsilon = 100; set dp.max_contribution = 64")
    ((value,),) = asker.execute(statement).fetchall()
    ((expected,),) = town.sql(statement.replace("dp_count", "count"))
    assert abs(value - expected) <= expected / 2 + 25 * 64 * 17 / 16 / 60 + largest


def test_an_interval_covers_the_noise_around_a_declared_bound(town: Any, asker: Any) -> None:
    """Nobody has more than 8 links: nothing is cut off; missed twice with probability 1e-12."""
    asker.execute("set dp.max_rows_contributed = 8; set dp.epsilon = 1; set dp.fresh = on")
    met = []
    for _ in range(2):
        ((answer,),) = asker.execute(
            "select dp.query($$select dp_count(*) as n from knows where a < b$$, intervals => 0.999999)"
        ).fetchall()
        answer = answer if isinstance(answer, dict) else answer[0]
        assert answer["n_covers"] == "noise only"
        assert 8 * 27 < answer["n_high"] - answer["n_low"] < 8 * 31
        met.append(answer["n_low"] <= 2400 <= answer["n_high"])
    assert any(met)


def test_with_a_declared_bound_nothing_is_raced(town: Any, asker: Any) -> None:
    """As over single units; noise of 30 scales 8 (17/16)/50 has a probability below 1e-12."""
    asker.execute("set dp.mechanism = r2t; set dp.max_rows_contributed = 8")
    explained = asker.execute("select * from dp.explain(%s)", (EDGES,)).fetchall()
    assert dict(explained)["mechanism"].startswith("quantile: the bound is given")
    ((value,),) = asker.execute(EDGES).fetchall()
    ((expected,),) = town.sql(EDGES.replace("dp_count", "count"))
    assert abs(value - expected) <= 30 * 8 * 17 / 16 / 50 + 1
    assert town.sql("select mechanism from dp.ledger") == [("quantile",)]


def test_both_kinds_of_units_pay(town: Any, asker: Any) -> None:
    asker.execute(WORK)
    asker.execute(EDGES)
    asker.execute("set dp.mechanism = r2t")
    asker.execute(EDGES)
    rows = town.sql(
        "select s.id, r.relation_name, s.epsilon, s.delta, s.mechanism, s.method from dp.spend s"
        " join dp.root r on r.id = any (s.roots) order by 1, 2"
    )
    assert [(r[1], float(r[2]), float(r[3]), *r[4:]) for r in rows] == [
        ("firm", 50.0, 0.0, "quantile", "truncation"),
        ("person", 50.0, 0.0, "quantile", "truncation"),
        ("person", 50.0, 0.0, "quantile", "truncation"),
        ("person", 50.0, 0.0, "r2t", "truncation"),
    ]


def test_sums_share_the_budget_and_each_kind_pays(town: Any, asker: Any) -> None:
    town.sql("alter table works add pay numeric(8,2) not null default 12.5")
    asked = "select dp_sum(pay, 0, 100) as s, dp_avg(pay, 0, 100) as m, dp_count(*) as n from works"
    lines = asker.execute(
        "select aggregate, epsilon, mechanism, bias is not null, column_name from dp.estimate(%s)",
        [asked],
    ).fetchall()
    assert [(a, float(e), m, b, c) for a, e, m, b, c in lines] == [
        ("dp_sum", 25, "quantile", True, "s, m"),
        ("dp_count", 25, "quantile", True, "m, n"),
        ("total", 50, "quantile", False, None),
    ]
    asker.execute(asked)
    rows = town.sql(
        "select r.relation_name, s.epsilon, s.delta from dp.spend s"
        " join dp.root r on r.id = any (s.roots) order by 1"
    )
    assert [(r[0], float(r[1]), float(r[2])) for r in rows] == [("firm", 50, 0), ("person", 50, 0)]


def test_sums_have_intervals_in_their_own_steps(asker: Any) -> None:
    """The scale is the bound over 0.6 epsilon, in hundredths; the least bound is 4 of these."""
    asker.execute("set dp.max_contribution = 8")
    ((rows,),) = asker.execute(
        "select dp.query($$select dp_sum(cents, -50, 50) as n from owes$$, intervals => 0.95)"
    ).fetchall()
    answer = rows if isinstance(rows, dict) else rows[0]
    assert answer["n_covers"] == "noise only"
    low, value, high = (float(answer[name]) for name in ("n_low", "n", "n_high"))
    assert low < value < high
    assert value - low == pytest.approx(high - value)
    # the mean draw is near 8 debts of 5: no bound is above 8 of 50, none below 0.5 but for 1e-100
    assert 0.05 < value - low < 45


def test_owners_are_shown_how_sums_are_read(town: Any) -> None:
    with town.connect() as session:
        rows = dict(
            session.execute(
                "select * from dp.explain('select dp_sum(w, 0, 9) from owes where a < b')"
            ).fetchall()
        )
    assert "sum(" in rows["counting SQL"]
    assert "linear program" in rows["method"]


def test_groups_of_sums_are_refused_with_what_it_costs_to_ask_apart(asker: Any) -> None:
    error = refused(asker, "select w, dp_sum(w, 0, 9) from owes group by w")
    assert error.sqlstate == "PD011"
    assert "n groups share dp.epsilon" in str(error.diag.message_hint)


def test_explain_says_how_it_is_answered(asker: Any) -> None:
    rows = dict(asker.execute(f"select * from dp.explain('{EDGES}')").fetchall())
    assert rows["mechanism"].startswith("quantile")
    assert "linear program" in rows["method"]
    assert rows["guarantee"].startswith("pure 50")


def test_explain_shows_owners_the_statement(town: Any) -> None:
    with town.connect() as session:
        rows = dict(session.execute(f"select * from dp.explain('{EDGES}')").fetchall())
        assert "GROUP BY" in rows["counting SQL"]
        assert "knows" in rows["counting SQL"]


@pytest.mark.parametrize(("setting", "value"), [("mechanism", "laplace"), ("method", "residual")])
def test_what_cannot_be_had_is_refused_and_costs_nothing(
    town: Any, asker: Any, setting: str, value: str
) -> None:
    asker.execute(f"set dp.{setting} = {value}")
    assert refused(asker, EDGES).sqlstate == "PD040"
    assert town.sql("select count(*) from dp.spend") == [(0,)]


@pytest.mark.parametrize(
    "counted",
    [
        "dp_min(town, 0, 9)",
        "dp_count(distinct town)",
        "dp_count(distinct a)",
        "dp_median(town, 0, 9)",
        "dp_histogram(town, 0, 9, 3)",
    ],
)
def test_only_counts_and_sums_of_results_are_told(town: Any, asker: Any, counted: str) -> None:
    error = refused(asker, f"select {counted} from person join knows on id = a")
    assert error.sqlstate == "PD011", error
    assert "several privacy units" in str(error), error
    assert town.sql("select count(*) from dp.spend") == [(0,)]


def test_too_many_units_in_a_result_are_refused(asker: Any) -> None:
    names = ", ".join(f"person p{i}" for i in range(8))
    error = refused(asker, f"select dp_count(*) from {names}")
    assert error.sqlstate == "PD011"
    assert "8 privacy units" in str(error)


def test_units_that_a_question_equates_are_one(town: Any, asker: Any) -> None:
    asker.execute(
        "select dp_count(*) from knows x join knows y on x.a = y.a and x.b = x.a and y.b = y.a"
    )
    assert town.sql("select mechanism from dp.spend") == [("quantile",)]


@pytest.mark.parametrize("patch", [LONG_PROGRAMS, LONG_PROGRAMS + LONG_PASSES])
def test_a_timeout_fails_the_charged_question(town: Any, patch: str) -> None:
    """The solver is stopped between two iterations, or between two blocks of a pass.

    It works for more than a minute, the charge takes less than a tenth of a second: where that took
    longer than allowed, more time is given.
    """
    for allowed in ("700ms", "7s", "60s"):
        # the service session ends with the question that was given up
        with patched(town, patch) as session:
            session.execute(f"set dp.mechanism = r2t; set statement_timeout = '{allowed}'")
            assert refused(session, EDGES).sqlstate == "57014"
        spends = town.sql("select count(*) from dp.spend")
        if spends != [(0,)]:
            break
    assert spends == [(1,)]


def test_a_cancel_of_a_large_program_is_noticed_at_once(town: Any) -> None:
    """Three million memberships of units: what a cancel finds is a block, and not all of them."""
    large = LONG_PROGRAMS.replace("60000", "1000000").replace("1500", "30000")
    for seconds in (1.0, 1.7):
        with patched(town, large + LONG_PASSES) as session, ThreadPoolExecutor() as pool:
            session.execute("set dp.mechanism = r2t")
            pid = int(session.execute(f"select {SERVICE}").fetchone()[0])
            start = worked(pid) or 0.0
            asked = pool.submit(refused, session, EDGES)
            wait_until(lambda: (worked(pid) or 0) > start + seconds)  # noqa: B023
            before = end = worked(pid) or 0.0
            town.sql(f"select pg_cancel_backend({session.info.backend_pid})")
            assert asked.result().sqlstate == "57014"
            while (now := worked(pid)) is not None:  # until the service session ends
                end = now
                time.sleep(0.01)
            assert end - before < 0.5
    assert town.sql("select count(*) from dp.spend") == [(2,)]


def test_names_of_units_of_all_types(town: Any) -> None:
    """Texts, numerics with two scales, integers of two widths, numbers of no type."""
    town.sql(
        'create table t (k text collate "C" primary key); create table n (k numeric primary key);'
        " create table i (k bigint primary key); create table u (k uuid primary key);"
        " insert into t select 'k' || g from generate_series(1, 9) g;"
        " insert into n select g from generate_series(1, 9) g;"
        " insert into i select g from generate_series(1, 9) g;"
        " insert into u select md5(g::text)::uuid from generate_series(1, 9) g;"
        " create table nn (a numeric(9,3) not null references n, b numeric not null references n,"
        "  i int not null references i, u uuid not null references u, t text not null references t);"
        " insert into nn select 1 + g % 9, 1 + g % 4, 1 + g % 5, md5((1 + g % 3)::text)::uuid,"
        "  'k' || 1 + g % 8 from generate_series(1, 40) g;"
        " select dp.protect(r::regclass, privacy_unit => 'k') from unnest(array['t', 'n', 'i', 'u']) r"
    )
    with patched(town, SILENT) as session:
        for statement in (
            "select dp_count(*) from nn",
            "select dp_count(*) from nn v join nn w on v.u = w.u and v.i = w.i and v.t = w.t",
            "select dp_count(*) from nn v join t w on v.t <> w.k",
            "select dp_count(*) from i v, i w where v.k <= w.k",
            "select dp_count(*) from u v, u w where v.k <= w.k",
            "select dp_count(*) from t v, t w where v.k <= w.k",
            "select dp_count(*) from n v, n w where v.k <= w.k",
        ):
            ((value,),) = session.execute(statement).fetchall()
            ((expected,),) = session.execute(statement.replace("dp_count", "count")).fetchall()
            assert value == expected, statement


def test_who_combines_all_units_is_told_before_the_charge(town: Any) -> None:
    with town.connect() as session:
        told: list[str] = []
        session.add_notice_handler(lambda d: told.append(d.message_primary or ""))
        session.execute("select dp.grant_budget('postgres', 1e6, 0.001)")
        told.clear()
        session.execute("select dp_count(*) from works v, works w where v.f = w.f")
        assert told == []
        session.execute("select dp_count(*) from person v, person w where v.id < w.id and w.id < 9")
        assert told == ["every combination of privacy units is looked at"]


def test_what_does_not_fit_into_memory_is_read_in_pieces_from_disk(town: Any) -> None:
    """The same answers as from memory: no number of combinations is too large."""
    statements = [*QUESTIONS, *SUMS]
    with patched(town, SILENT) as session:
        session.execute("set dp.fresh = on")
        expected = [session.execute(statement).fetchall() for statement in statements]
        session.execute(in_service(ON_DISK))
        for statement, values in zip(statements, expected, strict=True):
            assert session.execute(statement).fetchall() == values, statement
    assert any(values != [(0,)] for values in expected)
    assert list((town.cluster.data / "base" / "pgsql_tmp").iterdir()) == []


@pytest.mark.parametrize("mended", [True, False])
def test_how_many_combinations_there_are_decides_nothing(town: Any, mended: bool) -> None:
    """Twins: a name that does not exist adds no combination, and one that does adds the last."""
    with patched(town, SILENT + (FEW if mended else FEW + REFUSED)) as session:
        told = []
        for name in (2, 10**6):
            try:
                session.execute(
                    "select dp_count(*) from person v, person w"
                    f" where v.id = 1 and w.id < 40 or v.id = {name} and w.id < 400"
                )
                told.append("an answer")
            except psycopg.Error as error:
                told.append(error.sqlstate or "")
    assert (told[0] == told[1]) == mended, told
