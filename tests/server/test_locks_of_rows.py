"""The locks of a question do not depend on rows: others could see them, or fill the lock table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest

from tests.server.waiting import wait_until

WORLD = """
create type mood as enum ('sad', 'glad');
create table visit (id int not null, month int not null, felt mood not null default 'sad', note text,
  primary key (id, month)) partition by list (month);
do $$ begin for i in 1..12 loop
  execute format('create table visit_%s partition of visit for values in (%s)', i, i);
end loop; end $$;
create index on visit (month);
insert into visit select i, 1 + i % 12, 'sad', 'short' from generate_series(1, 300) as i where i <> 777;
select dp.protect('visit'), dp.grant_budget('alice', epsilon => 1000);
select dp.set_failure_limit('visit', 1000);
"""
PARALLEL = (
    "set min_parallel_table_scan_size = 0; set parallel_setup_cost = 0; set parallel_tuple_cost = 0"
)


@pytest.fixture(scope="module")
def world(server: Any) -> Iterator[Any]:
    """All notes are short, so that no value is fetched from a TOAST table."""
    database = server.create_database()
    database.sql(WORLD)
    yield database
    server.drop_database(database)


#: Number of locks on TOAST tables that parallel workers hold.
OF_WORKERS = """
select count(*) from pg_locks as l join pg_stat_activity as a using (pid) join pg_class as c on c.oid = l.relation
 where a.backend_type = 'parallel worker'
   and c.oid in (select m.reltoastrelid from pg_class as m where m.oid in (select relid from pg_partition_tree('visit')))
   and l.database = (select oid from pg_database where datname = current_database())
"""


def test_what_a_row_may_lock_is_locked_before(world: Any) -> None:
    """pg_locks shows the TOAST tables whether or not a value is fetched from them."""
    with world.connect() as session:
        session.execute("begin; set local role dp_executor")
        session.execute("select dp.lock_members(array['visit'::regclass], before_rows => true)")
        session.execute("reset role")
        locked = "select l.relation from pg_locks as l where l.pid = pg_backend_pid() and l.granted"
        missing = session.execute(
            f"""
            with member(oid) as (
              select relid::oid from pg_partition_tree('visit') union all values ('pg_enum'::regclass::oid), ('pg_collation'::regclass)),
            toast(oid) as (select c.reltoastrelid from pg_class as c join member using (oid) where c.reltoastrelid <> 0),
            wanted(oid) as (
              select oid from member union all select oid from toast union all
              select i.indexrelid from pg_index as i where i.indrelid in (select oid from member union all select oid from toast))
            select oid::regclass::text from wanted where oid not in ({locked})"""
        ).fetchall()
        assert missing == []
        (toasts,) = session.execute(
            f"select count(*) from pg_class as c where c.relkind = 't' and c.oid in ({locked})"
        ).fetchone()
        assert toasts >= 12
        session.execute("rollback")


def test_workers_lock_it_as_well(world: Any) -> None:
    asked = Event()

    def ask() -> None:
        with world.connect(user="alice") as alice:
            alice.execute(f"set dp.epsilon = 0.001; {PARALLEL}")
            for i in count():
                alice.execute(f"select dp_count(*) from visit where note like '%{i}e%'")
                if asked.is_set():
                    return

    thread = Thread(target=ask)
    thread.start()
    try:
        with world.connect() as session:
            wait_until(lambda: session.execute(OF_WORKERS).fetchone() != (0,))
    finally:
        asked.set()
        thread.join()
