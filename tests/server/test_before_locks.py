"""Who may not change a relation cannot make others wait for it (docs/attacks.md, H)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.waiting import wait_until, waits

pytestmark = pytest.mark.server

RULE = "create rule r as on insert to {} do nothing"
TRIGGER = (
    "create trigger t before insert on {} execute function suppress_redundant_updates_trigger()"
)
OWNER = "must be owner of"
DENIED = "permission denied for"
CATALOG = "is a system catalog"
NO_PART = "is not a partition of"
#: What locks a relation before PostgreSQL looks at whose it is, and how it refuses; the relation.
LOCKING = [
    (RULE, OWNER, "public.parts"),
    (RULE, OWNER, "public.parts_1"),
    (RULE, "cannot open relation", "public.parts_1_pkey"),
    (RULE, OWNER, "dp.root"),
    (RULE, OWNER, "dpv.parts"),
    (RULE, CATALOG, "pg_catalog.pg_amproc"),
    (TRIGGER, DENIED, "public.parts"),
    (TRIGGER, DENIED, "dp.answer"),
    (TRIGGER, CATALOG, "pg_catalog.pg_class"),
    ("create table part partition of {} for values in (9)", OWNER, "public.parts"),
    ("create table child () inherits ({})", OWNER, "dp.root"),
    ("create table child (x int references {})", DENIED, "public.parts"),
    ("alter table own add column x int references {}", DENIED, "public.parts"),
    ("alter table own inherit {}", OWNER, "dp.root"),
    ("alter table own_parts attach partition {} for values in (1)", OWNER, "public.parts_1"),
    ("alter table own_parts detach partition {}", NO_PART, "public.parts_1"),
    ("alter table own_parts detach partition {} concurrently", NO_PART, "public.parts_1"),
    ("alter table own_parts detach partition {} finalize", NO_PART, "public.parts_1"),
    ("alter index own_parts_pkey attach partition {}", "cannot attach", "public.parts_1_pkey"),
    ("alter index {} depends on extension plpgsql", OWNER, "public.parts_1_pkey"),
    ("alter index {} depends on extension plpgsql", OWNER, "public.parts"),
    ("create statistics s on p_id, p_key from {}", OWNER, "public.parts"),
    ("comment on table {} is 'x'", OWNER, "public.parts"),
    ("comment on column {}.p_id is 'x'", OWNER, "public.parts"),
    ("create publication p for table {}", OWNER, "public.parts_1"),
]


@pytest.fixture
def parted(shop: Any) -> Any:
    """A protected relation in parts, which alice may ask about, and tables of her own."""
    shop.sql(
        "create table parts (p_id int, p_key int, primary key (p_id, p_key)) partition by list (p_key)"
    )
    shop.sql("create table parts_1 partition of parts for values in (1)")
    shop.sql("select dp.protect('parts')")
    shop.sql("create schema mine authorization alice")
    shop.sql(f"grant create on database {shop.name} to alice")
    with shop.connect(user="alice") as alice:
        alice.execute("set search_path = mine, public")
        alice.execute("create table own (p_id int, p_key int)")
        alice.execute(
            "create table own_parts (p_id int, p_key int primary key) partition by list (p_key)"
        )
    return shop


@pytest.fixture
def alice(parted: Any) -> Iterator[Any]:
    with parted.connect(user="alice") as session:
        session.execute("set search_path = mine, public")
        session.execute("set lock_timeout = '200ms'")
        yield session


@pytest.mark.parametrize(("statement", "said", "relation"), LOCKING)
def test_what_is_another_roles_is_refused_without_a_lock(
    parted: Any, alice: Any, statement: str, said: str, relation: str
) -> None:
    """Somebody else's lock, for which the command would wait, keeps nobody from being refused."""
    with parted.connect(autocommit=False) as holder:
        kind = "index" if relation.endswith("pkey") else "table"
        if kind == "index":
            holder.execute(f"alter index {relation} set (fillfactor = 71)")
        else:
            strong = "access share" if relation.startswith("pg_catalog") else "access exclusive"
            holder.execute(f"lock table {relation} in {strong} mode")
        error = refused(alice, statement.format(relation))
    assert said in error.diag.message_primary
    assert error.sqlstate in ("42501", "42809", "42P01", "42P17")


