"""Each hole that dp.check_lockdown knows: opened, it is listed; its statement closes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import declare
from tests.server.waiting import wait_until

MORE = """
create table public.ticket (t_id serial primary key, t_text text);
create table public.visit (v_id int, v_text text) partition by list (v_id);
create table public.visit_one partition of public.visit for values in (1);
create function public.tell() returns trigger language plpgsql as
    $$ begin perform pg_notify('news', new.c_id::text); return new; end $$;
create function public.watch() returns event_trigger language plpgsql as $$ begin end $$;
alter function public.watch() owner to mallory;
select dp.protect('public.ticket'), dp.protect('public.visit');
"""


@pytest.fixture(scope="module")
def locked(server: Any) -> Iterator[Any]:
    """A shop that is locked down; its administrator's session."""
    database = declare(server.create_database())
    database.sql(MORE)
    database.sql("select * from dp.lockdown()")
    yield database.connect()
    server.drop_database(database)


def holes(admin: Any) -> dict[tuple[str, str, str], str]:
    rows = admin.execute("select hole, object, who, statement from dp.check_lockdown()").fetchall()
    return {(hole, named, who): statement for hole, named, who, statement in rows}


# Statement that opens a hole, the hole, its object, who has it, and what else to clean up.
CASES = [
    ("grant select on purchase to mallory", "relation privilege", "public.purchase", "mallory", ""),
    ("grant select on purchase to public", "relation privilege", "public.purchase", "PUBLIC", ""),
    (
        "grant insert, delete on client to mallory",
        "relation privilege",
        "public.client",
        "mallory",
        "",
    ),
    (
        "grant select on visit_one to mallory",
        "relation privilege",
        "public.visit_one",
        "mallory",
        "",
    ),
    (
        "grant select (c_id), update (c_id) on client to mallory",
        "column privilege",
        "public.client.c_id",
        "mallory",
        "",
    ),
    (
        "create view hole as select * from client; grant select on hole to mallory",
        "view",
        "public.hole",
        "mallory",
        "drop view hole",
    ),
    (
        "create view hole as select * from client; create materialized view kept as select count(*) from hole;"
        " grant select on kept to mallory",
        "materialized view",
        "public.kept",
        "mallory",
        "drop view hole cascade",
    ),
    (
        "create table reply (client int references client); grant insert on reply to mallory",
        "foreign key",
        "public.reply",
        "mallory",
        "drop table reply",
    ),
    (
        "create table reply (client int references client); grant update (client), select on reply to mallory",
        "foreign key",
        "public.reply",
        "mallory",
        "drop table reply",
    ),
    (
        "create table reply (client int references client); alter table reply owner to mallory",
        "foreign key",
        "public.reply",
        "mallory",
        "drop table reply",
    ),
    (
        "create table reply (client int references client, n int) partition by list (n);"
        " create table reply_one partition of reply for values in (1); grant insert on reply_one to mallory",
        "foreign key",
        "public.reply_one",
        "mallory",
        "drop table reply",
    ),
    ("grant delete on region to mallory", "foreign key", "public.region", "mallory", ""),
    ("grant trigger on region to mallory", "trigger privilege", "public.region", "mallory", ""),
    (
        "grant select on sequence ticket_t_id_seq to mallory",
        "sequence",
        "public.ticket_t_id_seq",
        "mallory",
        "",
    ),
    (
        "create function hole() returns bigint security definer language sql as 'select count(*) from public.client'",
        "definer function",
        "public.hole()",
        "PUBLIC",
        "drop function hole()",
    ),
    (
        "create procedure hole() security definer language plpgsql as 'begin end'",
        "definer function",
        "public.hole()",
        "PUBLIC",
        "drop procedure hole()",
    ),
    (
        "create function hole() returns int language plpython3u as 'return 1'",
        "untrusted function",
        "public.hole()",
        "PUBLIC",
        "drop function hole()",
    ),
    (
        "update pg_language set lanpltrusted = true where lanname = 'plpython3u'",
        "untrusted language",
        "plpython3u",
        "PUBLIC",
        "",
    ),
    (
        "grant execute on function pg_ls_dir(text) to mallory",
        "server function",
        "pg_ls_dir(text)",
        "mallory",
        "",
    ),
    (
        "grant execute on function pg_stat_file(text) to mallory",
        "server function",
        "pg_stat_file(text)",
        "mallory",
        "",
    ),
    (
        "select lo_create(424242); grant select on large object 424242 to mallory",
        "large object",
        "424242",
        "mallory",
        "select lo_unlink(424242)",
    ),
    ("grant usage on foreign server here to mallory", "foreign server", "here", "mallory", ""),
    (
        "grant usage on foreign data wrapper postgres_fdw to mallory",
        "foreign-data wrapper",
        "postgres_fdw",
        "mallory",
        "",
    ),
    (
        "create foreign table hole (a int) server here; grant select on hole to mallory",
        "foreign table",
        "public.hole",
        "mallory",
        "drop foreign table hole",
    ),
    ("create publication hole for table client", "publication", "hole", "subscribers", ""),
    (
        "create trigger hole after insert on client for each row execute function tell()",
        "trigger that notifies",
        "hole on public.client",
        "PUBLIC",
        "",
    ),
    (
        "create event trigger hole on ddl_command_end when tag in ('CREATE CAST') execute function watch()",
        "event trigger",
        "hole",
        "PUBLIC",
        "",
    ),
    *(
        (f"grant {role} to mallory", "membership", role, "mallory", f"revoke {role} from mallory")
        for role in (
            "pg_read_all_data",
            "pg_write_all_data",
            "pg_read_server_files",
            "pg_write_server_files",
            "pg_execute_server_program",
            "pg_monitor",
            "pg_read_all_stats",
            "pg_stat_scan_tables",
            "pg_read_all_settings",
            "pg_signal_backend",
            "dp_executor",
            "dp_ledger",
        )
    ),
    (
        "create role through; grant pg_read_all_data to through; grant through to mallory, bob",
        "membership",
        "pg_read_all_data",
        "bob, mallory",
        "drop role through",
    ),
    (
        "create role above superuser; grant above to mallory",
        "membership",
        "above",
        "mallory",
        "drop role above",
    ),
    *(
        (f"alter role mallory {name}", "attribute", name, "mallory", f"alter role mallory no{name}")
        for name in ("CREATEROLE", "REPLICATION", "BYPASSRLS")
    ),
    (
        "create role through createrole; grant through to mallory",
        "attribute",
        "CREATEROLE",
        "mallory",
        "drop role through",
    ),
    (
        "alter table ticket owner to bob; select dp.grant_budget('bob', 1)",
        "owner",
        "public.ticket",
        "bob",
        "alter table ticket owner to postgres; revoke dp_analyst from bob",
    ),
    (
        "select dp.grant_budget('owner1', 1)",
        "administrator",
        "dp_owner",
        "owner1",
        "revoke dp_analyst from owner1",
    ),
    ("grant create on schema public to mallory", "shadowing", "schema public", "mallory", ""),
    ("grant create on schema public to public", "shadowing", "schema public", "PUBLIC", ""),
    (
        "create schema mallory; grant create on schema mallory to bob",
        "shadowing",
        "schema mallory",
        "bob",
        "drop schema mallory",
    ),
    (
        "alter role mallory set standard_conforming_strings = off",
        "setting",
        "standard_conforming_strings",
        "mallory",
        "alter role mallory reset all",
    ),
    (
        "grant set on parameter session_preload_libraries to mallory",
        "parameter",
        "session_preload_libraries",
        "mallory",
        "revoke set on parameter session_preload_libraries from mallory",
    ),
    ("grant select on pg_class to public", "catalogue", "pg_class", "PUBLIC", ""),
    ("grant select on pg_class to mallory", "catalogue", "pg_class", "mallory", ""),
    (
        "grant select (reltuples) on pg_class to mallory",
        "catalogue",
        "pg_class.reltuples",
        "mallory",
        "",
    ),
    ("grant select on pg_statistic to mallory", "catalogue", "pg_statistic", "mallory", ""),
    (
        "grant select (stxdmcv) on pg_statistic_ext_data to bob",
        "catalogue",
        "pg_statistic_ext_data.stxdmcv",
        "bob",
        "",
    ),
    ("grant select on pg_largeobject to mallory", "catalogue", "pg_largeobject", "mallory", ""),
    (
        "grant select on pg_largeobject_metadata to public",
        "catalogue",
        "pg_largeobject_metadata",
        "PUBLIC",
        "",
    ),
    *(
        (
            f"grant execute on function {function} to {who}",
            hole,
            name,
            who if who == "mallory" else "PUBLIC",
            "",
        )
        for hole, function, name in (
            ("statistics", "pg_stat_get_live_tuples(oid)", "pg_stat_get_live_tuples"),
            ("statistics", "pg_stat_get_db_temp_bytes(oid)", "pg_stat_get_db_temp_bytes"),
            (
                "statistics",
                "pg_stat_get_xact_tuples_returned(oid)",
                "pg_stat_get_xact_tuples_returned",
            ),
            ("sizes", "pg_database_size(name)", "pg_database_size"),
            ("locks", "pg_lock_status()", "pg_lock_status"),
            ("sessions", "pg_prepared_xact()", "pg_prepared_xact"),
            ("amounts written", "pg_current_wal_lsn()", "pg_current_wal_lsn"),
        )
        for who in ("mallory", "public")
    ),
    *(
        (f"create extension {name}", "extension", name, "PUBLIC", f"drop extension {name}")
        for name in (
            "pg_stat_statements",
            "dblink",
            "pgrowlocks",
        )
    ),
    (
        "create extension pageinspect; select * from dp.lockdown();"
        " grant execute on function get_raw_page(text, bigint), page_header(bytea) to mallory",
        "extension",
        "pageinspect",
        "mallory",
        "drop extension pageinspect",
    ),
    ("grant connect on database postgres to mallory", "other database", "postgres", "mallory", ""),
]


