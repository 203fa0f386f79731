"""Averages over privacy units: bounds that nobody declared, dates, intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.property.test_units_match_the_join import BOUND
from tests.server import asking
from tests.server.asking import refused
from tests.server.binomials import most_failures

pytestmark = pytest.mark.server

# 3,000 people of the ages 20 to 83 in 2026; a seventh has an unknown or infinite birthday.
SET_UP = """
create table person (id int primary key, born date, since timestamptz, known date);
insert into person
select g, case when g % 7 = 0 then null else d end, d + interval '20 years',
    case g % 700 when 0 then date 'infinity' when 1 then '-infinity' when 2 then null else d end
  from (select g, date '1943-01-01' + (g * 7919) % 23000 as d from generate_series(1, 3000) g) q;
create table visit (id int not null references person, at date not null);
insert into visit select id, date '2024-02-29' - k * 100 from person, generate_series(0, 3) k;
create table single (born date not null);
insert into single select born from person where born is not null;
select dp.protect('person', privacy_unit => 'id'), dp.protect('single');
select dp.set_domain('person', 'known', '1943-01-01', '2005-12-31');
select dp.grant_budget('postgres', 1e7, 1e-3), dp.grant_budget('alice', 1e7, 1e-3);
grant usage on schema public to alice;
"""
AGE = "2026 - extract(year from born)"


@pytest.fixture(scope="module")
def people(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture
def alice(people: Any) -> Iterator[Any]:
    with people.connect("alice") as session:
        session.execute("set dp.fresh = on")
        yield session


def warnings(session: Any, statement: str) -> list[Any]:
    """Return what is warned of while a statement runs."""
    told: list[Any] = []

    def keep(diagnostic: Any) -> None:  # it is valid as long as this call
        told.append((diagnostic.message_primary, diagnostic.message_hint))

    session.add_notice_handler(keep)
    try:
        session.execute(statement)
    finally:
        session.remove_notice_handler(keep)
    return told


def test_an_average_of_what_only_types_bound_is_near_the_truth(people: Any, alice: Any) -> None:
    """One answer is off by 5 years with a chance below 0.01: then the noise of the sum is 12,855.

    That needs a bound 16 times too large (odds of 16^-2), or 70 scales of the noise of a good one.
    Of 15 answers 8 are so with a chance below 1e-12.
    """
    ((truth,),) = people.sql(f"select avg({AGE})::float from person where born is not null")
    asked = [alice.execute(f"select dp_avg({AGE}) from person").fetchone()[0] for _ in range(15)]
    assert abs(float(sorted(asked)[7]) - truth) < 5


def test_the_one_who_asks_is_told_that_bounds_are_missing(alice: Any) -> None:
    ((told, hint),) = warnings(alice, f"select dp_avg({AGE}), dp_stddev({AGE}) from person")
    assert told == "no bounds are declared for the values of dp_avg, dp_stddev"
    assert "dp_avg(value, lower, upper)" in hint
    assert warnings(alice, f"select dp_avg({AGE}, 0, 120) from person") == []
    assert warnings(alice, "select dp_avg(extract(year from known)) from person") == []
    assert warnings(alice, f"select dp_sum({AGE}, 0, 120) from person") == []
    ((told, _),) = warnings(alice, f"select dp_sum({AGE}) from person")
    assert told == "no bounds are declared for the values of dp_sum"


@pytest.mark.parametrize(
    "value", ["extract(year from born)", "born - date '2000-01-01'", "extract(epoch from born)"]
)
def test_limits_of_date_types_are_no_bounds_of_rows(alice: Any, value: str) -> None:
    error = refused(alice, f"select dp_avg({value}) from single")
    assert error.sqlstate == "PD011"
    assert str(error).startswith("nothing bounds the argument of dp_avg")


@pytest.mark.parametrize(
    "value",
    [
        "extract(year from {})",
        "2026 - extract(year from {})",
        "extract(decade from {})",
        "extract(isoyear from {}::timestamp)",
        "date '2026-01-01' - {}",
        "extract(epoch from {}) / 86400",
        "date_part('year', {})",
        "case when extract(month from {0}) = 1 then extract(year from {0}) end",
    ],
)
def test_what_is_computed_of_a_declared_date_has_its_bounds(people: Any, value: str) -> None:
    """Dates outside are moved to the ends, infinite ones, too; without noise nothing else is."""
    moved = (
        "case when known is not null then least(greatest(known, '1943-01-01'), '2005-12-31') end"
    )
    with asking.silent(people, "person", BOUND.format(2**60)) as session:
        session.execute("set dp.epsilon = 1")
        for name, places in (("avg", 1e-6), ("sum", 1e-9)):
            private = f"select dp_{name}({value.format('known')}) from person"
            ((found,),) = session.execute(private).fetchall()
            own = f"select {name}({value.format(f'({moved})')}) from person"
            ((true,),) = session.execute(own).fetchall()
            assert float(found) == pytest.approx(float(true), rel=places, abs=1e-3)
        if "epoch" not in value and "date_part" not in value:
            assert warnings(session, private.replace("dp_sum", "dp_avg")) == []


def test_values_by_rank_never_contradict_each_other(people: Any, alice: Any) -> None:
    """At this epsilon cells are found nearly at random, and still in the order of their shares."""
    alice.execute("set dp.epsilon = 0.01")
    born = "known, {}'1943-01-01', '2005-12-31'"
    statement = (
        f"select dp_max({born}), dp_percentile({born}), dp_median({born}), dp_min({born}),"
        f" dp_median({born}) filter (where id < 9), dp_percentile({born}) from person"
    ).format("", "0.9, ", "", "", "", "0.1, ")
    for _ in range(5):
        ((greatest, ninth, middle, least, _, tenth),) = alice.execute(statement).fetchall()
        assert least <= tenth <= middle <= ninth <= greatest
    alice.execute("set dp.fresh = off")
    first = alice.execute(statement).fetchall()
    assert alice.execute(statement).fetchall() == first


def test_averages_have_intervals(alice: Any) -> None:
    """In the statement, beside it, and through arithmetic; r2t has none, and NULL says so."""
    mean = "dp_avg(extract(year from known))"
    statement = (
        f"select {mean} as a, dp_interval_low({mean}) as l, dp_interval_high({mean}) as h,"
        f" 2026 - {mean} as age, dp_stddev(extract(year from known)) as s from person"
    )
    asked = "select * from dp.query(%s, intervals => 0.9)"
    ((row,),) = alice.execute(asked, (statement,)).fetchall()
    low, found, high = (float(row[name]) for name in ("l", "a", "h"))
    assert low < found < high
    assert (row["a_low"], row["a_high"]) == (row["l"], row["h"])
    assert row["a_covers"] == row["age_covers"] == "noise only"
    assert float(row["age_low"]) == pytest.approx(2026 - high)
    assert float(row["age_high"]) == pytest.approx(2026 - low)
    assert (row["s_low"], row["s_covers"]) == (None, None)
    alice.execute("set dp.mechanism = r2t")
    joined = "from person join visit using (id)"  # one row of each needs no race
    ends = f"select dp_interval_low({mean}), dp_interval_high({mean}) {joined}"
    assert alice.execute(ends).fetchall() == [(None, None)]
    ((row,),) = alice.execute(asked, (f"select greatest({mean}, 0) as a {joined}",)).fetchall()
    assert (row["a_low"], row["a_high"], row["a_covers"]) == (None, None, None)


def test_intervals_of_averages_hold_the_truth(people: Any, alice: Any) -> None:
    """Bounds of the values, and one row of each unit: nothing is cut; false alarms below 1e-9."""
    value = "extract(year from known)"
    ((truth,),) = people.sql(
        f"select avg(least(greatest({value}, 1943), 2005)) from person where isfinite(known)"
    )
    alice.execute("set dp.max_rows_contributed = 1; set dp.epsilon = 0.05; set dp.confidence = 0.8")
    ends = f"dp_interval_low(dp_avg({value})), dp_interval_high(dp_avg({value}))"
    asks, held = 200, 0
    for _ in range(asks):
        ((low, high),) = alice.execute(
            f"select {ends} from person where isfinite(known)"
        ).fetchall()
        held += low <= truth <= high
    assert asks - held <= most_failures(asks, 0.2, 1e-9)


def test_the_error_of_an_average_is_foretold_by_its_sum(alice: Any) -> None:
    rows = alice.execute(
        "select aggregate, note from dp.estimate('select dp_avg(id, 1, 9) from person')"
    ).fetchall()
    notes = dict(rows)
    assert "the error of the average is about this over the number" in notes["dp_sum"]
    assert "average" not in (notes["dp_count"] or "")
