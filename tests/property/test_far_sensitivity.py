"""Bounds over relations on other servers: LS <= S, smooth, and of boundaries that send few rows.

Instances are small, with every neighbour; keys are those of relations that are here.  A *place*
is an attribute of rows like any other (docs/mathematics.md, "Joins part by part").
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dpsql.core import far, residual
from dpsql.core.far import kept, light
from dpsql.core.sensitivity import bound, required
from dpsql.model import Boundary, Shape

sys.path.insert(0, str(Path(__file__).parent))
from joins import Instance, Query

BETAS = (0.3, 1.0)
#: Attributes of the shapes below.
PLACE, ORDER, CUSTOMER, SUPPLIER, NATION, PART, REGION = range(7)


@dataclass(frozen=True)
class Far(Query):
    """A query with some relations on other servers; ``places`` say in which part rows are."""

    away: frozenset[str] = frozenset()
    places: frozenset[int] = frozenset({PLACE})

    def shape(self) -> Shape:
        return replace(
            Query.shape(self),
            far=frozenset(i for i, (name, _) in enumerate(self.occurrences) if name in self.away),
            places=self.places,
        )


ORDERS = ("o", (ORDER, CUSTOMER, PLACE))
LINES = ("l", (ORDER, SUPPLIER, PLACE))
AWAY = frozenset({"o", "l"})
#: Like Q1 to Q3 of TPC-H, and shapes that narrowing could go wrong on.
QUERIES = (
    Far(
        "nations",
        (("n", (NATION,)), ("c", (CUSTOMER, NATION)), ORDERS, LINES, ("s", (SUPPLIER,))),
        frozenset({"n"}),
        (("n", (0,)), ("c", (0,)), ("s", (0,))),
        away=AWAY,
    ),
    Far(
        "supplies",
        (
            ("p", (PART,)),
            ("ps", (PART, SUPPLIER)),
            ("s", (SUPPLIER,)),
            ("l", (ORDER, PART, SUPPLIER, PLACE)),
            ("o", (ORDER, PLACE)),
        ),
        frozenset({"p"}),
        (("p", (0,)), ("ps", (0, 1)), ("s", (0,))),
        away=AWAY,
    ),
    Far(
        "one nation",
        (
            ("s", (SUPPLIER, NATION)),
            LINES,
            ORDERS,
            ("c", (CUSTOMER, NATION)),
            ("n", (NATION, REGION)),
            ("r", (REGION,)),
        ),
        frozenset({"n", "r"}),
        (("s", (0,)), ("c", (0,)), ("n", (0,)), ("r", (0,))),
        away=AWAY,
    ),
    Far(
        "one private nation",
        (("s", (SUPPLIER, NATION)), LINES, ORDERS, ("c", (CUSTOMER, NATION))),
        keys=(("s", (0,)), ("c", (0,))),
        away=AWAY,
    ),
    Far(
        "lines twice",
        (LINES, ("l", (ORDER, PART, PLACE)), ("s", (SUPPLIER, NATION)), ("p", (PART, NATION))),
        keys=(("s", (0,)), ("p", (0,))),
        away=AWAY,
    ),
    Far(
        "what is here twice",
        (LINES, ("o", (ORDER, NATION, PLACE)), ("s", (SUPPLIER, REGION)), ("s", (REGION, NATION))),
        keys=(("s", (0,)),),
        away=AWAY,
    ),
)


def smooth(query: Query, instance: Instance, beta: float) -> float:
    shape = query.shape()
    values = {b: query.boundary(instance, b) for b in required(shape)}
    return max(bound(shape, values, beta).value, 1.0)


def broken(query: Query, instance: Instance, beta: float) -> str:
    """Say what an instance and its neighbours contradict, if anything."""
    count, here = query.count(instance), smooth(query, instance, beta)
    for other in query.neighbours(instance, True):
        there = smooth(query, other, beta)
        if abs(query.count(other) - count) > min(here, there) * (1 + 1e-9):
            return f"{other} has {query.count(other)} and not {count} results: {here}, {there}"
        if abs(math.log(here / there)) > beta + 2e-9:
            return f"{other} has {there} and not {here}"
    return ""


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_bound_covers_local_sensitivity_and_is_smooth(query: Query) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    generator = random.Random(seed)
    for beta in BETAS:
        for _ in range(6):
            instance = query.sample(generator, True)
            assert not broken(query, instance, beta), instance


def random_query(generator: random.Random) -> Far:
    """Draw two to three relations there and one to three here, with keys."""
    width = generator.randrange(4, 7)
    others = range(1, width)
    away = [f"f{i}" for i in range(generator.randrange(1, 4))]
    here = [f"h{i}" for i in range(generator.randrange(1, 4))]
    occurrences: list[tuple[str, tuple[int, ...]]] = []
    joined = 1  # what those there are joined by, with the place
    for name in away:
        more = [a for a in others if a != joined]
        occurrences.append(
            (name, (PLACE, joined, *generator.sample(more, generator.randrange(1, 3))))
            if len(away) > 1
            else (name, tuple(generator.sample(others, 2)))
        )
    for name in here:
        occurrences.append((name, tuple(generator.sample(others, generator.randrange(1, 3)))))
    if generator.random() < 0.3:
        name, columns = generator.choice(occurrences)
        again = generator.sample(others, len(columns) - (PLACE in columns))
        occurrences.append((name, (*((PLACE,) if PLACE in columns else ()), *again)))
    keys = []
    for name in here:
        arity = next(len(columns) for n, columns in occurrences if n == name)
        keys.append(
            (name, tuple(sorted(generator.sample(range(arity), generator.randint(1, arity)))))
        )
    generator.shuffle(occurrences)
    public = frozenset(name for name in [*here, *away] if generator.random() < 0.2)
    if len(public) == len(here) + len(away):
        public = frozenset()
    return Far("random", tuple(occurrences), public, tuple(keys), away=frozenset(away))


def test_random_queries() -> None:
    """Of queries that leave something out, and of some that do not."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    generator = random.Random(seed)
    narrow = 0
    while narrow < 12:
        query = random_query(generator)
        if not residual.left_out(query.shape()) and generator.random() < 0.95:
            continue
        narrow += 1
        for _ in range(3):
            instance = query.sample(generator, True)
            assert not broken(query, instance, generator.choice(BETAS)), (query, instance)


