"""Relations in parts on other servers while they live: altered, analysed, emptied, cut anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.asking import silent
from tests.server.shards import READER, WRITER, Shards, sharded

SHARDS = 2
ROWS = 300
DECLARE = """
select dp.protect('visit'), dp.protect('note');
select dp.declare_shards(r, written => 'coordinator') from unnest(array['visit', 'note']::regclass[]) r;
select dp.set_domain('visit', 'ward', array['a', 'b']);
select dp.grant_budget('postgres', epsilon => 1e6, delta => 1e-3);
select dp.set_root_cap('visit', 1e9, 1e-3), dp.set_root_cap('note', 1e9, 1e-3);
"""
BY_WARD = "select ward, dp_count(*) from visit group by ward order by 1"
JOINED = "select dp_count(*) from visit join note using (id)"


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    with sharded(server, SHARDS) as found:
        for name in ("visit", "note"):
            found.table(name, "id int, ward text, n int", "id")
        found.near.sql(
            f"insert into visit select i, chr(97 + i % 2), i % 7 from generate_series(1, {ROWS}) i;"
            f" insert into note select i, 'a', i % 7 from generate_series(1, {ROWS}) i"
        )
        found.near.sql(DECLARE, user="owner1")
        yield found


@pytest.fixture
def session(shards: Shards) -> Iterator[Any]:
    with silent(shards.near, "visit") as found:
        assert found.execute(BY_WARD).fetchall() == halves()
        yield found


def halves() -> list[tuple[str, int]]:
    return [("a", ROWS // 2), ("b", ROWS // 2)]


def both(shards: Shards, there: str, here: str) -> None:
    """Change the tables of a relation on all shards, and what is made of them here."""
    for far in shards.far:
        far.sql(there)
    shards.near.sql(here)


def test_columns_come_and_go_and_are_renamed(shards: Shards, session: Any) -> None:
    both(
        shards,
        "alter table visit add late int default 5; alter table visit rename ward to place",
        "alter table visit add late int;"
        " alter foreign table visit_0 alter ward options (column_name 'place');"
        " alter foreign table visit_1 alter ward options (column_name 'place')",
    )
    assert session.execute(BY_WARD).fetchall() == halves()
    ((found,),) = session.execute("select dp_sum(late, 0, 10) from visit").fetchall()
    assert found == 5 * ROWS
    ((found,),) = session.execute("select dp_count(*) from visit where extract(year from"
                                  " date '2020-01-01' + late) = 2020").fetchall()  # fmt: skip
    assert found == ROWS
    both(
        shards,
        "alter table visit drop late; alter table visit rename place to ward",
        "alter table visit drop late;"
        " alter foreign table visit_0 alter ward options (drop column_name);"
        " alter foreign table visit_1 alter ward options (drop column_name)",
    )
    assert session.execute(BY_WARD).fetchall() == halves()
    with pytest.raises(psycopg.Error, match="late"):
        session.execute("select dp_sum(late, 0, 10) from visit")


def test_types_change(shards: Shards, session: Any) -> None:
    assert session.execute("select dp_sum(n, 0, 10) from visit").fetchone()[0] > 0
    both(
        shards,
        "alter table visit alter n type numeric using n / 2.0",
        "alter table visit alter n type numeric",
    )
    expected = sum(i % 7 for i in range(1, ROWS + 1)) / 2
    assert session.execute("select dp_sum(n, 0, 10) from visit").fetchone() == (expected,)
    # a type that only this server has
    shards.near.sql("alter table visit alter n type int")
    with pytest.raises(psycopg.Error) as caught:
        session.execute("select dp_count(*) from visit where coalesce(n, 1) = 1 and n::text = '1'")
    assert caught.value.sqlstate == "PD900"
    both(shards, "alter table visit alter n type int using (2 * n)::int", "select 1")
    assert session.execute(BY_WARD).fetchall() == halves()


@pytest.mark.parametrize(
    "upkeep", ["analyze visit", "vacuum visit", "analyze visit_0", "vacuum analyze note"]
)
def test_upkeep_changes_no_answer(shards: Shards, session: Any, upkeep: str) -> None:
    with shards.near.connect() as owner:
        owner.execute(upkeep)
    for far in shards.far:
        far.sql("vacuum analyze visit")
    assert session.execute(BY_WARD).fetchall() == halves()
    assert session.execute(JOINED).fetchone() == (ROWS,)


def test_shards_may_be_empty_and_all_of_them(shards: Shards, session: Any) -> None:
    shards.far[1].sql("create table kept as table visit; delete from visit; analyze visit")
    shards.near.sql("analyze visit")
    ((left,),) = shards.far[0].sql("select count(*) from visit")
    assert sum(n for _, n in session.execute(BY_WARD).fetchall()) == left
    assert session.execute(JOINED).fetchone() == (left,)
    assert session.execute("select dp_count(distinct ward) from visit").fetchone() == (2,)
    shards.far[0].sql("create table kept as table visit; delete from visit; analyze visit")
    shards.near.sql("analyze visit")
    assert session.execute(BY_WARD).fetchall() == [("a", 0), ("b", 0)]
    assert session.execute(JOINED).fetchone() == (0,)
    for question in ("count(distinct ward)", "sum(n, 0, 10)"):
        assert session.execute(f"select dp_{question} from visit").fetchone() == (0,)
    for far in shards.far:
        far.sql("insert into visit table kept; drop table kept; analyze visit")
    shards.near.sql("analyze visit")


def test_a_part_that_leaves_and_comes_back(shards: Shards, session: Any) -> None:
    shards.near.sql("alter table visit detach partition visit_1")
    ((left,),) = shards.far[0].sql("select count(*) from visit")
    found = session.execute(BY_WARD).fetchall()
    assert sum(n for _, n in found) == left
    # they are not cut in one way any more
    assert session.execute(JOINED).fetchone() == (left,)
    # what was a part is protected by itself no more, and no question reads it
    with pytest.raises(psycopg.Error):
        session.execute("select dp_count(*) from visit_1")
    shards.near.sql(
        "alter table visit attach partition visit_1 for values with (modulus 2, remainder 1)"
    )
    shards.near.sql("select dp.declare_shards('visit', written => 'coordinator')", user="owner1")
    assert session.execute(BY_WARD).fetchall() == halves()


def test_a_part_that_moves_to_another_server(shards: Shards, session: Any) -> None:
    """The parts of the two relations are on different servers then, and joined here."""
    shards.far[0].sql(
        f"create table moved (id int, ward text, n int); grant select on moved to {READER};"
        f" grant all on moved to {WRITER}"
    )
    shards.near.sql(
        "begin; create foreign table old (id int, ward text, n int) server shard1"
        " options (table_name 'visit'); create foreign table new (id int, ward text, n int)"
        " server shard0 options (table_name 'moved'); insert into new table old;"
        " alter table visit detach partition visit_1; drop foreign table old;"
        " alter foreign table new owner to owner1;"
        " alter table visit attach partition new for values with (modulus 2, remainder 1); commit"
    )
    shards.near.sql("select dp.declare_shards('visit', written => 'coordinator')", user="owner1")
    assert session.execute(BY_WARD).fetchall() == halves()
    assert session.execute(JOINED).fetchone() == (ROWS,)
    shards.near.sql(
        "begin; alter table visit detach partition new; drop foreign table new;"
        " alter table visit attach partition visit_1 for values with (modulus 2, remainder 1); commit"
    )
    shards.near.sql("select dp.declare_shards('visit', written => 'coordinator')", user="owner1")
    assert session.execute(BY_WARD).fetchall() == halves()
