"""Sketches on the server: rotation of seeds, and what makes a sketch invalid."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.sketching import COLLECT, PATH, create, refused, stored_counters


def test_seeds_are_drawn_at_every_building_and_at_rotation(network: Any) -> None:
    seen = set()
    counters = []
    for statement in (create(PATH, 64), create(PATH, 64), "select dp.rotate_sketch_seeds()"):
        network.sql(statement, user="owner1")
        ((seed,),) = network.sql("select seed from dp.sketch_family")
        assert len(seed) == 32
        seen.add(seed)
        counters.append(stored_counters(network)["e0"])
    assert len(seen) == 3
    assert counters[0] != counters[1] != counters[2]


def test_rotation_counts_anew_and_forgets_what_cannot_be_built(network: Any, look: Any) -> None:
    network.sql(COLLECT, user="owner1")
    network.sql(create(PATH, 64), user="owner1")
    network.sql(create("select dp_count(*) from e, e as g where e.a = g.a", 64), user="owner1")
    before = look("select dp_count(*) from e, e as g where e.a = g.a")["bound"]
    network.sql("drop table f; insert into e select 1, 1 from generate_series(1, 50)")
    assert network.sql("select valid from dp.sketches order by 1", user="owner1") == [
        (False,),
        (True,),
    ]
    assert network.sql("select dp.rotate_sketch_seeds()", user="owner1") == [(1,)]
    assert network.sql("select valid from dp.sketches", user="owner1") == [(True,)]
    assert look("select dp_count(*) from e, e as g where e.a = g.a")["bound"] > before + 40


def warned(database: Any, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement as the owner; return message, detail and hint of its warnings."""
    notices: list[tuple[Any, ...]] = []
    connection = database.connect("owner1")
    connection.add_notice_handler(
        lambda d: notices.append((d.message_primary, d.message_detail, d.message_hint))
    )
    connection.execute(statement)
    return notices


VALID = "select valid from dp.sketches"
ASK = f"select * from dp.explain('{PATH}')"


@pytest.mark.parametrize(
    ("collected", "named"), [("", "relations public.e, public.f"), ("e", "relation public.f")]
)
def test_a_sketch_that_no_question_may_use_is_not_valid(
    network: Any, collected: str, named: str
) -> None:
    if collected:
        network.sql(f"select dp.collect_statistics('{collected}')", user="owner1")
    expected = (
        f"no question can use the sketch while changes of {named} are not counted",
        "Nobody would know by how many rows the data differs from it.",
        "SELECT dp.collect_statistics('<relation>') for each, then build the sketch again.",
    )
    assert warned(network, create(PATH, 64)) == [expected]
    assert warned(network, "select dp.rotate_sketch_seeds()") == [expected]
    assert network.sql(VALID, user="owner1") == [(False,)]
    error = refused(network, "alice", ASK, "set dp.method = sketch")
    assert error.sqlstate == "PD020"
    network.sql(COLLECT, user="owner1")
    assert network.sql(VALID, user="owner1") == [(False,)]
    assert warned(network, create(PATH, 64)) == []
    assert network.sql(VALID, user="owner1") == [(True,)]
    with network.connect("alice") as alice:
        alice.execute("set dp.method = sketch")
        alice.execute(ASK)
    network.sql("set track_counts = off; insert into f values (1, 'x')")
    assert network.sql(VALID, user="owner1") == [(False,)]
    assert refused(network, "alice", ASK, "set dp.method = sketch").sqlstate == "PD020"


@pytest.mark.parametrize(
    ("away", "back", "why"),
    [
        (
            "alter table f rename to g",
            "alter table g rename to f",
            'Relation "public.f" does not exist. ',
        ),
        (
            "select dp.unprotect('f')",
            "select dp.protect('f')",
            'Relation "public.f" is neither protected nor public. ',
        ),
        (
            "alter table f rename b to d",
            "alter table f rename d to b",
            'Column "b" specified in USING',
        ),
    ],
)
def test_rotation_keeps_what_it_cannot_build_but_nobody_uses_it(
    network: Any, away: str, back: str, why: str
) -> None:
    network.sql(COLLECT, user="owner1")
    network.sql(create(PATH, 64), user="owner1")
    network.sql(create("select dp_count(*) from e, e as g where e.a = g.a", 64), user="owner1")
    ((number, query),) = network.sql(
        "select sketch, query from dp.sketches where 'f'::regclass = any (relations)"
    )
    network.sql("grant create on schema public to owner1")
    network.sql(away, user="owner1")
    ((message, detail, hint),) = warned(network, "select dp.rotate_sketch_seeds()")
    assert message == f"sketch {number} could not be built anew"
    assert detail.startswith(why)
    assert detail.endswith(f"The sketch is of: {query}")
    assert "dp.drop_sketch" in hint
    listed = "select sketch, valid from dp.sketches order by valid"
    ((kept, invalid), (_, valid)) = network.sql(listed, user="owner1")
    assert (kept, invalid, valid) == (number, False, True)
    network.sql(back, user="owner1")
    # old seeds are not used again
    assert network.sql(listed, user="owner1")[0] == (number, False)
    if "unprotect" in away:
        network.sql(COLLECT, user="owner1")
    error = refused(network, "alice", ASK, "set dp.method = sketch")
    assert error.diag.message_primary == "the sketch of relation public.e is not valid any more"
    assert network.sql("select dp.rotate_sketch_seeds()", user="owner1") == [(2,)]
    assert network.sql(VALID, user="owner1") == [(True,), (True,)]
    with network.connect("alice") as alice:
        alice.execute("set dp.method = sketch")
        alice.execute(ASK)


@pytest.mark.parametrize(
    "change",
    [
        "alter table f alter b type bigint",
        "alter table f alter c type text using c || '!'",
        "truncate f",
        "vacuum full f",
        "alter table f rename b to d; alter table f add b int not null default 1",
    ],
)
def test_a_sketch_of_an_altered_relation_is_refused(network: Any, look: Any, change: str) -> None:
    network.sql(create(PATH, 64), user="owner1")
    for statement in change.split(";"):
        network.sql(statement)
    state, message, detail, hint = look(PATH)["error"]
    assert state == "PD020"
    # another type makes another join
    assert message in (
        "the sketch of relation public.f is not valid any more",
        "relation public.e has no sketch for this join",
    )
    assert detail
    assert "dp.create_sketch" in hint
    network.sql(create(PATH, 64), user="owner1")
    assert "bound" in look(PATH)


def test_a_relation_without_a_sketch_is_named(network: Any, look: Any) -> None:
    network.sql(create(PATH, 64), user="owner1")
    assert look("select dp_count(*) from e, f where e.a = f.b")["error"] == [
        "PD020",
        "relation public.e has no sketch for this join",
        "It is joined on a.",
        "Its owner builds one: SELECT dp.create_sketch('<statement>').",
    ]


def test_a_swapped_partition_makes_a_sketch_invalid(network: Any, look: Any) -> None:
    network.sql(
        "create table p (b int, d int) partition by list (d);"
        " create table p1 partition of p for values in (1); create table p2 (b int, d int);"
        " insert into p values (1, 1), (2, 1); alter table p owner to owner1; alter table p1 owner to owner1"
    )
    network.sql("select dp.protect('p')", user="owner1")
    query = "select dp_count(*) from e join p using (b)"
    network.sql(create(query, 64), user="owner1")
    assert "bound" in look(query)
    network.sql("alter table p attach partition p2 for values in (2)")
    assert look(query)["error"][1] == "the sketch of relation public.p is not valid any more"