def words(query: Far, occurrences: frozenset[int]) -> str:
    return " ".join(query.occurrences[i][0] for i in sorted(occurrences))


#: What is asked for of the first three: relations, and what they are grouped by but the place.
#: By an order, the largest of each part is sent; by c, s or p the groups that the answer needs.
ASKED = {
    "nations": {
        ("l", (ORDER,)),
        ("l", (ORDER, SUPPLIER)),
        ("o", (ORDER,)),
        ("o", (ORDER, CUSTOMER)),
        ("o l", (CUSTOMER,)),
        ("o l", (SUPPLIER,)),
    },
    "supplies": {
        ("l", (ORDER,)),
        ("l", (ORDER, SUPPLIER)),
        ("l", (ORDER, SUPPLIER, PART)),
        ("o", (ORDER,)),
        ("l o", (SUPPLIER,)),
        ("l o", (SUPPLIER, PART)),
    },
    "one nation": {
        ("l", (ORDER,)),
        ("l", (ORDER, SUPPLIER)),
        ("o", (ORDER,)),
        ("o", (ORDER, CUSTOMER)),
        ("l o", (CUSTOMER, SUPPLIER)),
        ("l o c", (SUPPLIER, NATION)),
        ("s l o", (CUSTOMER, NATION)),
    },
}


@pytest.mark.parametrize("query", QUERIES[:3], ids=lambda q: q.name)
def test_what_is_asked_for_sends_few_rows(query: Far) -> None:
    shape = query.shape()
    asked = {
        (words(query, b.occurrences), tuple(sorted(b.attributes - {PLACE})))
        for b in required(shape)
    }
    assert asked == ASKED[query.name]
    for method in ("residual", "elastic"):
        assert all(light(shape, b.occurrences, b.attributes) for b in required(shape, method))


def test_by_an_order_is_not_light_unless_all_is_where_orders_are() -> None:
    shape = QUERIES[0].shape()  # n c o l s
    by_order = frozenset({PLACE, ORDER})
    assert light(shape, frozenset({3}), by_order)
    assert light(shape, frozenset({2, 3}), by_order)
    assert not light(shape, frozenset({3, 4}), by_order)
    assert light(shape, frozenset({3, 4}), frozenset({CUSTOMER}) & shape.attributes[3])
    # of a part that knows nothing of places the groups by its order would be sent
    assert not light(shape, frozenset({3}), frozenset({ORDER}))


def test_on_one_server_nothing_changes() -> None:
    """Where no row is on another server the bounds are those that they were."""
    for query in QUERIES:
        shape = query.shape()
        near = replace(shape, far=frozenset(), places=frozenset())
        assert residual._modes(near, True, lambda: None) == (residual.KEYED, residual.PEELED)
        assert not residual.left_out(near)
        for mode in (residual.KEYED, residual.PEELED):
            assert residual._needs(near, mode, lambda: None) == residual._needs(
                shape, mode, lambda: None
            )
    assert required(replace(QUERIES[2].shape(), far=frozenset())) > required(QUERIES[2].shape()) - {
        Boundary(frozenset({1}), frozenset({ORDER, PLACE})),
        Boundary(frozenset({2}), frozenset({ORDER, PLACE})),
    }


def test_nothing_is_left_out_whose_neighbours_would_come_apart() -> None:
    """Customers and suppliers of a nation: without the nation all would meet all."""
    shape = Shape(
        (frozenset({1, 2}), frozenset({2, 3}), frozenset({3, 4}), frozenset({1, 4})),
        (0, 1, 2, 3),
        ((), (frozenset({2, 3}),), (), ()),
        far=frozenset({0, 2}),
    )
    chain = frozenset({0, 1, 2})
    assert kept(shape, chain, frozenset({1, 4})) == chain
    # with another way from one to the other it may be left out
    assert kept(shape, chain | {3}, frozenset()) == frozenset({0, 2, 3})
    assert kept(shape, chain, frozenset({2})) == chain


def test_without_keys_nothing_is_left_out() -> None:
    for query in QUERIES:
        shape = query.shape()
        assert residual.left_out(replace(shape, keys=((),) * len(shape.attributes))) == frozenset()
    assert residual.left_out(QUERIES[2].shape()) == frozenset({0, 3})


def test_leaving_out_what_no_key_tells_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: any supplier is left out; a line may have several then, which nobody counts."""
    query = Far(
        "mutant",
        (LINES, ("o", (ORDER, NATION, PLACE)), ("s", (SUPPLIER, NATION)), ("n", (NATION,))),
        keys=(("n", (0,)),),
        away=AWAY,
    )

    def caught() -> bool:
        monkeypatch.setattr(residual, "_known_needs", {})
        generator = random.Random("no keys")
        return any(broken(query, query.sample(generator, True), 0.3) for _ in range(40))

    assert not caught()
    monkeypatch.setattr(far, "determined", lambda shape, part, known: part)
    assert caught()
