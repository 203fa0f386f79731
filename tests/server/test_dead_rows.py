"""Questions remove no dead row of what others can read (docs/attacks.md, E13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.asking import say

pytestmark = pytest.mark.server

#: Eight rows fill a page of it; where the next one goes tells whether a dead one was removed.
SHORT = """
create table person (id int primary key, amount int not null);
insert into person select i, i % 50 from generate_series(1, 200) as i;
select dp.protect('person', privacy_unit => 'id');
create table place (k int primary key, pad text not null) with (autovacuum_enabled = off);
alter table place alter pad set storage plain;
select dp.declare_public('place');
analyze person;
grant usage on schema public to alice;
grant select on place to alice;
select dp.grant_budget('alice', 1000);
"""
BY_PLACE = "select dp_count(*) from person join place on amount = k where id = {id}"
NOTHING_KEPT = """
create or replace function dp.keep_dead_rows(shared oid[], read oid[]) returns regclass
language sql as 'select null::regclass'
"""


MOODS = """
create type mood as enum ('sad', 'ok', 'happy');
alter table person add mood mood not null default 'ok';
create schema mine authorization alice;
"""
BEGIN = "begin isolation level repeatable read read only"
KEEP = "select dp.keep_dead_rows(array['place'::regclass::oid], '{}')::text"


@contextmanager
def snapshot_held(database: Any) -> Iterator[Any]:
    """Keep dead rows from being removable: a session sees what was there when it began."""
    with database.connect(autocommit=False) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select")
        yield holder


@contextmanager
def analyst(database: Any) -> Iterator[Any]:
    """Connect alice, who asks anew each time."""
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 1e-6; set client_min_messages = error; set dp.fresh = on")
        yield alice


def answered(alice: Any, question: str) -> None:
    """Ask, and see that there is an answer."""
    said = say(alice, question)
    assert said.startswith("[("), said


def fill_a_page(application: Any) -> None:
    """Write 250 pages that nobody asks about and one with eight rows, of which one is dead.

    The planner reads the least and the greatest key, a merge join the least.
    """
    application.execute("truncate place")
    new = "insert into place select i, repeat('x', 900) from generate_series(%s::int, %s::int) as i"
    application.execute(new, (-1000, -1))
    application.execute(new, (1001, 2000))
    application.execute(new, (1, 8))
    application.execute("analyze place")
    application.execute("set enable_seqscan = off; delete from place where k = 3")


def next_place(application: Any) -> str:
    """Write one more row; return the place that every reader of the relation sees."""
    new = "insert into place values (100, repeat('x', 900)) returning ctid"
    return str(application.execute(new).fetchone()[0])


@pytest.mark.parametrize("kept", [True, False])
def test_where_rows_are_written_tells_of_no_protected_row(database: Any, kept: bool) -> None:
    database.sql(SHORT)
    if not kept:
        database.sql(NOTHING_KEPT)
    seen = []
    with database.connect() as application, analyst(database) as alice:
        for unit in (7, 100000):
            fill_a_page(application)
            answered(alice, BY_PLACE.format(id=unit))
            seen.append(next_place(application))
    if kept:
        assert seen[0] == seen[1]
    else:
        assert seen == ["(250,9)", "(251,1)"], "the question pruned nothing: the test tells nothing"


@pytest.mark.parametrize("kept", [True, False])
def test_what_dies_or_becomes_removable_while_a_question_reads(database: Any, kept: bool) -> None:
    """Whoever holds a snapshot decides when dead rows can be removed."""
    database.sql(SHORT)
    with database.connect() as application, database.connect() as reader:
        with snapshot_held(database):
            fill_a_page(application)
            reader.execute("set enable_seqscan = off")
            reader.execute(BEGIN)
            reader.execute("select")
            if kept:
                reader.execute(KEEP)
        application.execute("select txid_current()")
        for name in ("person", "dp.policy", "place where k = 7"):
            reader.execute(f"select count(*) from {name}")
        place = next_place(application)
        reader.execute("commit")
    assert place == ("(251,1)" if kept else "(250,9)")


def test_pins_end_with_the_transaction(database: Any) -> None:
    """A pin that is left would keep VACUUM from freezing the page, and warn at the commit."""
    database.sql(SHORT)
    with database.connect() as application, database.connect() as reader:
        told: list[str] = []
        reader.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        with snapshot_held(database):
            fill_a_page(application)
            for end in ("commit", "rollback", "savepoint s; rollback to s; commit"):
                reader.execute(BEGIN)
                assert reader.execute(KEEP).fetchone()[0] is None
                reader.execute(end)
        assert told == []
        application.execute("vacuum (freeze, disable_page_skipping) place")
        assert next_place(application) == "(250,9)"


def test_more_pages_with_dead_rows_than_can_be_pinned(make_server: Any) -> None:
    database = make_server(shared_buffers="1MB").create_database()
    database.sql(SHORT)
    database.sql("insert into place select i, repeat('x', 900) from generate_series(1, 1000) as i")
    with (
        database.connect() as application,
        snapshot_held(database) as holder,
        database.connect("alice") as alice,
    ):
        application.execute("delete from place where k % 8 = 3")
        said = say(alice, BY_PLACE.format(id=7))
        assert said.startswith("PD010 relation public.place has dead rows on too many pages"), said
        assert database.sql("select count(*) from dp.ledger") == [(0,)]
        holder.rollback()
        application.execute("vacuum place")
        answered(alice, BY_PLACE.format(id=7))


def test_pages_of_partitions_are_pinned(make_server: Any) -> None:
    database = make_server(shared_buffers="1MB").create_database()
    database.sql(
        "create table place (k int, pad text) partition by list (k);"
        " create table part partition of place for values in (1, 2);"
        " alter table part alter pad set storage plain;"
        " insert into part select i % 2 + 1, repeat('x', 900) from generate_series(1, 400) as i"
    )
    with database.connect() as session, snapshot_held(database):
        session.execute("delete from place where k = 1")
        session.execute(BEGIN)
        assert session.execute(KEEP).fetchone()[0] == "part"


@pytest.mark.parametrize("kept", [True, False])
def test_index_entries_of_dead_rows_are_left(database: Any, kept: bool) -> None:
    """A later entry takes the place of one that is marked, or splits the page, which EXPLAIN shows."""
    database.sql(SHORT)
    database.sql("create extension pageinspect")
    pages = "generate_series(1, pg_relation_size('place_pkey') / 8192 - 1) as page"
    dead = f"select count(*) from {pages}, bt_page_items('place_pkey', page::int) where dead"
    if not kept:
        database.sql(NOTHING_KEPT)
    with database.connect() as application, analyst(database) as alice:
        fill_a_page(application)
        application.execute("delete from place where k between 4 and 6")
        answered(alice, BY_PLACE.format(id=4))
        assert (application.execute(dead).fetchone()[0] == 0) == kept
        application.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        application.execute("select count(pad) from place where k between 1 and 8")
        assert application.execute(dead).fetchone()[0] > 0


@pytest.mark.parametrize("kept", [True, False])
def test_where_long_values_are_written_tells_of_no_protected_row(database: Any, kept: bool) -> None:
    """A condition on a long value reads its TOAST page; the next ones take places there."""
    database.sql(SHORT)
    database.sql(
        "alter table place set (toast_tuple_target = 128, toast.autovacuum_enabled = off);"
        " alter table place alter pad set storage external"
    )
    if not kept:
        database.sql(NOTHING_KEPT)
    long = (
        "insert into place select i, repeat('x', 3900) from generate_series(%s::int, %s::int) as i"
    )
    toast = database.sql("select reltoastrelid::regclass from pg_class where relname = 'place'")
    last = f"select ctid from {toast[0][0]} order by chunk_id desc limit 1"
    seen = []
    with database.connect() as application, analyst(database) as alice:
        for unit in (7, 100000):
            application.execute("truncate place")
            application.execute(long, (-1000, -1))
            application.execute(long, (1001, 2000))
            application.execute(long, (1, 8))
            application.execute("analyze place; set enable_seqscan = off")
            application.execute("delete from place where k = 8")
            answered(alice, BY_PLACE.format(id=unit) + " and pad like '%x%'")
            application.execute(long, (100, 100))
            seen.append(application.execute(last).fetchone()[0])
    assert (seen[0] == seen[1]) == kept, seen


@pytest.mark.parametrize("kept", [True, False])
def test_labels_of_enums_share_pages_with_those_of_others(database: Any, kept: bool) -> None:
    """Looking up the label of a value reads its page of pg_enum, where an analyst's labels are."""
    database.sql(SHORT)
    database.sql(MOODS)
    with database.connect("alice") as alice, database.connect() as reader:
        with snapshot_held(database):
            # a page has room for 75 labels
            labels = ", ".join(f"'l{i}'" for i in range(70))
            alice.execute(f"create type mine.many as enum ({labels})")
            alice.execute("drop type mine.many")
            reader.execute(BEGIN)
            reader.execute("select")
            if kept:
                reader.execute("select dp.keep_dead_rows('{}', array['person'::regclass::oid])")
        alice.execute("select txid_current()")
        reader.execute("select count(*) from dp.policy")
        reader.execute("select mood::text from person where id = 7")
        labels = ", ".join(f"'l{i}'" for i in range(10))
        alice.execute(f"create type mine.more as enum ({labels})")
        reader.execute("commit")
    pages = database.sql("select max((ctid::text::point)[0]::int) from pg_enum")
    assert pages == [(1 if kept else 0,)]


