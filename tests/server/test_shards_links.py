"""Units that rows find by parents on other servers, where nobody enforces a key (docs/shards.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.in_service import in_service
from tests.server.shards import READER, UNCUT, WRITER, Shards, sharded
from tests.server.test_shards_admission import said
from tests.server.test_shards_moment import NO_SNAPSHOT, counting, waits
from tests.server.waiting import wait_until

pytestmark = pytest.mark.server
PERSON = "p_id int not null, p_house int"
ORDER = "o_id int not null, o_who int, o_amount int"
LINE = "l_order int not null, l_amount bigint"
HOUSES = "select dp.protect('person', privacy_unit => 'p_house')"
DECLARE = """
select dp.protect('person', privacy_unit => 'p_id');
select dp.link('orders', 'person', array['o_who'], nulls => 'excluded');
select dp.link('line', 'orders', array['l_order'], array['o_id'], nulls => 'excluded');
select dp.declare_shards('orders', written => 'coordinator');
select dp.declare_shards('line', written => 'coordinator');
select dp.set_domain('line', 'l_amount', 0, 1000);
select dp.grant_budget('postgres', 1e7, 1);
"""


@pytest.fixture
def shop(server: Any) -> Iterator[Shards]:
    """People here; ten orders of five of them and thirty lines of these, cut alike."""
    with sharded(server, 2) as shards:
        shards.near.sql(
            "create table person (p_id int primary key, p_house int not null);"
            "alter table person owner to owner1;"
            "insert into person select i, i % 3 from generate_series(1, 5) i"
        )
        shards.table("orders", ORDER, "o_id")
        shards.table("line", LINE, "l_order")
        shards.near.sql(DECLARE, user="owner1")
        shards.near.sql(
            "insert into orders select i, 1 + i % 5, i from generate_series(1, 10) i;"
            "insert into line select 1 + i % 10, i from generate_series(1, 30) i",
            user="owner1",
        )
        yield shards


def test_rows_find_their_units_by_parents_on_other_servers(shop: Shards) -> None:
    with silent(shop.near, "person", UNCUT) as session:
        for question, expected in (
            ("select dp_count(*) from line", 30),
            ("select dp_sum(l_amount) from line", 465),
            ("select dp_count(*) from line join orders on l_order = o_id", 30),
            ("select dp_count(*) from line join orders on l_order = o_id where o_amount = 3", 3),
            ("select dp_count(*) from line a join line b on a.l_order = b.l_order", 90),
            ("select dp_count(distinct l_amount) from line", 30),
        ):
            assert session.execute(question).fetchone() == (expected,), question


def astray(shop: Shards, *rows: tuple[int, int | None, int]) -> None:
    """Store orders on both shards, as half a commit or a writer beside this server can."""
    for number, row in enumerate(rows):
        listed = ", ".join("null" if value is None else str(value) for value in row)
        shop.far[number % 2].sql(f"insert into orders values ({listed})")


def test_rows_whose_parents_disagree_are_never_counted(shop: Shards) -> None:
    with silent(shop.near, "person", UNCUT) as session:
        for rows, left in (
            ([(1, 2, 7), (1, 2, 8)], 30),  # order 1 is of person 2 already: all agree
            ([(2, 5, 7), (2, 5, 7)], 27),  # order 2 is of person 3
            ([(3, None, 7)], 27),  # says nothing of whom it is of
            ([(4, 99, 7), (4, 98, 7)], 24),  # nobody is 98 or 99, but they are not person 5
        ):
            astray(shop, *rows)
            assert session.execute("select dp_count(*) from line").fetchone() == (left,), rows
        # each of the statement's own rows of the parent counts, in the part of what refers to it
        joined = "select dp_count(*) from line join orders on l_order = o_id"
        assert session.execute(joined).fetchone() == (24 + 3,)


def test_nobody_multiplies_the_rows_of_others_by_parents_of_his_own(shop: Shards) -> None:
    """With a plain join a row would count for each unit that claims its key (the mutant)."""
    shop.near.sql("insert into person select i, i from generate_series(6, 40) i")
    for i in range(6, 41):
        shop.far[i % 2].sql(f"insert into orders values (1, {i}, 1)")
    mutant = in_service("""
