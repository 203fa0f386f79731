"""A small data set that releases are made of, and what is asked of them."""

from __future__ import annotations

import json
from typing import Any

# kind: two levels that are declared, one that is empty, one that is not declared, and NULL;
# region: 1 to 5 of which 5 is empty; day: four declared days; far: levels outside of the domain.
SALES = """
create type public.state as enum ('open', 'shipped', 'paid');
create table public.place (p_id int primary key, p_name text not null, p_big boolean not null);
insert into public.place values (1, 'Aachen', false), (2, 'Berlin', true), (3, 'Celle', false),
  (4, 'Dessau', false), (5, 'Emden', false);
create table public.sale (s_id int primary key, s_kind text, s_state public.state,
  s_big boolean, s_place int not null references public.place, s_day date, s_pieces int,
  s_price numeric(8,2));
insert into public.sale select i, (array['a', 'b', 'b', 'other', null])[1 + i % 5],
    (array['open', 'shipped', null])[1 + i % 3]::public.state, i % 4 = 0, 1 + i * i % 4,
    date '2024-01-01' + i % 6, i % 7, i % 5 + 0.5
  from generate_series(1, 300) i;
create table public.nobody (n_kind text, n_flag boolean not null);
create view public.sold as select s_kind, s_big, p_name, p_big from public.sale
  join public.place on s_place = p_id;
alter table public.place owner to owner1;
alter table public.sale owner to owner1;
alter table public.nobody owner to owner1;
alter type public.state owner to owner1;
alter view public.sold owner to owner1;
grant dp_owner to owner1;
"""
DECLARED = """
select dp.protect('public.sale'), dp.protect('public.nobody');
select dp.declare_public('public.place');
select dp.declare_view('public.sold');
select dp.set_domain('public.sale', 's_kind', array['a', 'b', 'c'], includes_null => true);
select dp.set_domain('public.nobody', 'n_kind', array['x', 'y''z', 'ü:1v2']);
select dp.set_domain('public.sale', 's_place', 1, 5);
select dp.set_domain('public.sale', 's_day', date '2024-01-01', date '2024-01-04');
select dp.set_domain('public.sale', 's_pieces', 0, 6);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
select dp.grant_budget('postgres', epsilon => 1e7, delta => 1);
"""


def declare(database: Any) -> Any:
    """Make the sales in a database and declare them as their owner does."""
    database.sql(SALES)
    with database.connect(user="owner1") as owner:
        for statement in DECLARED.strip().split("\n"):
            owner.execute(statement)
    return database


def release(session: Any, name: str, query: str, **terms: object) -> Any:
    """Call dp.release and return the table's rows as (dictionary of groups, value, error)."""
    given = "".join(f", {key} => {_sql(value)}" for key, value in terms.items())
    session.execute(f"select dp.release('{name}', $rel${query}$rel$ {given})")
    return rows(session, name)


def _sql(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"array[{', '.join(map(str, value))}]::float8[]"
    return f"'{value}'"


def rows(session: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a release."""
    found = session.execute(f"select to_json(r)::text from dpv.{name} as r").fetchall()
    return [json.loads(row[0]) for row in found]


def counts(session: Any, query: str) -> dict[tuple[Any, ...], float]:
    """Return what a plain statement says: key columns, last the count; as JSON writes them."""
    found = session.execute(f"select to_json(r)::text from ({query}) as r").fetchall()
    listed = [tuple(json.loads(row[0]).values()) for row in found]
    return {row[:-1]: float(row[-1]) for row in listed}


def values(found: list[dict[str, Any]], *columns: str) -> dict[tuple[Any, ...], float]:
    """Return the values of a release by some of its columns."""
    result = {tuple(row[c] for c in columns): row["value"] for row in found}
    assert len(result) == len(found), "the columns do not tell the rows apart"
    return result


def spent(database: Any, role: str = "alice") -> tuple[int, Any]:
    """Return how often a role was charged, and how much."""
    return tuple(
        database.sql(
            "select count(*), coalesce(sum(epsilon), 0) from dp.ledger where role = %s", role
        )[0]
    )  # type: ignore[return-value]