@pytest.fixture(scope="module")
def here(locked: Any) -> Any:
    """The same with a foreign server and without other ways to this database."""
    locked.execute(
        "create extension postgres_fdw; create server here foreign data wrapper postgres_fdw"
    )
    return locked


@pytest.mark.parametrize(("opening", "hole", "named", "who", "cleaning"), CASES)
def test_an_open_hole_is_listed_and_its_statement_closes_it(
    here: Any, opening: str, hole: str, named: str, who: str, cleaning: str
) -> None:
    before = holes(here)
    assert (hole, named, who) not in before
    try:
        here.execute(opening)
        opened = holes(here)
        assert (hole, named, who) in opened
        here.execute(opened[hole, named, who])
        assert (hole, named, who) not in holes(here)
    finally:
        if cleaning:
            here.execute(cleaning)
    left = holes(here).keys() - before.keys()
    assert not left


def test_triggers_of_a_referencing_table_run_as_who_deletes_before_18(here: Any) -> None:
    found = ("trigger privilege", "public.region", "mallory")
    for opening in (
        "grant references on region to mallory",
        "grant references (r_id) on region to mallory",
        "create table hole (r int references region on delete set null); alter table hole owner to mallory",
    ):
        here.execute(opening)
        opened = holes(here)
        assert (found in opened) == (here.info.server_version < 180000), opening
        if found in opened:
            here.execute(opened[found])
        assert found not in holes(here)
    here.execute("drop table hole; revoke references (r_id) on region from mallory")
    here.execute("revoke references on region from mallory")
    here.execute("create table hole (r int references region); alter table hole owner to mallory")
    assert found not in holes(here)
    here.execute("drop table hole")


