"""Code that a foreign key runs in the statement of another role asks, pays and administers nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import say

pytestmark = pytest.mark.server

SET_UP = """
create table item (i_id int primary key); insert into item select generate_series(1, 100);
select dp.protect('item');
create table region (r_id int primary key); insert into region select generate_series(1, 9);
alter table region owner to owner1; grant select, delete, update on region to bob;
alter table item owner to owner1;
select dp.grant_budget('bob', 50), dp.grant_budget('mallory', 50);
grant references on region to mallory;
create schema mal authorization mallory; grant usage on schema mal to public;
"""
#: What mallory's trigger does, when the statement of another role comes to it.
TRIGGER = """
create table mal.child (c int references public.region on delete {action} on update {action});
insert into mal.child values (3), (4);
create function mal.fire() returns trigger language plpgsql as $f$
begin
    raise exception 'gave %', ({call});
end $f$;
create trigger fire {when} on mal.child for each row execute function mal.fire();
"""
QUESTION = "select dp_count(*) from public.item where i_id = 17"
CALLS = [
    QUESTION,
    f"select r from dp.run_json('{QUESTION}', null, '') as r",
    f"dp.sensitivity('{QUESTION}')",
    "select count(*) from dp.budgets as b",
    "dp.grant_budget('mallory', 1000)",
    "dp.unprotect('public.item')",
    "dp.caller()",
    "select count(*) from dp.ledger",
]
REFUSED = "PD070"


@pytest.fixture
def shop(database: Any) -> Any:
    """A protected relation and a public one that a table of mallory's refers to."""
    database.sql(SET_UP)
    database.sql("grant dp_owner to owner1, mallory")
    yield database
    database.sql("revoke dp_owner from owner1, mallory")


def spent(shop: Any) -> list[Any]:
    return shop.sql("select count(*), sum(epsilon) from dp.spend")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("role", ["owner1", "bob", "postgres"])
def test_a_before_trigger_of_a_referencing_table(shop: Any, call: str, role: str) -> None:
    shop.sql(
        TRIGGER.format(action="cascade", call=call, when="before delete or update"), user="mallory"
    )
    with shop.connect(user=role) as session:
        for statement in (
            "delete from region where r_id = 3",
            "update region set r_id = 30 where r_id = 4",
        ):
            said = say(session, statement)
            assert said.startswith(REFUSED), said
    assert spent(shop) == [(0, None)]
    assert shop.sql("select kind from dp.relations where relation_name = 'item'") == [
        ("protected",)
    ]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("action", ["set null", "set default"])
def test_other_actions(shop: Any, call: str, action: str) -> None:
    shop.sql(TRIGGER.format(action=action, call=call, when="before update"), user="mallory")
    with shop.connect(user="owner1") as session:
        said = say(session, "delete from region where r_id = 3")
        assert said.startswith(REFUSED), said


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("role", ["owner1", "postgres"])
def test_an_after_trigger_that_runs_as_its_owner(shop: Any, call: str, role: str) -> None:
    """Before PostgreSQL 18 it runs as the role that deletes (docs/not-protected.md)."""
    shop.sql(TRIGGER.format(action="cascade", call=call, when="after delete"), user="mallory")
    with shop.connect(user=role) as session:
        said = say(session, "delete from region where r_id = 3")
        if session.info.server_version >= 180000:
            assert said.startswith(REFUSED), said
        else:
            assert not said.startswith(REFUSED), said


def test_a_trigger_of_ones_own_asks(shop: Any) -> None:
    """Also a SECURITY DEFINER function that a role calls: it is on that role's behalf."""
    shop.sql(
        "create function ask() returns trigger language plpgsql as"
        f" $f$ begin raise exception 'gave %', ({QUESTION}); end $f$;"
        " create trigger ask before delete on region for each row execute function ask();"
        f" create function asks() returns bigint language sql security definer as '{QUESTION}'"
    )
    with shop.connect(user="bob") as bob:
        bob.execute("set dp.fresh = on")
        said = say(bob, "delete from region where r_id = 5")
        assert said.startswith("P0001"), said
        assert bob.execute("select asks()").fetchone()
    assert spent(shop)[0][0] == 2


def test_a_trigger_of_an_owner_may_administer(shop: Any) -> None:
    shop.sql(
        "create function welcome() returns trigger language plpgsql as"
        " $f$ begin perform dp.grant_budget('alice', 1); return new; end $f$;"
        " create trigger welcome before insert on region for each row execute function welcome()"
    )
    with shop.connect(user="owner1") as owner:
        owner.execute("insert into region values (77)")
    assert shop.sql("select epsilon_limit from dp.budgets where role = 'alice'") == [(1,)]


def test_a_function_of_the_owners_that_the_transaction_called_before(shop: Any) -> None:
    """PL/pgSQL keeps its expressions through a transaction, and looks at no function again."""
    shop.sql(
        "create function give(who name, amount numeric) returns text language plpgsql as"
        " $f$ declare given text; begin given := dp.grant_budget(who::text::regrole, amount); return given; end $f$"
    )
    shop.sql(
        TRIGGER.format(action="cascade", call="public.give('mallory', 1000)", when="before delete"),
        user="mallory",
    )
    with shop.connect(user="owner1", autocommit=False) as owner:
        owner.execute("select give('alice', 1)")
        said = say(owner, "delete from region where r_id = 3")
        assert said.startswith(REFUSED), said
