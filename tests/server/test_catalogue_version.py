"""What is found of relations is kept for a version of the catalogue, and no longer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.server.catalog import RELATION
from tests.server.vacuuming import without_autovacuum
from tests.server.waiting import wait_until

pytestmark = pytest.mark.server

SET_UP = """
create schema fks;
create table fk_unit (id int primary key);
create table fk_public (name text primary key);
create type fk_colour as enum ('red', 'green');
create table fk (a int primary key, b int not null references fk_unit, c fk_colour, e text not null);
create table fks.moved (a int primary key);
create table fk_parts (a int) partition by range (a);
create view fk_view as select a from fk;
create function fk_cast(fk_colour) returns int language sql as 'select 1';
create function fk_test(int) returns boolean language sql immutable as 'select true';
create table fk_indexed (a int);
create index on fk_indexed (a) where fk_test(a);
create extension postgres_fdw;
create server fk_far foreign data wrapper postgres_fdw;
create user mapping for dp_executor server fk_far options (user 'nobody');
create table fk_cut (a int) partition by list (a);
create foreign table fk_cut_1 partition of fk_cut for values in (1) server fk_far;
"""
OBJECTS = """array['fk'::regclass::oid, 'fk_unit'::regclass, 'fk_parts'::regclass, 'fk_view'::regclass,
    'fks.moved'::regclass, 'fk_indexed'::regclass, 'fk_cut'::regclass, 'fk_colour'::regtype]"""
#: What changes the token; each is committed by another session.
CHANGES = [
    "alter table fk add x int",
    "alter table fk alter e drop not null",
    "alter table fk rename e to f",
    "alter table fk rename to fk_new",
    "alter table fk alter e type varchar(10)",
    "alter table fk add check (a > 0)",
    "alter table fk add foreign key (a) references fk_unit not valid",
    "alter table fk drop constraint fk_b_fkey",
    "alter table fk disable trigger all",
    "alter table fk enable row level security",
    "alter table fk set schema fks",
    "alter table fk owner to owner1",
    "create index on fk (e)",
    "grant select on fk to bob",
    "grant select (e) on fk to bob",
    "truncate fk",
    "create rule fk_rule as on update to fk do instead nothing",
    "create or replace view fk_view as select a, b from fk",
    "create table fk_part partition of fk_parts for values from (1) to (2)",
    "create table fk_child () inherits (fk)",
    "alter type fk_colour add value 'blue'",
    "alter type fk_colour rename to fk_tint",
    "create cast (fk_colour as int) with function fk_cast(fk_colour)",
    "alter schema fks rename to fkt",
    "alter function fk_test(int) owner to owner1",
    "drop table fk_unit cascade",
    "select dp.protect('fk')",
    "select dp.protect('fk_unit', privacy_unit => 'id')",
    "select dp.declare_public('fk')",
    "select dp.protect('fk'); select dp.declare_view('fk_view')",
    "alter server fk_far options (add dbname 'elsewhere')",
    "alter foreign table fk_cut_1 options (add table_name 'other')",
    "drop user mapping for dp_executor server fk_far",
    "grant select on fk_cut_1 to dp_executor",
    "insert into dp.shards (relation, written, declared_by) values ('fk_cut', 'anywhere', 'postgres')",
    "update dp.ledger_incarnation set token = gen_random_uuid()",
    "insert into dp.root (schema_name, relation_name) values ('public', 'fk_parts');"
    " insert into dp.policy (relation, kind, root, declared_by)"
    " select 'fk_parts', 'protected', max(id), 'postgres' from dp.root",
]


def both_tokens(connection: Any, objects: list[int]) -> tuple[str, str]:
    """Return the token of the statement's snapshot, and one that is not kept."""
    both = "select dp.fingerprint(%(o)s::oid[]), dp.fingerprint_text(%(o)s::oid[])"
    token, text = connection.execute(both, {"o": objects}).fetchone()
    schemas = re.search(r"(\|\d+:[tf])*$", token)
    assert schemas is not None
    return token, text + schemas[0]


