"""What happens to relations of a unit when parts leave, units end, or others declared something else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.test_dump_restore import dump_and_restore

pytestmark = pytest.mark.server

# The columns of parts have other numbers than those of the whole.
LOGS = """
create table person (id int primary key);
insert into person select generate_series(1, 300);
create table doctor (id int primary key);
insert into doctor select generate_series(1, 300);
create table log (day int, gone int, p int not null) partition by range (day);
create table log1 (p int not null, day int, gone int);
create table log2 (gone int, p int not null, day int);
alter table log attach partition log1 for values from (0) to (10);
alter table log attach partition log2 for values from (10) to (20);
alter table log drop column gone;
insert into log select g % 20, 1 from generate_series(1, 3000) g;
select dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.link('log', 'person', array['p'], nulls => 'excluded');
grant usage on schema public to alice;
select dp.grant_budget('alice', 1e5, 1);
"""


def notices(database: Any, statement: str, **options: Any) -> list[str]:
    """Return what a statement tells."""
    found: list[str] = []
    with database.connect(**options) as session:
        session.autocommit = True
        session.add_notice_handler(lambda d: found.append(f"{d.message_primary} {d.message_hint}"))
        session.execute(statement)
    return found


def shown(database: Any) -> dict[str, str]:
    return dict(database.sql("select relation_name, privacy_unit from dp.relations"))


def count(database: Any, relation: str) -> int:
    """Count with hardly any noise and one row a unit."""
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 50; set dp.max_rows_contributed = 1")
        return int(alice.execute(f"select dp_count(*) from {relation}").fetchone()[0])


@pytest.mark.parametrize("how", ["detach partition log1", "detach partition log1 concurrently"])
def test_a_detached_partition_keeps_the_link(database: Any, how: str) -> None:
    database.sql(LOGS)
    assert count(database, "log") < 30
    found = notices(database, f"alter table log {how}")
    assert len(found) == 1
    assert "log1 was a part of public.log and is linked to public.person by itself" in found[0]
    assert "GRANT SELECT ON public.log1 TO dp_executor" in found[0]
    assert shown(database)["log1"] == "person.id by log1.p"
    error = refused(database.connect(), "select dp.declare_public('log1')")
    assert error.sqlstate == "PD040"
    database.sql("grant select on log1 to dp_executor")
    assert count(database, "log1") < 30
    assert count(database, "log") < 30
    # the other one is still a part, and the link can be taken back
    database.sql("select dp.unlink('log1', 'person', array['p'])")
    assert "log1" not in shown(database)
    assert database.sql("select child::text, parts::text[] from dp.unit_link") == [
        ("log", ["log2"])
    ]


def test_a_part_made_with_its_schema_keeps_the_link(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "create schema s create table l3 partition of public.log for values from (20) to (30)"
    )
    found = notices(database, "alter table log detach partition s.l3")
    assert len(found) == 1
    assert shown(database)["l3"] == "person.id by l3.p"


@pytest.mark.parametrize(
    "parts",
    [
        "create table log3 partition of log for values from (20) to (30)",
        "create table log3 (p int not null, day int);"
        "alter table log attach partition log3 for values from (20) to (30)",
        "create table log3 partition of log for values from (20) to (30) partition by range (day);"
        "create table log31 partition of log3 for values from (20) to (25)",
    ],
)
def test_parts_that_came_later_keep_it_too(database: Any, parts: str) -> None:
    database.sql(LOGS)
    database.sql(f"set session_replication_role = replica; {parts}")
    found = notices(database, "alter table log detach partition log3")
    assert len(found) == 1
    assert shown(database)["log3"] == "person.id by log3.p"
    if "log31" in parts:
        found = notices(database, "alter table log3 detach partition log31")
        assert "log31 was a part of public.log3" in found[0]
        assert shown(database)["log31"] == "person.id by log31.p"


def test_a_child_that_inherits_no_more_keeps_it(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "create table note (p int not null); create table old_note () inherits (note);"
        "select dp.link('note', 'person', array['p'], nulls => 'excluded')"
    )
    found = notices(database, "alter table old_note no inherit note")
    assert "old_note was a part of public.note" in found[0]
    assert "old_note" in shown(database)


def test_what_was_cut_stays_cut_and_others_are_left_alone(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "create table stay (p int not null references person, d int not null references doctor, day int)"
        " partition by range (day);"
        "create table stay1 partition of stay for values from (0) to (10);"
        "select dp.protect('doctor', privacy_unit => 'id');"
        "select dp.link('stay', 'doctor', array['d'], follow => false)"
    )
    notices(database, "alter table stay detach partition stay1")
    assert shown(database)["stay1"] == "person.id by stay1.p"
    assert shown(database)["stay"] == "person.id by stay.p"
    assert notices(database, "create table other (i int); drop table other") == []
    database.sql("create schema s; alter table log1 set schema s; drop schema s cascade")
    assert database.sql("select parts::text[] from dp.unit_link where child = 'log'::regclass") == [
        (["log2"],)
    ]


def test_whoever_detaches_needs_no_right_to_the_catalogue(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "grant usage, create on schema public to owner1;"
        "alter table log owner to owner1; alter table log1 owner to owner1"
    )
    assert len(notices(database, "alter table log detach partition log1", user="owner1")) == 1
    assert "log1" in shown(database)


def test_members_are_told_when_one_of_two_units_ends(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "select dp.protect('doctor', privacy_unit => 'id');"
        "create table stay (p int not null references person, d int not null references doctor)"
    )
    assert shown(database)["stay"] == "person.id by stay.p; doctor.id by stay.d"
    found = notices(database, "select dp.unprotect('doctor')")
    assert len(found) == 1
    assert "stay is protected for units of person.id alone" in found[0]
    assert shown(database)["stay"] == "person.id by stay.p"
    found = notices(database, "select dp.unprotect('person')")
    assert len(found) == 2
    assert all("cannot be asked about any more" in f for f in found)
    assert shown(database) == {}
    # single rows have no members
    database.sql("select dp.protect('doctor')")
    assert notices(database, "select dp.unprotect('doctor')") == []


def test_members_are_told_when_their_unit_is_dropped(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "select dp.protect('doctor', privacy_unit => 'id');"
        "create table stay (id int primary key, p int not null references person,"
        " d int not null references doctor);"
        "create table note (s int not null references stay);"
        "create table own (p int references person); create table other (i int primary key);"
        "create table apart (i int not null references other)"
    )
    assert set(shown(database)) == {"person", "doctor", "log", "stay", "note", "own"}
    # what is dropped in vain tells nothing
    refused(database.connect(), "drop table doctor")
    assert notices(database, "drop table other cascade") == [
        "drop cascades to constraint apart_i_fkey on table apart None"
    ]
    found = [f for f in notices(database, "drop table doctor cascade") if "relation" in f]
    assert sorted(f.split(" Its owner")[0] for f in found) == [
        "relation public.note is protected for units of person.id alone from now on",
        "relation public.stay is protected for units of person.id alone from now on",
    ]
    found = [f for f in notices(database, "drop table person cascade") if "relation" in f]
    assert sorted(f.split(" and ")[0] for f in found) == [
        f"relation public.{name} belonged to units of public.person"
        for name in ("log", "note", "own", "stay")
    ]
    assert all("cannot be asked about any more" in f for f in found)
    assert shown(database) == {}


def test_an_owner_who_drops_a_unit_needs_no_right_to_the_catalogue(database: Any) -> None:
    database.sql(LOGS)
    database.sql(
        "grant usage, create on schema public to owner1; create schema s authorization owner1;"
        "alter table person set schema s; alter table s.person owner to owner1"
    )
    found = notices(database, "drop schema s cascade", user="owner1")
    assert any("relation public.log belonged to units of s.person" in f for f in found)


@pytest.mark.parametrize("kind", ["dp.declare_public('m.t')", "dp.protect('m.t')"])
def test_nobody_keeps_an_owner_from_protecting(database: Any, kind: str) -> None:
    database.sql(
        "create table person (id int primary key); insert into person select generate_series(1, 9);"
        "alter table person owner to owner1; create schema m authorization mallory;"
        "grant usage on schema m to alice; grant usage on schema public to alice;"
        "grant dp_owner to mallory; grant dp_owner to owner1; grant references on person to mallory;"
        "select dp.grant_budget('alice', 100, 1e-3)"
    )
    with database.connect("mallory") as mallory:
        mallory.execute("create table m.t (p int not null references public.person)")
        mallory.execute(f"select {kind}")
    found = notices(database, "select dp.protect('person', privacy_unit => 'id')", user="owner1")
    assert "m.t of another owner refers to public.person" in found[0]
    problems = dict(database.sql("select relation_name, problem from dp.relations"))
    assert problems["person"] is None
    assert "its rows belong to units of person.id" in problems["t"]
    alice = database.connect("alice")
    alice.autocommit = True
    alice.execute("set dp.epsilon = 50")  # a noise that is not 0 has a probability below 1e-21
    error = refused(alice, "select dp_count(*) from m.t")
    assert error.sqlstate == "PD012"
    assert alice.execute("select dp_count(*) from person").fetchone() == (9,)
    # an owner of both is told to mend it first
    with database.connect() as administrator:
        administrator.execute("create table doctor (id int primary key)")
        administrator.execute("create table d (p int not null references doctor)")
        administrator.execute("select dp.declare_public('d')")
        error = refused(administrator, "select dp.protect('doctor', privacy_unit => 'id')")
        assert "declared otherwise" in str(error)


@pytest.mark.parametrize("acknowledged_first", [True, False])
def test_a_restored_database_knows_the_parts(
    server: Any, database: Any, acknowledged_first: bool
) -> None:
    database.sql(LOGS)
    # a part that is gone leaves no number that another relation could have in the copy
    database.sql("create table log3 partition of log for values from (20) to (30); drop table log3")
    copy = dump_and_restore(server, database, "c")
    try:
        assert copy.sql("select parts::text[] from dp.unit_link") == [(["log1", "log2"],)]
        steps = ["select dp.acknowledge_restore('a copy')", "alter table log detach partition log1"]
        for step in steps if acknowledged_first else reversed(steps):
            copy.sql(step)
        assert shown(copy)["log1"] == "person.id by log1.p"
        problem = "role dp_executor may not read it; to mend by GRANT SELECT ON public.log1 TO dp_executor;"
        assert copy.sql(
            "select relation_name, problem from dp.relations where problem is not null"
        ) == [("log1", problem)]
    finally:
        server.drop_database(copy)
