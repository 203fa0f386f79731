"""What reading leaves in memory that all sessions share tells of no row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import say

pytestmark = pytest.mark.server

WORLD = """
create table person (id int primary key, amount int not null);
insert into person select i, i % 50 from generate_series(1, 200) as i;
select dp.protect('person', privacy_unit => 'id');
create table place (k int not null, g int, pad text not null);
alter table place alter pad set storage plain;
insert into place select i, i, repeat('x', 3000) from generate_series(1, 600) as i;
analyze person, place;
select dp.declare_public('place');
grant usage on schema public to alice, bob;
grant select on place to alice, bob;
select dp.grant_budget('alice', 1000), dp.grant_budget('bob', 1000);
"""
ASK = "select dp_count(*) from person join place on amount = k where id = {id} and place.g <> {n}"
#: Tables whose scans PostgreSQL remembers the places of, the last 20 of all sessions.
REMEMBERED = 20


def scan(session: Any, number: int) -> str:
    """Return where a scan of a table of the asker's begins."""
    return str(session.execute(f"select ctid from mine.t{number} limit 1").fetchone()[0])


def test_no_scan_of_a_question_shows_where_others_begin(make_server: Any) -> None:
    database = make_server(shared_buffers="1MB").create_database()
    database.sql(WORLD)
    database.sql("create schema mine authorization alice")
    with database.connect("alice") as alice:
        alice.execute("set dp.epsilon = 1e-6; set client_min_messages = error")
        for i in range(REMEMBERED):
            alice.execute(
                f"create table mine.t{i} (pad text); alter table mine.t{i} alter pad set storage plain;"
                f" insert into mine.t{i} select repeat('x', 3000) from generate_series(1, 400)"
            )
        for number, unit in enumerate((7, 100000)):
            for i in range(REMEMBERED):
                alice.execute(f"select count(*) from (select from mine.t{i} limit 200) as few")
            said = say(alice, ASK.format(id=unit, n=100001 + number))
            assert said.startswith("[("), said
            # a scan of another large table would have pushed this one out
            assert scan(alice, 0) != "(0,1)"
        alice.execute("select count(*) from place")
        assert scan(alice, 1) == "(0,1)", "PostgreSQL pushed nothing out: the test tells nothing"
