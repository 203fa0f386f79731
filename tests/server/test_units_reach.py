"""A unit counts in so many groups as the question says, by a rule that looks at no other unit.

The noise and the bound of what a unit contributes are taken away, so that a vector of groups must be the
sum of the vectors of its units, each asked alone: what a unit adds is its own, whatever others do
(PRIVACY.md sections 5 and 6; docs/proofs/truncation.md, claim 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.property.test_units_match_the_join import BOUND
from tests.server import asking
from tests.server.in_service import in_service

pytestmark = pytest.mark.server

# Person p has places 1 to p, and in each of them three visits: places with low numbers are full.
SET_UP = """
create table person (id int primary key, kind text not null);
insert into person select g, case when g % 2 = 0 then 'even' else 'odd' end from generate_series(1, 9) g;
create table visit (v int primary key, id int not null references person, place int not null, year int not null,
  spent int not null);
insert into visit select row_number() over (), p.id, g, 2000 + k, p.id
  from person p, generate_series(1, p.id) g, generate_series(0, 2) k;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain('visit', 'place', 1, 9), dp.set_domain('visit', 'year', 2000, 2002);
select dp.grant_budget('postgres', 1e6, 1), dp.grant_budget('alice', 1e6, 1);
"""
UNITS = range(1, 10)
BY_OTHERS = in_service("""
from dpsql.query import contribution_sql
from dpsql.sqltree import column, number, sql
def by_others(answer, query, most):
    unit, group = (column("", f"a{a}") for a in (query.unit, query.groups[0]))
    return sql("SELECT * FROM (SELECT r.*, dense_rank() OVER (PARTITION BY :unit ORDER BY size, :own) AS reach"
               " FROM (SELECT q.*, count(*) OVER (PARTITION BY :own) AS size FROM :answer AS q) AS r)"
               " AS k WHERE reach <= :most", unit=unit, own=group, answer=answer, most=number(most))
contribution_sql.within_reach = by_others
""")


@pytest.fixture(scope="module")
def people(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture
def silent(people: Any) -> Iterator[Any]:
    with asking.silent(people, "person", BOUND.format(2**40)) as session:
        session.execute("set dp.epsilon = 1")
        yield session


def vector(session: Any, statement: str, condition: str = "true") -> Counter[Any]:
    """Return the numbers of an answer by group and column; of arrays by cell, too."""
    found: Counter[Any] = Counter()
    cursor = session.execute(statement.format(condition))
    keys = sum(column.name.startswith("k") for column in cursor.description)
    for row in cursor.fetchall():
        for j, value in enumerate(row[keys:]):
            for cell, number in enumerate(value if isinstance(value, list) else [value]):
                if number:
                    found[(*row[:keys], j, cell)] += int(number)
    return found


STATEMENTS = {
    "select place as k, dp_count(*) from visit where {} group by 1": 1,
    "select place as k, dp_count(*), dp_sum(spent), dp_count(spent) filter (where year > 2000)"
    " from visit where {} group by 1": 1,
    "select place as k, dp_histogram(year, 2000, 2002, 2), dp_count(distinct v.id) from visit v"
    " where v.{} group by 1": 1,
    "select place as k, kind as k2, dp_count(*) from visit v join person p using (id)"
    " where v.{} and kind in ('even', 'odd') group by 1, 2": 2,
    "select place as k, year as k2, dp_sum(spent) from visit where {} group by 1, 2": 2,
}


@pytest.mark.parametrize("most", [1, 2, 5, 9])
@pytest.mark.parametrize("statement", list(STATEMENTS))
def test_a_vector_is_the_sum_of_those_of_its_units(silent: Any, statement: str, most: int) -> None:
    silent.execute(f"set dp.max_groups_contributed = {most}; set dp.delta = 0.001")
    own = {u: vector(silent, statement, f"id = {u}") for u in UNITS}
    keys = STATEMENTS[statement]
    for u, found in own.items():
        groups = {key[:keys] for key in found}
        assert len(groups) == min(most, u * (3 if "year as" in statement else 1))
        # all aggregates have the same groups
        columns = {key[keys] for key in found}
        assert all({k[:keys] for k in found if k[keys] == j} == groups for j in columns)
    whole = vector(silent, statement, "id > 0")
    assert whole == sum(own.values(), Counter())


def test_units_keep_different_groups(silent: Any) -> None:
    silent.execute("set dp.max_groups_contributed = 1")
    statement = "select place as k, dp_count(*) from visit where {} group by 1"
    kept = {next(iter(vector(silent, statement, f"id = {u}")))[0] for u in UNITS}
    # with these nine names; a rule without the unit would keep one and the same nearly always
    assert len(kept) > 2


def test_a_rule_that_looks_at_other_units_is_caught(silent: Any) -> None:
    silent.execute(BY_OTHERS)
    silent.execute("set dp.max_groups_contributed = 2")
    statement = "select place as k, dp_count(*) from visit where {} group by 1"
    own = [vector(silent, statement, f"id = {u}") for u in UNITS]
    assert vector(silent, statement, "id > 0") != sum(own, Counter())


def test_selection_and_aggregates_keep_the_same_groups(silent: Any) -> None:
    """Places are not public for this expression; who is not kept in one does not help to show it."""
    silent.execute("set dp.max_groups_contributed = 3; set dp.delta = 0.001")
    statement = (
        "select place % 100 as k, dp_count(distinct id), dp_count(*) from visit where {} group by 1"
    )
    own = [vector(silent, statement, f"id = {u}") for u in UNITS]
    assert [len({key[0] for key in found}) for found in own] == [min(u, 3) for u in UNITS]
    whole = vector(silent, statement, "id > 0")
    assert whole == sum(own, Counter())
    assert all(whole[k, 1, 0] == 3 * whole[k, 0, 0] for k in range(1, 10))


def test_another_reach_is_another_question_where_it_matters(people: Any) -> None:
    alice = people.connect(user="alice")
    spends = "select count(*) from dp.spend"
    statement = "select place, dp_count(*) from visit group by place"
    before = people.sql(spends)[0][0]
    first = alice.execute(statement).fetchall()
    alice.execute("set dp.max_groups_contributed = 9")  # there are no more
    assert alice.execute(statement).fetchall() == first
    assert people.sql(spends)[0][0] == before + 1
    alice.execute("set dp.max_groups_contributed = 3")
    ((bias,),) = alice.execute(
        "select bias from dp.estimate(%s) where aggregate <> 'total'", (statement,)
    ).fetchall()
    assert "of each unit 3 groups count" in bias
    alice.execute(statement)
    assert people.sql(spends)[0][0] == before + 2
