"""Releases over privacy units: what of a unit counts, and what its rows may cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server import asking
from tests.server.asking import refused
from tests.server.releasing import counts, release, values

pytestmark = pytest.mark.server

SET_UP = """
create table person (id int primary key, sex text not null);
insert into person select i, (array['f', 'm'])[1 + i % 2] from generate_series(1, 40) i;
create table visit (v int primary key, id int not null references person, place int, kind text);
insert into visit select row_number() over (), id, 1 + (id * k) % 3, (array['x', 'y', null])[1 + k % 3]
  from person, generate_series(1, 12) k where k <= id % 13;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('person', 'sex', array['f', 'm']);
select dp.set_domain('visit', 'place', 1, 4);
select dp.set_domain('visit', 'kind', array['x', 'y'], includes_null => true);
select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e6, 1);
"""
VISITS = "select place, kind, {}(*) n from visit group by cube (place, kind)"
BOTH = """select sex, place, {}(*) n from person join visit using (id)
          group by grouping sets ((sex, place), (sex), ())"""


@pytest.fixture(scope="module")
def people(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def exact(people: Any) -> Iterator[Any]:
    with asking.silent(people, "person") as session:
        yield session


def test_a_unit_with_one_row_needs_no_bound(exact: Any) -> None:
    found = release(exact, "sexes", "select sex, dp_count(*) from person group by rollup (1)")
    assert values(found, "sex") == {("f",): 20, ("m",): 20, (None,): 40}
    told = exact.execute("select rows_of_a_unit from dp.releases where name = 'sexes'")
    assert told.fetchone() == (1,)


def test_a_unit_with_many_rows_needs_one(people: Any) -> None:
    with people.connect("alice") as alice:
        error = refused(alice, f"select dp.release('r', $${VISITS.format('dp_count')}$$)")
        assert error.sqlstate == "PD040"
        assert "any number of rows" in str(error)
        assert "SET dp.max_rows_contributed" in (error.diag.message_hint or "")


@pytest.mark.parametrize("query", [VISITS, BOTH])
@pytest.mark.parametrize("bound", [1, 3, 12, 50])
def test_at_most_so_many_rows_of_each_unit_count(exact: Any, query: str, bound: int) -> None:
    name = f"{'b' if query == BOTH else 'v'}{bound}"
    exact.execute(f"set dp.max_rows_contributed = {bound}")
    found = release(exact, name, query.format("dp_count"), mechanism="identity")
    columns = ("place", "kind") if query == VISITS else ("sex", "place")
    seen = values(found, "grouping", *columns)
    plain = query.replace("{}(*) n", f"grouping({', '.join(columns)}) g, count(*) n")
    plain = f"select r.g, r.{columns[0]}, r.{columns[1]}, r.n from ({plain}) r"
    full = counts(exact, plain)
    kept = exact.execute(
        "select sum(least(n, %s)) from (select count(*) n from visit group by id) x", (bound,)
    ).fetchone()[0]
    assert seen[3, None, None] == kept
    assert all(value <= full.get(key, 0) for key, value in seen.items())
    if bound >= 12:
        assert {k: v for k, v in seen.items() if v} == full
    told = exact.execute("select rows_of_a_unit from dp.releases where name = %s", (name,))
    assert told.fetchone() == (bound,)


@contextmanager
def without(session: Any, unit: int) -> Iterator[None]:
    """Take a unit with all its rows away for a while; releases are of committed rows."""
    for table in ("visit", "person"):
        session.execute(f"create table gone_{table} as select * from {table} where id = {unit}")
        session.execute(f"delete from {table} where id = {unit}")
    yield
    for table in ("person", "visit"):
        session.execute(f"insert into {table} select * from gone_{table}")
        session.execute(f"drop table gone_{table}")


def counted(session: Any) -> Counter[Any]:
    """Release counts by place and kind, once."""
    query = "select place, kind, dp_count(*) from visit group by place, kind"
    found = Counter(values(release(session, "once", query, mechanism="identity"), "place", "kind"))
    session.execute("select dp.drop_release('once')")
    return found


def test_a_unit_more_or_less_moves_counts_by_its_rows_at_most(exact: Any) -> None:
    """Every unit in turn is deleted with all its rows; the counts of the others do not move."""
    exact.execute("set dp.fresh = on")
    for bound in (1, 2, 5):
        exact.execute(f"set dp.max_rows_contributed = {bound}")
        before = counted(exact)
        moved = []
        for unit in range(1, 41, 3):
            with without(exact, unit):
                after = counted(exact)
            less = {k: before[k] - after[k] for k in before}
            rows = unit % 13
            assert all(v >= 0 for v in less.values())
            assert sum(less.values()) == min(rows, bound)
            moved.append(sum(less.values()))
        assert max(moved) == bound


def test_noise_grows_with_the_bound(people: Any) -> None:
    with people.connect("alice") as alice:
        errors = []
        for bound in (1, 10):
            alice.execute(f"set dp.max_rows_contributed = {bound}")
            query = VISITS.format("dp_count")
            found = release(alice, f"n{bound}", query, epsilon=0.1, delta=0, mechanism="identity")
            errors.append(min(r["standard_error"] for r in found))
        assert errors[1] == pytest.approx(10 * errors[0], rel=0.01)


def test_a_refresh_keeps_the_bound(people: Any) -> None:
    with people.connect("alice") as alice:
        alice.execute("set dp.max_rows_contributed = 4")
        release(alice, "kept", VISITS.format("dp_count"), epsilon=1)
        for setting in ("reset dp.max_rows_contributed", "set dp.max_rows_contributed = 9"):
            alice.execute(setting)
            alice.execute("select dp.refresh_release('kept')")
            told = alice.execute("select rows_of_a_unit from dp.releases where name = 'kept'")
            assert told.fetchone() == (4,)


def test_results_of_several_units_are_refused(people: Any) -> None:
    with people.connect("alice") as alice:
        error = refused(
            alice,
            "select dp.release('r', $$ select a.place, dp_count(*) from visit a join visit b"
            " on a.place = b.place group by 1 $$)",
        )
        assert error.sqlstate == "PD011"
        assert "privacy units" in str(error)