MADE = "create collation mine.c{} (provider = icu, locale = 'de')"
#: Whether the last collation is on a page without any of PostgreSQL's own.
ALONE = """
select (max(ctid)::text::point)[0] > (max(ctid) filter (where oid < 16384)::text::point)[0]
  from pg_collation
"""


def room_for_collations(database: Any) -> int:
    """Count those that fit on the last page of PostgreSQL's own; all are gone afterwards."""
    with database.connect(autocommit=False) as session:
        session.execute("create schema mine")
        for n in range(200):
            session.execute(MADE.format(n))
            if session.execute(ALONE).fetchone()[0]:
                session.rollback()
                return n
    raise AssertionError("no page was filled")


@pytest.mark.parametrize("kept", [True, False])
def test_collations_share_pages_with_those_of_others(
    server: Any, database: Any, kept: bool
) -> None:
    """Comparing the first value reads the page of its collation, one of PostgreSQL's own."""
    counted = server.create_database()
    room = room_for_collations(counted)
    server.drop_database(counted)
    last = "select collname from pg_collation where oid < 16384 order by ctid desc limit 1"
    name = database.sql(last)[0][0]
    database.sql(SHORT)
    database.sql("create schema mine authorization alice")
    database.sql(f"alter table person add name text collate \"{name}\" not null default 'n'")
    with database.connect("alice") as alice, database.connect() as reader:
        with snapshot_held(database):
            for n in range(room):
                alice.execute(MADE.format(n))
            alice.execute("drop schema mine cascade")
            reader.execute(BEGIN)
            reader.execute("select")
            if kept:
                reader.execute("select dp.keep_dead_rows('{}', array['person'::regclass::oid])")
        alice.execute("select txid_current()")
        reader.execute("select count(*) from dp.policy")
        reader.execute("select count(*) from person where name < 'm'")
        database.sql("create schema mine authorization alice")
        database.sql(MADE.format(0), user="alice")
        reader.execute("commit")
    assert database.sql(ALONE) == [(kept,)]


