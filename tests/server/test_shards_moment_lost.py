"""What takes a server's snapshot at another moment than the others': nothing is answered then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import SILENCE, silent
from tests.server.shards import READER, Shards, sharded
from tests.server.test_shards_moment import LATER, MET
from tests.server.waiting import wait_until, waits

QUESTION = "select dp_count(*) from account"
DECLARE = """
select dp.protect('account'), dp.declare_shards('account', written => 'coordinator');
select dp.grant_budget('postgres', 1e7, 1);
"""


@pytest.fixture
def bank(server: Any) -> Iterator[Shards]:
    """Accounts by branch: two branches on each of three servers, none in the first of any."""
    with sharded(server) as shards:
        shards.table(
            "account",
            "a_branch int not null, a_id int not null",
            "a_branch",
            method="list",
            bounds=[f"in ({i})" for i in range(6)],
            declare=DECLARE,
        )
        shards.near.sql(
            "insert into account select 3 + i % 3, i from generate_series(1, 300) i", user="owner1"
        )
        yield shards


def move(bank: Shards, row: int, origin: int, branch: int) -> None:
    bank.near.sql(
        f"delete from account where a_id = {row} and a_branch = {origin};"
        f" insert into account values ({branch}, {row})",
        user="owner1",
    )


def asking(session: Any) -> tuple[threading.Thread, list[Any]]:
    """Begin to ask in a thread; gives where the answer will be, or the code of the refusal."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(session.execute(QUESTION).fetchone()[0])
        except psycopg.Error as error:
            found.append(error.sqlstate)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, found


def refused(session: Any) -> tuple[str | None, str | None]:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(QUESTION)
    return caught.value.diag.sqlstate, caught.value.diag.message_primary


@pytest.mark.parametrize(
    "planned",
    [
        {},
        {"cpu_tuple_cost": "0", "cpu_operator_cost": "0", "seq_page_cost": "0"},
        {"cpu_tuple_cost": "1e10", "cpu_operator_cost": "1e10"},
        {"constraint_exclusion": "on", "plan_cache_mode": "force_custom_plan"},
    ],
)
def test_whatever_is_known_of_a_part_its_server_has_the_snapshot_of_the_moment(
    bank: Shards, planned: dict[str, str]
) -> None:
    """A row goes from the first server to the third, which was met, while the second is read.

    The first parts are empty: LIMIT 0 of one row at most costs the same as that row, so that
    postgres_fdw would not send it.
    """
    for name, value in planned.items():
        bank.near.sql(f"alter database {bank.near.name} set {name} = '{value}'")
    if not planned or "plan_cache_mode" in planned:
        bank.near.sql("analyze account", user="owner1")
    with (
        silent(bank.near, "account", LATER) as session,
        bank.far[1].connect(autocommit=False) as keeper,
    ):
        keeper.execute("lock account_4")
        thread, found = asking(session)
        wait_until(lambda: waits(bank.far[1]))
        move(bank, 3, 3, 2)
        keeper.rollback()
        thread.join(120)
    assert found == [300]


def test_what_was_read_in_vain_is_of_no_later_moment(bank: Shards) -> None:
    """A cancel while the second server is met leaves the first one with its snapshot."""
    with silent(bank.near, "account", LATER) as session:
        session.autocommit = False
        session.execute("savepoint a")
        with bank.far[1].connect(autocommit=False) as keeper:
            keeper.execute("lock account")
            thread, found = asking(session)
            wait_until(lambda: waits(bank.far[1]))
            bank.near.sql("select pg_cancel_backend(%s)", session.info.backend_pid)
            thread.join(120)
            keeper.rollback()
        assert found == ["57014"]
        session.execute("rollback to a")
        move(bank, 3, 3, 5)
        session.execute(SILENCE)
        assert session.execute(QUESTION).fetchone() == (300,)
        session.rollback()


def test_no_connection_is_made_anew_within_the_moment(bank: Shards) -> None:
    """A new one would have a later snapshot; some versions of postgres_fdw make it."""
    reading = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s and usename = %s"
    with silent(bank.near, "account", MET) as session, bank.near.connect() as keeper:
        keeper.execute("select pg_advisory_lock(9)")
        thread, found = asking(session)
        wait_until(lambda: waits(bank.near))
        assert bank.near.sql(reading, bank.far[0].name, READER) == [(True,)]
        keeper.execute("select pg_advisory_unlock(9)")
        thread.join(120)
        assert found == ["PD902"]
        # and between two questions it may
        assert session.execute(QUESTION).fetchone() == (300,)
        assert bank.near.sql(reading, bank.far[0].name, READER) == [(True,)]
        assert session.execute(QUESTION).fetchone() == (300,)
