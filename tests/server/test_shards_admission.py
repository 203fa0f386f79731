"""What may be asked of relations with parts on other servers, who reads these, and what lockdown says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.shards import READER, Shards, sharded

pytestmark = pytest.mark.server
QUESTION = "select dp_count(*) from visit"
COLUMNS = "v_id int not null, v_who int not null, v_amount bigint"
BUDGET = "select dp.grant_budget('postgres', 1e7, 1), dp.grant_budget('alice', 1e7, 1);"


@pytest.fixture
def clinic(server: Any) -> Iterator[Shards]:
    """Visits on two servers that nobody declared."""
    with sharded(server, 2) as shards:
        shards.table("visit", COLUMNS, "v_id", declare=f"select dp.protect('visit'); {BUDGET}")
        shards.near.sql(
            "insert into visit select i, i % 20, i from generate_series(1, 100) i", user="owner1"
        )
        yield shards


def said(database: Any, sql: str, user: str = "alice") -> tuple[str | None, ...]:
    """Say it in vain; gives state, message, detail and hint."""
    with database.connect(user) as session, pytest.raises(psycopg.Error) as caught:
        session.execute(sql)
    found = caught.value.diag
    return found.sqlstate, found.message_primary, found.message_detail, found.message_hint


def declare(clinic: Shards, written: str = "coordinator") -> None:
    clinic.near.sql(f"select dp.declare_shards('visit', written => '{written}')", user="owner1")


def problem(clinic: Shards) -> str | None:
    return clinic.near.sql(
        "select problem from dp.relations where relation_name = 'visit'", user="owner1"
    )[0][0]


def test_a_relation_on_several_servers_is_refused_until_its_owner_says_who_writes(
    clinic: Shards,
) -> None:
    assert said(clinic.near, QUESTION) == (
        "PD012",
        "relation public.visit cannot be queried privately",
        "The reason: its parts are on several servers, and nobody said by which way they are"
        " written to.",
        "Ask its owner to run SELECT dp.declare_shards('public.visit', written => 'coordinator'), or"
        " query other relations.",
    )
    declare(clinic)
    with silent(clinic.near, "visit") as session:
        assert session.execute(QUESTION).fetchone() == (100,)
    assert problem(clinic) is None


def test_only_the_owner_declares_and_only_what_is_elsewhere(clinic: Shards) -> None:
    call = "select dp.declare_shards({}, {})"
    clinic.near.sql("create table here (h int); alter table here owner to owner1")
    told = [
        said(clinic.near, call.format(*given), user)[:2]
        for user, given in (
            ("alice", ("'visit'", "'coordinator'")),
            ("owner1", ("'here'", "'coordinator'")),
            ("owner1", ("'visit'", "'nowhere'")),
            ("owner1", ("'visit'", "null")),
            ("owner1", ("null", "'anywhere'")),
        )
    ]
    assert [state for state, _ in told] == ["42501", *["PD040"] * 4]
    assert told[1][1] == "relation public.here has no parts on other servers"


def test_parts_are_asked_about_through_the_parent_only(clinic: Shards) -> None:
    declare(clinic)
    state, message, *_ = said(clinic.near, "select dp_count(*) from visit_0")
    assert (state, message) == (
        "PD012",
        'relation "public.visit_0" is neither protected nor public',
    )
    for part in ("visit", "visit_0"):
        assert said(clinic.near, f"select * from {part}")[0] == "42501"
    assert said(clinic.near, "select dp.protect('visit_0')", "owner1")[:2] == (
        "PD040",
        "relation public.visit_0 cannot be declared: it is a partition of another table",
    )


def test_analysts_cannot_use_what_reads_the_shards(clinic: Shards) -> None:
    """The mapping is dp_executor's, which nobody can be; its options are hidden."""
    declare(clinic)
    for sql in (
        "create foreign table mine (v_id int) server shard0 options (table_name 'visit')",
        "create user mapping for alice server shard0 options (user 'x')",
        "create user mapping for public server shard0 options (user 'x')",
        "alter user mapping for dp_executor server shard0 options (set user 'postgres')",
        "import foreign schema public from server shard0 into public",
        "set role dp_executor",
        "alter foreign table visit_0 options (set table_name 'other')",
        "select dp.meet_shards(array['visit'::regclass::oid], '{}')",
        "select dp.read_together()",
        "select dp.failed_shard(array['visit'::regclass::oid])",
    ):
        assert said(clinic.near, sql)[0] == "42501", sql
    assert clinic.near.sql("select distinct umoptions from pg_user_mappings", user="alice") == [
        (None,)
    ]
    # a superuser is not below a door either
    for call in ("meet_shards('{}', '{}')", "read_together()", "failed_shard('{}')"):
        assert said(clinic.near, f"select dp.{call}", "postgres")[0] == "PD070"