def test_dead_labels_of_others_stop_nobody(make_server: Any) -> None:
    """Neither questions over other relations, nor those over a relation with an enum."""
    database = make_server(shared_buffers="1MB").create_database()
    database.sql(SHORT)
    database.sql(MOODS)
    with (
        database.connect("alice") as alice,
        snapshot_held(database),
    ):
        labels = ", ".join(f"'l{i}'" for i in range(5000))
        alice.execute(f"create type mine.many as enum ({labels}); drop type mine.many")
        for condition in ("true", "mood = 'ok'", "mood::text = 'ok'"):
            answered(alice, f"select dp_count(*) from person where {condition}")


def test_pins_of_all_sessions_leave_buffers_to_others(make_server: Any) -> None:
    """Of 128 buffers, one session pins 16 and all sessions 32; each end counts its pins back."""
    database = make_server(shared_buffers="1MB").create_database()
    database.sql(SHORT)
    database.sql("insert into place select i, repeat('x', 900) from generate_series(1, 96) as i")
    with (
        database.connect() as first,
        database.connect() as second,
        database.connect() as third,
        snapshot_held(database),
    ):
        first.execute("delete from place where k % 8 = 3")
        for end in ("commit", "rollback") * 5:
            seen = []
            for session in (first, second, third):
                session.execute(BEGIN)
                seen.append(session.execute(KEEP).fetchone()[0])
            assert seen == [None, None, "place"]
            second.execute(end)
            third.execute("rollback; " + BEGIN)
            assert third.execute(KEEP).fetchone()[0] is None
            first.execute(end)
            third.execute(end)
        # a session that dies counts back as well
        dying = database.connect()
        for session in (first, dying):
            session.execute(BEGIN)
            session.execute(KEEP)
        database.sql("select pg_terminate_backend(%s, 10000)", dying.info.backend_pid)
        dying.close()
        third.execute(BEGIN)
        assert third.execute(KEEP).fetchone()[0] is None


def test_dead_rows_on_pages_with_room_are_removed(make_server: Any) -> None:
    """PostgreSQL prunes no page with a tenth of it free, and one session may pin 16 pages."""
    database = make_server(shared_buffers="1MB").create_database()
    database.sql(SHORT)
    database.sql(
        "alter table place set (fillfactor = 60);"
        " insert into place select i, repeat('x', 900) from generate_series(1, 1000) as i;"
        " delete from place where k % 5 = 3"
    )
    with database.connect("alice") as alice:
        answered(alice, BY_PLACE.format(id=7))


def test_a_server_that_removes_rows_under_snapshots_answers_nothing(make_server: Any) -> None:
    probe = make_server().create_database()
    if probe.sql("select current_setting('server_version_num')::int < 170000") == [(False,)]:
        assert probe.sql("select current_setting('old_snapshot_threshold', true)") == [(None,)]
        return
    database = make_server(old_snapshot_threshold="0").create_database()
    database.sql(SHORT)
    with analyst(database) as alice:
        said = say(alice, "select dp_count(*) from person")
        assert "old_snapshot_threshold" in said
    assert database.sql("select count(*) from dp.ledger") == [(0,)]
