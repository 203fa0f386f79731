"""Foreign keys that share columns: links that agree, and are like those that were drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.synthesis.generated import Generated
from dpsql.synthesis.hashing import hashed
from dpsql.synthesis.relinking import regrouped, telling, trees
from dpsql.synthesis.schema import Plan, Use
from tests.unit.synthesis.test_assembling import assembled, check, table, written

KEY, REF, ATTR = Use.KEY, Use.REFERENCE, Use.ATTRIBUTE


def tenants() -> Plan:
    """Tenants with customers and products; orders of a customer and of products of the tenant."""
    return Plan(
        (
            table(0, {"id": KEY}, [("id",)]),
            *(
                table(
                    n,
                    {"t": REF, "id": KEY, "a": ATTR},
                    [("t", "id")],
                    [(("t",), 0, ("id",), False)],
                )
                for n in (1, 2)
            ),
            table(
                3,
                {"t": REF, "id": KEY, "c": REF, "p": REF, "gift": REF, "a": ATTR},
                [("t", "id"), ("t", "c", "p")],
                [
                    (("t", "c"), 1, ("t", "id"), False),
                    (("t", "p"), 2, ("t", "id"), False),
                    (("gift", "t"), 2, ("id", "t"), True),
                ],
            ),
            table(
                4,
                {"t": REF, "id": KEY, "up": REF, "before": REF},
                [("t", "id"), ("t", "before")],
                [
                    (("t",), 0, ("id",), False),
                    (("t", "up"), 4, ("t", "id"), True),
                    (("t", "before"), 4, ("t", "id"), True),
                ],
            ),
        )
    )


def drawn(sizes: list[int], levels: int, seed: int) -> list[Generated | None]:
    """Draw rows and links as if columns were not shared."""
    rng = np.random.default_rng(seed)
    texts = tuple(map(str, range(levels)))

    def links(rows: int, parents: int, none: bool = False) -> Any:
        if not parents:
            return np.full(rows, -1)
        found = rng.integers(0, parents, rows)
        return np.where(rng.random(rows) < 0.2, -1, found) if none else found

    t, c, p, o, s = sizes
    codes = [rng.integers(0, levels, (n, 1)).astype(np.int32) for n in (c, p, o)]
    earlier = np.array([rng.integers(-1, n) for n in range(s)], dtype=np.int64)
    return [
        Generated(t, np.zeros((t, 0), int), ()),
        Generated(c, codes[0], (texts,), (links(c, t),)),
        Generated(p, codes[1], (texts,), (links(p, t),)),
        Generated(o, codes[2], (texts,), (links(o, c), links(o, p), links(o, p, True))),
        Generated(s, np.zeros((s, 0), int), (), (links(s, t), earlier, earlier.copy())),
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 25), min_size=5, max_size=5),
    st.integers(1, 4),
    st.integers(0, 2**31),
)
def test_keys_that_share_columns_hold(sizes: list[int], levels: int, seed: int) -> None:
    plan, generated = tenants(), drawn(sizes, levels, seed)
    found = assembled(plan, generated, seed)
    check(plan, found)
    tree = written(found[4])
    at = {key: n for n, key in enumerate(zip(tree["t"], tree["id"], strict=True))}
    for name in ("up", "before"):
        for n in range(found[4].rows):
            seen = {n}
            while n is not None and tree[name][n] is not None:
                n = at[tree["t"][n], tree[name][n]]
                assert n not in seen  # links lead in no circle
                seen.add(n)


def test_no_row_is_lost_where_tenants_lack_what_others_have() -> None:
    """Half of the tenants have customers and no products: nothing is ordered of them."""
    generated = drawn([10, 100, 50, 400, 0], 2, 7)
    products = generated[2]
    assert products is not None
    generated[2] = Generated(50, products.codes, products.levels, (np.arange(50) % 5,))
    found = assembled(tenants(), generated)
    check(tenants(), found)
    assert found[3].rows > 300  # of a tenant's customers and products not all pairs are there
    assert set(written(found[3])["t"]) == {1, 2, 3, 4, 5}


def test_parents_that_agree_are_like_those_that_were_drawn() -> None:
    """Of 20 tenants with parents of both kinds, each child keeps the kind that was drawn for it."""
    rng = np.random.default_rng(3)
    tenant, kind = np.arange(400) % 20, np.arange(400) // 20 % 2
    wanted = rng.permutation(np.repeat(np.arange(400), 10))
    mine = hashed([rng.integers(0, 20, 4000)])
    looks = np.stack([rng.integers(0, 50, 400), kind], axis=1)[:, [1, 0]]
    found = regrouped(wanted, mine, hashed([tenant]), np.arange(400), looks, rng)
    assert (found >= 0).all()
    assert (hashed([tenant])[found] == mine).all()
    # binomial: of some 200 children of a tenant a few too many want the same kind
    assert np.mean(kind[found] == kind[wanted]) > 0.9
    degrees = np.bincount(found, minlength=400)
    assert (
        degrees.max() < 25
    )  # and degrees stay what they were, as far as sizes of tenants let them
    # nothing moves that agrees already
    again = regrouped(found, mine, hashed([tenant]), np.arange(400), looks, rng)
    assert (again == found).all()
    assert (
        regrouped(wanted, mine + np.uint64(1), hashed([tenant]), np.arange(400), looks, rng) < 0
    ).all()


def test_what_tells_most_comes_first() -> None:
    rng = np.random.default_rng(5)
    child = rng.integers(0, 4, (5000, 2))
    parent = np.stack(
        [rng.integers(0, 9, 5000), child[:, 1] // 2, rng.integers(0, 2, 5000)], axis=1
    )
    assert telling(child, parent)[0] == 1


def test_trees_within_groups_keep_who_has_many_children() -> None:
    rng = np.random.default_rng(9)
    groups = hashed([np.arange(1000) % 4])
    wanted = np.where(
        rng.random(1000) < 0.5, rng.integers(0, 40, 1000), rng.integers(0, 1000, 1000)
    )
    found = trees(np.ones(1000, dtype=bool), groups, wanted, False, rng)
    there = found >= 0
    assert there.sum() == 996
    assert (groups[found[there]] == groups[there]).all()
    assert (found[there] < np.flatnonzero(there)).all()
    assert np.mean(found[there] < 40) > 0.3
    alone = trees(np.ones(1000, dtype=bool), groups, wanted, True, rng)
    assert np.unique(alone[alone >= 0]).size == 996
