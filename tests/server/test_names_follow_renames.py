"""Names beside numbers of columns follow every command that renames; parts have numbers of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import say

pytestmark = pytest.mark.server

WORLD = """
create table acct (id int primary key); insert into acct select generate_series(0, 9);
select dp.protect('acct', privacy_unit => 'id');
grant usage on schema public to alice;
select dp.grant_budget('alice', 1000);
create type pair as (house int, person int);
create table plain (house int not null, person int not null, x int);
create table typed of pair (house not null, person not null);
create extension postgres_fdw; create server far foreign data wrapper postgres_fdw;
create foreign table elsewhere (house int not null, person int not null) server far;
create view seen as select 1 as a;
"""
ATTRIBUTE = "alter type pair rename attribute {} to {} cascade"
RENAMES = {
    "ALTER TABLE": ("plain", "alter table plain rename column {} to {}"),
    "ALTER VIEW": ("plain", "alter view plain rename column {} to {}"),
    "ALTER MATERIALIZED VIEW": ("plain", "alter materialized view plain rename column {} to {}"),
    "ALTER TYPE": ("typed", ATTRIBUTE),
    "ALTER FOREIGN TABLE": ("elsewhere", "alter foreign table elsewhere rename column {} to {}"),
}


def exchange(database: Any, statement: str) -> None:
    for names in (("house", "kept"), ("person", "house"), ("kept", "person")):
        database.sql(statement.format(*names))


@pytest.mark.parametrize("command", RENAMES)
def test_the_name_of_a_unit_follows(database: Any, command: str) -> None:
    database.sql(WORLD)
    relation, statement = RENAMES[command]
    database.sql(f"select dp.protect('{relation}', privacy_unit => 'house')")
    exchange(database, statement)
    named = f"select unit_column from dp.root where relation_name = '{relation}'"
    assert database.sql(named) == [("person",)]


@pytest.mark.parametrize("command", ["ALTER TABLE", "ALTER VIEW", "ALTER TYPE"])
def test_names_of_links_and_of_accounts_follow(database: Any, command: str) -> None:
    database.sql(WORLD)
    relation, statement = RENAMES[command]
    database.sql(f"select dp.link('{relation}', 'acct', array['house'], nulls => 'excluded')")
    with database.connect("alice") as alice:
        assert say(alice, f"select dp_count(distinct house) from {relation}").startswith("[(")
    exchange(database, statement)
    assert database.sql("select columns from dp.unit_link") == [(["person"],)]
    shown = database.sql("select shown from dp.covered order by shown")
    assert [row[0].split(" ")[0] for row in shown] == ["id", "person"]


def test_the_name_of_a_table_follows_alter_index(database: Any) -> None:
    database.sql(WORLD)
    database.sql("select dp.protect('plain'); alter index plain rename to renamed")
    assert database.sql("select relation_name from dp.root where neighbours = 'row'") == [
        ("renamed",)
    ]


def test_a_numbered_column_follows_its_parent(database: Any) -> None:
    database.sql(WORLD)
    database.sql(
        "create table part (m int not null, x int); select dp.set_degree_bound('part', array['m'], 9);"
        "alter table part rename dp_slot_m to z;"
        "create table whole (m int not null, x int, z int) partition by list (m);"
        "alter table whole attach partition part default; alter table whole rename z to place"
    )
    named = "select column_name from dp.numbered_column where relation = 'part'::regclass"
    assert database.sql(named) == [("place",)]


PARTS = """
create table sale (sid int not null, buyer int not null, seller int not null) partition by range (sid);
create table part (sid int not null, seller int not null, buyer int not null);
alter table sale attach partition part for values from (0) to (1000);
insert into sale select i, i % 5, i % 3 from generate_series(1, 50) as i;
select dp.link('sale', 'acct', array['buyer'], nulls => 'excluded');
"""


@pytest.fixture
def detached(database: Any) -> Any:
    """A partition whose columns have other numbers, let go after a question."""
    database.sql(WORLD)
    database.sql(PARTS)
    with database.connect("alice") as alice:
        assert say(alice, "select dp_count(distinct buyer) from sale").startswith("[(")
    database.sql("alter table sale detach partition part; grant select on part to dp_executor")
    return database


def test_a_detached_part_goes_on_with_its_units(detached: Any) -> None:
    with detached.connect("alice") as alice:
        said = say(alice, "select dp_count(distinct buyer) from part")
        assert said.startswith("[("), said


def test_a_detached_part_gets_no_other_units(detached: Any) -> None:
    with detached.connect() as owner:
        owner.execute("select dp.unlink('part', 'acct', array['buyer'])")
        linked = say(owner, "select dp.link('part', 'acct', array['seller'], nulls => 'excluded')")
    with detached.connect("alice") as alice:
        said = say(alice, "select dp_count(*) from part where buyer = 3")
    assert linked.startswith("PD") or said.startswith("PD012"), (linked, said)