@pytest.mark.parametrize(
    "statement",
    [
        "drop database {}",
        "drop database {} with (force)",
        "alter database {} rename to another",
        "alter database {} set tablespace pg_default",
    ],
)
def test_a_database_of_another_role(parted: Any, statement: str) -> None:
    """Alice's own setting locks the database; who waits for it would keep all logins out."""
    elsewhere = replace(parted, name="postgres")
    with parted.connect(user="alice", autocommit=False) as holder:
        holder.execute(f"alter role alice in database {parted.name} set work_mem = '4MB'")
        with elsewhere.connect(user="alice") as other:
            other.execute("set lock_timeout = '200ms'")
            error = refused(other, statement.format(parted.name))
            assert error.diag.message_primary == f"must be owner of database {parted.name}"
            assert error.sqlstate == "42501"
            assert refused(other, statement.format("nowhere")).sqlstate == "3D000"


def test_the_extension(parted: Any, alice: Any) -> None:
    """An owner who exposes a relation would wait behind who makes a function depend on it."""
    alice.execute("create function own_function() returns int language sql as 'select 1'")
    with parted.connect(autocommit=False) as holder:
        holder.execute("create view public.added as select 1 as a")
        holder.execute("alter extension dpsql add view public.added")
        for statement in (
            "alter function own_function() depends on extension dpsql",
            "alter function own_function() no depends on extension dpsql",
            "drop extension dpsql cascade",
        ):
            error = refused(alice, statement)
            assert error.diag.message_primary == "must be owner of extension dpsql", statement
        holder.rollback()
    alice.execute("alter function own_function() depends on extension plpgsql")
    assert refused(alice, "drop extension nowhere").sqlstate == "42704"


def test_a_schema_of_another_role(parted: Any, alice: Any) -> None:
    """Who makes a table in a schema locks it; a release would wait behind who drops it."""
    with parted.connect(autocommit=False) as holder:
        holder.execute("create table public.made ()")
        for statement in ("drop schema public cascade", "drop schema mine, public"):
            error = refused(alice, statement)
            assert error.diag.message_primary == "must be owner of schema public"
        assert refused(alice, "drop schema nowhere").sqlstate == "3F000"
    alice.execute("create schema more")
    alice.execute("drop schema more, mine cascade")


def test_a_name_stays_what_it_was_while_the_command_waits(parted: Any, alice: Any) -> None:
    """Alice's table makes way for the protected one of the same name while she waits for a lock."""
    alice.execute("create table mine.parts_1 (p_id int, p_key int)")
    alice.execute("set lock_timeout = 0")
    errors = []

    def attach() -> None:
        errors.append(
            refused(alice, "alter table own_parts attach partition parts_1 for values in (1)")
        )

    with parted.connect(user="alice", autocommit=False) as holder:
        holder.execute("lock table mine.own_parts in access exclusive mode")
        asked = threading.Thread(target=attach)
        asked.start()
        wait_until(lambda: waits(parted))
        with parted.connect(user="alice") as other:
            other.execute("drop table mine.parts_1")
    asked.join(60)
    assert "mine.parts_1" in errors[0].diag.message_primary


def test_what_postgres_allows_is_allowed(parted: Any, alice: Any) -> None:
    parted.sql("create table lent (id int primary key)")
    parted.sql("grant trigger, references (id) on lent to alice")
    parted.sql("create table mine.part partition of mine.own_parts for values in (1)")
    parted.sql("create table mine.other_part partition of mine.own_parts for values in (2)")
    parted.sql("create table kin (id int); create table mine.kept () inherits (kin)")
    alice.execute(RULE.format("own"))
    alice.execute(TRIGGER.format("lent"))
    alice.execute(
        "create table refers (id int references lent, up int primary key references refers)"
    )
    alice.execute("create table parts (id int primary key, up int references parts)")
    alice.execute("alter table own add column lent int references public.lent")
    alice.execute("create table heir () inherits (own)")
    alice.execute("alter table own_parts detach partition part")
    alice.execute("alter table own_parts detach partition other_part")
    alice.execute("create table if not exists mine.kept () inherits (public.kin)")
    alice.execute("alter table if exists nowhere add foreign key (x) references public.parts")
    alice.execute("create statistics s on p_id, p_key from own")
    alice.execute("comment on column own.p_id is 'x'")
    alice.execute("create temporary table own (id int)")
    alice.execute(RULE.format("own"))
    assert refused(alice, RULE.format("nowhere")).sqlstate == "42P01"


def test_no_login_stops_the_ledger(parted: Any) -> None:
    """A transaction that reads a view of the schema dp, and a command that would wait for it."""
    ask = "select dp_count(*) from client where c_id > 3"
    with (
        parted.connect(user="bob", autocommit=False) as reading,
        parted.connect(user="bob") as waiting,
        parted.connect(user="alice") as alice,
    ):
        reading.execute("select * from dp.budgets")
        waiting.execute("set lock_timeout = '1s'")
        assert OWNER in refused(waiting, RULE.format("dp.root")).diag.message_primary
        assert alice.execute(ask).fetchone()
