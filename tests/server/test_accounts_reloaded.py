"""Columns that change names and places, and tables made anew: an account stays with its units."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.server.asking import say

pytestmark = pytest.mark.server

#: Which data a column holds, by its name; a table made anew keeps names and data.
HOUSE, PERSON = "house", "person"
WORLD = """
create table people (house int not null, person int not null, x int);
insert into people select i / 10, i, i % 3 from generate_series(1, 60) as i;
grant usage on schema public to alice;
select dp.grant_budget('alice', epsilon => 1000);
select dp.protect('people', privacy_unit => 'house');
"""
EXCHANGE = """
alter table people rename house to kept; alter table people rename person to house;
alter table people rename kept to person;
"""
RELOAD = """
create table loaded ({columns}, x int); insert into loaded select {names}, x from people;
drop table people; alter table loaded rename to people;
"""
SWAP = """
create table loaded ({columns}, x int); insert into loaded select {names}, x from people;
alter table people rename to kept; alter table loaded rename to people; drop table kept;
"""


def moved(statement: str, names: tuple[str, str]) -> str:
    columns = ", ".join(f"{name} int not null" for name in names)
    return statement.format(columns=columns, names=", ".join(names))


STEPS = {
    "unprotect": "select dp.unprotect('people')",
    "exchange": EXCHANGE,
    "reload": moved(RELOAD, (HOUSE, PERSON)),
    "reload in another order": moved(RELOAD, (PERSON, HOUSE)),
    "swap in another order": moved(SWAP, (PERSON, HOUSE)),
}


def ask(database: Any, question: str) -> str:
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 1; set dp.fresh = on")
        return say(alice, question)


def sequences() -> Iterator[tuple[str, ...]]:
    """Yield three steps each; what is not protected any more cannot be unprotected."""
    for steps in product(STEPS, repeat=3):
        # a reload ends with the relation protected
        between = "".join(
            "u" if s == "unprotect" else "-" if s == "exchange" else "p" for s in steps
        )
        if "uu" not in between.replace("-", ""):
            yield steps


def refuse(owner: Any, column: str) -> None:
    said = say(owner, f"select dp.protect('people', privacy_unit => '{column}')")
    assert said.startswith("PD040"), (column, said)


def protect(owner: Any, column: str) -> None:
    """Protect the units that losses were recorded for; others are refused."""
    refuse(owner, PERSON if column == HOUSE else HOUSE)
    said = say(owner, f"select dp.protect('people', privacy_unit => '{column}')")
    assert said.startswith("["), (column, said)


@pytest.mark.parametrize("steps", list(sequences()), ids=" then ".join)
def test_an_account_stays_with_its_units(database: Any, steps: tuple[str, ...]) -> None:
    database.sql(WORLD)
    assert ask(database, "select dp_count(*) from people").startswith("[")
    column = HOUSE  # that holds the data which losses were recorded for
    with database.connect() as owner:
        for step in steps:
            owner.execute(STEPS[step])
            if step == "exchange":
                column = PERSON if column == HOUSE else HOUSE
            elif step != "unprotect":  # of a table that is nobody's names alone tell
                protect(owner, column)
        protect(owner, column)
    assert ask(database, "select dp_count(*) from people").startswith("[")
    assert database.sql("select count(*) from dp.root") == [(1,)]