@pytest.fixture
def objects(database: Any) -> Any:
    """Give a session whose objects have the numbers of the beginning, whatever is renamed."""
    database.sql(SET_UP)
    numbers = database.sql(f"select {OBJECTS}")[0][0]

    class Session:
        connection = database.connect()

        def tokens(self) -> tuple[str, str]:
            """Return the token of the statement's snapshot, and one that is not kept."""
            return both_tokens(self.connection, numbers)

    return Session()


@pytest.fixture
def unvacuumed(server: Any) -> Iterator[None]:
    """Nobody but the test changes the catalogue, not even of relations that all databases share."""
    with without_autovacuum(server):
        yield


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows_once_it_is_committed(database: Any, objects: Any, change: str) -> None:
    known, exact = before = objects.tokens()
    assert known == exact
    with database.connect() as other, other.transaction():
        other.execute(change)
        assert objects.connection.execute("select 1").fetchone() == (1,)
    known, exact = objects.tokens()
    assert known == exact
    assert known != before[0], "the case says nothing"
    assert objects.tokens() == (known, exact)


def test_domains_and_links_show(database: Any, objects: Any) -> None:
    before = {objects.tokens()}
    database.sql("select dp.protect('fk'), dp.declare_public('fk_public')")
    for change in (
        "set_domain('fk', 'e', array['x', 'y'])",
        "set_domain('fk', 'e', array['x', 'z'])",
        "drop_domain('fk', 'e')",
        "unprotect('fk')",
        "protect('fk_unit', privacy_unit => 'id')",
        "link('fk', 'fk_unit', array['b'], array['id'], follow => false)",
        "unlink('fk', 'fk_unit', array['b'])",
    ):
        database.sql(f"select dp.{change}")
        now = objects.tokens()
        assert now[0] == now[1], change
        assert now not in before or "unlink" in change, change
        before.add(now)


def test_a_change_that_is_rolled_back_never_shows(database: Any, objects: Any) -> None:
    before = objects.tokens()
    with database.connect() as other:
        other.execute("begin; alter table fk_parts add b int")
        other.execute("rollback")
    assert objects.tokens() == before


def test_changes_of_ones_own_transaction(objects: Any) -> None:
    connection = objects.connection
    before = objects.tokens()
    connection.execute("begin")
    connection.execute("alter table fk add x int")
    inside = objects.tokens()
    assert inside[0] == inside[1] != before[0]
    connection.execute("savepoint s")
    connection.execute("alter table fk add y int")
    assert objects.tokens()[0] == objects.tokens()[1] != inside[0]
    connection.execute("rollback to s")
    assert objects.tokens() == inside
    connection.execute("rollback")
    assert objects.tokens() == before
    connection.execute("begin; create temporary table t (a int); rollback")
    assert objects.tokens() == before


def test_an_old_snapshot_has_its_own_token(database: Any, objects: Any) -> None:
    connection = objects.connection
    before = objects.tokens()
    connection.execute("begin isolation level repeatable read")
    assert objects.tokens() == before
    database.sql("alter table fk add x int")
    assert objects.tokens() == before
    connection.execute("commit")
    known, exact = objects.tokens()
    assert known == exact != before[0]


def test_privileges_are_those_of_now(database: Any, objects: Any) -> None:
    database.sql("grant usage on schema fks to dp_executor")
    before = objects.tokens()
    database.sql("revoke usage on schema fks from dp_executor")
    known, exact = objects.tokens()
    assert known == exact != before[0]


