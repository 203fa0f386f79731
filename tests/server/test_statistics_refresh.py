"""Refreshes of statistics: interrupted, several at once, and in which transaction."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import psycopg
import pytest
from waiting import wait_until

from tests.server.collecting import WIDE, Collector
from tests.server.conftest import declare


def _slow(stats: Collector) -> None:
    """Make refreshing purchase wait: somebody holds a lock that counting needs."""
    stats.collect("client", "purchase")
    stats.admin.execute("insert into purchase values (9001, 1, 1, '2024-01-01')")


@pytest.mark.parametrize("how", ["cancel", "terminate", "kill"])
def test_an_interrupted_refresh_leaves_the_old_statistics(make_server: Any, how: str) -> None:
    server = make_server()
    stats = Collector(declare(server.create_database()))
    _slow(stats)
    before = stats.admin.execute(
        "select * from dp.statistics order by relations, identity"
    ).fetchall()
    stats.admin.execute(
        "create or replace function public.slow() returns int language sql as 'select 1'"
    )
    busy = stats.shop.connect(autocommit=False)
    busy.execute("lock table purchase in access exclusive mode")
    victim = stats.shop.connect(user="owner1")
    pid = victim.info.backend_pid
    failed: list[psycopg.Error] = []

    def refresh() -> None:
        try:
            victim.execute("select dp.refresh_statistics('purchase')")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=refresh)
    thread.start()
    waits = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    wait_until(lambda: stats.admin.execute(waits, (pid,)).fetchone() == (1,))
    assert stats.owner.execute("select relation::text, phase from dp.progress").fetchall() == [
        ("purchase", "waiting for another refresh")
    ]
    if how == "cancel":
        stats.admin.execute("select pg_cancel_backend(%s)", (pid,))
    elif how == "terminate":
        stats.admin.execute("select pg_terminate_backend(%s)", (pid,))
    else:
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert len(failed) == 1
    busy.close()

    def recovered() -> bool:
        try:
            return bool(stats.shop.sql("select 1"))
        except psycopg.Error:
            return False

    def noticed() -> bool:  # a killed backend takes all others along
        try:
            stats.admin.execute("select 1")
        except psycopg.Error:
            return True
        return False

    if how == "kill":
        wait_until(noticed)
    wait_until(recovered)
    admin = stats.shop.connect()
    after = admin.execute("select * from dp.statistics order by relations, identity").fetchall()
    assert [row[:5] for row in after] == [row[:5] for row in before]
    assert {row[5] for row in after if row[1] == ["public.purchase"]} == {1}
    assert admin.execute("select * from dp.progress").fetchall() == []
    admin.execute("select dp.refresh_statistics('purchase')")
    stats.shop.close()


def test_concurrent_refreshes_wait_for_each_other(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    errors: list[Exception] = []

    def refresh(relation: str) -> None:
        try:
            mine = stats.shop.connect(user="owner1")
            for _ in range(3):
                mine.execute(f"select dp.refresh_statistics('{relation}')")
        except psycopg.Error as error:
            errors.append(error)

    threads = [
        threading.Thread(target=refresh, args=(r,))
        for r in ("client", "purchase", "client", "region")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stats.load(stats.query(WIDE)) is not None
    doubles = "select count(*) - count(distinct (relation, kept, identity)) from dp.statistic"
    assert stats.admin.execute(doubles).fetchone() == (0,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_refresh_wants_the_latest_snapshot(stats: Collector, level: str) -> None:
    stats.collect("client")
    stats.owner.execute(f"begin isolation level {level}")
    with pytest.raises(psycopg.Error, match="cannot be refreshed in this transaction") as caught:
        stats.owner.execute("select dp.refresh_statistics('client')")
    assert caught.value.sqlstate == "PD040"
