"""Answers are of committed rows: whoever has changed some in an open transaction is refused."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from typing import Any

import psycopg
import pytest
from asking import made
from in_service import in_service
from vacuuming import without_autovacuum
from waiting import wait_until

WORLD = """
create table public.member (m_id int primary key, m_town int not null);
create table public.visit (v_id int primary key, v_member int not null
  references public.member on delete cascade);
create table public.bill (b_id int primary key, b_visit int not null references public.visit on delete cascade,
  b_amount int not null);
create table public.town (t_id int primary key, t_name text not null);
create table public.event (e_id int not null, e_town int not null) partition by range (e_id);
create table public.event_1 partition of public.event for values from (0) to (500);
create table public.event_2 partition of public.event for values from (500) to (1000);
create table public.spare (e_id int not null, e_town int not null);
create table public.thing (t_id int not null);
create table public.thing_more () inherits (public.thing);
create table public.log (l_id int);
insert into public.member select i, i % 4 from generate_series(1, 100) i;
insert into public.visit select i, 1 + i % 100 from generate_series(1, 200) i;
insert into public.bill select i, 1 + i % 200, i % 10 from generate_series(1, 400) i;
insert into public.town select i, 'town ' || i from generate_series(0, 3) i;
insert into public.event select i, i % 4 from generate_series(1, 900) i;
insert into public.thing select i from generate_series(1, 50) i;
insert into public.thing_more select i from generate_series(1, 50) i;
create function public.follow() returns trigger language plpgsql as
  $$begin insert into public.event values (new.l_id, 1); return new; end$$;
create trigger follow after insert on public.log for each row execute function public.follow();
do $$declare r regclass; begin
  for r in select c.oid from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') loop
    execute format('alter table %s owner to owner1', r);
  end loop;
end$$;
alter function public.follow() owner to owner1;
grant dp_owner to owner1;
grant create on schema public to owner1;
set role owner1;
select dp.protect('public.member', privacy_unit => 'm_id');
select dp.protect('public.event'), dp.protect('public.thing');
select dp.declare_public('public.town');
select dp.set_domain('public.event', 'e_town', 'public.town'::regclass, 't_id');
reset role;
select dp.grant_budget('owner1', 1000, 1e-3), dp.grant_budget('bob', 1000, 1e-3);
"""

MEMBERS = "select dp_count(*) from member"
BILLS = "select dp_count(*) from bill"
EVENTS = "select dp_count(*) from event"
THINGS = "select dp_count(*) from thing"
TOWNS = "select t_name, dp_count(*) from event join town on t_id = e_town group by t_name"
JOINED = "select dp_count(*) from event join town on t_id = e_town where t_name like 'town%'"
BY_DOMAIN = "select e_town, dp_count(*) from event group by e_town"
CHANGES = [
    ("insert into member values (1000, 1)", MEMBERS),
    ("update member set m_town = 1", MEMBERS),
    ("delete from member", MEMBERS),
    ("delete from member", BILLS),
    ("update visit set v_member = 1", BILLS),
    ("merge into member using town on m_id = t_id when matched then delete", MEMBERS),
    ("insert into event values (999, 1)", EVENTS),
    ("insert into event_2 values (999, 1)", EVENTS),
    ("insert into log values (5)", EVENTS),
    ("truncate event", EVENTS),
    ("truncate event_1", EVENTS),
    ("drop table event_1", EVENTS),
    ("alter table event detach partition event_1", EVENTS),
    ("alter table event attach partition spare for values from (1000) to (2000)", EVENTS),
    ("alter table event alter e_town type int using e_town + 1", EVENTS),
    ("insert into thing_more values (1)", THINGS),
    ("drop table thing_more", THINGS),
    ("alter table thing_more no inherit thing", THINGS),
    ("create table thing_new () inherits (thing); insert into thing_new values (1)", THINGS),
    ("insert into town values (9, 'town 9')", TOWNS),
    ("update town set t_name = 'elsewhere'", JOINED),
    ("update town set t_name = 'elsewhere'", BY_DOMAIN),
    ("delete from town where t_id = 3", BY_DOMAIN),
    ("insert into town values (4, 'town 4')", BY_DOMAIN),
    ("savepoint s; delete from member; release savepoint s", MEMBERS),
    ("do $$begin delete from member; exception when others then null; end$$", MEMBERS),
    ("with gone as (delete from member returning 1) select count(*) from gone", MEMBERS),
    (
        "alter table visit drop constraint visit_v_member_fkey; update visit set v_member = 7;"
        " alter table visit add foreign key (v_member) references member",
        BILLS,
    ),
]


@pytest.fixture(scope="module")
def world(server: Any) -> Any:
    yield from made(server, WORLD)


def payments(world: Any) -> list[tuple[Any, ...]]:
    """Return all spends: who, and whether a relation paid."""
    found: list[tuple[Any, ...]] = world.sql(
        "select role_name::text, roots <> '{}', state from dp.spend order by id"
    )
    return found


def refused(session: Any, statement: str) -> None:
    """Expect that a statement is refused for a change of the session's transaction."""
    with pytest.raises(psycopg.Error, match="has changed a relation of the question") as caught:
        session.execute(statement)
    assert caught.value.sqlstate == "PD011"
    assert "COMMIT first" in str(caught.value.diag.message_hint)