@pytest.mark.usefixtures("unvacuumed")
def test_what_others_commit_costs_nothing(database: Any, objects: Any) -> None:
    """Only a change of the catalogue makes a session read all of it again."""
    database.sql("create table elsewhere (a int)")
    connection = objects.connection
    known = f"select dp.fingerprint({OBJECTS})"
    another = "select dp.fingerprint(array['fk_public'::regclass]::oid[])"

    def calls() -> int:
        found = connection.execute(
            "select coalesce(sum(calls), 0)::int from pg_stat_xact_user_functions"
            " where funcname = 'fingerprint_text'"
        ).fetchone()
        return int(found[0])

    connection.execute("set track_functions = 'all'")
    first = [connection.execute(sql).fetchone() for sql in (known, another)]
    connection.execute("begin")
    before = calls()
    for _ in range(5):
        database.sql("insert into elsewhere values (1)")
        assert [connection.execute(sql).fetchone() for sql in (known, another)] == first
    assert calls() == before
    database.sql("alter table elsewhere add b int")
    assert connection.execute(known).fetchone() == first[0]
    assert calls() == before + 1
    connection.execute("commit")


def version(connection: Any) -> int:
    """Return the version that a snapshot shows when no change is being committed."""
    found: list[int | None] = [None]

    def known() -> bool:
        found[:] = connection.execute("select dp.catalogue_version()").fetchone()
        return found[0] is not None

    wait_until(known)
    return int(found[0] or 0)


@pytest.mark.usefixtures("unvacuumed")
def test_care_for_the_tables_of_the_ledger_is_no_change(shop: Any) -> None:
    """Autovacuum sees to them every minute where many ask; all sessions would start afresh."""
    with shop.connect(user="alice") as alice:
        alice.execute("select dp_count(*) from client")
    with shop.connect(autocommit=True) as session:
        before = version(session)
        for table in ("answer", "answer_text", "covered", "role_total", "root_total", "spend"):
            shop.sql(f"vacuum (analyze, index_cleanup on) dp.{table}")
        shop.sql("reindex table dp.spend")
        shop.sql("reindex table dp.answer_text")
        assert version(session) == before
        shop.sql("reindex table dp.policy")
        assert version(session) > before


#: ANALYZE computes the expression of an index with the rights of its owner, who may do anything there.
OWNERS_CODE = """
create table looked (k int primary key);
create function change() returns void language plpgsql as
  'begin alter table public.looked drop constraint if exists looked_pkey; end';
create function f(a int) returns int language plpgsql immutable as
  'begin if session_user <> ''owner1'' then perform public.change(); end if; return a; end';
create table analysed (a int);
create index on analysed (f(a));
insert into analysed select generate_series(1, 500);
"""


def test_what_an_owners_function_changes_in_autovacuum_counts(make_server: Any) -> None:
    database = make_server(autovacuum="off", autovacuum_naptime="1s").create_database()
    keys = (
        "select count(*) from pg_constraint where conrelid = 'looked'::regclass and contype = 'p'"
    )
    database.sql("grant create on schema public to owner1")
    with database.connect("owner1", autocommit=True) as owner:
        owner.execute(OWNERS_CODE)
    with database.connect(autocommit=True) as session:
        numbers = session.execute("select array['looked'::regclass::oid]").fetchone()[0]
        before = both_tokens(session, numbers)
        assert before == both_tokens(session, numbers)
        assert before[0] == before[1]
        session.execute("alter system set autovacuum = on")
        session.execute("select pg_reload_conf()")
        wait_until(lambda: session.execute(keys).fetchone() == (0,))
        token, exact = both_tokens(session, numbers)
        assert token == exact != before[1]


@pytest.mark.usefixtures("unvacuumed")
def test_what_has_no_version(database: Any) -> None:
    """A transaction that writes, and a snapshot of which it is not known whether a change shows."""
    with database.connect(autocommit=True) as session:
        before = version(session)
        session.execute("begin isolation level repeatable read; select 1")
        assert version(session) == before
        database.sql("create table changed (a int)")
        assert session.execute("select dp.catalogue_version()").fetchone() == (None,)
        session.execute("commit")
        assert version(session) > before
        session.execute("begin; create table another (a int)")
        assert session.execute("select dp.catalogue_version()").fetchone() == (None,)
        session.execute("rollback")
        assert version(session) > before