def test_a_mapping_for_everybody_or_remote_estimates_keep_it_from_being_asked(
    clinic: Shards,
) -> None:
    """Others would take snapshots on the servers, before the common moment."""
    declare(clinic)
    clinic.near.sql("drop user mapping for dp_executor server shard1")
    clinic.near.sql(
        f"create user mapping for public server shard1"
        f" options (user '{READER}', password_required 'false')"
    )
    assert (problem(clinic) or "").startswith(
        "server shard1 has no user mapping for dp_executor itself; to mend by CREATE USER MAPPING"
    )
    clinic.near.sql(
        f"create user mapping for dp_executor server shard1"
        f" options (user '{READER}', password_required 'false')"
    )
    assert problem(clinic) is None
    for there, mend in (
        ("server shard0", "ALTER SERVER shard0 OPTIONS (DROP use_remote_estimate);"),
        (
            "foreign table visit_1",
            "ALTER FOREIGN TABLE public.visit_1 OPTIONS (DROP use_remote_estimate);",
        ),
    ):
        clinic.near.sql(f"alter {there} options (add use_remote_estimate 'on')")
        assert (problem(clinic) or "").endswith(mend)
        clinic.near.sql(mend)
        assert problem(clinic) is None


def test_new_parts_wait_until_the_owner_lets_them_be_read(clinic: Shards) -> None:
    """Attached parts are refused first, detached ones are gone; nothing is read by an old plan."""
    clinic.near.sql("create table list (l_id int, l_who int) partition by list (l_id)")
    clinic.near.sql("alter table list owner to owner1")
    for number in (0, 1, 2):
        place = number % 2
        clinic.far[place].sql(
            f"create table list_{number} (l_id int, l_who int);"
            f" insert into list_{number} values ({number}, 1);"
            f" grant select on list_{number} to {READER}"
        )
        clinic.near.sql(
            f"create foreign table list_{number} (l_id int, l_who int) server shard{place};"
            f" alter foreign table list_{number} owner to owner1"
        )
    attach = "alter table list attach partition list_{0} for values in ({0})"
    for number in (0, 1):
        clinic.near.sql(attach.format(number), user="owner1")
    declared = "select dp.declare_shards('list', written => 'coordinator')"
    clinic.near.sql(f"select dp.protect('list'); {declared}", user="owner1")
    asked = "select dp_count(*) from list"
    with silent(clinic.near, "list") as session:
        assert session.execute(asked).fetchone() == (2,)
        clinic.near.sql(attach.format(2), user="owner1")
        with pytest.raises(psycopg.Error) as caught:
            session.execute(asked)
        assert caught.value.diag.message_hint == (
            "Ask its owner to run GRANT SELECT ON public.list_2 TO dp_executor, or query other"
            " relations."
        )
        clinic.near.sql(declared, user="owner1")
        assert session.execute(asked).fetchone() == (3,)
        clinic.near.sql("alter table list detach partition list_1", user="owner1")
        assert session.execute(asked).fetchone() == (2,)


