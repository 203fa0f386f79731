"""An open transaction of an analyst does not make dp.lockdown wait or fail."""

from __future__ import annotations

from typing import Any

import pytest

SET_UP = """
create schema mine authorization alice;
set role alice;
create view mine.v as select * from public.client;
create view mine.w as select * from public.purchase;
grant select on mine.v, mine.w to public;
reset role;
"""
READABLE = "select has_table_privilege('public', 'mine.v', 'select'), has_table_privilege('public', 'mine.w', 'select')"


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