from dataclasses import replace
import dpsql.query.units as units
units.agreed = lambda parent, key, onward: replace(parent, keys=(tuple(key),))
""")
    cut = UNCUT.replace("10**9", "1")
    question = "select dp_count(*) from line where l_order = 1"
    before = "delete from line where l_order = 1"
    with (
        silent(shop.near, "person", cut) as session,
        silent(shop.near, "person", cut, mutant) as broken,
    ):
        assert session.execute(question).fetchone() == (0,)
        # a plain join finds those in the part of the line
        assert broken.execute(question).fetchone() == (19,)
        shop.near.sql(before, user="owner1")
        assert session.execute(question).fetchone() == (0,)
        assert broken.execute(question).fetchone() == (0,)


def test_both_sides_of_a_link_are_of_one_moment_or_refused(shop: Shards) -> None:
    question = "select dp_count(*) from line"
    for declared, of, reason in (
        ("line", "anywhere", "its rows find their privacy units in other places"),
        (
            "orders",
            "anywhere",
            "orders, on other servers, leads to its privacy unit, and nobody said",
        ),
    ):
        shop.near.sql(f"select dp.declare_shards('{declared}', written => '{of}')", user="owner1")
        state, _, detail, hint = said(shop.near, question, "postgres")
        assert state == "PD012"
        assert reason in (detail or "")
        assert f"dp.declare_shards('public.{declared}', written => 'coordinator')" in (hint or "")
        shop.near.sql(
            f"select dp.declare_shards('{declared}', written => 'coordinator')", user="owner1"
        )
    with silent(shop.near, "person", UNCUT) as session:
        assert session.execute(question).fetchone() == (30,)


def together(shop: Shards, *names: str) -> set[str]:
    listed = ", ".join(f"'{name}'::regclass::oid" for name in names)
    rows = shop.near.sql(
        f"select unnest(together)::regclass::text from dp.shards_of(array[{listed}])"
    )
    return {name for (name,) in rows}


def bills(shop: Shards) -> None:
    """Make five bills on one shard, of one person each, and twenty payments of them here."""
    shop.far[0].sql(
        f"create table bill (b_id int, b_who int); grant select on bill to {READER};"
        f" grant all on bill to {WRITER}; insert into bill select i, 1 + i % 5 from generate_series(1, 5) i"
    )
    shop.near.sql(
        "create foreign table bill (b_id int, b_who int) server shard0;"
        "create table paid (a_bill int); insert into paid select 1 + i % 5 from generate_series(1, 20) i;"
        "alter foreign table bill owner to owner1; alter table paid owner to owner1"
    )
    shop.near.sql(
        "select dp.link('bill', 'person', array['b_who'], nulls => 'excluded');"
        "select dp.link('paid', 'bill', array['a_bill'], array['b_id'], nulls => 'excluded')",
        user="owner1",
    )


def test_a_parent_on_one_server_is_read_in_the_moment_of_what_refers_to_it(shop: Shards) -> None:
    bills(shop)
    # by itself it is read in one snapshot, and its rows name their units
    assert together(shop, "bill", "person") == set()
    state, _, detail, hint = said(shop.near, "select dp_count(*) from paid", "postgres")
    assert state == "PD012"
    assert "bill, on other servers, leads to its privacy unit, and nobody said" in (detail or "")
    assert "dp.declare_shards('public.bill', written => 'coordinator')" in (hint or "")
    shop.near.sql("select dp.declare_shards('bill', written => 'coordinator')", user="owner1")
    assert together(shop, "bill", "person") == set()
    assert together(shop, "paid", "bill", "person") == {"bill"}
    assert together(shop, "paid") == {"bill"}
    assert together(shop, "line", "orders", "person") == {"line", "orders"}
    assert together(shop, "line") == {"line", "orders"}
    with silent(shop.near, "person", UNCUT) as session:
        assert session.execute("select dp_count(*) from paid").fetchone() == (20,)
        assert session.execute("select dp_count(*) from bill").fetchone() == (5,)


@pytest.mark.parametrize(("mutants", "expected"), [((), 16), ((NO_SNAPSHOT,), 20)])
def test_rows_of_before_do_not_meet_parents_of_after(
    shop: Shards, mutants: tuple[str, ...], expected: int
) -> None:
    """A bill goes to somebody else, and its payments go, after the statement's snapshot was taken."""
    bills(shop)
    shop.near.sql("select dp.declare_shards('bill', written => 'coordinator')", user="owner1")
    question = "select dp_count(*) from paid"
    with shop.near.connect("owner1", autocommit=False) as writer:
        writer.execute(
            "update bill set b_who = 4 where b_id = 1; delete from paid where a_bill = 1"
        )
        session, found, thread = counting(
            shop, UNCUT, *mutants, question=question, relation="person"
        )
        wait_until(lambda: waits(shop.near, session.info.backend_pid))
        writer.commit()
        thread.join(120)
    assert found == [expected]


