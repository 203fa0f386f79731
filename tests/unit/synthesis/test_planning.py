"""Which tables come first, and what columns of a copy are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter, MissingDeclaration, NotAnswerable
from dpsql.synthesis.planning import planned
from dpsql.synthesis.schema import Attribute, Column, ForeignKey, Plan, Table, Unique, Use


def table(
    oid: int,
    *columns: str,
    key: str = "",
    keys: tuple[tuple[str, int, str], ...] = (),
    uniques: tuple[str, ...] = (),
    domains: str = "",
    public: bool = False,
    bases: dict[str, str] | None = None,
) -> Table:
    """Write a table: ``a!`` is NOT NULL, ``a=`` has a default; keys as (columns, parent, columns)."""
    made = []
    for n, column in enumerate(columns):
        name = column.rstrip("!=")
        base = (bases or {}).get(name, "int4")
        type_ = {"int4": "integer"}.get(base, base)
        default = "1" if column.endswith("=") else None
        made.append(Column(name, n + 1, type_, "!" in column, default, base=base))
    found = [Unique(f"t{oid}_pkey", tuple(key.split()), True)] if key else []
    found += [Unique(f"t{oid}_u{n}", tuple(u.split())) for n, u in enumerate(uniques)]
    return Table(
        oid,
        "s",
        f"t{oid}",
        tuple(made),
        tuple(found),
        tuple(
            ForeignKey(
                f"k{oid}_{n}", tuple(mine.split()), parent, tuple(its.split()), f"s.t{parent}"
            )
            for n, (mine, parent, its) in enumerate(keys)
        ),
        public=public,
        domains=tuple(Attribute(d, f'"{d}"') for d in domains.split()),
    )


def names(plan: Plan) -> list[str]:
    return [p.table.name for p in plan.tables]


def uses(plan: Plan, name: str) -> dict[str, Use]:
    return dict(next(p for p in plan.tables if p.table.name == name).uses)


@st.composite
def schemas(draw: st.DrawFn) -> list[Table]:
    """Tables with keys between any of them."""
    count = draw(st.integers(1, 8))
    edges = draw(st.lists(st.tuples(st.integers(1, count), st.integers(1, count)), max_size=12))
    return [
        table(
            oid,
            "id!",
            *(
                f"c{n}{draw(st.sampled_from(['', '!']))}"
                for n, (a, _) in enumerate(edges)
                if a == oid
            ),
            key="id",
            keys=tuple((f"c{n}", b, "id") for n, (a, b) in enumerate(edges) if a == oid),
        )
        for oid in range(1, count + 1)
    ]


def circular(tables: list[Table]) -> bool:
    """Whether keys other than those within a table lead in a circle, by taking leaves away."""
    left = {t.oid: {k.parent for k in t.foreign_keys} - {t.oid} for t in tables}
    while leaves := {oid for oid, parents in left.items() if not parents & set(left)}:
        left = {oid: parents for oid, parents in left.items() if oid not in leaves}
    return bool(left)


@given(schemas(), st.randoms(use_true_random=False))
def test_parents_come_first_unless_keys_lead_in_a_circle(
    tables: list[Table], rng: random.Random
) -> None:
    rng.shuffle(tables)
    if circular(tables):
        with pytest.raises(NotAnswerable, match="in a circle") as caught:
            planned(tables)
        named = {part.strip(",; ") for part in str(caught.value.detail).split()}
        assert any(f"{t.shown}.{k.name}" in named for t in tables for k in t.foreign_keys)
        return
    plan = planned(tables)
    assert sorted(names(plan)) == sorted(t.name for t in tables)
    assert planned(tables) == plan
    for place, p in enumerate(plan.tables):
        assert {r.key for r in p.references} == set(p.table.foreign_keys)
        for r in p.references:
            assert plan.tables[r.parent].table.oid == r.key.parent
            assert r.parent <= place
            assert r.nullable == (not p.table.column(r.key.columns[0]).not_null)


@given(schemas())
def test_leaving_out_what_a_refusal_names_ends_in_a_plan(tables: list[Table]) -> None:
    left_out: list[str] = []
    for _ in range(13):
        try:
            plan = planned(tables, leave_out=left_out)
            break
        except NotAnswerable as error:
            if "without" not in str(error.hint) or "Leave one of them out" not in str(error.hint):
                return  # none of them can be NULL
            left_out.append(str(error.hint).split("array['")[1].split("'")[0])
    else:
        pytest.fail("no plan was found")
    for p in plan.tables:
        for k in p.table.foreign_keys:
            if k.name in left_out:
                assert p.use(k.columns[0]) is Use.MISSING


def test_a_circle_names_its_keys_and_what_can_be_left_out() -> None:
    one = table(1, "id!", "b!", key="id", keys=(("b", 2, "id"),))
    two = table(2, "id!", "c", key="id", keys=(("c", 3, "id"),))
    three = table(3, "id!", "a!", key="id", keys=(("a", 1, "id"),))
    four = table(4, "id!", "a!", key="id", keys=(("a", 1, "id"),))
    with pytest.raises(NotAnswerable) as caught:
        planned([four, one, two, three])
    detail, hint = str(caught.value.detail), str(caught.value.hint)
    assert all(n in detail for n in ("s.t1.k1_0", "s.t2.k2_0", "s.t3.k3_0"))
    assert "k4_0" not in detail
    assert "without => array['k2_0']" in hint
    assert "k1_0" not in hint
    plan = planned([four, one, two, three], leave_out=["k2_0"])
    assert names(plan) == ["t2", "t1", "t4", "t3"]
    assert uses(plan, "t2") == {"id": Use.KEY, "c": Use.MISSING}
    assert any("k2_0 of s.t2 is not copied" in str(note) for note in plan.notes)
    with pytest.raises(InvalidParameter, match="cannot be left out"):
        planned([one, two, three], leave_out=["k1_0"])
    with pytest.raises(InvalidParameter, match="none of the relations has a foreign key k9"):
        planned([one, two, three], leave_out=["k9"])


def test_self_references_come_last_and_may_have_no_root() -> None:
    tree = table(1, "id!", "up", "p!", key="id", keys=(("up", 1, "id"), ("p", 2, "id")))
    plan = planned([tree, table(2, "id!", key="id")])
    assert names(plan) == ["t2", "t1"]
    assert [(r.parent, r.nullable) for r in plan.tables[1].references] == [(0, False), (1, True)]


def test_a_link_table_has_references_for_its_key() -> None:
    link = table(3, "a!", "b!", "n!", key="a b", keys=(("a", 1, "id"), ("b", 2, "id")), domains="n")
    plan = planned([link, table(1, "id!", key="id"), table(2, "id!", key="id")])
    assert names(plan) == ["t1", "t2", "t3"]
    assert uses(plan, "t3") == {"a": Use.REFERENCE, "b": Use.REFERENCE, "n": Use.ATTRIBUTE}
    assert [r.unique for r in plan.tables[2].references] == [False, False]


def test_two_keys_to_one_table_are_two_references() -> None:
    mail = table(2, "f!", "t", keys=(("f", 1, "id"), ("t", 1, "id")), uniques=("f",))
    plan = planned([mail, table(1, "id!", key="id")])
    assert [(r.key.columns, r.nullable, r.unique) for r in plan.tables[1].references] == [
        (("f",), False, True),
        (("t",), True, False),
    ]


def test_keys_that_others_imply_get_no_links() -> None:
    part = table(1, "p!", key="p")
    supplier = table(2, "s!", key="s")
    both = table(3, "p!", "s!", key="p s", keys=(("p", 1, "p"), ("s", 2, "s")))
    line = table(
        4,
        "n!",
        "p!",
        "s!",
        key="n",
        keys=(("p", 1, "p"), ("s", 2, "s"), ("p s", 3, "p s")),
    )
    plan = planned([line, both, supplier, part])
    assert [r.key.columns for r in plan.tables[3].references] == [("p", "s")]
    assert [k.columns for k in plan.tables[3].implied] == [("p",), ("s",)]
    # not where the key in between is left out, or can be NULL
    loose = table(3, "p", "s!", uniques=("p s",), keys=(("p", 1, "p"), ("s", 2, "s")))
    plan = planned([line, loose, supplier, part])
    assert [r.key.columns for r in plan.tables[3].references] == [("p",), ("p", "s")]
    assert [plan.tables[3].shared(k) for k in range(2)] == [(), ("p",)]


def test_a_key_is_not_implied_by_rows_of_its_own_table() -> None:
    person = table(2, "f!", "id!", "boss", key="f id", keys=(("f", 1, "f"), ("f boss", 2, "f id")))
    firm = table(1, "f!", key="f")
    plan = planned([person, firm])
    assert [r.nullable for r in plan.tables[1].references] == [False, True]
    assert [plan.tables[1].shared(k) for k in range(2)] == [(), ("f",)]
    plan = planned([firm, person], leave_out=["k2_1"])
    assert uses(plan, "t2") == {"f": Use.REFERENCE, "id": Use.KEY, "boss": Use.MISSING}


def test_keys_that_lead_out_of_the_list() -> None:
    nullable = table(1, "id!", "x", key="id", keys=(("x", 9, "id"),))
    plan = planned([nullable])
    assert uses(plan, "t1")["x"] is Use.MISSING
    assert "s.t9" in str(plan.notes[0])
    filled = table(1, "id!", "x!", key="id", keys=(("x", 9, "id"),))
    with pytest.raises(NotAnswerable) as caught:
        planned([filled])
    assert "add it to the list" in str(caught.value.hint)
    own = replace(filled, foreign_keys=(replace(filled.foreign_keys[0], protected=True),))
    with pytest.raises(NotAnswerable) as caught:
        planned([own])
    assert caught.value.hint == "Add 's.t9' to the list of relations."
    public = table(9, "id!", "kind!", key="id", domains="kind", public=True)
    plan = planned([filled, public])
    assert names(plan) == ["t9", "t1"]
    assert plan.tables[0].attributes == public.domains
    assert plan.tables[0].references == ()


def test_columns_without_public_values() -> None:
    texts = {"note": "text", "name": "text", "email": "text", "blob": "bytea", "doc": "jsonb"}
    own = table(1, "id!", "note", "email!", "state!=", key="id", uniques=("email",), bases=texts)
    plan = planned([own])
    assert uses(plan, "t1") == {
        "id": Use.KEY,
        "note": Use.MISSING,
        "email": Use.KEY,
        "state": Use.DEFAULT,
    }
    assert "SELECT dp.set_domain('s.t1', 'note', array['a', 'b']);" in str(plan.notes[0])
    with pytest.raises(MissingDeclaration) as caught:
        planned([table(1, "id!", "name!", "n!", "doc!", key="id", bases=texts)])
    assert caught.value.message == "columns name, n, doc of relation s.t1 have no public values"
    hint = str(caught.value.hint)
    assert "SELECT dp.set_domain('s.t1', 'name', array['a', 'b']);" in hint
    assert "SELECT dp.set_domain('s.t1', 'n', 0, 100);" in hint
    assert "ALTER TABLE s.t1 ALTER COLUMN doc DROP NOT NULL;" in hint


def test_composite_keys_are_made_up_as_far_as_they_must() -> None:
    parent = table(1, "id!", key="id")
    line = table(2, "o!", "n!", key="o n", keys=(("o", 1, "id"),), domains="n")
    assert uses(planned([parent, line]), "t2") == {"o": Use.REFERENCE, "n": Use.KEY}
    both = table(3, "a!", "b!", key="a b")
    assert uses(planned([both]), "t3") == {"a": Use.KEY, "b": Use.KEY}
    day = table(4, "o!", "d!", key="o d", keys=(("o", 1, "id"),), domains="d", bases={"d": "date"})
    plan = planned([parent, day])
    assert uses(plan, "t4") == {"o": Use.REFERENCE, "d": Use.ATTRIBUTE}
    assert any("copied once (t4_pkey)" in str(note) for note in plan.notes)
    assert uses(planned([table(5, "a")]), "t5") == {"a": Use.MISSING}


def test_columns_of_a_key_to_its_own_table_that_name_themselves_are_no_references() -> None:
    staff = table(1, "f!", "id!", "boss", key="f id", keys=(("f boss", 1, "f id"),), domains="f")
    plan = planned([staff])
    assert uses(plan, "t1") == {"f": Use.ATTRIBUTE, "id": Use.KEY, "boss": Use.REFERENCE}
    assert plan.tables[0].references[0].nullable
    assert plan.tables[0].shared(0) == ("f",)
    # a key of nothing else is met by the row itself
    plan = planned([table(1, "id!", key="id", keys=(("id", 1, "id"),))])
    assert [k.columns for k in plan.tables[0].implied] == [("id",)]


def test_keys_that_rows_need_not_have_come_after_those_that_share_their_columns() -> None:
    firm = table(1, "f!", key="f")
    person = table(2, "f!", "id!", key="f id", keys=(("f", 1, "f"),))
    task = table(
        3,
        "a",
        "f!",
        "id!",
        key="f id",
        keys=(("a f", 2, "id f"), ("f", 1, "f")),
    )
    plan = planned([task, person, firm])
    found = plan.tables[2].references
    assert [(r.key.columns, r.nullable) for r in found] == [(("f",), False), (("a", "f"), True)]
    full = replace(task, foreign_keys=tuple(replace(k, full=True) for k in task.foreign_keys))
    assert not any(r.nullable for r in planned([full, person, firm]).tables[2].references)


def test_keys_that_share_a_column_that_is_made_up_apart_are_refused() -> None:
    one = replace(table(1, "k!", key="k"), columns=(Column("k", 1, "uuid", True, base="uuid"),))
    other = replace(one, oid=2, name="t2")
    both = table(3, "id!", "k!", key="id", keys=(("k", 1, "k"), ("k", 2, "k")))
    with pytest.raises(NotAnswerable, match="cannot be copied together") as caught:
        planned([one, other, both])
    assert "k of s.t1 and of k of s.t2" in str(caught.value.detail)
    # 1, 2, ... are the same everywhere
    assert planned([table(1, "k!", key="k"), table(2, "k!", key="k"), both])
    # and so are those of a common parent
    child = replace(other, foreign_keys=both.foreign_keys[:1])
    assert planned([one, child, both])
