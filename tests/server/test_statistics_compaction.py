"""Changes that the same measurements have to count are added up, and mean the same after it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.waiting import worked

SHIFTS = """
select dp.statistics_shift(r.measurement, r.relation)::int8
  from dp.measured_relation r where r.relation = 't'::regclass order by r.measurement
"""


@pytest.fixture
def owner(database: Any) -> Any:
    """Tables t and u, measured, and t besides as part of a sketch."""
    admin = database.connect()
    for name in "tu":
        admin.execute(f"create table {name} (k int primary key, v int)")
        admin.execute(f"insert into {name} select i, i % 3 from generate_series(1, 20) i")
        admin.execute(f"select dp.protect('{name}'), dp.collect_statistics('{name}')")
        admin.execute(f"select dp.refresh_statistics('{name}')")
    return admin


def shifts(connection: Any) -> list[int | None]:
    return [row[0] for row in connection.execute(SHIFTS).fetchall()]


def rows(connection: Any, table: str = "change") -> int:
    sql = f"select count(*) from dp.{table} where relation = 't'::regclass"
    return int(connection.execute(sql).fetchone()[0])


def write(connection: Any, first: int, number: int) -> None:
    for k in range(first, first + number):
        connection.execute("insert into t values (%s, 0)", [k])


def sketch(connection: Any) -> None:
    connection.execute(
        "select dp.create_sketch('select dp_count(*) from t, u where t.v = u.v', 100)"
    )


def test_single_rows_are_one_row_after_any_refresh(owner: Any) -> None:
    write(owner, 100, 30)
    for v in range(5):
        owner.execute("update t set v = %s where k in (1, 2)", [v])
    assert (rows(owner), rows(owner, "changed_key"), shifts(owner)) == (35, 10, [32])
    owner.execute("select dp.refresh_statistics('u')")
    assert (rows(owner), rows(owner, "changed_key"), shifts(owner)) == (1, 2, [32])
    write(owner, 200, 3)
    owner.execute("update t set v = 7 where k in (2, 3)")
    assert shifts(owner) == [36]
    owner.execute("select dp.refresh_statistics('u')")
    assert (rows(owner), rows(owner, "changed_key"), shifts(owner)) == (1, 3, [36])


def test_measurements_of_different_moments_keep_their_own_counts(owner: Any) -> None:
    write(owner, 100, 4)
    sketch(owner)
    assert shifts(owner) == [4, 0]
    write(owner, 200, 5)
    owner.execute("select dp.refresh_statistics('u')")
    assert (rows(owner), shifts(owner)) == (2, [9, 5])
    owner.execute("select dp.refresh_statistics('t')")
    assert (rows(owner), shifts(owner)) == (1, [5, 0])
    owner.execute("select dp.drop_sketch(sketch) from dp.sketches")
    assert (rows(owner), shifts(owner)) == (0, [0])


def test_who_looked_before_and_who_commits_after_are_counted_alike(
    owner: Any, database: Any
) -> None:
    old = database.connect(autocommit=False)
    old.execute("set transaction isolation level repeatable read")
    late = database.connect(autocommit=False)
    write(late, 500, 2)
    write(owner, 100, 3)
    assert shifts(old) == [3]
    write(owner, 200, 4)
    owner.execute("select dp.refresh_statistics('u')")
    assert (rows(owner), shifts(owner), shifts(old)) == (1, [7], [3])
    late.commit()
    assert (rows(owner), shifts(owner), shifts(old)) == (3, [9], [3])
    old.commit()
    owner.execute("select dp.refresh_statistics('u')")
    assert (rows(owner), shifts(owner), shifts(old)) == (1, [9], [9])


def test_what_was_not_counted_spoils_the_sum(owner: Any) -> None:
    write(owner, 100, 3)
    owner.execute("set session_replication_role = replica")
    owner.execute("insert into t values (900, 0)")
    owner.execute("reset session_replication_role")
    owner.execute("truncate t")
    before = shifts(owner)
    owner.execute("select dp.refresh_statistics('u')")
    assert (rows(owner), shifts(owner)) == (1, before)


def test_changes_of_a_dropped_relation_go_with_its_sketch(owner: Any) -> None:
    sketch(owner)
    owner.execute("select dp.drop_statistics('u'), dp.collect_statistics('u')")
    write(owner, 100, 3)
    oid = owner.execute("select 't'::regclass::oid").fetchone()[0]
    owner.execute("select dp.unprotect('t')")
    owner.execute("drop table t")
    owner.execute("select dp.refresh_statistics('u')")
    left = "select count(*) from dp.{} where relation = %s"
    for table in ("change", "changed_key", "measured_relation", "statistic"):
        assert owner.execute(left.format(table), [oid]).fetchone() == (0,), table
    assert owner.execute("select count(*) from dp.sketch").fetchone() == (0,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    "command", ["drop_statistics('u')", "drop_sketch(sketch) from dp.sketches"]
)
def test_who_does_not_see_the_newest_measurement_forgets_nothing(
    owner: Any, database: Any, level: str, command: str
) -> None:
    sketch(owner)
    with database.connect(autocommit=False) as refresh, database.connect() as old:
        refresh.execute("select dp.refresh_statistics('t')")
        write(owner, 100, 40)
        old.execute(f"begin isolation level {level}; select 1 from pg_class limit 1")
        refresh.commit()
        assert shifts(owner)[-1] == 40
        with pytest.raises(psycopg.Error) as caught:
            old.execute(f"select dp.{command}")
        assert caught.value.sqlstate == "PD040"
        assert caught.value.diag.message_hint == "Use a transaction that is READ COMMITTED."
    assert shifts(owner)[-1] == 40


def many(owner: Any, number: int = 20_000) -> None:
    """So many transactions of one row, of which the planner knows nothing."""
    owner.execute("alter table dp.change set (autovacuum_enabled = off)")
    owner.execute(
        "do $$ begin for i in 1 .. 20000 loop insert into t values (1000 + i, 0); commit;"
        " end loop; end $$"
    )
    assert shifts(owner)[-1] == number


def test_adding_up_takes_no_time_that_grows_faster_than_the_changes(owner: Any) -> None:
    """Half a second of processor time, whoever else is busy; squared it would be minutes."""
    pid = owner.info.backend_pid
    many(owner)
    before = worked(pid)
    owner.execute("set statement_timeout = '300s'")
    owner.execute("select dp.refresh_statistics('u')")
    after = worked(pid)
    assert before is not None
    assert after is not None
    assert after - before < 6
    assert (rows(owner), shifts(owner)) == (1, [20_000])


def test_changes_from_before_a_refresh_are_not_looked_at_though_nobody_vacuums(owner: Any) -> None:
    def blocks() -> int:
        plan = "explain (analyze, buffers, format json) " + SHIFTS
        shifts(owner)
        node = owner.execute(plan).fetchone()[0][0]["Plan"]
        return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])

    def least() -> int:  # now and then a process of the server's own makes it look up more
        return min(blocks() for _ in range(3))

    # by the plans that the session keeps: it tries others the first ten times or so
    for _ in range(15):
        blocks()
    before = least()
    many(owner)
    assert least() > before + 100
    owner.execute("select dp.refresh_statistics('t')")
    assert shifts(owner) == [0]
    assert least() < before + 30