def test_units_that_a_local_parent_names_are_of_the_rows_moment(server: Any) -> None:
    """Whoever moves to another household meanwhile: rows there, and the person here."""
    with sharded(server, 2) as shards:
        shards.near.sql(
            "create table person (p_id int primary key, p_house int not null);"
            "alter table person owner to owner1; insert into person select i, i / 2 from generate_series(1, 6) i"
        )
        shards.table("visit", "v_id int not null, v_who int", "v_id")
        shards.near.sql(
            "select dp.protect('person', privacy_unit => 'p_house');"
            "select dp.link('visit', 'person', array['v_who'], nulls => 'excluded');"
            "select dp.declare_shards('visit', written => 'anywhere');"
            "select dp.grant_budget('postgres', 1e7, 1)",
            user="owner1",
        )
        shards.near.sql("insert into visit select i, 1 + i % 6 from generate_series(1, 12) i")
        question = "select dp_count(*) from visit"
        state, _, detail, _ = said(shards.near, question, "postgres")
        assert state == "PD012"
        assert "its rows find their privacy units in other places" in (detail or "")
        shards.near.sql(
            "select dp.declare_shards('visit', written => 'coordinator')", user="owner1"
        )
        assert together(shards, "visit", "person") == {"visit"}
        with silent(shards.near, "person", UNCUT) as session:
            assert session.execute(question).fetchone() == (12,)


def test_a_key_that_is_the_unit_itself_needs_no_moment(server: Any) -> None:
    """The row names its unit; that the parent is there is asked of another server."""
    with sharded(server, 2) as shards:
        shards.table("person", "p_id int not null, p_age int", "p_id")
        shards.table("visit", "v_id int not null, v_who int", "v_id")
        shards.near.sql(
            "select dp.protect('person', privacy_unit => 'p_id');"
            "select dp.link('visit', 'person', array['v_who'], array['p_id'], nulls => 'excluded');"
            "select dp.declare_shards('visit', written => 'anywhere'),"
            " dp.declare_shards('person', written => 'anywhere');"
            "select dp.grant_budget('postgres', 1e7, 1)",
            user="owner1",
        )
        shards.near.sql(
            "insert into person select i, i from generate_series(1, 6) i;"
            "insert into visit select i, i % 8 from generate_series(1, 16) i"
        )
        for number in (0, 1):
            shards.far[number].sql("insert into person values (1, 1)")
        with silent(shards.near, "person", UNCUT) as session:
            # none of 0 and 7; those of 1 once, whatever is stored twice
            assert session.execute("select dp_count(*) from visit").fetchone() == (12,)


def test_people_on_other_servers_have_one_household_or_none(server: Any) -> None:
    """The unit is what a parent says: who is stored in two households has none for his visits."""
    with sharded(server, 2) as shards:
        shards.table("person", "p_id int not null, p_house int not null", "p_id")
        shards.table("visit", "v_who int, v_day int", "v_who")
        shards.near.sql(
            "select dp.protect('person', privacy_unit => 'p_house');"
            "select dp.link('visit', 'person', array['v_who'], array['p_id'], nulls => 'excluded');"
            "select dp.declare_shards('visit', written => 'coordinator'),"
            " dp.declare_shards('person', written => 'coordinator');"
            "select dp.set_domain('visit', 'v_day', array['0', '1']);"
            "select dp.grant_budget('postgres', 1e7, 1)",
            user="owner1",
        )
        shards.near.sql(
            "insert into person select i, i / 2 from generate_series(1, 6) i;"
            "insert into visit select 1 + i % 6, i % 2 from generate_series(1, 12) i"
        )
        joined = "select dp_count(*) from visit join person on v_who = p_id"
        grouped = "select v_day, dp_count(*) from visit join person on v_who = p_id group by 1"
        with silent(shards.near, "person", UNCUT) as session:
            assert session.execute("select dp_count(*) from visit").fetchone() == (12,)
            assert session.execute(joined).fetchone() == (12,)
            for number in (0, 1):
                shards.far[number].sql("insert into person values (1, 7), (2, 1)")
            assert session.execute("select dp_count(*) from visit").fetchone() == (10,)
            # of person 2, stored three times, two rows are where his visits are
            assert session.execute(joined).fetchone() == (12,)
            assert sorted(session.execute(grouped).fetchall()) == [(0, 4), (1, 8)]
