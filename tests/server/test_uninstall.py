"""DROP EXTENSION dpsql CASCADE takes away all that dpsql made in a database, however it was used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Database
from tests.server.conftest import DECLARE, SHOP

ROLES = "dp_owner, dp_analyst, dp_executor, dp_ledger"
# Everything in the database that is not PostgreSQL's own, with owner, privileges and comment.
THINGS = """
with thing(classid, oid, objsubid, acl) as (
    select 'pg_class'::regclass, oid, 0, coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner)) from pg_class where relnamespace <> 'pg_toast'::regnamespace
    union all
    select 'pg_class'::regclass, attrelid, attnum, attacl from pg_attribute join pg_class c on c.oid = attrelid
     where attnum > 0 and not attisdropped and relnamespace <> 'pg_toast'::regnamespace
    union all select 'pg_proc'::regclass, oid, 0, coalesce(proacl, acldefault('f', proowner)) from pg_proc
    union all select 'pg_type'::regclass, oid, 0, coalesce(typacl, acldefault('T', typowner)) from pg_type
    union all select 'pg_namespace'::regclass, oid, 0, coalesce(nspacl, acldefault('n', nspowner)) from pg_namespace where nspname !~ '^pg_(toast_)?temp'
    union all select 'pg_language'::regclass, oid, 0, coalesce(lanacl, acldefault('l', lanowner)) from pg_language
    union all select 'pg_constraint'::regclass, oid, 0, null from pg_constraint
    union all select 'pg_trigger'::regclass, oid, 0, null from pg_trigger where not tgisinternal
    union all select 'pg_rewrite'::regclass, oid, 0, null from pg_rewrite
    union all select 'pg_policy'::regclass, oid, 0, null from pg_policy
    union all select 'pg_cast'::regclass, oid, 0, null from pg_cast
    union all select 'pg_operator'::regclass, oid, 0, null from pg_operator
    union all select 'pg_attrdef'::regclass, oid, 0, null from pg_attrdef
    union all select 'pg_event_trigger'::regclass, oid, 0, null from pg_event_trigger
    union all select 'pg_publication'::regclass, oid, 0, null from pg_publication
    union all select 'pg_default_acl'::regclass, oid, 0, defaclacl from pg_default_acl
    union all select 'pg_extension'::regclass, oid, 0, null from pg_extension
    union all select 'pg_statistic_ext'::regclass, oid, 0, null from pg_statistic_ext
    union all select 'pg_foreign_server'::regclass, oid, 0, srvacl from pg_foreign_server
    union all select 'pg_largeobject'::regclass, oid, 0, lomacl from pg_largeobject_metadata)
select pg_describe_object(t.classid, t.oid, t.objsubid),
       concat_ws(' ', array(select a::text from unnest(t.acl) a order by 1)::text, 'comment: ' || d.description)
  from thing as t
  left join pg_description d on d.classoid = t.classid and d.objoid = t.oid and d.objsubid = t.objsubid
union all
select format('setting of %s in %s', coalesce(setrole::regrole::text, 'all'), d.datname), array_to_string(setconfig, ', ')
  from pg_db_role_setting s left join pg_database d on d.oid = s.setdatabase where s.setdatabase = 0 or d.datname = current_database()
union all
select 'privileges of the database', array(select a::text from unnest(coalesce(datacl, acldefault('d', datdba))) a order by 1)::text from pg_database where datname = current_database()
union all
select format('privileges from the beginning of %s', pg_describe_object(classoid, objoid, objsubid)), initprivs::text from pg_init_privs
union all
select format('what hangs on %s', r.rolname), count(*)::text from pg_shdepend s join pg_roles r on s.refobjid = r.oid
 where s.refclassid = 'pg_authid'::regclass and r.rolname like 'dp\\_%'
   and s.dbid = (select oid from pg_database where datname = current_database()) group by r.rolname
union all
select 'objects whose extension is gone', count(*)::text from pg_depend d
 where d.refclassid = 'pg_extension'::regclass and not exists (select from pg_extension e where e.oid = d.refobjid)
