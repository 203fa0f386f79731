"""A publication of all tables does not make changes of dpsql's own tables fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

#: Tables of the extension's schemas without replica identity: a publication makes their UPDATE and DELETE fail.
WITHOUT_IDENTITY = """
select c.oid::regclass::text from pg_class as c
 where c.relnamespace in (select n.oid from pg_namespace as n where n.nspname in ('dp', 'dp_private'))
   and c.relkind in ('r', 'p') and c.relpersistence = 'p'
   and c.relreplident <> 'f'
   and not exists (select from pg_index as i where i.indrelid = c.oid
                    and case c.relreplident when 'd' then i.indisprimary else i.indisreplident end)
"""


@pytest.fixture
def published(database: Any) -> Iterator[Any]:
    admin = database.connect()
    # at a low wal_level this is only a warning, "wal_level is insufficient"
    admin.execute("create publication everything for all tables")
    yield admin
    admin.execute("drop publication everything")


def test_every_table_of_the_library_has_a_replica_identity(published: Any) -> None:
    assert published.execute(WITHOUT_IDENTITY).fetchall() == []


def test_protected_tables_are_asked_measured_and_dropped(published: Any) -> None:
    for name in "tu":
        published.execute(f"create table {name} (k int primary key, v int)")
        published.execute(f"insert into {name} select i, i % 3 from generate_series(1, 20) i")
        published.execute(f"select dp.protect('{name}'), dp.collect_statistics('{name}')")
        published.execute(f"select dp.refresh_statistics('{name}')")
    published.execute("select dp.grant_budget('postgres', 100)")
    published.execute("update t set v = 5 where k < 7; delete from t where k = 9")
    published.execute("select dp.refresh_statistics('t')")
    published.execute("set dp.epsilon = 1; select dp_count(*) from t, u where t.v = u.v")
    published.execute("select dp.unprotect('u')")
    published.execute("drop table t, u")
