"""dp.burn tells how each account was spent over time and agrees with dp.budgets."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest

SETUP = """
create table person (id integer primary key, name text);
create table thing (id integer primary key);
select dp.protect('person'), dp.protect('thing', epsilon => 50);
select dp.set_root_cap('thing', 50, 1e-6, 'zcdp');
select dp.grant_budget('alice', 30, 1e-5), dp.grant_budget('bob', 20, 1e-5, 'zcdp');
"""
LAST = """
select distinct on (account, role, relation) account, role::text, relation, spends_sum, epsilon_spent, delta_spent
  from dp.burn(%s) order by account, role, relation, step_start desc
"""
BUDGETS = """
select account, role::text, relation, spends, epsilon_spent, delta_spent from dp.budgets
 where spends > 0 order by account, role, relation
"""


def spend(database: Any) -> None:
    """Ask, record losses, and move a part of it into the past."""
    database.sql(SETUP)
    for role in ("alice", "bob"):
        for relation in ("person", "thing"):
            database.sql(f"set dp.epsilon = 0.5; select dp_count(*) from {relation}", user=role)
    database.sql("set dp.epsilon = 0.7; select dp_count(*) from person, thing", user="alice")
    database.sql("select dp.record_loss('bob', 'thing', 0.1, 1e-9, 'lost')")
    database.sql("update dp.spend set at = at - id * interval '3 days'")


@pytest.mark.parametrize("step", [None, "1 hour", "1 day", "1000 days"])
def test_the_last_step_agrees_with_budgets(database: Any, step: str | None) -> None:
    spend(database)
    assert database.sql(LAST, step) == database.sql(BUDGETS)


def test_steps_add_up_and_each_role_sees_its_own(database: Any) -> None:
    spend(database)
    rows = database.sql(
        "select step_start, epsilon, epsilon_spent from dp.burn('1 day') where role = 'alice' order by 1"
    )
    assert len(rows) == 3
    total = Decimal(0)
    for _, epsilon, reached in rows:
        total += epsilon
        assert reached == total
    assert {r for (r,) in database.sql("select role::text from dp.burn()", user="bob")} == {"bob"}
    assert database.sql("alter role bob rename to bobby") == []
    try:
        # the account is the role, whatever its name was when it spent
        assert len(database.sql("select 1 from dp.burn('1 day') where role = 'bobby'")) == 3
    finally:
        database.sql("alter role bobby rename to bob")


def test_an_empty_ledger_has_no_steps_and_odd_steps_are_refused(database: Any) -> None:
    database.sql("select dp.grant_budget('alice', 1)")
    assert database.sql("select * from dp.burn()") == []
    for step in ("1 month", "0", "1 second", "-1 day", "1 year"):
        with pytest.raises(psycopg.Error) as caught:
            database.sql("select * from dp.burn(%s)", step)
        assert caught.value.sqlstate == "PD040"
