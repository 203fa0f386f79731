"""Tables of which each question reads one row, or none, and questions of many kinds about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

WORLD = """
create type mood as enum ('sad', 'well', 'glad');
alter type mood add value 'low' before 'well';
alter type mood add value 'high' before 'glad';
create table person (id int primary key, town text not null);
create table obs (id int primary key, person int not null references person, x numeric not null, f float8 not null,
  felt mood not null, note text not null, said text collate "C" not null, day date not null, at timestamptz not null);
create table doc (id int primary key, x numeric not null, f float8 not null,
  felt mood not null, note text not null, said text collate "C" not null, day date not null, at timestamptz not null);
create table pair (id int primary key, a int not null references person, b int not null references person);
insert into person select i, 'town' from generate_series(1, 40) as i;
insert into obs select i, i, i, i, 'high', 'note' || i, 'a' || i, date '2024-01-01' + i, '2024-01-01 12:00' from generate_series(1, 40) as i;
insert into doc select i, i, i, 'high', 'note' || i, 'a' || i, date '2024-01-01' + i, '2024-01-01 12:00' from generate_series(1, 40) as i;
insert into pair select i, i, 1 + i % 40 from generate_series(1, 40) as i;
update obs set note = (select string_agg(md5(i::text), '') from generate_series(1, 1000) as i) where id = 7;
update doc set note = (select string_agg(md5(i::text), '') from generate_series(1, 1000) as i) where id = 7;
select dp.protect('person', privacy_unit => 'id'), dp.protect('doc');
select dp.set_domain('obs', 'f', 0, 100), dp.set_domain('doc', 'f', 0, 100);
select dp.grant_budget('alice', epsilon => 1e6, delta => 1e-3);
select dp.set_failure_limit('person', 1000), dp.set_failure_limit('doc', 1000);
grant usage on schema public to public;
vacuum analyze
"""
#: Rows of a unit, and rows that are protected one by one.  Row 7 exists; its note is stored out of line.
ONE = ("obs where id = {id} and id < {n}", "doc where id = {id} and id < {n}")


def make(server: Any) -> Iterator[Any]:
    """Make the tables in a database, and drop it afterwards."""
    database = server.create_database()
    with database.connect() as admin:
        # VACUUM has no place among other statements
        for statement in WORLD.split(";\n"):
            admin.execute(statement)
    yield database
    server.drop_database(database)


def statements(kinds: Mapping[str, str], others: Mapping[str, str] | None = None) -> list[Any]:
    """Return each kind over both tables, and the others as they are, as parameters of a test."""
    return [
        *(
            pytest.param(text.replace("{one}", one), id=f"{name} of {one.split()[0]}")
            for name, text in kinds.items()
            for one in ONE
        ),
        *(pytest.param(text, id=name) for name, text in (others or {}).items()),
    ]