def test_settings_of_the_database_and_of_a_role_in_it(here: Any) -> None:
    name = here.info.dbname
    here.execute(f"alter database {name} set debug_print_plan = on")
    here.execute(f"alter role mallory in database {name} set client_min_messages = 'debug1'")
    opened = holes(here)
    for found in (
        ("setting", "debug_print_plan", "PUBLIC"),
        ("setting", "client_min_messages", "mallory"),
    ):
        here.execute(opened[found])
        assert found not in holes(here)


def test_temporary_objects_and_template_databases(here: Any) -> None:
    name = here.info.dbname
    try:
        here.execute(f"grant temporary, create on database {name} to mallory")
        here.execute(f"alter database {name} is_template true; alter role mallory createdb")
        opened = holes(here)
        for found in (
            ("shadowing", "temporary objects", "mallory"),
            ("shadowing", "new schemas", "mallory"),
            ("attribute", "CREATEDB", "mallory"),
        ):
            here.execute(opened[found])
            assert found not in holes(here)
    finally:
        here.execute(f"alter database {name} is_template false; alter role mallory nocreatedb")


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("log_temp_files", "0", "log_temp_files"),
        ("lo_compat_privileges", "on", "lo_compat_privileges"),
    ],
)
def test_settings_of_the_server(here: Any, setting: str, value: str, named: str) -> None:
    def listed() -> list[str]:
        return [statement for (_, what, _), statement in holes(here).items() if what == named]

    assert listed() == []
    try:
        here.execute(f"alter system set {setting} = {value}")
        here.execute("select pg_reload_conf()")
        wait_until(lambda: listed() != [])
        here.execute(listed()[0])
        here.execute("select pg_reload_conf()")
        wait_until(lambda: listed() == [])
    finally:
        here.execute(f"alter system reset {setting}")
        here.execute("select pg_reload_conf()")


