"""A spy with a login of his own, and two databases of which the second has one person more.

All that is said to him there must be the same, but for the numbers that are answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from tests.server.fuzzing.running import Outcome, Session

SECRET = "s3cr3t"
SPIES = ("spy_one", "spy_two")
SET_UP = """
create table person (id int primary key, age int, kind text, note text, weight float8);
create table visit (id int primary key, person int not null references person, paid numeric(8,2), at timestamptz);
create table town (name text primary key);
insert into town values ('here'), ('there');
insert into person select i, i % 90, (array['a', 'b'])[1 + i % 2], 'note', 0 from generate_series(1, 300) as i;
insert into visit select i, 1 + i % 300, i % 40, timestamptz '2024-01-01 00:00+00' + i * interval '1 hour' from generate_series(1, 900) as i;
create view seen as select kind, count(*) as n from person group by kind;
alter table person owner to owner1; alter table visit owner to owner1; alter table town owner to owner1; alter view seen owner to owner1;
grant dp_owner to owner1;
set role owner1;
select dp.protect('person'), dp.protect('visit'), dp.declare_public('town');
select dp.set_domain('person', 'kind', array['a', 'b']);
select dp.expose('person'), dp.expose('visit');
reset role;
create schema spies; grant all on schema spies to public;
grant usage on schema public to public; grant select on town to public;
"""
PLANTED = f"""
insert into person values (777, 33, '{SECRET}', '{SECRET}', 1e308);
insert into visit select 10000 + i, 777, 7, timestamptz '2100-01-01' from generate_series(1, 20) as i;
"""
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|NaN|-?Infinity", re.IGNORECASE)


def make(server: Any, *more: str, budget: float = 1e6) -> tuple[Any, Any]:
    """Make the two databases; ``more`` is run as the superuser in both before the person comes."""
    pair = server.create_database(), server.create_database()
    for database in pair:
        database.sql(SET_UP)
        for spy in SPIES:
            database.sql(f"select dp.grant_budget('{spy}', {budget}, 1e-3)")
        for text in more:
            database.sql(text)
    pair[1].sql(PLANTED)
    for database in pair:
        database.sql("analyze")
    return pair


@contextmanager
def spies(server: Any) -> Iterator[None]:
    """The logins, for as long as they are needed; their databases must be gone by then."""
    admin = server.create_database()
    admin.sql("".join(f"create role {spy} login;" for spy in SPIES))
    yield
    admin.sql("".join(f"drop role {spy};" for spy in SPIES))
    server.drop_database(admin)


@dataclass(slots=True)
class Attack:
    """Statements, and what becomes of the last one: its SQLSTATE, '' where it is answered."""

    script: list[str]
    ends: str
    noisy: bool = False


def visible(database: Any, attack: Attack, spy: str = SPIES[0]) -> list[Any]:
    """All that the spy sees, and what he paid."""
    session = Session(database, spy)
    seen: list[Any] = []
    found = Outcome()
    where = conninfo_to_dict(database.conninfo())
    for text in [*attack.script, "select epsilon, query from dp.ledger order by id"]:
        statement = text.replace("HOST", where["host"]).replace("PORT", str(where["port"]))
        statement = statement.replace("DBNAME", database.name)
        last, found = found, session.send(statement, settle=False)
        assert SECRET not in found.everything(), (statement, found)
        assert not found.lost, statement
        words = {name: text.replace(database.name, "here") for name, text in found.words.items()}
        lines = [found.said, found.notices]
        if attack.noisy:
            lines = [[NUMBER.sub("#", line) for line in part] for part in lines]
        seen.append((text, found.state, words, found.columns, *lines))
    assert last.state == attack.ends, (attack.script, last)
    session.connection.close()
    return seen
