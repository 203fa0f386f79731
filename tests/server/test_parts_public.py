"""Public relations on shards, and whatever else reads base data there: as of one moment, by groups.

What is asked of the shards is read from their log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.shards import READER, UNCUT, Shards, sharded
from tests.server.waiting import wait_until

SHARDS = 2
ROWS = 1200
KINDS = ("x", "y", "z")
SET_UP = f"""
insert into kind select k, k = 'x' from unnest(array['{"', '".join(KINDS)}']) k;
insert into place select i, (array['{"', '".join(KINDS)}'])[1 + i % 3] from generate_series(1, {ROWS}) i;
insert into visit select i, 1 + i % 60, (array['x', 'y', 'z', 'w'])[1 + i % 4], i % 8, i % 50 / 2.0
  from generate_series(1, {ROWS}) i;
insert into stay select i, 1 + i % 60, i % 5 from generate_series(1, {ROWS}) i;
"""
DECLARE = """
select dp.protect('visit'), dp.protect('stay', privacy_unit => 'patient'), dp.declare_public('kind'),
  dp.declare_public('place');
select dp.declare_shards(r, written => 'coordinator') from unnest(array['visit', 'stay', 'kind', 'place']::regclass[]) r;
select dp.set_domain('visit', 'kind', reference => 'place', reference_column => 'offers');
select dp.set_domain('visit', 'level', 0, 7), dp.set_domain('stay', 'level', 0, 4);
select dp.set_domain('visit', 'price', 0, 30);
select dp.grant_budget('owner1', epsilon => 1e6, delta => 1e-3);
select dp.grant_budget('postgres', epsilon => 1e6, delta => 1e-3);
select dp.set_root_cap('visit', 1e9, 1e-3), dp.set_root_cap('stay', 1e9, 1e-3);
"""


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, SHARDS) as found:
        found.table("visit", "id int, patient int, kind text, level int, price numeric", "id")
        found.table("stay", "id int, patient int not null, level int", "patient")
        found.table("kind", "name text, urgent boolean", "name")
        found.table("place", "id int, offers text", "id")
        found.near.sql(SET_UP)
        found.near.sql(DECLARE, user="owner1")
        found.near.sql(
            "analyze visit, stay, kind, place; create schema copy authorization owner1;"
            f" alter role {READER} set log_statement = 'all'"
        )
        yield found
        found.near.sql(f"alter role {READER} reset log_statement")


@pytest.fixture
def asked(server: Any) -> Callable[[], list[str]]:
    """Return what tells which reading statements the shards were sent since."""
    log: Path = server.cluster.log
    start = log.stat().st_size

    def found() -> list[str]:
        with log.open("rb") as file:
            file.seek(start)
            text = file.read().decode()
        return re.findall(r"(?:statement|execute <unnamed>): DECLARE c\d+ CURSOR FOR\n\t(.*)", text)

    return found


def by_groups(sql: str) -> bool:
    """Tell whether a statement to a shard gives groups, or no row at all."""
    return bool(re.search(r"GROUP BY|count\(|sum\(|ELSE false END", sql))


def test_groups_are_those_of_a_public_relation_on_the_shards(
    shards: Shards, asked: Callable[[], list[str]]
) -> None:
    plain = [(k, (ROWS // 4)) for k in KINDS]
    with silent(shards.near, "visit") as session:
        for statement in (
            "select kind, dp_count(*) from visit group by kind order by 1",
            "select name, dp_count(*) from visit join kind on name = kind group by name order by 1",
        ):
            assert session.execute(statement).fetchall() == plain, statement
        # another relation of the same transaction is of the same moment
        with session.transaction():
            session.execute("select kind, dp_count(*) from visit group by kind")
            (units,) = session.execute("select dp_count(*) from stay").fetchone()
            assert units > 0
        found = session.execute(
            "select urgent, dp_count(*) from visit join kind on name = kind group by 1 order by 1"
        )
        assert found.fetchall() == [(False, ROWS // 2), (True, ROWS // 4)]
        joined = session.execute(
            "select kind, dp_count(*) from visit a join visit b using (id, kind) group by kind"
        ).fetchall()
        assert sorted(joined) == plain
    found = asked()
    assert found
    assert all(by_groups(sql) or "FROM public.kind" in sql for sql in found)


def test_what_is_read_for_a_domain_is_of_the_moment_of_the_question(shards: Shards) -> None:
    """A value that comes while the question waits for its moment is a group with its rows.

    Nothing limits how long it waits.
    """
    with (
        shards.near.connect() as writer,
        silent(shards.near, "visit") as session,
        shards.near.connect() as watcher,
    ):
        pid = session.info.backend_pid
        session.execute("set dp.shards_timeout = 0")
        writer.execute("begin; insert into place values (-1, 'new')")
        writer.execute("insert into visit values (-1, 1, 'new', 0, 0)")
        statement = "select kind, dp_count(*) from visit group by kind order by 1"
        pipeline = session.pgconn
        pipeline.send_query(statement.encode())
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where leader_pid = %s"
        wait_until(lambda: watcher.execute(waits, (pid,)).fetchone() == (True,))
        writer.execute("commit")
        result = pipeline.get_result()
        assert result is not None
        rows = [(result.get_value(i, 0), result.get_value(i, 1)) for i in range(result.ntuples)]
        assert (b"new", b"1") in rows, result.error_message
        while pipeline.get_result() is not None:
            pass
        shards.near.sql("delete from visit where id = -1; delete from place where id = -1")


def test_who_reads_the_domain_by_himself_is_refused(shards: Shards) -> None:
    with (
        pytest.raises(psycopg.Error, match="by functions of dpsql only"),
        shards.near.connect("owner1") as owner,
    ):
        owner.execute("select * from dp.domain_members('visit', 'kind')")


CALLS = {
    "a release": "select dp.release('told', 'select kind, level, dp_count(*) from visit group by cube (kind, level)',"
    " epsilon => 1, delta => 1e-9)",
    "a release of units": "select dp.release('of_units', 'select level, dp_count(*) from stay group by level',"
    " epsilon => 1, delta => 1e-9)",
    "suggested bounds": "select * from dp.suggest_bounds('visit', 'level')",
    "a synthesis": "call dp.synthesize('copy', array['visit']::regclass[], epsilon => 1, delta => 1e-9,"
    " placeholders => true, replace => true)",
    "a synthesis of units": "call dp.synthesize('copy', array['stay']::regclass[], epsilon => 1, delta => 1e-9,"
    " placeholders => true, replace => true)",
    "a median": "select dp_median(price, 0, 30) from visit",
    "a minimum": "select dp_min(price, 0, 30), dp_max(level, 0, 7) from visit",
    "different values": "select dp_count(distinct patient) from visit",
    "a histogram": "select dp_histogram(price, 0, 30, 6) from visit",
    "units": "select level, dp_count(*), dp_avg(level) from stay group by level",
    "units with few rows": "select level, dp_count(*) from stay group by level",
}


@pytest.mark.parametrize("name", CALLS)
def test_shards_are_asked_for_groups(
    shards: Shards, asked: Callable[[], list[str]], name: str
) -> None:
    with shards.near.connect("owner1") as owner:
        owner.execute("set dp.max_rows_contributed = 20; set dp.fresh = on")
        if name == "units with few rows":
            owner.execute("set dp.max_groups_contributed = 2")
        owner.execute(CALLS[name])
    found = asked()
    assert any("GROUP BY" in sql or "count(" in sql for sql in found), found
    odd = [sql for sql in found if not by_groups(sql)]
    assert not odd, odd


def test_a_synthesis_asks_shards_for_the_values_of_public_columns(
    shards: Shards, asked: Callable[[], list[str]]
) -> None:
    with shards.near.connect("owner1") as owner:
        owner.execute(
            "call dp.synthesize('copy', array['visit', 'place']::regclass[], epsilon => 1,"
            " delta => 1e-9, placeholders => true, replace => true)"
        )
    bins = "SELECT offers FROM public.place GROUP BY 1 LIMIT "
    # planned here and in the service session
    assert sum(sql.startswith(bins) for sql in asked()) == 2 * SHARDS


def test_what_is_met_for_a_domain_is_all_that_a_question_can_need(server: Any) -> None:
    """A relation elsewhere that is joined, and one on this server alone that names units."""
    with sharded(server, 2) as found:
        found.table("visit", "id int, kind text", "id")
        found.table("stay", "id int, kind text", "id", local=[0])
        found.near.sql(
            "create table person (p_id int primary key); insert into person values (1), (2);"
            "alter table person owner to owner1;"
            "create table paid (a_bill int, kind text); alter table paid owner to owner1;"
            "insert into paid select 1 + i % 2, 'x' from generate_series(1, 10) i"
        )
        for name, columns in (("place", "offers text"), ("bill", "b_id int, b_who int")):
            found.far[0].sql(f"create table {name} ({columns}); grant all on {name} to public")
            found.near.sql(
                f"create foreign table {name} ({columns}) server shard0;"
                f" alter foreign table {name} owner to owner1"
            )
        found.near.sql(
            "insert into place values ('x'), ('y'); insert into bill values (1, 1), (2, 2);"
            "insert into visit select i, 'x' from generate_series(1, 20) i;"
            "insert into stay select i, 'x' from generate_series(1, 20) i"
        )
        found.near.sql(
            "select dp.protect('visit'), dp.protect('stay'), dp.protect('person', privacy_unit => 'p_id'),"
            " dp.declare_public('place');"
            "select dp.link('bill', 'person', array['b_who'], nulls => 'excluded');"
            "select dp.link('paid', 'bill', array['a_bill'], array['b_id'], nulls => 'excluded');"
            "select dp.declare_shards(r, written => 'coordinator')"
            " from unnest(array['visit', 'stay', 'bill']::regclass[]) r;"
            "select dp.set_domain(r, 'kind', reference => 'place', reference_column => 'offers')"
            " from unnest(array['visit', 'stay', 'paid']::regclass[]) r;"
            "select dp.grant_budget('postgres', epsilon => 1e6, delta => 1e-3)",
            user="owner1",
        )
        counted = [("x", 20), ("y", 0)]
        with silent(found.near, "visit") as session:
            # of the two only visit has a part on the server of the domain
            statement = "select visit.kind, dp_count(*) from visit join stay using (id) group by 1 order by 1"
            assert session.execute(statement).fetchall() == counted
        with silent(found.near, "person", UNCUT) as session:
            statement = "select kind, dp_count(*) from paid group by 1 order by 1"
            assert session.execute(statement).fetchall() == [("x", 10), ("y", 0)]
