"""What is counted as a change: every way in which rows of a relation can come or go."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

GAINED = """
select dp.statistics_shift(r.measurement, r.relation)::int8
  from dp.measured_relation r where r.relation = %s::regclass
"""
UNLIKE = "the statistics are not to be used"


@pytest.fixture
def relation(database: Any) -> Any:
    """A table with key k and column v, three rows, measured."""
    admin = database.connect()
    admin.execute("create table t (k int primary key, v int)")
    admin.execute("insert into t values (1, 1), (2, 1), (3, 2)")
    measure(admin, "t")
    return admin


def measure(connection: Any, relation: str) -> None:
    connection.execute(f"select dp.protect('{relation}')")
    connection.execute(f"select dp.collect_statistics('{relation}')")
    connection.execute(f"select dp.refresh_statistics('{relation}')")


def gained(connection: Any, relation: str = "t") -> int | str:
    rows = connection.execute(GAINED, (relation,)).fetchall()
    assert len(rows) == 1
    return UNLIKE if rows[0][0] is None else int(rows[0][0])


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select 1", 0),
        ("insert into t values (4, 1)", 1),
        ("insert into t select i, 0 from generate_series(10, 29) i", 20),
        ("insert into t values (1, 5) on conflict do nothing", 0),
        ("insert into t values (1, 5), (7, 7) on conflict (k) do update set v = excluded.v", 2),
        ("update t set v = v + 1", 3),
        ("update t set v = v + 1 where false", 0),
        ("update t set v = 9 where k = 1; update t set v = 8 where k = 1", 1),
        ("update t set k = k + 100 where k = 1; update t set v = 0 where k = 101", 2),
        ("insert into t values (4, 1); update t set v = 2 where k = 4", 2),
        ("delete from t", 0),
        ("delete from t where k = 1; insert into t values (1, 1)", 1),
        (
            "merge into t using (values (1, 5), (2, 6), (8, 8)) s(k, v) on t.k = s.k"
            " when matched and s.k = 1 then delete when matched then update set v = s.v"
            " when not matched then insert values (s.k, s.v)",
            2,
        ),
        ("with a as (insert into t values (4, 4)), b as (update t set v = 0 where k = 1)"
         " delete from t where k = 2", 2),
        ("truncate t", UNLIKE),
        ("alter table t alter v type bigint using v + 1", UNLIKE),
        ("alter table t alter v type numeric", UNLIKE),
        ("vacuum full t", UNLIKE),
        ("alter table t drop constraint t_pkey", UNLIKE),
        ("alter table t drop constraint t_pkey; alter table t add primary key (k)", UNLIKE),
        ("alter table t add column w int", UNLIKE),
        ("alter table t disable trigger dpsql_insert", UNLIKE),
        ("alter table t disable trigger all; alter table t enable trigger all", UNLIKE),
        (
            "alter table t disable trigger dpsql_update;"
            " alter table t enable always trigger dpsql_update",
            UNLIKE,
        ),
        ("drop trigger dpsql_update on t", UNLIKE),
        ("alter table t set unlogged", UNLIKE),
        ("select dp.unprotect('t')", UNLIKE),
        ("create table c () inherits (t)", UNLIKE),
        (
            "create table p (k int not null, v int) partition by list (k);"
            " alter table p attach partition t default; insert into p values (8, 8);"
            " alter table p detach partition t",
            UNLIKE,
        ),
        (
            "create table p (v int); alter table t inherit p; update p set v = 0;"
            " alter table t no inherit p",
            UNLIKE,
        ),
        ("create index on t (v)", 0),
        ("analyze t", 0),
        ("vacuum t", 0),
        ("set session_replication_role = replica; insert into t values (5, 5); update t set v = 0", 5),
        ("set track_counts = off; insert into t values (5, 5)", UNLIKE),
        ("set track_counts = off; insert into t select 5, 5 where false", UNLIKE),
        ("begin; insert into t values (5, 5); rollback", 0),
        ("begin; truncate t; rollback", 0),
        ("begin; truncate t; insert into t values (5, 5); commit", UNLIKE),
        ("begin; insert into t values (5, 5); prepare transaction 'p'", 0),
    ],
)  # fmt: skip
def test_statements(relation: Any, statement: str, expected: object) -> None:
    if "prepare transaction" in statement:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            relation.execute(statement)
        relation.execute("rollback")
    elif statement.startswith("vacuum"):
        relation.execute(statement)
    else:
        for part in statement.split(";"):
            relation.execute(part)
    assert gained(relation) == expected


def test_copy(relation: Any) -> None:
    with relation.cursor().copy("copy t from stdin") as copy:
        for i in range(10, 3010):
            copy.write_row((i, i))
    assert gained(relation) == 3000


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("savepoint a|insert 4|rollback to a", 0),
        ("savepoint a|insert 4|rollback to a|insert 4", 1),
        ("insert 4|savepoint a|insert 5|rollback to a|insert 6", 2),
        ("savepoint a|insert 4|release a|insert 5", 2),
        ("savepoint a|insert 4|savepoint b|insert 5|release b|rollback to a|insert 6", 1),
        ("savepoint a|savepoint b|insert 5|release b|insert 6|release a|insert 7", 3),
        ("insert 4|savepoint a|update 1|savepoint b|update 2|rollback to b|insert 5", 3),
        ("insert 4|savepoint a|update 4|release a|savepoint a|update 4|rollback to a", 2),
        ("savepoint a|insert 4|savepoint b|insert 5|rollback to b|insert 6|release a|insert 7", 3),
    ],
)
def test_savepoints_are_exact(relation: Any, steps: str, expected: int) -> None:
    """One row that is tried several times is one row: more would break smoothness."""
    relation.execute("begin")
    for step in steps.split("|"):
        verb, _, what = step.partition(" ")
        if verb == "insert":
            relation.execute(f"insert into t values ({what}, 0)")
        elif verb == "update":
            relation.execute(f"update t set v = v + 1 where k = {what}")
        else:
            relation.execute(step if verb != "release" else f"release savepoint {what}")
        if verb == "rollback":
            relation.execute(f"release savepoint {what.split()[-1]}")
    here = gained(relation)
    relation.execute("commit")
    assert here == gained(relation) == expected
    inserted = relation.execute("select coalesce(sum(inserted), 0) from dp.change").fetchone()
    assert inserted[0] == relation.execute("select count(*) from t where k > 3").fetchone()[0]


def test_exception_blocks_count_what_stays(relation: Any) -> None:
    relation.execute("""
        do $$ begin
            for i in 1 .. 100 loop
                begin
                    insert into t values (i % 50 + 10, i);
                    if i % 3 = 0 then raise exception 'no'; end if;
                exception when others then null;
                end;
            end loop;
        end $$""")
    there = relation.execute("select count(*) from t where k > 3").fetchone()[0]
    assert gained(relation) == there


def test_a_failed_part_of_a_running_insert_loses_nothing(relation: Any) -> None:
    relation.execute("""
        create function f(i int) returns int language plpgsql as $$ begin
            begin
                insert into t values (1000 + i, 0);
                raise exception 'no';
            exception when others then null;
            end;
            insert into t values (2000 + i, 0);
            return i; end $$""")
    relation.execute("insert into t select f(i), 0 from generate_series(100, 149) i")
    assert relation.execute("select count(*) from t where k > 3").fetchone() == (100,)
    assert gained(relation) == 100


def test_reading_inside_an_insert_loses_nothing(relation: Any) -> None:
    """While rows are read here, the server counts nothing, and not again until the next statement."""
    relation.execute("""
        create function ask(i int) returns int language plpgsql as $$ begin if i = 2 then
            perform dp.sensitivity('select dp_count(*) from t', 'residual', 0.1); end if; return i; end $$""")
    relation.execute("insert into t select 10 + ask(i), 0 from generate_series(1, 50) i")
    assert gained(relation) == UNLIKE
    relation.execute("select dp.refresh_statistics('t')")
    relation.execute("insert into t values (500, 0)")
    assert gained(relation) == 1


def test_foreign_keys_that_act(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table p (k int primary key)")
    admin.execute("create table t (k int primary key, p int references p on update cascade"
                  " on delete set null)")  # fmt: skip
    admin.execute("insert into p select generate_series(1, 4)")
    admin.execute("insert into t select i, 1 + i % 4 from generate_series(1, 20) i")
    measure(admin, "t")
    admin.execute("update p set k = 40 where k = 4")
    assert gained(admin) == 5
    admin.execute("delete from p where k in (1, 40)")
    assert gained(admin) == 10


PARTED = """
create table t (k int, v int, primary key (k)) partition by range (k);
create table t1 partition of t for values from (0) to (100);
create table t2 partition of t for values from (100) to (200) partition by range (k);
create table t21 partition of t2 for values from (100) to (150);
create table t22 partition of t2 for values from (150) to (200);
insert into t select i, 0 from generate_series(10, 190, 10) i
"""


@pytest.fixture
def parted(database: Any) -> Any:
    admin = database.connect()
    for statement in PARTED.strip().split(";"):
        admin.execute(statement)
    measure(admin, "t")
    return admin


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("insert into t values (1, 1), (101, 1), (151, 1)", 3),
        ("insert into t1 values (1, 1); insert into t2 values (101, 1); insert into t22 values (151, 1)", 3),
        ("update t set v = 1 where k in (10, 110, 160)", 3),
        ("update t set v = 1 where k = 110; update t2 set v = 2 where k = 110; update t21 set v = 3", 5),
        ("update t set k = 199 where k = 10", 2),
        ("delete from t; delete from t1", 0),
        ("truncate t21", UNLIKE),
        ("alter table t detach partition t1", UNLIKE),
        ("alter table t detach partition t1; alter table t attach partition t1 for values from (0) to (100)", UNLIKE),
        ("create table t3 partition of t for values from (200) to (300)", UNLIKE),
        ("drop table t22", UNLIKE),
        ("alter table t21 disable trigger dpsql_insert", UNLIKE),
        ("vacuum full t21", UNLIKE),
    ],
)  # fmt: skip
def test_partitions(parted: Any, statement: str, expected: object) -> None:
    for part in statement.split(";"):
        parted.execute(part)
    assert gained(parted) == expected


def test_a_swapped_partition_counts_again_after_collecting_and_refreshing(parted: Any) -> None:
    parted.execute("create table new1 (k int primary key, v int)")
    parted.execute("insert into new1 select i, 0 from generate_series(1, 99) i")
    parted.execute("alter table t detach partition t1")
    parted.execute("alter table t attach partition new1 for values from (0) to (100)")
    assert gained(parted) == UNLIKE
    with pytest.raises(psycopg.Error, match=r"changes of relation .* are not counted"):
        parted.execute("select dp.refresh_statistics('t')")
    parted.execute("select dp.collect_statistics('t')")
    parted.execute("select dp.refresh_statistics('t')")
    assert gained(parted) == 0
    parted.execute("update new1 set v = 1 where k <= 5")
    assert gained(parted) == 5


def test_inheritance_children_count_by_versions(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table t (k int primary key, v int)")
    admin.execute("create table c (w int) inherits (t)")
    admin.execute("insert into c values (1, 1, 1), (2, 2, 2)")
    measure(admin, "t")
    admin.execute("insert into t values (5, 5)")
    admin.execute("insert into c values (5, 5)")
    assert gained(admin) == 2
    for _ in range(3):
        admin.execute("update t set v = 0")
    assert gained(admin) == 2 + 3 * 4
    assert admin.execute("select count(*) from dp.changed_key").fetchone() == (0,)


def test_without_a_primary_key_every_update_makes_a_row(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table t (v int)")
    admin.execute("insert into t values (1), (2)")
    measure(admin, "t")
    for _ in range(3):
        admin.execute("update t set v = v + 1 where v >= 2")
    assert gained(admin) == 3
    admin.execute("alter table t add primary key (v)")
    assert gained(admin) == UNLIKE
    admin.execute("select dp.refresh_statistics('t')")
    admin.execute("update t set v = v + 100 where v = 1")
    assert gained(admin) == 1  # its trigger logs no keys: still by versions


def test_keys_are_logged_as_one_text_under_any_setting(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table t (k timestamptz, d date, x bytea, primary key (k, d, x), v int)")
    admin.execute("insert into t values ('2024-07-01 00:00+00', '2024-02-01', '\\x00ff', 1)")
    measure(admin, "t")
    for zone, style, output in (("Asia/Tokyo", "German", "escape"), ("UTC", "SQL, DMY", "hex")):
        admin.execute(f"set timezone = '{zone}'")
        admin.execute(f"set datestyle = '{style}'")
        admin.execute(f"set bytea_output = {output}")
        admin.execute("update t set v = v + 1")
    assert gained(admin) == 1


def test_a_writer_needs_no_privilege_on_what_is_counted(relation: Any, database: Any) -> None:
    relation.execute("grant insert, update, select on t to mallory")
    writer = database.connect(user="mallory")
    writer.execute("insert into t values (9, 9)")
    writer.execute("update t set v = 0 where k = 1")
    assert gained(relation) == 2
    for table in ("change", "changed_key", "statistic", "measurement", "measured_relation"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute(f"select * from dp.{table}")


def test_two_snapshots_see_their_own_changes(relation: Any, database: Any) -> None:
    old = database.connect(autocommit=False)
    old.execute("set transaction isolation level repeatable read")
    assert gained(old) == 0
    open_ = database.connect(autocommit=False)
    open_.execute("insert into t values (10, 0), (11, 0)")
    relation.execute("insert into t values (20, 0)")
    assert (gained(old), gained(open_), gained(relation)) == (0, 3, 1)
    open_.commit()
    assert (gained(old), gained(relation)) == (0, 3)
    old.commit()
    assert gained(old) == 3


def test_a_change_that_a_refresh_could_not_see_counts_after_it(
    relation: Any, database: Any
) -> None:
    open_ = database.connect(autocommit=False)
    open_.execute("insert into t values (10, 0), (11, 0)")
    open_.execute("update t set v = 9 where k = 1")
    relation.execute("insert into t values (20, 0)")
    relation.execute("select dp.refresh_statistics('t')")
    assert gained(relation) == 0
    open_.execute("update t set v = 9 where k in (1, 2)")
    open_.commit()
    assert gained(relation) == 4
    relation.execute("select dp.refresh_statistics('t')")
    assert gained(relation) == 0
    assert relation.execute("select count(*) from dp.change").fetchone() == (0,)
    assert relation.execute("select count(*) from dp.changed_key").fetchone() == (0,)


def test_changes_after_a_refresh_in_its_own_transaction_count(relation: Any) -> None:
    with relation.transaction():
        relation.execute("select pg_current_xact_id()")
        relation.execute("select dp.refresh_statistics('t')")
        relation.execute("insert into t values (10, 0)")
        assert gained(relation) == 1
    assert gained(relation) == 1


@pytest.mark.parametrize("change", ["insert into t values (9, 9)", "truncate t"])
def test_a_transaction_that_changed_rows_cannot_refresh(relation: Any, change: str) -> None:
    relation.execute("begin")
    relation.execute(change)
    with pytest.raises(psycopg.Error, match="that changed the rows itself") as caught:
        relation.execute("select dp.refresh_statistics('t')")
    assert caught.value.sqlstate == "PD040"


def test_concurrent_writers_are_all_counted(relation: Any, database: Any) -> None:
    import threading

    def write(base: int) -> None:
        mine = database.connect()
        for i in range(40):
            mine.execute("insert into t values (%s, 0)", (base + i,))
            mine.execute("update t set v = v + 1 where k = %s", (base + i,))

    threads = [threading.Thread(target=write, args=(1000 * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        relation.execute("select dp.refresh_statistics('t')")
    for thread in threads:
        thread.join()
    taken = relation.execute(
        "select s.value from dp.statistic s where s.identity = 't'::regclass::oid || '[]'"
    ).fetchone()
    there = relation.execute("select count(*) from t").fetchone()
    assert taken[0] + gained(relation) >= there[0]
    relation.execute("select dp.refresh_statistics('t')")
    assert gained(relation) == 0


def test_only_statement_triggers_may_call_the_function(relation: Any) -> None:
    relation.execute("create trigger x after insert on t for each row"
                     " execute function dp.count_inserts()")  # fmt: skip
    with pytest.raises(psycopg.Error, match="only an AFTER STATEMENT trigger"):
        relation.execute("insert into t values (77, 0)")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("create unlogged table u (a int)", "unlogged"),
        ("create table u (a int) partition by list (a);"
         " create unlogged table u1 partition of u default", "unlogged"),
        ("create extension postgres_fdw; create server s foreign data wrapper postgres_fdw;"
         " create foreign table u (a int) server s", "foreign table"),
    ],
)  # fmt: skip
def test_relations_without_trustworthy_changes_are_refused(
    database: Any, made: str, told: str
) -> None:
    admin = database.connect()
    admin.execute(made)
    admin.execute("select dp.protect('u')")
    for function in ("collect_statistics", "refresh_statistics"):
        with pytest.raises(psycopg.Error, match="no statistics can be kept") as caught:
            admin.execute(f"select dp.{function}('u')")
        assert told in caught.value.diag.message_detail


def test_a_relation_of_units_is_told_to_need_no_statistics(database: Any) -> None:
    admin = database.connect()
    admin.execute("create table person (id int primary key)")
    admin.execute("create table visit (person int not null references person)")
    for function in ("collect_statistics", "refresh_statistics"):
        with pytest.raises(psycopg.Error) as caught:
            admin.execute(f"select dp.{function}('visit')")
        assert "neither protected nor public" in caught.value.diag.message_detail
    admin.execute("select dp.protect('person', privacy_unit => 'id')")
    for function in ("collect_statistics", "refresh_statistics"):
        with pytest.raises(psycopg.Error, match="no statistics can be kept") as caught:
            admin.execute(f"select dp.{function}('visit')")
        assert "belong to privacy units" in caught.value.diag.message_detail


def test_a_relation_that_a_subscription_writes_is_not_to_be_used(relation: Any) -> None:
    relation.execute(
        "create subscription sub connection 'dbname=nowhere' publication p"
        " with (connect = false, slot_name = none)"
    )
    relation.execute("set allow_system_table_mods = on")
    relation.execute("insert into pg_subscription_rel (srsubid, srrelid, srsubstate)"
                     " select oid, 't'::regclass, 'r' from pg_subscription")  # fmt: skip
    assert gained(relation) == UNLIKE
    relation.execute("delete from pg_subscription_rel")
    assert gained(relation) == 0
    relation.execute("drop subscription sub")
    assert gained(relation) == UNLIKE
    relation.execute("select dp.refresh_statistics('t')")
    assert gained(relation) == 0


def test_many_subtransactions_take_no_memory(relation: Any) -> None:
    relation.execute("""
        do $$ begin
            for i in 1 .. 20000 loop
                begin
                    insert into t values (100 + i, i);
                    if i % 2 = 0 then raise exception 'no'; end if;
                exception when others then null;
                end;
            end loop;
            if (select sum(used_bytes) from pg_backend_memory_contexts
                 where name = 'TopTransactionContext') > 1000000 then
                raise exception 'changes take memory';
            end if;
        end $$""")
    assert gained(relation) == 10000
