"""The schema dpv: protected relations that refuse to show rows, and synthetic tables.

Nothing here depends on noise.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.test_dump_restore import dump_and_restore

pytestmark = pytest.mark.server

MADE = """
create table public.land (n_id int primary key, n_name text);
create table public."Client" (c_id int primary key, c_kind text not null, c_at timestamptz(0)[], c_land int references public.land);
create table public.call (l_id int primary key, l_client int not null references public."Client", l_kind text not null);
insert into public.land values (1, 'here');
insert into public."Client" select i, 'a', null, 1 from generate_series(1, 50) i;
insert into public.call select i, 1 + i % 50, 'b' from generate_series(1, 90) i;
alter table public.land owner to owner1; alter table public."Client" owner to owner1; alter table public.call owner to owner1;
grant dp_owner to owner1;
grant select, references on public.land to alice, bob;
grant create, usage on schema public to owner1;
create schema syn authorization alice;
"""
DECLARED = """
select dp.declare_public('land');
select dp.protect('"Client"', privacy_unit => 'c_id');
select dp.set_domain('"Client"', 'c_kind', array['a', 'b']);
select dp.set_domain('call', 'l_kind', array['a', 'b']);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
select dp.grant_budget('bob', epsilon => 1000, delta => 1e-4);
"""
CALL = """call dp.synthesize('syn', array['"Client"', 'call']::regclass[], 30, 1e-6,
  d_max => '{"call": 4, "Client": 1}', placeholders => true, replace => true)"""
KINDS = """select c.relname::text, obj_description(c.oid), pg_get_userbyid(c.relowner)::text
  from pg_class c where c.relnamespace = 'dpv'::regnamespace and c.relkind = 'v' order by 1"""


@pytest.fixture
def bank(database: Any) -> Any:
    database.sql(MADE)
    for statement in DECLARED.strip().split("\n"):
        database.sql(statement, user="owner1")
    return database


@pytest.fixture
def copied(bank: Any) -> Any:
    with bank.connect("alice") as alice:
        alice.execute(CALL)
    return bank


def refusal(database: Any, user: str, statement: str) -> psycopg.Error:
    with database.connect(user) as session, pytest.raises(psycopg.Error) as raised:
        session.execute(statement)
    return raised.value


def hint(database: Any, user: str, statement: str = 'select * from dpv."Client" limit 10') -> str:
    error = refusal(database, user, statement)
    assert error.sqlstate in ("PD010", "42501"), error
    assert error.diag.context is None
    return error.diag.message_hint or ""


def test_a_protected_relation_has_a_view_that_refuses(bank: Any) -> None:
    error = refusal(bank, "alice", 'select * from dpv."Client" limit 10')
    assert error.sqlstate == "PD010"
    assert (
        error.diag.message_primary
        == 'rows of the protected relation public."Client" cannot be read'
    )
    told = hint(bank, "alice")
    assert "CALL dp.synthesize('syn', array['public.\"Client\"']" in told
    # with the parents without which there is no copy of it
    both = """array['public."Client"', 'public.call']::regclass[]"""
    assert f"CALL dp.synthesize('syn', {both}," in hint(bank, "alice", "select * from call")
    assert 'SELECT dp_count(*) FROM public."Client"' in told
    # members of the unit as well, in whatever form they are read
    for statement in (
        "select l_kind, count(*) from dpv.call group by 1",
        'select 1 from dpv.call where exists (select from dpv."Client")',
        "create temp table t as select * from dpv.call",
        "explain analyze select * from dpv.call",
    ):
        assert refusal(bank, "alice", statement).sqlstate == "PD010", statement
    assert [row[0] for row in bank.sql(KINDS)] == ["Client", "call"]


@pytest.mark.parametrize(
    "statement",
    [
        'select * from dpv."Client" limit 0',
        'select * from dpv."Client" where 1 <> 1',
        'select c_id, c_kind from dpv."Client" where false',
    ],
)
def test_probes_for_columns_get_no_rows_and_the_right_types(bank: Any, statement: str) -> None:
    with bank.connect("alice") as alice:
        found = alice.execute(statement)
        own = bank.sql("select attname::text, atttypid::int from pg_attribute"
                       " where attrelid = '\"Client\"'::regclass and attnum > 0 order by attnum")  # fmt: skip
        columns = [(c.name, c.type_code) for c in found.description]
        assert columns == own[: len(columns)]
        assert found.fetchall() == []
        alice.execute(f"explain {statement}")


def test_the_view_hinders_no_change_of_the_relation(bank: Any) -> None:
    for statement in (
        "alter table call alter l_kind type varchar(9)",
        "alter table call rename to calls",
        "alter table calls drop column l_kind",
        "select dp.protect('\"Client\"', privacy_unit => 'c_id')",
    ):
        bank.sql(statement, user="owner1")
    with bank.connect("alice") as alice:
        columns = [c.name for c in alice.execute("select * from dpv.call limit 0").description]
    assert columns == ["l_id", "l_client"]
    assert "'public.calls']::regclass" in hint(bank, "alice", "select * from dpv.call")
    bank.sql("drop table calls", user="owner1")
    told = refusal(bank, "alice", "select * from dpv.call")
    assert told.diag.message_primary == "dpv.call has no rows"


def test_members_that_come_later_have_a_view_at_once(bank: Any) -> None:
    owner = "owner1"
    bank.sql(
        'create table visit (v_id int primary key, v_client int not null references "Client")',
        user=owner,
    )
    bank.sql("create table note (o_visit int)", user=owner)
    bank.sql("alter table note add foreign key (o_visit) references visit", user=owner)
    bank.sql("create table land2 (n_id int references land)", user=owner)  # of nobody
    assert [row[0] for row in bank.sql(KINDS)] == ["Client", "call", "note", "visit"]
    assert "dp_count(*) FROM public.visit" in hint(bank, "alice", "select * from dpv.visit")
    bank.sql("drop table note; drop table visit", user=owner)
    assert bank.sql(
        "select count(*) from pg_depend where refobjid = (select oid from pg_extension where extname = 'dpsql')"
        " and objid = 'dpv.visit'::regclass and deptype = 'e'"
    ) == [(1,)]


def test_what_is_not_protected_any_more_has_no_view(bank: Any) -> None:
    with bank.connect("alice") as alice:
        alice.execute("create temp view mine as select * from dpv.call")
        bank.sql("select dp.unprotect('\"Client\"')", user="owner1")
        assert bank.sql(KINDS) == []
        bank.sql("select dp.protect('call')", user="owner1")
        assert [row[0] for row in bank.sql(KINDS)] == ["call"]


def test_names_that_are_taken(bank: Any) -> None:
    # as a release takes one
    bank.sql("create schema second; create table second.call (a int); create table second.third (a int);"
             "set role dp_executor; create table dpv.third (a int)")  # fmt: skip
    bank.sql("select dp.protect('second.call'), dp.protect('second.third')")
    assert [row[0] for row in bank.sql(KINDS)] == ["Client", "call", "second_call", "second_third"]
    assert "second.call" in hint(bank, "alice", "select * from dpv.second_call")
    # and a release does not take that of a view
    error = refusal(
        bank,
        "alice",
        "select dp.release('call', 'select l_kind, dp_count(*) from call group by 1', 1, 1e-6)",
    )
    assert error.diag.message_primary == "there is a view dpv.call already"
    assert error.diag.message_hint == "Choose another name."


def test_the_extension_leaves_with_its_views(bank: Any) -> None:
    bank.sql("drop extension dpsql")
    assert bank.sql("select count(*) from pg_namespace where nspname = 'dpv'") == [(0,)]


def test_a_finished_copy_is_shown_under_a_name_of_its_own(copied: Any) -> None:
    names = [row[0] for row in copied.sql(KINDS)]
    assert names == ["Client", "call", "syn_Client", "syn_call"]
    told = {row[0]: row[1:] for row in copied.sql(KINDS)}
    assert (
        told["syn_call"][0]
        == "synthetic rows made of public.call by alice at epsilon 30, delta 0.000001"
    )
    with copied.connect("alice") as alice:
        same = 'select * from dpv."syn_Client" except select * from syn."Client"'
        assert alice.execute(same).fetchall() == []
        assert alice.execute('select count(*) > 0 from dpv."syn_Client"').fetchone() == (True,)
    assert 'SELECT * FROM dpv."syn_Client".' in hint(copied, "alice")
    # nobody else, until the maker says so
    assert refusal(copied, "bob", "select * from dpv.syn_call").sqlstate == "42501"
    assert "CALL dp.synthesize" in hint(copied, "bob")
    with copied.connect("alice") as alice:
        alice.execute('grant select on syn."Client" to bob')
        assert "CALL dp.synthesize" in hint(copied, "bob")
        alice.execute("grant usage on schema syn to bob")
    assert 'SELECT * FROM dpv."syn_Client".' in hint(copied, "bob")
    assert "CALL dp.synthesize" in hint(copied, "bob", "select * from dpv.call")
    with copied.connect("bob") as bob:
        assert bob.execute('select count(*) > 0 from dpv."syn_Client"').fetchone() == (True,)


def test_copies_that_go_leave_nothing(copied: Any) -> None:
    with copied.connect("alice") as alice:
        alice.execute(CALL)  # replaces its own, views and all
        assert len(copied.sql(KINDS)) == 4
        alice.execute("select dp.hide_synthesis('syn')")
        assert len(copied.sql(KINDS)) == 2
        alice.execute("alter table syn.call alter l_kind type varchar(9)")
        alice.execute("select dp.show_synthesis('syn')")
        assert len(copied.sql(KINDS)) == 4
        alice.execute("drop table syn.call cascade")
        assert len(copied.sql(KINDS)) == 3
        assert "CALL dp.synthesize" in hint(copied, "alice", "select * from dpv.call")
        alice.execute("select dp.drop_synthesis('syn')")
    assert [row[0] for row in copied.sql(KINDS)] == ["Client", "call"]
    assert "CALL dp.synthesize" in hint(copied, "alice")
    assert refusal(copied, "alice", "select dp.show_synthesis('syn')").sqlstate == "PD040"


def test_an_owner_lets_synthetic_rows_be_shown(copied: Any) -> None:
    copied.sql("select dp.show_synthetic('\"Client\"', 'syn')", user="owner1")
    told = {row[0]: row[1:] for row in copied.sql(KINDS)}
    assert told["Client"] == (
        'synthetic rows, not those of public."Client"; made by alice at epsilon 30, delta 0.000001',
        "dp_executor",
    )
    both = 'select count(*), (select count(*) from syn."Client") from dpv."Client"'
    with copied.connect("alice") as alice:
        shown, made = alice.execute(both).fetchone()
        assert shown == made > 0
    # with the rights on the copy, and no others
    assert refusal(copied, "bob", 'select * from dpv."Client"').sqlstate == "42501"
    copied.sql("select dp.hide_synthetic('\"Client\"')", user="owner1")
    assert refusal(copied, "alice", 'select * from dpv."Client"').sqlstate == "PD010"
    again = refusal(copied, "owner1", "select dp.hide_synthetic('\"Client\"')")
    assert again.sqlstate == "PD040"


@pytest.mark.parametrize(
    "end",
    [
        ("alice", "select dp.drop_synthesis('syn')"),
        ("alice", CALL),
        ("alice", "select dp.hide_synthesis('syn')"),
        ("owner1", "select dp.hide_synthetic('\"Client\"')"),
    ],
)
def test_synthetic_rows_end_with_the_copy(copied: Any, end: tuple[str, str]) -> None:
    copied.sql("select dp.show_synthetic('\"Client\"', 'syn')", user="owner1")
    with copied.connect(end[0]) as session:
        session.execute(end[1])
    assert refusal(copied, "alice", 'select * from dpv."Client"').sqlstate == "PD010"


@pytest.mark.parametrize("how", ['drop table syn."Client" cascade', "drop schema syn cascade"])
def test_synthetic_rows_end_with_a_table_that_is_dropped(copied: Any, how: str) -> None:
    copied.sql("select dp.show_synthetic('\"Client\"', 'syn')", user="owner1")
    copied.sql(how)
    assert refusal(copied, "alice", 'select * from dpv."Client"').sqlstate == "42P01"
    copied.sql("select dp.protect('\"Client\"', privacy_unit => 'c_id')", user="owner1")
    assert refusal(copied, "alice", 'select * from dpv."Client"').sqlstate == "PD010"


@pytest.mark.parametrize(
    ("user", "statement", "code"),
    [
        ("owner1", "select dp.show_synthetic('\"Client\"', 'nothing')", "PD040"),
        ("owner1", "select dp.show_synthetic('land', 'syn')", "PD040"),
        ("owner1", "select dp.show_synthetic(null, 'syn')", "PD040"),
        ("owner1", "select dp.hide_synthetic('call')", "PD040"),
        ("alice", "select dp.show_synthetic('call', 'syn')", "42501"),
        ("bob", "select dp.show_synthesis('syn')", "PD040"),
    ],
)
def test_what_cannot_be_shown(copied: Any, user: str, statement: str, code: str) -> None:
    assert refusal(copied, user, statement).sqlstate == code


def test_another_role_hides_nothing(copied: Any) -> None:
    copied.sql("select dp.hide_synthesis('syn')", user="bob")
    assert len(copied.sql(KINDS)) == 4


def test_a_table_that_took_the_name_of_a_copy_is_not_shown(copied: Any) -> None:
    with copied.connect("alice") as alice:
        alice.execute("select dp.hide_synthesis('syn')")
        alice.execute(
            'alter table syn."Client" rename to other; create table syn."Client" (c_id int)'
        )
    error = refusal(copied, "owner1", "select dp.show_synthetic('\"Client\"', 'syn')")
    assert error.sqlstate == "PD040"


# -- the relation itself -----------------------------------------------------------------


def test_selecting_from_the_relation_itself_names_the_copy(copied: Any) -> None:
    for statement in (
        'select * from "Client"',
        'explain select * from "Client"',
        'select count(*) from land join "Client" on c_land = n_id',
    ):
        error = refusal(copied, "alice", statement)
        assert error.sqlstate == "42501"
        assert error.diag.message_primary == "permission denied for table Client"
        assert 'SELECT * FROM dpv."syn_Client".' in str(error.diag.message_hint)
    assert "CALL dp.synthesize" in hint(copied, "bob", "select * from call")


def test_what_a_role_cannot_know_of_is_refused_as_ever(copied: Any) -> None:
    copied.sql("create table public.hidden (a int)")
    copied.sql("revoke dp_owner, dp_analyst, alice, bob from mallory")  # roles are of the cluster
    for user, statement in (
        ("mallory", 'select * from "Client"'),
        ("alice", "select * from hidden"),
        ("alice", 'update "Client" set c_id = 0'),
        ("alice", 'delete from "Client" where c_id = 0'),
    ):
        error = refusal(copied, user, statement)
        assert error.sqlstate == "42501"
        assert error.diag.message_hint is None, statement
    copied.sql('grant select (c_id) on "Client" to alice')
    with copied.connect("alice") as alice:
        assert alice.execute('select count(c_id) from "Client"').fetchone() == (50,)


def test_who_may_read_the_rows_is_not_sent_to_tables_of_others(copied: Any) -> None:
    copied.sql("grant usage on schema syn to owner1")
    copied.sql("grant select on all tables in schema syn to owner1")
    assert hint(copied, "owner1").endswith('You may read its rows: SELECT * FROM public."Client".')


def test_a_copy_that_is_hidden_is_named_as_it_is(copied: Any) -> None:
    copied.sql("select dp.hide_synthesis('syn')", user="alice")
    assert 'SELECT * FROM syn."Client".' in hint(copied, "alice")


def test_a_restored_database_shows_and_refuses_again(server: Any, copied: Any) -> None:
    copied.sql("select dp.show_synthetic('\"Client\"', 'syn')", user="owner1")
    copy = dump_and_restore(server, copied, "c")
    try:
        names = [row[0] for row in copy.sql(KINDS)]
        assert names == ["Client", "syn_Client", "syn_call"]
        both = 'select count(*), (select count(*) from syn."Client") from dpv."Client"'
        with copy.connect("alice") as alice:
            shown, made = alice.execute(both).fetchone()
            assert shown == made > 0
        assert refusal(copy, "bob", 'select * from dpv."Client"').sqlstate == "42501"
        copy.sql("select dp.acknowledge_restore('moved')", user="owner1")
        assert [row[0] for row in copy.sql(KINDS)] == ["Client", "call", "syn_Client", "syn_call"]
        assert "SELECT * FROM dpv.syn_call." in hint(copy, "alice", "select * from dpv.call")
        copy.sql("select dp.drop_synthesis('syn')", user="alice")
        assert refusal(copy, "alice", 'select * from dpv."Client"').sqlstate == "PD010"
    finally:
        server.drop_database(copy)