@pytest.mark.parametrize(("change", "question"), CHANGES, ids=[f"{c} {q}" for c, q in CHANGES])
def test_a_question_about_uncommitted_changes_is_refused(
    world: Any, change: str, question: str
) -> None:
    before = len(payments(world))
    with world.connect(user="owner1") as owner, world.connect(user="bob") as bob:
        for session in (owner, bob):
            session.execute(f"set dp.epsilon = {1 + before / 1000}")  # a question of its own
        owner.execute("begin")
        owner.execute(change)
        refused(owner, question)
        owner.execute("rollback")
        assert len(payments(world)) == before
        bob.execute(question)
        owner.execute(question)
        owner.execute(question)
    paid = payments(world)[before:]
    assert paid == [("bob", True, "answered"), ("owner1", False, "answered")]


@pytest.mark.parametrize(
    "other",
    [
        "select 1",
        "insert into log values (null)",
        "create temp table made as select 1 as one",
        "savepoint s; delete from member; rollback to savepoint s",
        "select * from member for share",
        "insert into member values (2000, 1); commit; begin",
    ],
)
def test_an_answer_beside_other_writes_is_kept(world: Any, other: str) -> None:
    if "log" in other:
        world.sql("alter table log disable trigger follow")
    before = len(payments(world))
    with world.connect(user="owner1") as owner, world.connect(user="bob") as bob:
        for session in (owner, bob):
            session.execute(f"set dp.epsilon = {1 + before / 1000}")
        owner.execute("begin")
        owner.execute(other)
        owner.execute(MEMBERS)
        owner.execute("rollback")
        bob.execute(MEMBERS)
    assert payments(world)[before:] == [
        ("owner1", True, "answered"),
        ("bob", False, "answered"),
    ]
    world.sql("alter table log enable trigger follow")


def test_a_stored_answer_is_shown_beside_own_writes(world: Any) -> None:
    before = len(payments(world))
    with world.connect(user="owner1") as owner:
        owner.execute(f"set dp.epsilon = {1 + before / 1000}")
        first = owner.execute(MEMBERS).fetchall()
        owner.execute("begin")
        owner.execute("delete from member")
        assert owner.execute(MEMBERS).fetchall() == first
        owner.execute("rollback")
    assert len(payments(world)) == before + 1


def test_a_question_about_uncommitted_changes_does_not_wait_for_anothers_answer(world: Any) -> None:
    """Another session computes the answer meanwhile; it is shown once the change is gone."""
    before = len(payments(world))
    slow = in_service("""
    import time, dpsql.engine.answer as a
    a_compute = a.compute
    def compute(*given):
        time.sleep(3)
        return a_compute(*given)
    a.compute = compute
    """)
    with world.connect() as asker, world.connect(user="owner1") as owner:
        for session in (asker, owner):
            session.execute(f"set dp.epsilon = {1 + before / 1000}")
        asker.execute(slow)
        asker.execute("set session authorization bob")
        asked = threading.Thread(target=lambda: asker.execute(MEMBERS))
        owner.execute("begin; insert into member values (1000, 1)")
        asked.start()
        wait_until(lambda: len(payments(world)) > before)
        refused(owner, MEMBERS)
        assert payments(world)[before:] == [("bob", True, "charged")]
        owner.execute("rollback")
        owner.execute(MEMBERS)
        asked.join()
    assert payments(world)[before:] == [("bob", True, "answered"), ("owner1", False, "answered")]


