"""An open transaction of an analyst does not make dp.lockdown wait or fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.server.waiting import wait_until

SET_UP = """
create schema mine authorization alice;
set role alice;
create view mine.v as select * from public.client;
create view mine.w as select * from public.purchase;
grant select on mine.v, mine.w to public;
reset role;
"""
READABLE = "select has_table_privilege('public', 'mine.v', 'select'), has_table_privilege('public', 'mine.w', 'select')"

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_view_in_an_open_transaction_is_left_with_a_warning(shop: Any, end: str) -> None:
    admin = shop.connect()
    admin.execute(SET_UP)
    heard: list[tuple[str, str]] = []
    admin.add_notice_handler(lambda d: heard.append((d.severity, str(d.message_primary))))
    with shop.connect(user="alice", autocommit=False) as alice:
        alice.execute("grant select on mine.v to bob")
        measures = {row[0] for row in admin.execute("select * from dp.lockdown()").fetchall()}
        assert {"catalogue", "relations"} <= measures
        assert ("WARNING", "privileges on mine.v are left as they are") in heard
        assert admin.execute(READABLE).fetchone() == (True, False)
        alice.execute(end)
    heard.clear()
    admin.execute("select * from dp.lockdown()")
    assert heard == []
    assert admin.execute(READABLE).fetchone() == (False, False)
    admin.execute("select dp.unlock()")


def test_a_protected_table_is_never_left_open(shop: Any) -> None:
    admin = shop.connect()
    admin.execute("grant select on public.client to alice; grant usage on schema public to alice")
    with shop.connect(user="alice", autocommit=False) as alice:
        # alice may grant nothing, and PostgreSQL writes the row of pg_class all the same
        alice.execute("grant select on public.client to bob")
        with pytest.raises(
            psycopg.Error, match=r"the privileges on public\.client cannot be taken"
        ) as caught:
            admin.execute("select * from dp.lockdown()")
        assert caught.value.sqlstate == "PD040"
    admin.execute("select * from dp.lockdown()")
    may = "select has_table_privilege('alice', 'public.client', 'select')"
    assert admin.execute(may).fetchone() == (False,)
    admin.execute("select dp.unlock()")


def test_who_waits_for_lockdown_in_turn_does_not_end_it(shop: Any) -> None:
    admin = shop.connect()
    admin.execute(SET_UP)
    function = "pg_catalog.pg_relation_size(regclass, text)"
    with shop.connect(user="alice", autocommit=False) as alice, ThreadPoolExecutor(1) as pool:
        alice.execute("grant select on mine.v to bob")
        done = pool.submit(lambda: admin.execute("select * from dp.lockdown()").fetchall())
        wait_until(lambda: done.done() or shop.sql(WAITING) != [(0,)])
        with suppress(psycopg.Error):  # whom PostgreSQL ends of the two is its choice
            alice.execute(f"grant execute on function {function} to bob")
        assert done.result()
    assert admin.execute(READABLE).fetchone()[1] is False
    admin.execute("select dp.unlock()")
