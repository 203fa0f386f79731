"""Each form of dp.set_domain, for each type of value, succeeds or raises an error of class PD."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import refused, say, state

#: Types of columns with two values.
TYPES = {
    "smallint": ("1", "5"),
    "integer": ("1", "5"),
    "bigint": ("1", "5"),
    "numeric(6,2)": ("1", "5"),
    "real": ("1", "5"),
    "double precision": ("1", "5"),
    "boolean": ("f", "t"),
    "text": ("a", "b"),
    "varchar(4)": ("a", "b"),
    "char(4)": ("a", "b"),
    "date": ("2020-01-01", "2020-01-05"),
    "timestamp": ("2020-01-01 00:00", "2020-01-05 12:00"),
    "timestamptz": ("2020-01-01 00:00+03", "2020-01-05 12:00+03"),
    "time": ("01:00", "02:00"),
    "interval": ("1 day", "2 days"),
    "uuid": (f"{1:032}", f"{2:032}"),
    "bytea": ("\\x01", "\\x02"),
    "mood": ("sad", "well"),
    "whole": ("1", "5"),
    "word": ("a", "b"),
    "feeling": ("sad", "well"),
    "moment": ("2020-01-01 00:00", "2020-01-05 12:00"),
}
#: Types that take a list of values, and types that take a range.
LISTED = set(TYPES) - {"real", "double precision", "time", "interval", "bytea"}
RANGED = {
    *("smallint", "integer", "bigint", "numeric(6,2)", "real", "double precision", "date"),
    *("timestamp", "timestamptz", "whole", "moment"),
}


@pytest.fixture
def owner(database: Any) -> Any:
    """Make a relation with a column of each type; return a session of its owner."""
    database.sql("grant dp_owner to owner1; grant create on schema public to owner1")
    session = database.connect(user="owner1")
    session.execute("create type mood as enum ('sad', 'well')")
    session.execute("create domain whole as integer; create domain word as varchar(9)")
    session.execute("create domain feeling as mood; create domain moment as timestamptz")
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(TYPES))
    session.execute(f"create table t ({columns}); select dp.protect('t')")
    return session


def test_each_form_for_each_type(owner: Any) -> None:
    for zone in ("UTC", "Asia/Tokyo"):
        owner.execute(f"set timezone = '{zone}'")
        for i, (type_, (a, b)) in enumerate(TYPES.items()):
            calls = {
                "typed list": f"array['{a}'::{type_}, '{b}']",
                "text list": f"array['{a}', '{b}']",
                "quoted range": f"'{a}', '{b}'",
            }
            if type_ in RANGED and type_ not in ("real", "double precision"):
                calls["typed range"] = f"'{a}'::{type_}, '{b}'::{type_}"
            for form, given in calls.items():
                call = f"select dp.set_domain('t', 'c{i}', {given})"
                allowed = type_ in (LISTED if form.endswith("list") else RANGED)
                assert state(owner, call) == (None if allowed else "PD040"), (
                    call,
                    say(owner, call),
                )


def test_bounds_of_times_are_moments(owner: Any, database: Any) -> None:
    owner.execute("set timezone = 'Asia/Tokyo'")
    found = {}
    for type_ in ("timestamptz", "timestamp"):
        column = f"c{[*TYPES].index(type_)}"
        given = f"{type_} '2020-01-01 09:00', {type_} '2021-01-01 09:00'"
        owner.execute(f"select dp.set_domain('t', '{column}', {given})")
        stored = f"select lower from dp.column_domain where column_name = '{column}'"
        ((found[type_],),) = database.sql(stored)
    assert found == {"timestamptz": "2020-01-01 00:00:00+00", "timestamp": "2020-01-01 09:00:00"}


def test_a_declared_view_is_told_how_it_is_exposed(owner: Any) -> None:
    owner.execute("create view v as select c0, c1 from t; select dp.declare_view('v')")
    error = refused(owner, "select dp.expose('v')")
    assert error.sqlstate == "PD040"
    hint = str(error.diag.message_hint)
    assert "dp.protect" not in hint
    assert "dp.expose(table)" in hint
    owner.execute("select dp.expose('t')")
    owner.execute("create view mine as select c0, c1 from dpv.t")
    said = say(owner, "select count(*) from mine")
    assert "budget" in said, said