def test_a_commit_prepared_that_is_refused_hides_no_version(database: Any) -> None:
    """In a transaction block it is an error of a subtransaction, and the block may stay open."""
    with database.connect() as idle, database.connect() as session:
        idle.execute("begin; savepoint s")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            idle.execute("commit prepared 'nothing'")
        version(session)
        idle.execute("rollback to s")
        version(session)
        idle.execute("rollback")


def test_more_sets_of_objects_than_are_kept(database: Any, objects: Any) -> None:
    database.sql("".join(f"create table many{i} (a int);" for i in range(150)))
    for _ in range(2):
        rows = objects.connection.execute(
            "select dp.fingerprint(array[c.oid]) like dp.fingerprint_text(array[c.oid]) || '%%'"
            " from pg_class as c where c.relname like 'many%'"
        ).fetchall()
        assert rows == [(True,)] * 150


#: Functions of which the token tells what they find, and those that a relation's facts come from.
READ = """
with recursive reading(oid) as (
    select p.oid from pg_proc as p where p.pronamespace = 'dp'::regnamespace and p.proname = any (%s)
    union
    select f.oid from reading as r join pg_proc as p on p.oid = r.oid
      join pg_proc as f on f.pronamespace = 'dp'::regnamespace
       and regexp_replace(p.prosrc, '''[^'']*''', '', 'g') ~ ('\\mdp\\.' || f.proname || '\\('))
select p.prosrc from reading as r join pg_proc as p on p.oid = r.oid
 where p.prolang in (select l.oid from pg_language as l where l.lanname in ('sql', 'plpgsql'))
"""
#: Catalogues whose changes are told with those of a relation that they belong to.
WITH_RELATIONS = {
    *("pg_class", "pg_attribute", "pg_index", "pg_trigger", "pg_inherits", "pg_rewrite"),
    *("pg_attrdef", "pg_statistic_ext", "pg_partitioned_table"),
}
#: Those whose changes are counted by a cache of them, and that cache in sql/hook/version.c.
BY_CACHES = {
    "pg_namespace": "NAMESPACEOID",
    "pg_type": "TYPEOID",
    "pg_enum": "ENUMOID",
    "pg_collation": "COLLOID",
    "pg_constraint": "CONSTROID",
    "pg_cast": "CASTSOURCETARGET",
    "pg_proc": "PROCOID",
    "pg_operator": "OPEROID",
    "pg_opclass": "CLAOID",
    "pg_opfamily": "OPFAMILYOID",
    "pg_amop": "AMOPOPID",
    "pg_amproc": "AMPROCNUM",
    "pg_roles": "AUTHOID",
    "pg_foreign_data_wrapper": "FOREIGNDATAWRAPPEROID",
    "pg_foreign_table": "FOREIGNTABLEREL",
    "pg_foreign_server": "FOREIGNSERVEROID",
    "pg_user_mappings": "USERMAPPINGOID",
}
#: Who depends on what changes with that; where the ledger is, dp.ledger_peek looks itself.
OTHERWISE = {"pg_depend", "pg_database"}
FUNCTIONS = re.compile(r"\bpg_\w+\(|\bpg_(?:catalog|temp|toast)\b")


def test_everything_that_the_token_reads_is_told(database: Any) -> None:
    named = ["fingerprint_text", *re.findall(r"\bdp\.(\w+)\(", RELATION)]
    source = "\n".join([RELATION, *(row[0] for row in database.sql(READ, named))])
    source = re.sub(r"'[^']*'", "", re.sub(r"--[^\n]*", "", source))
    catalogues = set(re.findall(r"\bpg_\w+", FUNCTIONS.sub("", source)))
    assert catalogues - OTHERWISE <= WITH_RELATIONS | set(BY_CACHES)
    told = Path(__file__).parents[2].joinpath("sql/hook/version.c").read_text()
    listed = re.search(r"told\[\] = \{([^}]*)\}", told)
    assert listed is not None
    assert set(BY_CACHES.values()) <= set(re.findall(r"\w+", listed[1]))
    tables = {
        row[0]
        for row in database.sql(
            "select c.relname::text from pg_class as c where c.relnamespace = 'dp'::regnamespace"
            " and c.relkind in ('r', 'p')"
        )
    }
    read = {name for name in re.findall(r"\bdp\.(\w+)\b(?!\()", source) if name in tables}
    assert {"policy", "root", "unit_link", "column_domain"} <= read
    telling = {
        row[0]
        for row in database.sql(
            "select c.relname::text from pg_trigger as t join pg_class as c on c.oid = t.tgrelid"
            " where t.tgname = 'tell_sessions' and t.tgenabled = 'A'"
        )
    }
    assert read <= telling


