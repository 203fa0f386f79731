"""Whoever writes to a public relation makes no question fail that was charged.

A question lists groups of public relations before the charge, a release their levels; protected
rows are read after it, in another snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.in_service import in_service
from tests.server.releasing import release, values
from tests.server.waiting import wait_until, waits

SETUP = """
create table place (p_id int primary key, p_name text not null);
create table trip (t_id int primary key, t_place int not null references place, t_who int not null);
create table person (who int primary key);
create table stay (s_place int not null references place, s_who int not null references person);
insert into place values (1, 'a'), (2, 'b'), (3, 'c');
insert into trip select i, 1 + i % 2, i from generate_series(1, 20) i;
insert into person select i from generate_series(1, 4) i;
insert into stay select p, w from generate_series(1, 2) p, generate_series(1, 4) w;
select dp.protect('trip'), dp.declare_public('place'), dp.protect('person', privacy_unit => 'who'),
  dp.grant_budget('postgres', 1e6, 1);
"""
#: The transaction that charges waits at its end for the advisory lock 9; rows are read in the next.
PAUSED = in_service("""
from dpsql.server.own_transactions import OwnTransactions
plain = OwnTransactions._next
def _next(self, *, writes=False):
    if not writes:
        plpy.execute("select pg_advisory_xact_lock_shared(9)")
    plain(self, writes=writes)
OwnTransactions._next = _next
""")
#: Group d comes with five rows, c goes, a is renamed to e, and b gets one more row.
CHANGE = """
insert into place values (4, 'd'); delete from place where p_id = 3;
update place set p_name = 'e' where p_id = 1;
insert into trip select 100 + i, 4, i from generate_series(1, 5) i;
insert into trip values (99, 2, 1);
"""


@pytest.fixture
def travels(database: Any) -> Any:
    database.sql(SETUP)
    return database


def between(database: Any, change: str, ask: Callable[[Any], Any]) -> Any:
    """Return what is answered where a change comes after the price, and before rows are read."""
    found: list[Any] = []
    with (
        silent(database, "trip", PAUSED) as session,
        database.connect() as keeper,
    ):
        keeper.execute("select pg_advisory_lock(9)")
        asking = threading.Thread(target=lambda: found.append(ask(session)))
        asking.start()
        try:
            wait_until(lambda: waits(database))
            database.sql(change)
        finally:
            keeper.execute("select pg_advisory_unlock(9)")
            asking.join(120)
    (answered,) = found
    return answered


def test_groups_are_those_that_were_priced(travels: Any) -> None:
    """Counts are of the rows that are read, also of groups that are none by then."""
    question = (
        "select p_name, dp_count(*) from trip join place on t_place = p_id group by 1 order by 1"
    )
    found = between(travels, CHANGE, lambda session: session.execute(question).fetchall())
    assert found == [("a", 0), ("b", 11), ("c", 0)]
    with silent(travels, "trip") as session:
        assert session.execute(question).fetchall() == [("b", 11), ("d", 5), ("e", 10)]


def test_a_unit_is_cut_off_by_all_its_rows(travels: Any) -> None:
    """Those of groups that came later take part: a unit has as much as it may have, or less."""
    question = (
        "select p_name, dp_count(*) from stay join place on s_place = p_id"
        " where p_id <> 3 group by 1 order by 1"
    )
    change = """
    insert into place values (4, 'd'), (5, 'f');
    insert into stay select p, w from generate_series(4, 5) p, generate_series(1, 4) w
    """

    def ask(session: Any) -> list[Any]:
        session.execute("set dp.max_rows_contributed = 2")
        return session.execute(question).fetchall()

    # each of the four has four rows, of which it may have two
    assert between(travels, change, ask) == [("a", 2), ("b", 2)]


def test_levels_are_those_that_were_planned(travels: Any) -> None:
    workload = "select p_name, dp_count(*) from trip join place on t_place = p_id group by p_name"
    found = between(travels, CHANGE, lambda session: release(session, "told", workload))
    expected = {("a",): 0, ("b",): 11, ("c",): 0}
    assert values(found, "p_name") == pytest.approx(expected, abs=1e-6)
