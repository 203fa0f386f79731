"""The token of what a plan relies on is kept while no transaction ends, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.server

SET_UP = """
create table fp (a int primary key);
create table fq (a int primary key);
"""
TOKENS = """
select dp.fingerprint(array[{0}::regclass::oid]), dp.fingerprint_now(array[{0}::regclass::oid]),
       dp.fingerprint_text(array[{0}::regclass::oid])
       || format('|%s:%s', n.oid, has_schema_privilege('dp_executor', n.oid, 'usage')::text::"char")
  from pg_namespace n where n.nspname = 'public'
"""


def tokens(connection: Any, relation: str = "fp") -> tuple[str, str, str]:
    """Return the token of the statement's snapshot, of a new one, and one that is not kept."""
    row: tuple[str, str, str] = connection.execute(TOKENS.format(f"'{relation}'")).fetchone()
    return row


@pytest.fixture
def owner(database: Any) -> Any:
    """Give the superuser a session, which alone may call the internal functions."""
    database.sql(SET_UP)
    with database.connect() as connection:
        yield connection


def test_equal_while_nothing_changes(owner: Any) -> None:
    first = tokens(owner)
    assert len(set(first)) == 1
    assert tokens(owner) == first
    assert tokens(owner, "fq")[0] != first[0]
    assert tokens(owner) == first


@pytest.mark.parametrize(
    "change",
    [
        "alter table fp add b int",
        "create index on fp (a)",
        "create function fp_f() returns trigger language plpgsql as 'begin return null; end';"
        " create trigger t after insert on fp execute function fp_f()",
        "alter table fp enable row level security",
        "truncate fp",
    ],
)
def test_a_change_of_another_session_shows_at_once(database: Any, owner: Any, change: str) -> None:
    before = tokens(owner)
    with database.connect() as other, other.transaction():
        other.execute(change)
        assert tokens(owner) == before
    after = tokens(owner)
    assert len(set(after)) == 1
    assert after[0] != before[0]


def test_a_change_of_ones_own_transaction_is_not_kept(owner: Any) -> None:
    before = tokens(owner)
    owner.execute("begin")
    owner.execute("alter table fp add b int")
    inside = tokens(owner)
    assert len(set(inside)) == 1
    assert inside[0] != before[0]
    owner.execute("savepoint s")
    owner.execute("create index on fp (b)")
    assert tokens(owner)[2] == tokens(owner)[0] != inside[0]
    owner.execute("rollback to s")
    assert tokens(owner) == inside
    owner.execute("rollback")
    assert tokens(owner) == before


def test_an_old_snapshot_keeps_its_token(database: Any, owner: Any) -> None:
    before = tokens(owner)
    owner.execute("begin isolation level repeatable read")
    assert tokens(owner) == before
    database.sql("alter table fp add b int")
    old, now, text = tokens(owner)
    assert old == text == before[0]
    assert now != old
    old, now, text = tokens(owner)
    assert old == text == before[0]
    assert now != old
    owner.execute("commit")
    assert set(tokens(owner)) == {now}


def test_a_transaction_that_runs_and_commits_in_between(database: Any, owner: Any) -> None:
    """Its number is smaller than the newest one: only the list of running ones changes."""
    with database.connect() as slow:
        slow.execute("begin")
        slow.execute("alter table fq add b int")
        database.sql("create table later (a int)")
        before = tokens(owner, "fp")
        assert tokens(owner, "fp") == before
        slow.execute("alter table fp add b int")
        slow.execute("commit")
        after = tokens(owner, "fp")
    assert len(set(after)) == 1
    assert after[0] != before[0]