COUNT = "select dp_count(*) from client"


def spent(shop: Any) -> int:
    return int(shop.sql("select count(*) from dp.ledger")[0][0])


@pytest.mark.parametrize(
    ("role", "change"),
    [
        ("postgres", "alter table client add x int"),
        ("postgres", "alter table purchase drop constraint purchase_p_client_fkey"),
        ("owner1", "select dp.set_domain('client', 'c_kind', array['a', 'b'])"),
        ("owner1", "select dp.unprotect('client'); select dp.protect('client')"),
        ("postgres", "create table part_of_it () inherits (client)"),
        ("postgres", "grant select on client to bob"),
    ],
)
def test_a_stored_answer_ends_with_a_change(shop: Any, role: str, change: str) -> None:
    question = "select dp_count(*) from client join purchase on p_client = c_id"
    with shop.connect(user="alice") as alice:
        alice.execute(question)
        alice.execute(question)
        assert spent(shop) == 1
        with shop.connect(user=role) as other:
            other.execute(change)
        alice.execute(question)
        assert spent(shop) == 2
        alice.execute(question)
        assert spent(shop) == 2


@pytest.mark.parametrize(
    ("role", "change"),
    [
        ("owner1", "select dp.unprotect('client')"),
        ("owner1", "select dp.revoke_budget('alice')"),
        ("postgres", "alter table client enable row level security"),
        ("postgres", "alter table client rename to customer"),
        ("postgres", "revoke usage on schema public from public, dp_executor"),
        ("postgres", "revoke select on client from dp_executor"),
    ],
)
def test_a_stored_answer_is_refused_after_a_change(shop: Any, role: str, change: str) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute(COUNT)
        alice.execute(COUNT)
        with shop.connect(user=role) as other:
            other.execute(change)
        with pytest.raises(psycopg.Error):
            alice.execute(COUNT)
    assert spent(shop) == 1


def test_a_stored_answer_is_refused_to_a_former_member(database: Any) -> None:
    database.sql(
        "create schema inner_circle; create table inner_circle.t (a int);"
        " select dp.protect('inner_circle.t'), dp.grant_budget('alice', 10);"
        " grant usage on schema inner_circle to bob; grant bob to alice"
    )
    question = "select dp_count(*) from inner_circle.t"
    with database.connect(user="alice") as alice:
        alice.execute(question)
        alice.execute(question)
        database.sql("revoke bob from alice")
        with pytest.raises(psycopg.Error):
            alice.execute(question)


def test_a_cap_ends_questions_and_not_answers(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        first = alice.execute(COUNT).fetchall()
        shop.sql("select dp.set_root_cap('client', 1)")
        assert alice.execute(COUNT).fetchall() == first
        with pytest.raises(psycopg.Error) as refused:
            alice.execute("select dp_count(*) from client where c_id > 5")
        assert refused.value.sqlstate == "PD001"


def test_a_question_in_an_open_transaction_sees_what_was_committed(shop: Any) -> None:
    with shop.connect(user="alice") as alice, alice.transaction():
        alice.execute(COUNT)
        alice.execute(COUNT)
        shop.sql("create index on client (c_region)")
        alice.execute(COUNT)
    assert spent(shop) == 2
