"""Groups that a condition on the key itself excludes are not reported: no row can be in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import asking

pytestmark = pytest.mark.server

SET_UP = """
create type mood as enum ('sad', 'ok', 'glad');
create table v (id int primary key, kind text, flag boolean, mood mood not null, day date, x int);
insert into v select g, (array['a', 'b', null])[1 + g % 3], (array[true, false, null])[1 + g % 3],
  (enum_range(null::mood))[1 + g % 3], date '2020-01-01' + g, g % 7 from generate_series(1, 700) g;
select dp.protect('v'), dp.set_domain('v', 'kind', array['a', 'b', 'c'], true),
  dp.set_domain('v', 'x', 0, 6), dp.grant_budget('postgres', 1e6, 1);
"""
#: Keys, conditions, and the groups that are reported, in the order of the keys.
CASES = [
    ("kind", "kind = 'a'", ["a"]),
    ("kind", "kind <> 'a'", ["b", "c"]),
    ("kind", "kind is null", [None]),
    ("kind", "kind in ('a', 'c') and id > 3", ["a", "c"]),
    ("kind", "id > 3", ["a", "b", "c", None]),
    ("x", "x >= 5", [5, 6]),
    ("mood", "mood = 'ok'", ["ok"]),
    ("mood", "mood in ('ok', 'sad') and kind = 'a'", ["sad", "ok"]),
    ("mood", "mood = 'ok' or id = 3", ["sad", "ok", "glad"]),
    ("flag", "flag", [True]),
    ("flag", "not flag", [False]),
    ("flag", "flag is not true", [False, None]),
    ("extract(month from day)", "extract(month from day) between 3 and 4", [3, 4]),
    ("extract(month from day)", "day > '2020-03-01'", [*range(1, 13), None]),
    ("case when x < 3 then 'low' else 'high' end", "id > 0 and mood <> 'ok'", ["high", "low"]),
    ("width_bucket(x, 0, 9, 3)", "width_bucket(x, 0, 9, 3) <= 1", [1]),
]


@pytest.fixture(scope="module")
def silent(server: Any) -> Iterator[Any]:
    for database in asking.made(server, SET_UP):
        with asking.silent(database, "v") as session:
            yield session


@pytest.mark.parametrize(("key", "condition", "groups"), CASES)
def test_groups_that_the_condition_excludes_are_left_out(
    silent: Any, key: str, condition: str, groups: list[Any]
) -> None:
    """And those that are shown have PostgreSQL's own counts."""
    text = f"select {key}, {{}}(*) from v where {condition} group by 1 order by 1"
    found = silent.execute(text.format("dp_count")).fetchall()
    assert [shown for shown, _ in found] == groups
    own = silent.execute(text.format("count")).fetchall()
    assert [(shown, n) for shown, n in found if n] == own


def test_filters_of_aggregates_leave_out_nothing(silent: Any) -> None:
    found = silent.execute(
        "select mood, dp_count(*) filter (where mood = 'ok') from v group by 1 order by 1"
    ).fetchall()
    assert [n > 0 for _, n in found] == [False, True, False]


def test_of_conditions_that_exclude_each_other_no_group_is_left(silent: Any) -> None:
    before = silent.execute("select count(*) from dp.ledger").fetchone()
    text = "select mood, dp_count(*) from v where mood = 'ok' and mood <> 'ok' group by 1"
    assert silent.execute(text).fetchall() == []
    assert silent.execute("select count(*) from dp.ledger").fetchone() == before
