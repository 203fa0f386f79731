"""Refusals of ``dp.synthesize`` say what to do, and what they say is enough."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.copying import run, spent

MADE = """
create table public.person (id int primary key, kind text not null, many int, code text);
insert into public.person select i, 'a', i % 9, i::text from generate_series(1, 100) i;
select dp.protect('person', privacy_unit => 'id');
select dp.set_domain('person', 'kind', array['a', 'b']);
select dp.set_domain('person', 'many', 0, 9);
select dp.set_root_cap('person', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 100, delta => 1e-5);
create function odd(int) returns boolean language sql immutable as 'select $1 % 2 = 1';
create domain odd_number as int check (odd(value));
create schema syn authorization alice
"""
CALL = "call dp.synthesize('syn', array[{tables}]::regclass[], 8, 1e-6, placeholders => true{more})"


@pytest.fixture
def people(database: Any) -> Any:
    run(database, MADE)
    return database


def call(database: Any, tables: str = "'person'", more: str = "") -> None:
    with database.connect("alice") as alice:
        alice.execute(CALL.format(tables=tables, more=more))


def refused(database: Any, *arguments: str) -> tuple[str, str]:
    with pytest.raises(psycopg.Error) as raised:
        call(database, *arguments)
    return str(raised.value.diag.message_primary), str(raised.value.diag.message_hint)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("alter table person add constraint few check (odd(many) and not odd(many)) not valid", "few"),
        ("create domain unfit as int check (odd(value) and not odd(value)); alter table person add n unfit; alter table person alter n set not null", "unfit_check"),
    ],
)  # fmt: skip
def test_a_copy_that_a_constraint_refuses_goes_on_without_it_for_nothing(
    people: Any, change: str, named: str
) -> None:
    people.sql("delete from person")
    for part in change.split("; "):
        people.sql(part)
    message, hint = refused(people, "'person'", """, row_counts => '{"person": 50}'""")
    assert "satisfies the constraint" in message
    assert named in message
    assert spent(people) == pytest.approx(8)
    first, _, rest = hint.partition("; CALL ")
    people.sql(first, user="alice")
    with people.connect("alice") as alice:
        alice.execute(f"CALL {rest.partition(';')[0]}")
    assert spent(people) == pytest.approx(8)
    assert people.sql("select state from dp.synthesis") == [("done",)]


def test_constraints_of_domains_hold_for_what_is_drawn(people: Any) -> None:
    """Their functions are called as the caller, on synthetic values alone."""
    people.sql(
        "create table public.called (by_whom text); grant insert on called to public;"
        "create function noted(value int) returns boolean language plpgsql as"
        " $$ begin insert into public.called values (current_user || ' ' || session_user); return value < 5; end $$;"
        "create domain noticed as int check (noted(value));"
    )
    people.sql("update person set many = many % 5; alter table person alter many type noticed")
    people.sql("select dp.set_domain('person', 'many', 0, 9)")
    people.sql("delete from called")
    call(people)
    assert people.sql(
        "select count(*) > 0, max(many) < 5, count(distinct many) > 2 from syn.person"
    ) == [(True, True, True)]
    assert people.sql("select distinct by_whom from called") == [("alice alice",)]


def test_tables_of_more_levels_than_are_fitted_are_refused_before_they_are_paid(
    people: Any,
) -> None:
    """With the levels that rows of heavy units add."""
    people.sql(
        "select dp.set_domain('person', 'code', array(select i::text from generate_series(1, 19986) i))"
    )
    message, hint = refused(people)
    assert message == "the attributes of relation public.person have 19998 levels together"
    assert "Declare fewer values" in hint
    assert spent(people) == 0


def test_long_names_and_names_that_are_taken(people: Any) -> None:
    """Two tables whose names in dpv would be cut to one, keys and sequences of equal names."""
    long = "t" * 60
    other = "o" * 45
    people.sql(
        f"create schema {other};"
        f"create table public.{long}1 (id int constraint one_pk primary key, p int not null references person, {'s' * 50}1 serial);"
        f"create table {other}.{long}2 (id int constraint one_pk primary key, p int not null references person);"
        f"alter table public.{long}1 add {'s' * 50}2 serial;"
        f"create index same on public.{long}1 (p); create index same on {other}.{long}2 (p); create schema {'u' * 63} authorization alice; grant usage on schema {other} to alice"
    )  # fmt: skip
    tables = f"'person', 'public.{long}1', '{other}.{long}2'"
    d_max = f""", d_max => '{{"{long}1": 3, "{long}2": 3}}', row_counts => '{{"{long}1": 20, "{long}2": 20}}'"""
    with people.connect("alice") as alice:
        alice.execute(CALL.replace("'syn'", f"'{'u' * 63}'").format(tables=tables, more=d_max))
    shown = people.sql(
        "select count(distinct s.name), max(octet_length(s.name)) from dp.shown_relation s where s.relation is null"
    )
    assert shown == [(3, 63)]
    kept = "select count(*) from pg_class where relkind = 'i' and relnamespace = repeat('u', 63)::regnamespace"
    assert people.sql(kept) == [(5,)]
    people.sql(
        "create schema more; grant usage on schema more to alice; create table more.person (id int primary key, p int not null references person)"
    )
    message, _ = refused(people, "'person', 'more.person'", ", d_max => '{\"more.person\": 3}'")
    assert message == "several relations of the list have the name person"


def test_a_protected_parent_is_to_be_listed_and_not_declared_public(people: Any) -> None:
    people.sql("create table public.visit (id int primary key, p int not null references person)")
    message, hint = refused(people, "'visit'")
    assert message == "relation public.visit cannot be copied without the rows that it refers to"
    assert hint == "Add 'public.person' to the list of relations."


def test_a_primary_key_of_a_type_that_is_not_made_up_is_refused(people: Any) -> None:
    people.sql("create table public.spot (id int[] primary key, p int not null references person)")
    message, hint = refused(people, "'person', 'spot'", ", d_max => '{\"spot\": 3}'")
    assert message == "no keys can be made up for id of relation public.spot"
    assert "give it a key of numbers" in hint
    assert spent(people) == 0
