"""dp.unlock gives nothing to what only has the name of what dp.lockdown took it from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.locking import told
from tests.server.test_dump_restore import dump_and_restore

MADE = """
create table public.patient (id int primary key, city text, diagnosis text);
create view public.seen as select city, diagnosis from public.patient;
create schema app;
create role zoe login in role dp_analyst;
grant select (city) on public.patient, public.seen to zoe;
grant create on schema app to public;
select dp.protect('public.patient');
"""
SWAPPED = "alter table public.patient rename {0} to {1}; alter view public.seen rename {0} to {1};"
SWAP = SWAPPED.format("city", "town") + SWAPPED.format("diagnosis", "city")
READS = """
select r.rolname, t.name, a.attname
  from pg_roles r, unnest(array['public.patient', 'public.seen']) as t(name), pg_attribute a
 where r.rolname in ('zoe', 'zoe_old') and a.attrelid = t.name::regclass and a.attnum > 0
   and has_column_privilege(r.oid, a.attrelid, a.attnum, 'select')
 order by 1, 2, 3
"""
MAKES = "select nspname from pg_namespace n where nspname like 'app%' and has_schema_privilege('alice', oid, 'create')"


@pytest.fixture
def clinic(shop: Any) -> Iterator[Any]:
    shop.sql(MADE)
    try:
        yield shop
    finally:
        for role in ("zoe", "zoe_old"):
            if shop.sql("select 1 from pg_roles where rolname = %s", role):
                shop.sql(f"drop owned by {role}; drop role {role}")


def unlock(database: Any, user: str | None = None) -> list[str]:
    """Unlock, and return what is told of what is not put back."""
    notices: list[Any] = []
    with database.connect(user=user) if user else database.connect() as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        connection.execute("select * from dp.unlock()")
    return notices


def lost(*objects: str) -> list[str]:
    return [f"a privilege on {name} is not put back" for name in objects]


def test_what_kept_its_name_is_put_back(clinic: Any) -> None:
    before = clinic.sql(READS)
    assert before == [("zoe", "public.patient", "city"), ("zoe", "public.seen", "city")]
    clinic.sql("select * from dp.lockdown()")
    assert clinic.sql(READS) == clinic.sql(MAKES) == []
    assert unlock(clinic) == []
    assert clinic.sql(READS) == before
    assert clinic.sql(MAKES) == [("app",)]


def test_columns_that_changed_names_stay_the_same(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    clinic.sql(SWAP)
    assert unlock(clinic) == []
    assert clinic.sql(READS) == [("zoe", "public.patient", "town"), ("zoe", "public.seen", "town")]


def test_a_new_column_with_the_name_of_a_dropped_one_is_read_by_nobody(clinic: Any) -> None:
    clinic.sql("drop view public.seen; select * from dp.lockdown()")
    clinic.sql("alter table public.patient drop city; alter table public.patient add city text")
    clinic.sql("create view public.seen as select 1")
    assert unlock(clinic) == lost("table public.patient")
    assert clinic.sql(READS) == []


def test_a_role_that_was_renamed_gets_back_what_was_its_own(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    clinic.sql("alter role zoe rename to zoe_old; create role zoe login")
    assert unlock(clinic) == []
    assert clinic.sql(READS) == [
        ("zoe_old", "public.patient", "city"),
        ("zoe_old", "public.seen", "city"),
    ]


def test_what_a_renamed_role_got_from_another_is_its_own_too(clinic: Any) -> None:
    clinic.sql("grant select (diagnosis) on public.patient to alice with grant option")
    clinic.sql("revoke dp_analyst from zoe; revoke select (city) on public.patient from zoe")
    clinic.sql("grant select (diagnosis) on public.patient to zoe", user="alice")
    clinic.sql("select * from dp.lockdown()")
    clinic.sql("alter role zoe rename to zoe_old; create role zoe login")
    clinic.sql(SWAP)
    assert unlock(clinic) == []
    assert clinic.sql(READS)[0] == ("zoe_old", "public.patient", "city")
    assert {role for role, *_ in clinic.sql(READS)} == {"zoe_old"}


def test_a_new_role_with_the_name_of_a_dropped_one_gets_nothing(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    clinic.sql("drop role zoe; create role zoe login in role dp_analyst")
    assert unlock(clinic) == lost("table public.seen", "table public.patient")
    assert clinic.sql(READS) == []


def test_a_schema_that_was_renamed_stays_the_same(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    clinic.sql('alter schema app rename to "app old"; create schema app')
    assert unlock(clinic) == []
    assert clinic.sql(MAKES) == [("app old",)]


def test_a_new_schema_with_the_name_of_a_dropped_one_is_nobodys(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown(); drop schema app; create schema app")
    assert unlock(clinic) == lost("schema app")
    assert clinic.sql(MAKES) == []


def test_the_owner_of_a_renamed_schema_unlocks_it_and_no_other_one(clinic: Any) -> None:
    clinic.sql("alter schema app owner to owner1; select * from dp.lockdown()")
    clinic.sql("alter schema app rename to app_old; create schema app")
    assert len(unlock(clinic, "owner1")) == 1  # what is left to a superuser
    assert clinic.sql(MAKES) == [("app_old",)]
    clinic.sql("drop schema app; select * from dp.lockdown()")
    clinic.sql("alter schema app_old owner to postgres; alter schema app_old rename to app_other")
    clinic.sql("create schema app_old authorization owner1")
    unlock(clinic, "owner1")
    assert told(clinic, "create table app_other.t (a int)") == "42501"
    assert told(clinic, "create table app_old.t (a int)") == "42501"


def test_a_restored_database_goes_by_the_names_of_the_dump(clinic: Any, server: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    # numbers of columns and schemas are other ones after a restore
    clinic.sql("alter table public.patient drop id cascade")
    clinic.sql(SWAP + "alter schema app rename to app_old; create schema app")
    copy = dump_and_restore(server, clinic, "c")
    try:
        assert unlock(copy) == []
        assert copy.sql(READS) == [
            ("zoe", "public.patient", "town"),
            ("zoe", "public.seen", "town"),
        ]
        assert copy.sql(MAKES) == [("app_old",)]
    finally:
        server.drop_database(copy)


def test_a_dump_leaves_out_what_another_one_has_the_name_of(clinic: Any, server: Any) -> None:
    clinic.sql("grant select (diagnosis) on public.patient to alice; select * from dp.lockdown()")
    clinic.sql("alter role zoe rename to zoe_old; create role zoe login")
    clinic.sql("drop schema app; create schema app; drop view public.seen")
    clinic.sql(
        "alter table public.patient drop diagnosis; alter table public.patient add diagnosis text"
    )
    copy = dump_and_restore(server, clinic, "c")
    try:
        # as in another cluster, where zoe's number is unknown
        copy.sql("update dp.lockdown_change set grantee_oid = 1 where grantee_oid is not null")
        copy.sql("create view public.seen as select 1")
        assert unlock(copy) == []
        assert copy.sql(READS) == copy.sql(MAKES) == []
        assert told(copy, "select count(*) > 0 from pg_locks") == "[(True,)]"
        assert copy.sql(
            "select has_column_privilege('alice', 'public.patient', 'diagnosis', 'select')"
        ) == [(False,)]
    finally:
        server.drop_database(copy)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_in_a_restored_database_a_new_role_of_the_name_gets_nothing(
    clinic: Any, server: Any, acknowledged: bool
) -> None:
    clinic.sql("select * from dp.lockdown()")
    copy = dump_and_restore(server, clinic, "c")
    try:
        clinic.sql("alter role zoe rename to zoe_old; create role zoe login")
        if acknowledged:
            copy.sql("select dp.acknowledge_restore('a copy')")
        assert unlock(copy) == lost("table public.seen", "table public.patient")
        assert copy.sql(READS) == []
        assert copy.sql(MAKES) == [("app",)]
    finally:
        server.drop_database(copy)


def test_once_a_restore_is_acknowledged_numbers_decide_again(clinic: Any, server: Any) -> None:
    clinic.sql("alter table public.patient drop id; select * from dp.lockdown()")
    copy = dump_and_restore(server, clinic, "c")
    try:
        copy.sql("select dp.acknowledge_restore('a copy')")
        copy.sql(SWAP + "alter schema app rename to app_old; create schema app")
        clinic.sql("alter role zoe rename to zoe_old; create role zoe login")
        assert unlock(copy) == []
        assert copy.sql(READS) == [
            ("zoe_old", "public.patient", "town"),
            ("zoe_old", "public.seen", "town"),
        ]
        assert copy.sql(MAKES) == [("app_old",)]
    finally:
        server.drop_database(copy)


def test_where_no_numbers_are_known_names_decide(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    clinic.sql(
        "update dp.lockdown_change set attnum = null, schema_oid = null, grantee_oid = null, incarnation = null"
    )
    assert unlock(clinic) == []
    assert len(clinic.sql(READS)) == 2
    assert clinic.sql(MAKES) == [("app",)]


def test_an_open_transaction_that_renamed_a_column_hinders_no_lockdown(clinic: Any) -> None:
    clinic.sql("select * from dp.lockdown()")
    clinic.sql("alter view public.seen owner to alice; grant select on public.client to alice")
    with clinic.connect(user="alice", autocommit=False) as alice:
        alice.execute("alter view public.seen rename city to town")
        assert clinic.sql("set lock_timeout = '5s'; select * from dp.lockdown()") == [
            ("relations", 1)
        ]
        alice.rollback()
