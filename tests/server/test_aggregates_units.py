"""Sums, averages and distinct counts over privacy units, and groups that nobody declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.property.test_units_match_the_join import BOUND
from tests.server import asking
from tests.server.asking import refused
from tests.server.binomials import most_failures

pytestmark = pytest.mark.server

# 400 people; those with id % 4 = 0 have no visit, the visits of those with id % 4 = 1 cancel out.
# Places 1 to 5 are visited by many, 6 by three, 7 by nobody, 8 (with NULL alone) by everybody.
SET_UP = """
create table person (id int primary key, age int not null);
insert into person select g, 20 + g % 60 from generate_series(1, 400) g;
create table visit (v int primary key, id int not null references person, place int, spent int,
  paid numeric(8,2), score double precision);
insert into visit select row_number() over (), id, 1 + (id + k) % 5,
    case id % 4 when 1 then (array[-7, 7])[1 + k % 2] else k * (id % 9) end, id / 16.0, id / 3.0
  from person, generate_series(0, 3) k where id % 4 > 0;
insert into visit select 10000 + id, id, 8, null, null, 'NaN' from person;
insert into visit select 20000 + id, id, 6, 100000, 9999.5, 'Infinity' from person where id in (5, 9, 13);
create table tag (t int primary key, v int not null references visit, word text, price numeric);
insert into tag select v, v, 'word' || v % 6, case when v % 2 = 0 then 1.0 else 1.00 end from visit;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e7, 1);
grant usage on schema public to alice;
"""
PUBLIC = "case when place between 1 and 5 then place else 0 end"


@pytest.fixture(scope="module")
def people(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture
def silent(people: Any) -> Iterator[Any]:
    """A session of the owner without noise, and without bounds of units that matter."""
    with asking.silent(people, "person", BOUND.format(2**40)) as session:
        yield session


@pytest.fixture
def alice(people: Any) -> Iterator[Any]:
    with people.connect("alice") as session:
        yield session


STATEMENTS = [
    "select {0}sum(spent), {0}sum(paid), {0}count(spent), {0}count(*) from visit",
    "select {0}sum(spent) from visit where id % 4 = 1",
    "select {0}sum(spent) filter (where spent < 0), {0}sum(-spent) from visit",
    "select {0}avg(age), {0}var_pop(age), {0}stddev_samp(age) from person",
    "select {0}avg(paid), {0}sum(age * paid) from visit join person using (id)",
    "select {0}sum(score{1}), {0}avg(score{1}) from visit where place < 6",
    "select {0}count(distinct place), {0}count(distinct visit.id) from visit",
    "select {0}count(distinct word), {0}count(distinct price), {0}sum(price{1}) from tag",
    "select {0}count(distinct age), {0}sum(age) from person join visit using (id)",
    "select {0}sum(a.spent * b.spent) from visit a join visit b on a.id = b.id where a.v < b.v",
    "select {0}sum(id), {0}sum(1) from visit",
]


@pytest.mark.parametrize(
    ("statement", "grouped"),
    [
        *((statement, False) for statement in STATEMENTS),
        *((s, True) for s in STATEMENTS if "visit" in s and " a join" not in s),
    ],
)
def test_without_noise_they_are_those_of_postgresql(
    silent: Any, statement: str, grouped: bool
) -> None:
    if grouped:
        statement = f"select {PUBLIC} as k, {statement[7:]} group by 1 order by 1"
    private = silent.execute(statement.format("dp_", ", -1e6, 1e6")).fetchall()
    plain = silent.execute(statement.format("", "")).fetchall()
    for mine, own in zip(private[-len(plain) :], plain, strict=True):
        for found, expected in zip(mine, own, strict=True):
            # of floats in these bounds the steps are 0.001
            abs_ = 0.6 if "score" in statement else 1e-4
            assert float(found) == pytest.approx(float(expected or 0), rel=1e-9, abs=abs_)


def test_units_without_rows_and_units_that_cancel_out(silent: Any) -> None:
    """They are as if they were not there, whatever the bound of a unit is."""
    for bound in (1, 5, 2**40):
        silent.execute(BOUND.format(bound))
        for keys, end in (("", ""), (f"{PUBLIC} as k, ", " group by 1")):
            rows = silent.execute(
                f"select {keys}dp_sum(spent) from visit where id % 4 < 2 and place < 6{end}"
            ).fetchall()
            if not keys:
                assert rows == [(0,)]
            else:
                assert sum(row[-1] for row in rows) == 0


def test_a_bound_cuts_units_in_proportion(silent: Any) -> None:
    silent.execute(BOUND.format(3))
    own = "select sum(sign(t) * least(abs(t), 3)) from (select sum(spent) as t from visit group by id) as u"
    statement = "select dp_sum(spent) from visit"
    assert silent.execute(statement).fetchall() == silent.execute(own).fetchall()
    assert (
        silent.execute("select dp_sum(paid) from visit where paid > 0.02").fetchone()[0]
        == (
            # the bound is one of the sum in its steps of 0.01
            silent.execute(
                "select 0.03 * count(distinct id) from visit where paid > 0.02"
            ).fetchone()[0]
        )
    )
    # of k distinct values a unit counts for three, others may count for the rest
    silent.execute(BOUND.format(1))
    ((found,),) = silent.execute("select dp_count(distinct v) from visit").fetchall()
    assert found == 400
    ((found,),) = silent.execute("select dp_count(distinct price) from tag").fetchall()
    assert found == 1  # however it is written


def hide_few(session: Any) -> None:
    """Fix the bounds of units and delta so that groups of three are shown with chance 1e-10."""
    session.execute("set dp.epsilon = 20; set dp.delta = 1e-11; set dp.max_groups_contributed = 6")


def spends(people: Any) -> list[tuple[float, float]]:
    rows = people.sql("select epsilon, delta from dp.spend order by id")
    return [(float(epsilon), float(delta)) for epsilon, delta in rows]


def test_one_selection_serves_all_aggregates(people: Any, alice: Any) -> None:
    """A place that three people visited is nowhere, one that all visited is in all columns."""
    hide_few(alice)
    before = spends(people)
    statement = (
        "select place, dp_count(*), dp_sum(spent), dp_avg(paid), dp_count(distinct v)"
        " from visit group by place order by dp_sum(spent) desc"
    )
    rows = alice.execute(statement).fetchall()
    assert spends(people)[len(before) :] == [(20.0, 1e-11)]
    assert {row[0] for row in rows} == {1, 2, 3, 4, 5, 8}
    assert all(value is not None for row in rows for value in row)
    assert alice.execute(statement).fetchall() == rows
    assert len(spends(people)) == len(before) + 1


def test_hidden_groups_are_nowhere(alice: Any) -> None:
    hide_few(alice)
    alice.execute("set dp.max_rows_contributed = 2")  # nobody has more here
    select = (
        "select place, dp_sum(spent) as s, dp_count(*) as n from visit where place > 5 group by 1"
    )
    ((place, total, number),) = alice.execute(select).fetchall()
    assert place == 8
    assert 350 < number < 450
    for whole, expected in (
        (f"select count(*), sum(s), max(place), bool_or(s is null) from ({select}) as q",
         [(1, total, 8, False)]),
        (f"{select} having dp_sum(spent) > 250000 or place = 6", []),
        (f"{select} order by place limit 1", [(place, total, number)]),
        ("select distinct dp_count(*) >= 0 from visit where place in (6, 7) group by place", []),
    ):  # fmt: skip
        assert alice.execute(whole).fetchall() == expected


@pytest.mark.parametrize(("least", "shown"), [(0, {1, 2, 3, 4, 5, 8}), (320, {8}), (500, set())])
def test_the_minimal_frequency_is_one_of_units(alice: Any, least: int, shown: set[int]) -> None:
    """Some 240 people visit each of places 1 to 5 and 400 place 8; 40 more or less have a chance below 1e-15."""
    hide_few(alice)
    alice.execute(f"set dp.min_frequency = {least}")
    rows = alice.execute(
        "select place, dp_sum(spent), dp_count(*) from visit group by 1"
    ).fetchall()
    assert {row[0] for row in rows} == shown


def test_without_delta_groups_must_be_public(alice: Any) -> None:
    alice.execute("set dp.delta = 0")
    error = refused(alice, "select place, dp_sum(spent) from visit group by place")
    assert error.sqlstate == "PD020"
    assert "set_domain" in str(error.diag.message_hint)


def test_rows_contributed_bound_what_a_unit_adds(alice: Any) -> None:
    """The interval is that of one row; of all rows the bound is that of three, of 300 people."""
    alice.execute("set dp.epsilon = 1")
    statement = (
        "select dp_interval_low(dp_sum(age, 20, 80)), dp_interval_high(dp_sum(age, 20, 80))"
        " from person join visit using (id)"
    )
    ((low, high),) = alice.execute(statement).fetchall()
    # a scale of 160/0.75, and ln 20 of them on either side: less with probability below 1e-20
    assert high - low > 2 * 2.9 * 160 / 0.75
    alice.execute("set dp.max_rows_contributed = 1")
    ((low, high),) = alice.execute(statement).fetchall()
    assert 0 < high - low <= 2 * 3.1 * 80 / 0.75


RUNS = 250


@pytest.mark.parametrize(
    ("total", "true", "keys"),
    [
        ("dp_sum(age / age * 50)", "sum(50)", ""),
        ("dp_sum(age / age * 50)", "sum(50)", "age % 4"),
        ("dp_count(distinct age)", "count(distinct age)", ""),
    ],
)
def test_intervals_cover_what_is_not_cut(
    people: Any, alice: Any, total: str, true: str, keys: str
) -> None:
    """Where all units are alike nothing is cut; false alarms below 1e-10."""
    key = f"case {keys} when 0 then 0 when 1 then 1 else 2 end" if keys else "0"
    grouped = f" group by {key}" if keys else ""
    alice.execute("set dp.fresh = on; set dp.epsilon = 1; set dp.confidence = 0.9")
    alice.execute("set dp.max_rows_contributed = 1")
    statement = (
        f"select {key if keys else 'null'}, dp_interval_low({total}), dp_interval_high({total})"
        f" from person{grouped}"
    )
    if not keys:
        statement = statement.replace("null, ", "", 1)
    truth = {r[0]: r[1] for r in people.sql(f"select {key}, {true} from person group by 1")}
    missed, asked = dict.fromkeys(truth, 0), 0
    while asked < RUNS:
        asked += 1
        for row in alice.execute(statement).fetchall():
            group, low, high = row if keys else (0, *row)
            missed[group] += not low <= truth[group] <= high
    assert max(missed.values()) <= most_failures(RUNS, 0.1, 1e-11)
