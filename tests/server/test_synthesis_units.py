"""Whose the rows of a copy are, and what a unit takes with it."""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.engine.synthesis_units import Passage, Units, units_of
from dpsql.errors import DpsqlError, NotAnswerable, UndeclaredRelation
from dpsql.relation import UnitPath
from dpsql.synthesis.planning import planned
from tests.server.copying import bank, office, read, reader, services_of


@pytest.fixture(scope="module")
def copied(server: Any) -> Any:
    database = bank(server.create_database())
    yield database
    server.drop_database(database)


@pytest.fixture(scope="module")
def persons(server: Any) -> Any:
    database = office(server.create_database())
    yield database
    server.drop_database(database)


def units(database: Any, *names: str) -> Units:
    return units_of(list(read(database, *names).values()), services_of(reader(database)))


def passages(found: Units) -> dict[str, str]:
    """By name of the constraint."""
    return {name: passage.value for (_, name), passage in found.passages.items()}


def refusal(database: Any, *names: str) -> DpsqlError:
    with pytest.raises(DpsqlError) as caught:
        units(database, *names)
    return caught.value


def test_a_chain_below_the_unit_goes_through_its_keys(copied: Any) -> None:
    found = units(copied, "account", "loan", "trans", "elsewhere")
    ((root,),) = copied.sql("select id from dp.root where unit_column = 'a_id'")
    assert (found.roots, found.by_rows) == ((root,), False)
    assert passages(found) == {
        "account_a_district_fkey": "public",
        "loan_l_account_fkey": "through",
        "trans_t_loan_fkey": "through",
        "elsewhere_e_account_fkey": "through",
    }
    names = {t.oid: n for n, t in read(copied, "account", "loan", "trans", "elsewhere").items()}
    ways = {names[oid]: (len(w.path.hops), w.path.column) for oid, (w,) in found.ways.items()}
    assert ways == {
        "account": (0, "a_id"),
        "loan": (0, "l_account"),
        "trans": (1, "l_account"),
        "elsewhere": (1, "a_id"),
    }


def test_one_table_row_by_row_may_have_public_ones_around_it(copied: Any) -> None:
    found = units(copied, "client")
    assert found.by_rows
    assert found.ways == {}
    assert passages(found) == {"client_c_district_fkey": "public"}


def test_relations_of_several_roots_are_refused_with_their_roots(copied: Any) -> None:
    error = refusal(copied, "account", "disp", "client")
    assert isinstance(error, NotAnswerable)
    assert "public.account belongs to the privacy units of public.account (a_id)" in str(
        error.detail
    )
    assert "public.disp belongs to the privacy units of public.account (a_id)" in str(error.detail)
    assert "public.client is protected row by row" in str(error.detail)
    assert "SELECT dp.protect('public.client', privacy_unit => 'c_id');" in str(error.hint)


def test_keys_within_units_and_between_them(persons: Any) -> None:
    names = ("person", "desk", "mail", "paper", "drawer")
    found = units(persons, *names)
    assert passages(found) == {
        "person_u_boss_fkey": "across",
        "desk_k_owner_fkey": "through",
        "desk_k_wing_k_room_fkey": "public",
        "mail_m_from_fkey": "through",
        "mail_m_to_fkey": "across",
        "paper_room": "public",
        "paper_desk": "through",
        "drawer_w_owner_fkey": "through",
        "drawer_desk": "through",
    }
    plan = planned(list(read(persons, *names).values()))
    linked = {p.table.name: [r.key.name for r in p.references] for p in plan.tables}
    assert linked == {
        "room": [],
        "person": ["person_u_boss_fkey"],
        "desk": ["desk_k_wing_k_room_fkey", "desk_k_owner_fkey"],
        "mail": ["mail_m_from_fkey", "mail_m_to_fkey"],
        "paper": ["paper_desk"],
        "drawer": ["drawer_desk"],
    }


ROWS = """
insert into public.room select w, n from unnest(array['east', 'west']) w, generate_series(1, 3) n;
insert into public.person (u_boss) select case when i > 1 then 1 + i / 2 % (i - 1) end from generate_series(1, 12) i;
insert into public.desk select (array['east', 'west'])[1 + i % 2], 1 + i % 3, i, 1 + i % 12 from generate_series(1, 30) i;
insert into public.mail (m_from, m_to) select 1 + i % 12, nullif(i * i % 13, 0) from generate_series(1, 40) i;
insert into public.paper select k_wing, k_room, k_number from public.desk, generate_series(1, 2);
insert into public.drawer select k_owner, k_number from public.desk, generate_series(1, 3);
"""


def with_units(name: str, way: UnitPath) -> str:
    """Write a subquery of a table's rows with their units, along the way that was found."""
    joins, at = "", "r0"
    for n, hop in enumerate(way.hops, 1):
        on = " and ".join(
            f"{at}.{a} = r{n}.{b}" for a, b in zip(hop.columns, hop.parent_columns, strict=True)
        )
        joins, at = f"{joins} join {hop.schema}.{hop.name} r{n} on {on}", f"r{n}"
    return f"(select r0.*, {at}.{way.column} as unit from public.{name} r0{joins})"


def test_rows_have_the_unit_of_their_parent_where_the_way_goes_through_the_key(
    persons: Any,
) -> None:
    persons.sql(ROWS)
    tables = read(persons, "person", "desk", "mail", "paper", "drawer")
    found = units_of(list(tables.values()), services_of(reader(persons)))
    by_oid = {t.oid: t for t in tables.values()}
    seen = []
    for (oid, name), passage in found.passages.items():
        if passage is Passage.PUBLIC:
            continue
        (key,) = (k for k in by_oid[oid].foreign_keys if k.name == name)
        on = " and ".join(
            f"c.{a} = p.{b}" for a, b in zip(key.columns, key.parent_columns, strict=True)
        )
        child = with_units(by_oid[oid].name, found.ways[oid][0].path)
        parent = with_units(by_oid[key.parent].name, found.ways[key.parent][0].path)
        ((same, other),) = persons.sql(
            "select count(*) filter (where c.unit = p.unit),"
            f" count(*) filter (where c.unit is distinct from p.unit) from {child} c"
            f" join {parent} p on {on}"
        )
        assert same + other > 0
        assert (other == 0) == (passage is Passage.THROUGH), name
        seen.append(passage)
    assert seen.count(Passage.THROUGH) == 5
    assert seen.count(Passage.ACROSS) == 2


def test_rows_of_two_units_are_refused(database: Any) -> None:
    office(database)
    with database.connect(user="owner1") as owner:
        owner.execute("select dp.unlink('mail', 'person', array['m_to'])")
        owner.execute("select dp.link('mail', 'person', array['m_to'], nulls => 'excluded')")
    error = refusal(database, "person", "mail")
    assert "can belong to several privacy units" in error.message
    assert "m_from" in str(error.detail)
    assert "follow => false" in str(error.hint)


def test_rows_that_may_belong_to_nobody_are_refused(database: Any) -> None:
    bank(database)
    with database.connect(user="owner1") as owner:
        owner.execute("select dp.unlink('elsewhere', 'account', array['e_account'])")
    error = refusal(database, "account", "elsewhere")
    assert isinstance(error, UndeclaredRelation)
    assert "may belong to no privacy unit" in error.message


def test_several_tables_row_by_row_are_refused(database: Any) -> None:
    database.sql("create table public.a (id int primary key); create table public.b (id int)")
    database.sql("select dp.protect('public.a'), dp.protect('public.b')")
    error = refusal(database, "a", "b")
    assert "public.a is protected row by row; public.b is protected row by row" in str(error.detail)