def test_an_old_snapshot_shows_no_privilege_that_was_withdrawn(database: Any) -> None:
    """A stored answer is not handed out when dp_executor may not read any more."""
    database.sql(
        "create schema ws; create table ws.t (a int); insert into ws.t values (1);"
        " select dp.protect('ws.t'), dp.grant_budget('alice', 10); grant usage on schema ws to alice"
    )
    question = "select dp_count(*) from ws.t"
    with database.connect(user="alice") as alice:
        alice.execute("begin isolation level repeatable read")
        first = alice.execute(question).fetchall()
        assert alice.execute(question).fetchall() == first
        database.sql("revoke usage on schema ws from dp_executor")
        with pytest.raises(Exception, match=r"ws\.t cannot be queried"):
            alice.execute(question)


def test_privileges_are_those_of_now_in_a_transaction_that_holds_locks(database: Any) -> None:
    database.sql(
        "create schema ws; create table ws.t (a int); grant usage on schema ws to dp_executor"
    )
    with database.connect() as owner:
        owner.execute("begin")
        before = tokens(owner, "ws.t")[1]
        assert tokens(owner, "ws.t")[1] == before
        database.sql("revoke usage on schema ws from dp_executor")
        assert tokens(owner, "ws.t")[1] != before
        owner.execute("commit")
        after = tokens(owner, "ws.t")
        assert after[0] == after[1] != before


def test_partitions_that_come_and_go(database: Any, owner: Any) -> None:
    database.sql(
        "create table fr (a int) partition by range (a);"
        " create table fr1 partition of fr for values from (0) to (10);"
        " create table fr2 (a int); alter table fr2 enable row level security"
    )
    before = tokens(owner, "fr")
    assert len(set(before)) == 1
    for change in (
        "alter table fr attach partition fr2 for values from (10) to (20)",
        "alter table fr2 disable row level security",
        "alter table fr detach partition fr1",
    ):
        database.sql(change)
        after = tokens(owner, "fr")
        assert len(set(after)) == 1
        assert after != before
        before = after


REFERRING = "create table fr (a int references fp, b int references fr_own)"


def test_a_foreign_key_of_another_relation_changes_nothing(database: Any, owner: Any) -> None:
    owner.execute("create table fr_own (a int primary key)")
    before = tokens(owner)
    with database.connect() as other:
        other.execute(REFERRING)
        assert tokens(owner) == before
        other.execute("alter table fr disable trigger all; alter table fp disable trigger all")
        assert tokens(owner) == before
        other.execute("drop table fr")
        assert tokens(owner) == before
        # what the referring relation is asked about together with shows again
        other.execute(REFERRING)
        both = "select dp.fingerprint_now(array['fp'::regclass, 'fr'::regclass]::oid[])"
        first = owner.execute(both).fetchone()
        other.execute("alter table fp disable trigger all")
        assert owner.execute(both).fetchone() != first


@pytest.mark.parametrize(
    "change",
    [
        "create trigger u after delete on fp execute function fp_g()",
        "create constraint trigger u after delete on fp for each row execute function fp_g()",
        "create constraint trigger u after delete on fp from fr for each row execute function fp_g()",
        "alter table fp add constraint own foreign key (a) references fp",
        "alter table fp add constraint up foreign key (a) references fq",
    ],
)
def test_what_somebody_made_on_the_relation_itself_still_shows(owner: Any, change: str) -> None:
    owner.execute(
        "create table fr (a int references fp);"
        "create function fp_g() returns trigger language plpgsql as 'begin return null; end'"
    )
    before = tokens(owner)
    owner.execute(change)
    assert tokens(owner)[0] != before[0]


def test_partitions_of_a_relation_that_others_refer_to(owner: Any) -> None:
    owner.execute(
        "create table fpart (a int primary key) partition by list (a);"
        "create table fpart1 partition of fpart for values in (1)"
    )
    before = tokens(owner, "fpart")
    owner.execute("create table fr (a int references fpart)")
    assert tokens(owner, "fpart") == before
    owner.execute(
        "create function fp_h() returns trigger language plpgsql as 'begin return null; end';"
        "create trigger u after delete on fpart1 execute function fp_h()"
    )
    assert tokens(owner, "fpart")[0] != before[0]
