"""pg_dump and restore keep declarations, budgets and the ledger, and restore gives nothing back."""

from __future__ import annotations

import subprocess
import uuid

import psycopg
import pytest

from dpsql.client.layout import Layout

KEPT = {
    "relations": "select * from dp.relations order by schema_name, relation_name",
    "domains": "select relation_name, column_name, kind, members, lower, upper, problem from dp.domains order by column_name",
    "budgets": "select * from dp.budgets order by role, relation",
    "spends": "select * from dp.spend order by id",
    "roots": "select * from dp.root order by id",
    "role totals": "select * from dp.role_total order by principal",
    "root totals": "select * from dp.root_total order by root",
}


@pytest.fixture
def protected(database):
    for statement in (
        "grant dp_owner to owner1",
        "grant create on schema public to owner1",
        "set role owner1; create table t (a int primary key, b text);"
        "create table \"Ünïcode 'T'\" (a int); create table p (a int)",
        "set role owner1; insert into t select i, i % 3 from generate_series(1, 30) as i",
        "set role owner1; select dp.protect('t', epsilon => 5); select dp.declare_public('p');"
        "select dp.protect('\"Ünïcode ''T''\"'); select dp.set_domain('t', 'b', array['0', '1'], other => 'more'); select dp.set_domain('t', 'a', -5, 2000000);"
        "select dp.grant_budget('alice', epsilon => 3)",
    ):
        database.sql(statement)
    return database


def spend(database, amount: str) -> str:
    """Charge alice for a question over t as a service session does; return the status."""
    key = uuid.uuid4().hex
    rows = database.sql(
        f"""
        set role dp_ledger;
        select (dp.ledger_open(
            'alice'::regrole, array[1], {amount}, 0, null, null, '\\x{key}', '\\x{key}', 'laplace', 'elastic', 'proved', 'a question', false,
            clock_timestamp())).status"""
    )
    return str(rows[0][0])


def dump_and_restore(server, database, form: str):
    """Restore the database's dump into a new one, as an administrator would."""
    tools = Layout.discover().bin
    copy = server.create_database(template="template0", acknowledge=False)
    dump = subprocess.run(
        [tools / "pg_dump", f"-F{form}", "-d", database.conninfo()], check=True, capture_output=True
    ).stdout
    restore = ["psql", "-Xq", "-v", "ON_ERROR_STOP=1"] if form == "p" else ["pg_restore", "-e"]
    subprocess.run(
        [tools / restore[0], *restore[1:], "-d", copy.conninfo()],
        input=dump,
        check=True,
        capture_output=True,
    )
    return copy


@pytest.mark.parametrize("form", ["c", "p"])
def test_restore_keeps_policies_budgets_and_spends(server, protected, form):
    assert spend(protected, "0.1") == "charged"
    before = {name: protected.sql(query) for name, query in KEPT.items()}
    assert all(before.values())
    copy = dump_and_restore(server, protected, form)
    try:
        assert {name: copy.sql(query) for name, query in KEPT.items()} == before
    finally:
        server.drop_database(copy)


def test_restored_ledger_charges_only_after_acknowledgement_and_remembers(server, protected):
    assert spend(protected, "2.5") == "charged"
    copy = dump_and_restore(server, protected, "c")
    try:
        assert spend(copy, "0.1") == "restored"
        copy.sql("select dp.acknowledge_restore('restored on purpose')")
        assert spend(copy, "1") == "exceeded_role"
        assert spend(copy, "0.5") == "charged"
        assert copy.sql("select count(*), count(distinct id) from dp.spend") == [(2, 2)]
    finally:
        server.drop_database(copy)


@pytest.mark.parametrize("form", ["c", "p"])
def test_statistics_are_derived_and_begin_anew_in_what_is_restored(server, protected, form):
    def owner(database, statements: str):
        return database.sql("set role owner1; " + statements)

    collect = "select dp.collect_statistics('t'); select dp.refresh_statistics('t')"
    found = "select count(*) from dp.statistics where 'public.t' = any (relations) and changes is not null"
    owner(protected, collect)
    owner(protected, "insert into t values (100, 'x')")
    (taken,) = owner(protected, found)[0]
    assert taken > 0
    copy = dump_and_restore(server, protected, form)
    try:
        assert owner(copy, found) == [(0,)]
        copy.sql("select dp.acknowledge_restore('a copy')")
        owner(copy, "insert into t values (101, 'x')")
        owner(copy, collect)
        owner(copy, "insert into t values (102, 'x')")
        assert owner(copy, found) == [(taken,)]
        changes = (
            "select distinct changes::int from dp.statistics where 'public.t' = any (relations)"
        )
        assert owner(copy, changes) == [(1,)]
    finally:
        server.drop_database(copy)