@pytest.mark.parametrize(
    "change",
    [
        "alter foreign table visit_0 options (add fetch_size '10')",
        "alter server shard0 options (add fetch_size '10')",
        "alter server shard0 rename to shard7",
        "drop user mapping for dp_executor server shard0; create user mapping for dp_executor"
        f" server shard0 options (user '{READER}')",
        "revoke select on visit_0 from dp_executor",
        "alter table visit detach partition visit_1",
    ],
)
def test_where_rows_are_read_is_part_of_what_a_reading_relies_on(
    clinic: Shards, change: str
) -> None:
    """Such a change ends what was prepared, and a reading that it comes into is no answer."""
    declare(clinic)
    token = "select dp.fingerprint(array['visit'::regclass::oid])"
    before = clinic.near.sql(token)
    assert clinic.near.sql(token) == before
    clinic.near.sql(change)
    after = clinic.near.sql(token)
    assert after != before
    # stored answers outlive it
    assert [r[0].rpartition("#")[0] for r in after] == [r[0].rpartition("#")[0] for r in before]


def test_what_is_declared_is_part_of_the_question(clinic: Shards) -> None:
    declare(clinic)
    token = "select dp.fingerprint(array['visit'::regclass::oid])"
    before = clinic.near.sql(token)
    declare(clinic, "anywhere")
    assert clinic.near.sql(token) != before
    assert said(clinic.near, QUESTION)[2] == (
        "The reason: a row that is moved between its servers meanwhile could be seen twice, and it"
        " is protected row by row."
    )


def test_stored_statistics_of_foreign_parts_are_refused(clinic: Shards) -> None:
    declare(clinic)
    found = said(clinic.near, "select dp.collect_statistics('visit')", "owner1")
    assert found[0] == "PD040"
    assert "whose changes cannot be counted" in f"{found[1]} {found[2]}"


def test_a_declaration_is_forgotten_with_its_relation_and_dumped_with_it(clinic: Shards) -> None:
    declare(clinic)
    assert clinic.near.sql("select relation::text, written, declared_by::text from dp.shards") == [
        ("visit", "coordinator", "owner1")
    ]
    clinic.near.sql("drop table visit; select dp.grant_budget('bob', 1)")
    clinic.near.sql("create table t (t int); select dp.protect('t')")
    assert clinic.near.sql("select count(*) from dp.shards") == [(0,)]


def test_lockdown_names_what_leads_to_the_shards(clinic: Shards) -> None:
    """Mappings of analysts, owners of servers, options, and what is not seen from here."""
    declare(clinic)
    clinic.near.sql(
        "create user mapping for alice server shard0 options (user 'x');"
        "create user mapping for public server shard1 options (user 'x');"
        "grant usage on foreign server shard0 to bob;"
        "grant select on visit_1 to alice;"
        "alter server shard1 owner to bob;"
        "alter server shard0 options (add extensions 'citext', add use_remote_estimate 'true');"
        "alter server shard0 options (set host 'db7.example.com');"
        "create server back foreign data wrapper postgres_fdw"
        f" options (host '{clinic.near.cluster.socket}', port '5432', dbname '{clinic.near.name}');"
        "create user mapping for alice server back options (user 'postgres')"
    )
    listed = (
        "select hole, object, who, severity, statement from dp.check_lockdown()"
        " where hole in ('user mapping', 'foreign server', 'shard', 'relation privilege')"
    )
    found = {tuple(row[:4]): row[4] for row in clinic.near.sql(listed)}
    assert set(found) == {
        ("relation privilege", "public.visit_1", "alice", "critical"),
        ("user mapping", "shard0", "alice", "critical"),
        ("user mapping", "shard1", "PUBLIC", "critical"),
        ("user mapping", "back", "alice", "high"),
        ("foreign server", "shard0", "bob", "high"),
        ("foreign server", "shard1", "bob", "high"),
        ("shard", "shard0", "the network", "medium"),
        ("shard", "shard0", "that server", "low"),
        ("shard", "shard0", "roles of that server", "low"),
        ("shard", "shard1", "roles of that server", "low"),
    }
    for statement in {row[4] for row in clinic.near.sql(listed)}:
        clinic.near.sql(statement)
    left = clinic.near.sql(listed)
    assert {row[:3] for row in left} == {
        ("shard", "shard0", "roles of that server"),
        ("shard", "shard1", "roles of that server"),
    }
    for _, shard, *_, statement in left:
        number = int(shard.removeprefix("shard"))
        clinic.far[number].sql(str(statement).removeprefix("-- on that server: "))