"""
MINE = """
create table public.guest (g_id int primary key, g_kind text not null);
create table public.visit (v_id int primary key, v_guest int not null references public.guest, v_bill int);
create schema copy authorization alice;
grant create on schema public to owner1;
insert into public.guest select i, case when i % 4 = 0 then 'club' else 'single' end from generate_series(1, 300) i;
insert into public.visit select i, 1 + i % 300, i from generate_series(1, 500) i;
alter table public.guest owner to owner1;
alter table public.visit owner to owner1;
"""
USED = """
select dp.protect('guest', privacy_unit => 'g_id');
select dp.set_domain('guest', 'g_kind', array['club', 'single']);
select dp.set_degree_bound('visit', array['v_guest'], 5);
select dp.collect_statistics('purchase'), dp.collect_statistics('client');
select dp.refresh_statistics('purchase');
select dp.create_sketch($$ select dp_count(*) from purchase a join purchase b on a.p_client = b.p_client $$);
select dp.keep_statistics($$ select dp_count(*) from purchase join client on p_client = c_id $$);
select dp.expose('purchase', array['p_day', 'p_flag'], 'sales');
"""
ASKED = """
select dp_count(*) from client;
select dp.release('kinds', $$ select g_kind, dp_count(*) from guest group by g_kind $$, epsilon => 1, delta => 1e-9);
call dp.synthesize('copy', array['guest']::regclass[], epsilon => 2, delta => 1e-7);
"""


@pytest.fixture
def bare(server: Any) -> Iterator[Database]:
    """A database with tables and without the extension."""
    bare = server.create_database("template0", acknowledge=False)
    with bare.connect() as connection:
        connection.execute("create language plpython3u")
        # roles are the cluster's: what the extension of other databases needs stays
        connection.execute(SHOP.replace("grant dp_owner to owner1;", ""))
        connection.execute(MINE)
    yield bare
    server.drop_database(bare)


def things(database: Database) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in database.sql(THINGS):
        found[str(name)] = found.get(str(name), "") + f"|{value}"
    return found


def use(database: Database) -> None:
    database.sql("create extension dpsql")
    database.sql("grant dp_owner to owner1")
    with database.connect("owner1") as owner:
        for statement in (DECLARE + USED).strip().split("\n"):
            owner.execute(statement)
    with database.connect("alice") as alice:
        for statement in ASKED.strip().split("\n"):
            alice.execute(statement)
    # what analysts and administrators build on top goes with it
    database.sql("create view public.asked as select dp_count(*) as n from public.client")
    database.sql("select dp.lockdown()")
    database.sql("select dp.unlock()")


def test_what_is_left_is_said_and_can_be_removed(bare: Database) -> None:
    before = things(bare)
    use(bare)
    assert len(things(bare)) > len(before) + 400
    bare.sql("drop extension dpsql cascade")
    # roles are the cluster's, and privileges of roles outlive what they were given for
    granted = {
        "schema public",
        "table guest",
        "table visit",
        "table client",
        "table purchase",
        "table region",
    }
    left = dict(set(things(bare).items()) - set(before.items()))
    bare.sql(f"drop owned by {ROLES}")
    removed = set(left.items()) - set(things(bare).items())
    assert {name for name, _ in removed} <= granted | {"what hangs on dp_executor"}, removed
    after = things(bare)
    assert before.keys() - after.keys() == set()
    assert {name for name in before if after[name] != before[name]} == set()
    # users' own: a copy, and what bounds rows of a unit, which goes on without dpsql
    kept = after.keys() - before.keys()
    assert all("copy" in name or "dp_slot_v_guest" in name for name in kept), kept
    assert any("copy" in name for name in kept)
    bare.sql("insert into visit values (9001, 3, 1)", user="owner1")
    assert bare.sql("select dp_slot_v_guest > 0 from visit where v_id = 9001") == [(True,)]


def test_it_can_be_installed_again_where_it_was(bare: Database) -> None:
    use(bare)
    bare.sql("drop extension dpsql cascade")
    bare.sql("create extension dpsql")
    # a ledger begins anew with the extension: whoever drops it has to keep a dump
    assert bare.sql("select count(*) from dp.ledger") == [(0,)]
    with bare.connect("owner1") as owner:
        owner.execute("select dp.protect('client')")
        owner.execute("select dp.grant_budget('alice', 2)")
    with bare.connect("alice") as alice:
        alice.execute("select dp_count(*) from client")