def test_units_and_links_are_found_again_by_their_names(server, protected):
    """Numbers of columns, by which renames are noticed, mean nothing in another database."""
    protected.sql(
        "create table person (gone int, id int primary key); alter table person drop gone;"
        "insert into person select generate_series(1, 200);"
        "create table visit (gone int, who int not null); alter table visit drop gone;"
        "insert into visit select 1 + g % 200 from generate_series(1, 400) g;"
        "select dp.protect('person', privacy_unit => 'id');"
        "select dp.link('visit', 'person', array['who'], nulls => 'excluded');"
        "select dp.grant_budget('postgres', 1000)"
    )
    copy = dump_and_restore(server, protected, "c")
    try:
        shown = "select relation_name, privacy_unit, problem from dp.relations where neighbours = 'unit'"
        assert any("acknowledge_restore" in str(row[2]) for row in copy.sql(shown))
        copy.sql("select dp.acknowledge_restore('a copy')")
        assert sorted(copy.sql(shown)) == [
            ("person", "person.id", None),
            ("visit", "person.id by visit.who", None),
        ]
        copy.sql("select dp_count(*) from visit")
    finally:
        server.drop_database(copy)


def test_links_are_found_again_by_all_their_names_or_not_at_all(server, protected):
    """A link of a column that was renamed before the acknowledgement is not that of a neighbour.

    Columns 3 and 2 become 2 and 1: numbers that one link had are another's in the copy.
    """
    protected.sql(
        "create table person (id int primary key); insert into person select generate_series(1, 200);"
        "create table visit (gone int, who int not null, guest int not null); alter table visit drop gone;"
        "create table note (gone int, who int not null, guest int not null); alter table note drop gone;"
        "select dp.protect('person', privacy_unit => 'id');"
        "select dp.link('visit', 'person', array['guest'], nulls => 'excluded');"
        "select dp.link('visit', 'person', array['who'], nulls => 'excluded');"
        "select dp.link('note', 'person', array['who'], nulls => 'excluded');"
    )
    copy = dump_and_restore(server, protected, "c")
    try:
        copy.sql("alter table note rename who to whom")
        copy.sql("select dp.acknowledge_restore('a copy')")
        shown = copy.sql(
            "select relation_name, privacy_unit, problem from dp.relations"
            " where relation_name in ('visit', 'note') order by relation_name desc"
        )
        assert shown[0] == ("visit", "person.id by visit.guest; person.id by visit.who", None)
        assert shown[1][0] == "note"
        assert "is gone" in str(shown[1][2]), shown
    finally:
        server.drop_database(copy)


@pytest.mark.parametrize("renamed", ["before", "between"])
def test_numbers_of_rows_are_found_again_by_their_names(server, protected, renamed):
    """Also where one is renamed before the restore is acknowledged."""
    rename = "alter table rating rename column dp_slot_movie to place"
    protected.sql(
        "create table person (id int primary key); insert into person select generate_series(1, 200);"
        "create table rating (gone int, movie int, who int not null references person);"
        "alter table rating drop gone; insert into rating (movie, who) select 1, id from person;"
        "select dp.protect('person', privacy_unit => 'id');"
        "select dp.set_degree_bound('rating', array['movie'], 300);"
        "alter table rating add column fine int not null default 1;"
        "select dp.grant_budget('postgres', 1000)"
    )
    if renamed == "before":
        protected.sql(rename)
    copy = dump_and_restore(server, protected, "c")
    try:
        if renamed == "between":
            copy.sql(rename)
        copy.sql("select dp.acknowledge_restore('a copy')")
        with pytest.raises(psycopg.Error) as caught:
            copy.sql("select dp_count(*) from rating where place = 1")
        assert "columns that number rows" in str(caught.value)
        copy.sql("select dp_count(*) from rating where fine = 1")
        assert copy.sql("select column_name, attnum from dp.numbered_column") == [("place", 3)]
    finally:
        server.drop_database(copy)


def test_a_restore_is_told_before_what_it_makes_seem_wrong(server, protected):
    """What an owner said of keys is not understood before the restore is acknowledged."""
    protected.sql(
        "create table person (id int primary key, boss int references person);"
        "insert into person select generate_series(1, 200);"
        "create table visit (who int not null references person);"
        "select dp.protect('person', privacy_unit => 'id');"
        "select dp.link('person', 'person', array['boss'], follow => false);"
        "select dp.grant_budget('postgres', 1000)"
    )
    shown = "select relation_name, problem from dp.relations where neighbours = 'unit'"
    assert {problem for _, problem in protected.sql(shown)} == {None}
    copy = dump_and_restore(server, protected, "c")
    try:
        problems = dict(copy.sql(shown))
        assert set(problems) == {"person", "visit"}
        for name, problem in problems.items():
            assert "circle" not in problem
            assert "refer to other rows" not in problem
            assert "restored" in problem
            assert "dp.acknowledge_restore" in problem
            with pytest.raises(psycopg.Error) as caught:
                copy.sql(f"select dp_count(*) from {name}")
            assert caught.value.sqlstate == "PD051"
        copy.sql("select dp.acknowledge_restore('a copy')")
        assert {problem for _, problem in copy.sql(shown)} == {None}
        copy.sql("select dp_count(*) from visit")
    finally:
        server.drop_database(copy)