def test_a_release_of_uncommitted_rows_is_refused(world: Any) -> None:
    before = len(payments(world))
    release = (
        "select dp.release('gone', 'select e_town, dp_count(*) from event group by e_town', 1)"
    )
    with world.connect(user="owner1") as owner:
        owner.execute("begin")
        owner.execute("delete from event")
        refused(owner, release)
        owner.execute("rollback")
        assert payments(world)[before:] == []
        owner.execute(release)
    assert payments(world)[before:] == [("owner1", True, "answered")]


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("released", [True, False])
def test_nothing_is_of_an_imported_snapshot(
    server: Any, world: Any, old: bool, released: bool
) -> None:
    """Questions and releases are of the rows of now, and are kept for all."""
    before = len(payments(world))
    statements = [MEMBERS] * 3
    if released:
        statements = [
            f"select dp.release('m{before}_{n}', '{BY_DOMAIN}', {1 + before / 1000})"
            for n in range(3)
        ]
    with (
        without_autovacuum(server),
        world.connect() as exporter,
        world.connect("owner1") as owner,
        world.connect("bob") as bob,
    ):
        for session in (owner, bob):
            session.execute(f"set dp.epsilon = {1 + before / 1000}")
        exporter.execute("begin isolation level repeatable read")
        name = exporter.execute("select pg_export_snapshot()").fetchone()[0]
        if old:
            world.sql("insert into member values (3100, 1)")
        changed = datetime.now(timezone.utc)
        owner.execute("begin isolation level repeatable read")
        owner.execute(f"set transaction snapshot '{name}'")
        owner.execute(statements[0])
        owner.execute("commit")
        exporter.execute("commit")
        bob.execute(statements[1])
        # the next transaction has a snapshot of its own
        owner.execute("begin isolation level repeatable read")
        owner.execute(statements[2])
        owner.execute("commit")
        taken = world.sql(
            "select min(taken_at)"
            f" from dp.ledger where id > all (select id from dp.spend order by id limit {before})"
        )[0][0]
    assert payments(world)[before:] == [("owner1", True, "answered"), ("bob", False, "answered")]
    assert taken > changed
    world.sql("delete from member where m_id = 3100")


def test_an_answer_is_of_now_whatever_the_transaction_sees(world: Any) -> None:
    """``taken_at`` is the time of the answer's snapshot, which is not the transaction's."""
    before = len(payments(world))
    with world.connect(user="owner1") as old, world.connect(user="bob") as bob:
        heard: list[str] = []
        bob.add_notice_handler(lambda d: heard.append(str(d.message_primary)))
        for session in (old, bob):
            session.execute(f"set dp.epsilon = {1 + before / 1000}")
        old.execute("begin isolation level repeatable read")
        members = old.execute("select count(*) from member").fetchone()
        world.sql("insert into member select i, 1 from generate_series(3000, 3999) i")
        changed = world.sql("select clock_timestamp()")[0][0]
        assert old.execute(MEMBERS).fetchone()[0] > 500  # the noise: e^-500
        assert old.execute("select count(*) from member").fetchone() == members
        old.execute("commit")
        bob.execute(MEMBERS)
        taken = world.sql(
            "select taken_at from dp.ledger where role = 'bob' order by id desc limit 1"
        )[0][0]
        world.sql("delete from member where m_id >= 3000")
    assert changed < taken
    assert any("stored answer, taken at" in text for text in heard)
    assert payments(world)[before:] == [("owner1", True, "answered"), ("bob", False, "answered")]


def test_groups_are_the_public_rows_of_now(world: Any) -> None:
    """A session lists them anew for each question, whichever transaction changed them."""
    with world.connect(user="owner1") as owner:
        owner.execute("set dp.fresh = on")
        assert len(owner.execute(BY_DOMAIN).fetchall()) == 4
        owner.execute("begin; insert into town values (4, 'town 4')")
        refused(owner, BY_DOMAIN)
        owner.execute("rollback")
        assert len(owner.execute(BY_DOMAIN).fetchall()) == 4
        owner.execute("insert into town values (4, 'town 4')")
        assert len(owner.execute(BY_DOMAIN).fetchall()) == 5
        owner.execute("delete from town where t_id = 4")
        assert len(owner.execute(BY_DOMAIN).fetchall()) == 4
        world.sql("insert into town values (5, 'town 5')")
        assert len(owner.execute(BY_DOMAIN).fetchall()) == 5
        world.sql("delete from town where t_id = 5")
        assert len(owner.execute(BY_DOMAIN).fetchall()) == 4
