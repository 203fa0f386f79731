"""Who may lock what, and dp.unlock puts back what was."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.conftest import declare
from tests.server.locking import MORE, run, told

ACLS = """
select 'function', p.oid::regprocedure::text, a::text
  from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where p.pronamespace = 'pg_catalog'::regnamespace
union all
select 'relation', c.oid::regclass::text, a::text from pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
 where c.relkind in ('r', 'v', 'm')
union all
select 'sequence', c.oid::regclass::text, a::text from pg_class c, aclexplode(coalesce(c.relacl, acldefault('s', c.relowner))) a
 where c.relkind = 'S'
union all
select 'column', t.attrelid::regclass || '.' || t.attname, a::text from pg_attribute t, aclexplode(t.attacl) a
union all
select 'schema', n.nspname, a::text from pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
union all
select 'extension', p.oid::regprocedure::text, a::text
  from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where p.pronamespace = 'public'::regnamespace
union all
select 'database', '', a::text from pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
 where d.datname = current_database()
"""


def test_unlock_puts_back_exactly_what_was(shop: Any) -> None:
    shop.sql(MORE)
    shop.sql(
        "grant update (p_amount) on public.purchase to alice; grant create on schema public to public"
    )
    shop.sql("grant select on public.client to alice with grant option")
    before = sorted(shop.sql(ACLS))
    done = dict(shop.sql("select * from dp.lockdown()"))
    assert done["relations"] == 5
    assert done["sequences"] == 1
    assert done["statistics"] > 80
    assert done["sizes"] == 9
    locked = sorted(shop.sql(ACLS))
    assert locked != before
    assert shop.sql("select * from dp.lockdown()") == []
    assert sorted(shop.sql(ACLS)) == locked
    # what comes to be needed later is done by calling it again, and undone with the rest
    shop.sql(
        "grant select on public.region, public.ticket to alice; grant execute on function pg_lock_status() to public"
    )
    before = sorted(
        {*before, *(row for row in shop.sql(ACLS) if row[1] in ("region", "ticket")), *before}
    )
    assert dict(shop.sql("select * from dp.lockdown()")) == {"locks": 1, "relations": 1}
    shop.sql("select * from dp.unlock()")
    assert sorted(shop.sql(ACLS)) == before
    assert shop.sql("select * from dp.unlock()") == []
    assert shop.sql("select count(*) from dp.lockdown_change") == [(0,)]


def test_an_owner_locks_what_he_owns(shop: Any) -> None:
    shop.sql("create table public.other (a int); select dp.protect('public.other')")
    shop.sql("grant select on public.purchase, public.client, public.other to alice, mallory")
    seen: list[Any] = []
    with shop.connect(user="owner1") as owner:
        owner.add_notice_handler(lambda notice: seen.append(notice.message_primary))
        rows = owner.execute(
            "select * from dp.lockdown(array['public.purchase']::regclass[])"
        ).fetchall()
        assert rows == [("relations", 1)]
        assert seen == ["the catalogue is left as it is"]
        assert told(shop, "select * from public.purchase") == "42501"
        assert told(shop, "select 1 from public.client limit 1") == "[(1,)]"
        assert owner.execute("select * from dp.lockdown()").fetchall() == [("relations", 1)]
        assert told(shop, "select 1 from public.client limit 1") == "42501"
        # the application's role is no analyst, and the other table is the superuser's
        assert shop.sql("select 1 from public.purchase limit 1", user="mallory") == [(1,)]
        assert told(shop, "select * from public.other") == "[]"
        shop.sql("select * from dp.lockdown()")
        seen.clear()
        assert owner.execute("select * from dp.unlock()").fetchall() == [("relations", 2)]
        assert len(seen) == 1
        assert seen[0].endswith("changes are left as they are")
    assert told(shop, "select 1 from public.purchase limit 1") == "[(1,)]"
    assert told(shop, "select * from public.other") == "42501"


def test_the_databases_owner_locks_it(shop: Any) -> None:
    shop.sql(f"alter database {shop.name} owner to owner1; grant create on schema public to public")
    assert dict(shop.sql("select * from dp.lockdown()", user="owner1")) == {"shadowing": 2}
    assert told(shop, "create temporary table t (a int)") == "42501"
    assert told(shop, "create table public.t (a int)") == "42501"
    assert dict(shop.sql("select * from dp.unlock()", user="owner1")) == {"shadowing": 2}
    assert told(shop, "create temporary table t (a int)") == "done"
    assert told(shop, "create table public.t (a int)") == "done"


def test_a_dropped_relation_hinders_no_unlock_and_another_of_its_name_gets_nothing(
    shop: Any,
) -> None:
    shop.sql("create table public.other (a int); select dp.protect('public.other')")
    shop.sql("grant select on public.other to alice; select * from dp.lockdown()")
    shop.sql("drop table public.other; create table public.other (a int)")
    shop.sql("select * from dp.unlock()")
    assert told(shop, "select * from public.other") == "42501"
    assert told(shop, "select count(*) > 0 from pg_locks") == "[(True,)]"


def test_what_an_analyst_passed_on_is_taken_with_it(shop: Any) -> None:
    shop.sql("grant select (p_id), select on public.purchase to alice with grant option")
    shop.sql("grant select (p_id), select on public.purchase to mallory", user="alice")
    assert dict(shop.sql("select * from dp.lockdown()"))["relations"] == 4
    assert shop.sql("select 1 from dp.check_lockdown() where object like 'public.purchase%'") == []
    shop.sql("select * from dp.unlock()")
    held = "select has_table_privilege(r, 'public.purchase', p) from unnest(array['alice', 'mallory']) as r, unnest(array['select', 'select with grant option']) as p"
    assert [row[0] for row in shop.sql(held)] == [True, True, True, False]


def test_an_unprotected_relation_is_refused(shop: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        shop.sql("select * from dp.lockdown(array['public.region']::regclass[])")
    assert caught.value.sqlstate == "PD040"
    assert caught.value.diag.message_primary == "relation public.region is not protected"


def test_a_restored_database_is_locked_and_can_unlock_itself(shop: Any, server: Any) -> None:
    shop.sql("grant select on public.purchase to alice; select * from dp.lockdown()")
    bin = server.cluster.bin
    dump = server.folder / "locked.dump"
    done = run(str(bin / "pg_dump"), "-Fc", "-f", str(dump), "-d", shop.conninfo())
    assert (done.returncode, done.stderr) == (0, "")
    copy = type(shop)(server.cluster, shop.name + "_copy")
    shop.sql(f"create database {copy.name} template template0")
    try:
        done = run(str(bin / "pg_restore"), "-d", copy.conninfo(), str(dump))
        assert (done.returncode, done.stderr) == (0, "")
        assert told(copy, "select pg_relation_size('public.purchase')") == "[(None,)]"
        assert told(copy, "select c from pg_class as c") == "42501"
        copy.sql("select * from dp.unlock()")
        assert told(copy, "select pg_relation_size('public.purchase') > 0") == "[(True,)]"
        assert told(copy, "select count(c) > 0 from pg_class as c") == "[(True,)]"
        assert told(copy, "select 1 from public.purchase limit 1") == "[(1,)]"
    finally:
        copy.close()
        server.drop_database(copy)


def test_without_the_library_sizes_are_refused(make_server: Any) -> None:
    shop = declare(make_server(shared_preload_libraries="''").create_database())
    seen: list[Any] = []
    admin = shop.connect()
    admin.add_notice_handler(lambda notice: seen.append(notice.message_primary))
    admin.execute("select * from dp.lockdown()")
    assert seen == [
        "the library dpsql is not loaded at server start: sizes are refused instead of being hidden"
    ]
    for column in ("pg_relation_size(oid)", "reltuples", "pg_stat_get_live_tuples(oid)"):
        assert told(shop, f"select {column} from pg_class where relname = 'purchase'") == "42501"
    assert told(shop, "select count(relname) > 0 from pg_class") == "[(True,)]"
    shop.close()
