"""The locks of a question do not depend on rows: others could see them, or fill the lock table."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from tests.server.in_service import in_service

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


def test_no_workers_read(world: Any) -> None:
    """Anybody can count workers and see their locks, and rows decide how many are planned."""
    workers = (
        "select count(*) from pg_stat_activity where backend_type = 'parallel worker'"
        " and datname = current_database()"
    )
    where = "from visit where note like '%{}e%'"

    def seen(question: str, user: str, least: int) -> set[int]:
        """Ask until workers were counted, or so many times; return the counts."""
        asked, found = 0, set()

        def ask() -> None:
            nonlocal asked
            with world.connect() as session:
                session.execute(PARALLEL)
                session.execute(in_service(f"plpy.execute('{PARALLEL}')"))
                session.execute(f"set session authorization {user}; set dp.epsilon = 0.001")
                while asked < least and found <= {0}:
                    session.execute(question.format(asked))
                    asked += 1

        thread = Thread(target=ask)
        thread.start()
        with world.connect() as session:
            while thread.is_alive():
                found.add(session.execute(workers).fetchone()[0])
        thread.join()
        assert asked == least or found > {0}
        return found

    assert seen(f"select count(*) {where}", "postgres", 10**9) > {0}
    assert seen(f"select dp_count(*) {where}", "alice", 40) == {0}