def test_what_somebody_passed_on_is_closed_in_his_name_or_with_his_own(here: Any) -> None:
    mallory = ("relation privilege", "public.purchase", "mallory")
    for closing in (mallory, ("relation privilege", "public.purchase", "bob")):
        here.execute("grant select on purchase to bob with grant option")
        here.execute("set role bob; grant select on purchase to mallory; reset role")
        opened = holes(here)
        here.execute(opened[closing])
        assert mallory not in holes(here)
    here.execute("revoke select on purchase from bob cascade")


def test_a_toast_table_is_listed(here: Any) -> None:
    toast = here.execute(
        "select reltoastrelid::regclass::text from pg_class where relname = 'client'"
    )
    name = toast.fetchone()[0]
    here.execute(f"grant select on {name} to mallory")
    here.execute(holes(here)["catalogue", name, "mallory"])
    assert ("catalogue", name, "mallory") not in holes(here)


def test_trusted_roles_administrators_and_what_reads_as_its_reader_are_no_holes(here: Any) -> None:
    before = holes(here)
    here.execute("grant select on purchase to mallory, owner1")
    here.execute(
        "create view careful with (security_invoker) as select * from client; grant select on careful to public"
    )
    try:
        assert {found[2] for found in holes(here).keys() - before.keys()} == {"mallory"}
        trusting = here.execute(
            "select hole, object, who from dp.check_lockdown(array['mallory']::regrole[])"
        )
        assert set(trusting.fetchall()) == before.keys()
    finally:
        here.execute("revoke select on purchase from mallory; drop view careful")


def test_analysts_see_no_list(here: Any) -> None:
    import psycopg

    for role in ("alice", "mallory"):
        here.execute(f"set role {role}")
        try:
            for call in ("dp.check_lockdown()", "dp.lockdown()", "dp.unlock()"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    here.execute(f"select * from {call}")
        finally:
            here.execute("reset role")
