"""Foreign keys of partitions: a key that every partition has is one path to the units.

Where some partition has none the key is loose, and rows may belong to nobody; keys of other
columns are other ways.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import made, refused

SET_UP = """
grant dp_owner to owner1; grant create on schema public to owner1;
create table person (id int primary key, name text);
create table staff (id int primary key);
insert into person select i, 'p' || i from generate_series(1, 300) as i;
insert into staff values (1), (2);
create table payment (id int not null, person_id int not null, payer_id int not null, staff_id int not null,
                      month int not null, kind int not null) partition by list (month);
create table p1 partition of payment for values in (1);
create table p2 partition of payment for values in (2) partition by list (kind);
create table p2a partition of p2 for values in (1);
create table p2b partition of p2 default;
create table p0 partition of payment default;
"""
LEAVES = ("p1", "p2a", "p2b", "p0")
ROWS = "insert into payment select i, 1 + i % 300, 1 + i % 7, 1 + i % 2, i % 4, i % 2 from generate_series(1, 3000) i"


def key(relation: str, more: str = "", column: str = "person_id") -> str:
    """Write a foreign key to a person."""
    return f"alter table {relation} add foreign key ({column}) references person {more}"


def edges(database: Any) -> list[tuple[Any, ...]]:
    """Return the foreign keys to persons, each with the reason why rows may have no person."""
    return database.sql(  # type: ignore[no-any-return]
        "select columns::text, loose from dp.unit_edges('payment'::regclass) where parent = 'person'::regclass"
        " order by 1"
    )


@pytest.fixture
def bare(server: Any) -> Iterator[Any]:
    """Make a database without any key."""
    yield from made(server, SET_UP + ROWS)


def protect(database: Any) -> Any:
    """Protect persons; return a session of an analyst."""
    database.sql(
        "select dp.protect('person', privacy_unit => 'id'); grant select on payment to alice;"
        "select dp.set_root_cap('person', 1e6); select dp.grant_budget('alice', 1e6)"
    )
    session = database.connect(user="alice")
    session.autocommit = True
    session.execute("set dp.max_rows_contributed = 10; set dp.epsilon = 100")
    return session


def test_the_same_key_of_every_partition_is_one_way(bare: Any) -> None:
    for leaf in LEAVES:
        bare.sql(key(leaf))
        bare.sql(f"alter table {leaf} add foreign key (staff_id) references staff")
    told: list[str] = []
    bare.sql("select dp.declare_public('staff')")
    owner = bare.connect()
    owner.add_notice_handler(lambda d: told.append(str(d.message_primary)))
    owner.execute("select dp.protect('person', privacy_unit => 'id')")
    assert not [t for t in told if "GROUP BY" in t or "several" in t or "ways" in t], told
    assert edges(bare) == [("{person_id}", None)]
    ((unit,),) = bare.sql("select privacy_unit from dp.relations where relation_name = 'payment'")
    assert str(unit).count("person.id") == 1
    session = protect(bare)
    session.execute("set dp.max_contribution = 64")
    ((count,),) = session.execute("select dp_count(*) from payment").fetchall()
    assert abs(count - 3000) < 100
    bare.sql("select dp.set_domain('payment', 'month', 0, 3)")
    rows = session.execute("select month, dp_count(*) from payment group by month").fetchall()
    assert [month for month, _ in rows] == [0, 1, 2, 3]
    assert all(abs(count - 750) < 100 for _, count in rows)


def test_a_partition_that_comes_without_the_key_ends_answers(bare: Any) -> None:
    for leaf in LEAVES:
        bare.sql(key(leaf))
    session = protect(bare)
    session.execute("select dp_count(*) from payment")
    spent = bare.sql("select count(*) from dp.spend")
    session.execute("select dp_count(*) from payment")
    assert bare.sql("select count(*) from dp.spend") == spent
    bare.sql("create table p9 partition of payment for values in (9)")
    assert "p9" in str(edges(bare))
    error = refused(session, "select dp_count(*) from payment")
    assert "p9" in str(error.diag.message_detail), error
    assert bare.sql("select count(*) from dp.spend") == spent
    bare.sql(key("p9"))
    assert edges(bare) == [("{person_id}", None)]
    session.execute("select dp_count(*) from payment")
    bare.sql("alter table p1 drop constraint p1_person_id_fkey")
    assert "p1" in str(refused(session, "select dp_count(*) from payment").diag.message_detail)


def test_other_keys_of_other_partitions_are_other_ways(bare: Any) -> None:
    for leaf in LEAVES:
        bare.sql(key(leaf) if leaf != "p1" else key(leaf, column="payer_id"))
    found = edges(bare)
    assert [columns for columns, _ in found] == ["{payer_id}", "{person_id}"]
    assert all(loose is not None for _, loose in found)


def test_a_key_of_the_whole_and_of_parts_is_one(bare: Any) -> None:
    bare.sql(key("payment"))
    bare.sql(key("p1"))
    bare.sql(key("p2"))
    assert edges(bare) == [("{person_id}", None)]


@pytest.mark.parametrize("more", ["not valid", "deferrable", "deferrable initially deferred"])
def test_a_key_that_is_not_enforced_at_once_covers_nothing(bare: Any, more: str) -> None:
    for leaf in LEAVES:
        bare.sql(key(leaf, more if leaf == "p2b" else ""))
    ((columns, loose),) = edges(bare)
    assert columns == "{person_id}"
    assert "not valid" in loose or "deferrable" in loose


def test_keys_of_any_nodes_against_their_leaves(bare: Any) -> None:
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    nodes = ("payment", "p1", "p2", "p2a", "p2b", "p0")
    above = {
        "p1": ("payment", "p1"),
        "p2a": ("payment", "p2", "p2a"),
        "p2b": ("payment", "p2", "p2b"),
        "p0": ("payment", "p0"),
    }
    for _ in range(20):
        chosen = [n for n in nodes if draw.random() < (0.1 if n == "payment" else 0.6)]
        # not valid: only where a partitioned table may have it, and no key from above replaces it
        invalid = [n for n in chosen if n in LEAVES and draw.random() < 0.2]
        with bare.connect() as session:
            session.autocommit = False
            for node in chosen:
                session.execute(key(node, "not valid" if node in invalid else ""))
            found = session.execute(
                "select columns::text, loose from dp.unit_edges('payment'::regclass)"
                " where parent = 'person'::regclass"
            ).fetchall()
            session.rollback()
        sound = set(chosen) - set(invalid)
        covered = all(sound & set(above[leaf]) for leaf in LEAVES)
        assert len(found) == bool(chosen), (seed, chosen, invalid, found)
        if chosen:
            assert (found[0][1] is None) == covered, (seed, chosen, invalid, found)


CUT = "select dp.link({}, 'person', array['person_id'::name], follow => false)"


def cut_apart(database: Any, *parts: str) -> None:
    """Cut the way of parts while they stand alone, and attach them again."""
    bounds = {"p1": "for values in (1)", "p0": "default", "p2": "for values in (2)"}
    for part in parts:
        database.sql(f"alter table payment detach partition {part}")
        database.sql(CUT.format(f"'{part}'"))
        database.sql(f"alter table payment attach partition {part} {bounds[part]}")


def test_a_cut_of_one_part_frees_no_row_of_the_others(bare: Any) -> None:
    bare.sql("".join(f"{key(leaf)};" for leaf in LEAVES))
    bare.sql("select dp.protect('person', privacy_unit => 'id')")
    cut_apart(bare, "p1")
    assert edges(bare) == [("{person_id}", None)]
    with bare.connect() as owner:
        refused(owner, "select dp.declare_public('payment')")
    cut_apart(bare, "p0", "p2")
    assert edges(bare) == []


def test_a_cut_of_the_whole_is_one_of_all_parts(bare: Any) -> None:
    bare.sql("".join(f"{key(leaf)};" for leaf in LEAVES))
    bare.sql("select dp.protect('person', privacy_unit => 'id')")
    bare.sql(CUT.format("'payment'"))
    assert edges(bare) == []
