"""Privacy units on several servers: nothing that other servers claim is needed, moved rows included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.shards import UNCUT, WRITER, Shards, sharded

pytestmark = pytest.mark.server
COLUMNS = "v_id int not null, v_who int not null, v_amount bigint"
DECLARE = """
select dp.protect('visit', privacy_unit => 'v_who');
select dp.declare_shards('visit', written => 'anywhere');
select dp.set_domain('visit', 'v_amount', 0, 1000);
select dp.grant_budget('postgres', 1e7, 1);
"""


@pytest.fixture
def clinic(server: Any) -> Iterator[Shards]:
    """Three visits of each of 20 people, on two servers; the second one allows NULL."""
    with sharded(server, 2) as shards:
        shards.table("visit", COLUMNS, "v_id", declare=DECLARE)
        shards.near.sql(
            "insert into visit select i, i % 20, i from generate_series(1, 60) i", user="owner1"
        )
        yield shards


def test_rows_without_a_unit_are_never_counted(clinic: Shards) -> None:
    """NOT NULL of a foreign part is what its owner says, and not what the server keeps."""
    clinic.far[1].sql(
        "alter table visit alter v_who drop not null; insert into visit values (1001, null, 5)"
    )
    with silent(clinic.near, "visit", UNCUT) as session:
        assert session.execute("select dp_count(*) from visit").fetchone() == (60,)
        assert session.execute("select dp_sum(v_amount) from visit").fetchone() == (1830,)
        assert session.execute("select dp_count(*) from visit where v_amount = 5").fetchone() == (
            1,
        )


def test_a_row_that_is_stored_twice_stays_its_units(clinic: Shards) -> None:
    """What a mover beside this server can show: each version counts for the unit that it names.

    Its unit is cut off with all of them, so a unit more or less changes no more than before.
    """
    with silent(clinic.near, "visit", UNCUT) as session:
        for number in (0, 1):
            clinic.far[number].sql("insert into visit values (7777, 3, 1)")
        assert session.execute("select dp_count(*) from visit").fetchone() == (62,)
    cut = UNCUT.replace("10**9", "4")
    with silent(clinic.near, "visit", cut) as session:
        # three visits of each but the third, who has five and is cut off at four
        assert session.execute("select dp_count(*) from visit").fetchone() == (61,)


def test_other_relations_have_units_of_their_own_column(clinic: Shards) -> None:
    """A link would need a key of the parent, which nobody enforces where it is on other servers."""
    clinic.table(
        "bill",
        "b_id int not null, b_who int not null",
        "b_id",
        declare="select dp.protect('bill', privacy_unit => 'b_who');"
        " select dp.declare_shards('bill', written => 'anywhere')",
    )
    clinic.near.sql(
        "insert into bill select i, i % 20 from generate_series(1, 40) i", user="owner1"
    )
    with silent(clinic.near, "bill", UNCUT) as session:
        assert session.execute("select dp_count(*) from bill").fetchone() == (40,)


def test_writers_beside_this_server_wait_for_nobody(clinic: Shards) -> None:
    with silent(clinic.near, "visit", UNCUT) as session:
        session.autocommit = False
        session.execute("select dp_count(*) from visit")
        clinic.far[0].sql("insert into visit values (9999, 4, 1)", user=WRITER)
        session.rollback()
        session.autocommit = True
        assert session.execute("select dp_count(*) from visit").fetchone() == (61,)
