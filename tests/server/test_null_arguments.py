"""Functions that get NULL where they want a name say which argument it was, in an error of their own."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

#: All that people call: what is not internal, with the types of its arguments.
CALLED = """
select p.oid::regproc::text, array(select t::regtype::text from unnest(p.proargtypes) as t), p.prokind, p.provariadic <> 0
  from pg_proc as p
 where p.pronamespace = 'dp'::regnamespace and p.pronargs > 0 and p.prokind in ('f', 'p')
   and has_function_privilege('owner1', p.oid, 'execute')
   and obj_description(p.oid, 'pg_proc') not like 'internal:%' order by 1, 2
"""


#: What stands for the types that any type fits.
ANY = {"anycompatiblearray": "text[]", "anyarray": "text[]", "anycompatible": "text", "anyelement": "text", '"any"': "text"}  # fmt: skip


def _types(types: list[str], variadic: bool) -> str:
    given = [f"null::{ANY.get(t, t)}" for t in types]
    return ", ".join([*given[:-1], f"{'variadic ' if variadic else ''}{given[-1]}"])


def test_every_function_refuses_null_in_its_own_words(shop: Any) -> None:
    refused = 0
    wrong = []
    functions = shop.sql(CALLED)
    with shop.connect("owner1", autocommit=True) as owner:
        for name, types, kind, variadic in functions:
            called = f"{'call' if kind == 'p' else 'select'} {name}({_types(types, variadic)})"
            try:
                owner.execute(called)
            except psycopg.Error as error:
                told = f"{error.diag.message_primary} {error.diag.message_hint or ''}"
                refused += 1
                # a name that is missing leaves two blanks, or stands as NULL
                if not str(error.sqlstate).startswith("PD") or re.search(
                    r"  |\bNULL\b(?! for)|''", told
                ):
                    wrong.append((called, error.sqlstate, told))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused > 30, refused


@pytest.mark.parametrize(
    ("called", "told"),
    [
        ("dp.set_domain('client', null, array['a'])", 'parameter "column_name" must not be null'),
        ("dp.set_domain(null, 'c_kind', array['a'])", 'parameter "relation" must not be null'),
        ("dp.set_domain('purchase', null, 0, 1)", 'parameter "column_name" must not be null'),
        ("dp.drop_domain('client', null)", 'parameter "column_name" must not be null'),
        ("dp.drop_degree_bound(null, array['a'])",
         'parameters "relation" and "columns" must name a relation and columns of it'),
        ("dp.set_degree_bound('client', array[null]::name[], 3)",
         'parameters "relation" and "columns" must name a relation and columns of it'),
        ("dp.drop_release(null)", 'parameter "name" must not be null'),
        ("dp.revoke_budget(null)", 'parameter "role" must not be null'),
        ("dp.expose('client', array[null]::name[])",
         'parameter "columns" of dp.expose must name columns, each once'),
    ],
)  # fmt: skip
def test_the_missing_argument_is_named(shop: Any, called: str, told: str) -> None:
    with shop.connect("owner1") as owner, pytest.raises(psycopg.Error) as caught:
        owner.execute(f"select {called}")
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == ("PD040", told)


def test_a_relation_whose_names_are_taken_is_exposed_under_another(shop: Any) -> None:
    """Its own name and that with its schema belong to others of the same names."""
    shop.sql("create schema public_a; create table public_a.client (x int)")
    shop.sql(
        "alter table public_a.client owner to owner1; grant usage on schema public_a to owner1"
    )
    shop.sql(
        "create table public.public_a_client (x int); alter table public.public_a_client owner to owner1"
    )
    with shop.connect("owner1", autocommit=True) as owner:
        owner.execute("select dp.protect('public_a_client'); select dp.protect('public_a.client')")
        with pytest.raises(psycopg.Error) as caught:
            owner.execute("select dp.expose('public_a.client')")
        assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
            "PD040", "there is no free name for public_a.client in the schema dpv")  # fmt: skip
        owner.execute("select dp.expose('public_a.client', name => 'other')")
