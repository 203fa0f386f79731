"""Copies that are planned from the catalogue and written from rows at random: all constraints hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from synthesising import listed as public_rows
from synthesising import store, write, writer

from dpsql.engine.synthesis_schema import read_schema
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.planning import planned
from dpsql.synthesis.schema import Plan, Use
from tests.server.copying import bank, office, oids, services_of

OFFICE = ("person", "room", "desk", "mail", "paper")


def plan_of(database: Any, names: list[str]) -> Plan:
    connection = database.connect()
    connection.execute("set role dp_executor")
    connection.execute("set search_path = pg_catalog, pg_temp")
    tables = read_schema(oids(connection, *(f"public.{n}" for n in names)), services_of(connection))
    return planned(tables)


def at_random(
    plan: Plan, sizes: dict[str, int], listed: dict[str, list[str]], seed: int
) -> list[Generated | None]:
    """Draw codes and links of all tables of a plan, without looking at any constraint."""
    rng = np.random.default_rng(seed)
    result: list[Generated | None] = []
    for place, table in enumerate(plan.tables):
        if table.table.public:
            result.append(public_rows(d_id=[str(i + 1) for i in range(sizes[table.table.name])]))
            continue
        number = sizes[table.table.name]
        levels: list[tuple[str | None, ...]] = []
        for a in table.attributes:
            texts: list[str | None] = (
                [str(i + 1) for i in range(len(a.bins) - 1)] if a.bins else list(listed[a.column])
            )
            levels.append((*texts, None) if a.nullable else tuple(texts))
        codes = np.column_stack(
            [rng.integers(0, len(t), number) for t in levels] or [np.zeros((number, 0), int)]
        )
        links = []
        for r in table.references:
            parent = plan.tables[r.parent].table
            many = number if r.parent == place else sizes[parent.name]
            chosen = rng.integers(0, max(many, 1), number)
            links.append(
                np.where(rng.random(number) < 0.2, -1, chosen) if r.nullable or not many else chosen
            )
        result.append(Generated(number, codes, tuple(levels), tuple(links)))
    return result


def check_bins(session: Any, plan: Plan, generated: list[Generated | None]) -> int:
    """Compare what the planned expressions say of written values with the levels that were drawn."""
    seen = 0
    for table, given in zip(plan.tables, generated, strict=True):
        if given is None or table.table.public:
            continue
        for n, a in enumerate(table.attributes):
            (count,) = session.execute(f"select count(*) from syn.{table.table.name}").fetchone()
            if count != given.rows or any(a.column in u.columns for u in table.table.uniques):
                continue
            drawn = sorted(str(given.levels[n][c]) for c in given.codes[:, n])
            text = f"select coalesce(({a.expression})::text, 'None') from syn.{table.table.name}"
            assert sorted(r[0] for r in session.execute(text)) == drawn, (
                table.table.name,
                a.column,
            )
            seen += 1
    return seen


def test_a_bank_is_written_as_planned(server: Any) -> None:
    database = bank(server.create_database())
    try:
        database.sql(f"grant create on database {database.name} to owner1")
        plan = plan_of(database, ["account", "client", "disp", "loan", "trans", "elsewhere"])
        listed = {
            "a_often": ["monthly", "weekly", "it's"],
            "c_flag": ["false", "true"],
            "p_owner": ["false", "true"],
            "l_status": ["junior", "classic", "gold"],
            "t_kind": ["in", "out"],
        }
        sizes = {
            "district": 9,
            "account": 300,
            "client": 400,
            "disp": 500,
            "loan": 280,
            "trans": 2000,
            "elsewhere": 50,
        }
        days = [f"1910-01-{d:02}" for d in range(1, 21)]
        generated = at_random(plan, sizes, listed | {"c_born": days}, 1)
        admin = database.connect()
        write(writer(database, "owner1"), store(database, "owner1", "syn", plan, generated))
        assert check_bins(admin, plan, generated) == 15
        assert admin.execute("select count(*) from syn.loan").fetchone() == (280,)
        assert admin.execute(
            "select count(*) from pg_constraint where connamespace = 'syn'::regnamespace and contype = 'f'"
        ).fetchone() == (sum(len(t.references) + len(t.implied) for t in plan.tables),)
    finally:
        server.drop_database(database)


@pytest.mark.parametrize("seed", range(4))
def test_an_office_is_written_as_planned(server: Any, seed: int) -> None:
    """A tree, two keys to one table, composite keys, keys that imply others."""
    database = office(server.create_database())
    try:
        database.sql(f"grant create on database {database.name} to owner1")
        with database.connect(user="owner1") as owner:
            for table in OFFICE:
                owner.execute(f"select dp.protect('{table}')")
            for table, column in (("person", "u_wing"), ("mail", "m_words"), ("room", "r_seats")):
                values = "array['a', 'b']" if column == "u_wing" else "array[1, 2, 3]"
                owner.execute(f"select dp.set_domain('{table}', '{column}', {values})")
        plan = plan_of(database, list(OFFICE))
        sizes = {"person": 200, "room": 30, "desk": 100, "mail": 500, "paper": 300}
        listed = {"u_wing": ["a", "b"], "m_words": ["1", "2", "3"], "r_seats": ["1", "2", "3"]}
        generated = at_random(plan, sizes, listed, seed)
        admin = database.connect()
        write(
            writer(database, "owner1"), store(database, "owner1", "syn", plan, generated, seed=seed)
        )
        for name, number in sizes.items():
            assert admin.execute(f"select count(*) from syn.{name}").fetchone() == (number,), name
        keys = sum(len(t.references) + len(t.implied) for t in plan.tables)
        found = admin.execute(
            "select count(*) from pg_constraint where connamespace = 'syn'::regnamespace and contype = 'f' and convalidated"
        ).fetchone()
        assert found == (keys,) == (7,)
        assert any(use is Use.KEY for _, use in plan.tables[0].uses)
    finally:
        server.drop_database(database)
