"""LS <= S and S(I) <= exp(beta) S(I') on every neighbour of random small instances."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

from dpsql.core import sensitivity
from dpsql.core.residual import polynomials, required
from dpsql.core.smooth import smooth_maximum

sys.path.insert(0, str(Path(__file__).parent))
from joins import QUERIES, Instance, Query


class Bound:
    """``max(S, 1)`` of an instance, remembered by the boundaries' values."""

    def __init__(self, query: Query, method: str, use_keys: bool, beta: float) -> None:
        self.query, self.method, self.use_keys, self.beta = query, method, use_keys, beta
        self.shape = query.shape()
        self.needs = sorted(
            sensitivity.required(self.shape, method, use_keys),
            key=lambda b: (sorted(b.occurrences), sorted(b.attributes)),
        )
        self.known: dict[tuple[int, ...], float] = {}

    def __call__(self, instance: Instance) -> float:
        values = tuple(self.query.boundary(instance, b) for b in self.needs)
        if values not in self.known:
            measured = dict(zip(self.needs, values, strict=True))
            found = sensitivity.bound(self.shape, measured, self.beta, self.method, self.use_keys)
            self.known[values] = max(found.value, 1.0)
        return self.known[values]


CASES = [
    (query, method, keys)
    for query in QUERIES
    for method, keys in (("residual", False), ("residual", True), ("elastic", False))
    if query.keys or not keys
]


@pytest.mark.parametrize(("query", "method", "keys"), CASES, ids=lambda v: getattr(v, "name", v))
@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_bound_covers_local_sensitivity_and_is_smooth(
    query: Query, method: str, keys: bool, beta: float
) -> None:
    generator = random.Random(f"{query.name} {method} {keys}")
    bound = Bound(query, method, keys, beta)
    for _ in range(12):
        instance = query.sample(generator, keys)
        count, here = query.count(instance), bound(instance)
        for other in query.neighbours(instance, keys):
            there = bound(other)
            assert abs(query.count(other) - count) <= min(here, there), (instance, other)
            assert abs(math.log(here / there)) <= beta + 2e-9, (instance, other)


@pytest.mark.parametrize("query", [q for q in QUERIES if q.keys], ids=lambda q: q.name)
def test_keys_never_make_the_bound_larger_where_no_boundary_is_empty(query: Query) -> None:
    generator = random.Random(query.name)
    shape = query.shape()
    plain = required(shape, False)
    seen = 0
    while seen < 10:
        instance = query.sample(generator, True)
        values = {b: query.boundary(instance, b) for b in plain | required(shape, True)}
        if not all(values[b] for b in plain):
            continue
        seen += 1
        old = min(
            smooth_maximum(candidate, 0.3, shape.private_count).exact
            for candidate in polynomials(shape, {b: values[b] for b in plain}, False)
        )
        keyed = {b: values[b] for b in required(shape, True)}
        new = sensitivity.bound(shape, keyed, 0.3, "residual", True).exact
        assert new <= old * (1 + 2 * 10**-9)


@pytest.mark.parametrize("query", [q for q in QUERIES if q.keys], ids=lambda q: q.name)
def test_with_all_boundaries_measured_keys_never_make_the_bound_larger(query: Query) -> None:
    """Empty components too: the least of several smooth upper bounds is one."""
    generator = random.Random(f"{query.name} all")
    shape, beta = query.shape(), 0.3
    needs = required(shape, False) | required(shape, True)

    def both(instance: Instance) -> tuple[float, float]:
        values = {b: query.boundary(instance, b) for b in needs}
        plain = {b: values[b] for b in required(shape, False)}
        return (
            sensitivity.bound(shape, plain, beta, "residual", False).value,
            sensitivity.bound(shape, values, beta, "residual", True).value,
        )

    for _ in range(8):
        instance = query.sample(generator, True)
        plain, least = both(instance)
        assert least <= plain * (1 + 2e-9)
        count = query.count(instance)
        for other in query.neighbours(instance, True):
            there = both(other)[1]
            assert abs(query.count(other) - count) <= max(least, 1.0)
            assert abs(math.log(max(least, 1.0) / max(there, 1.0))) <= beta + 2e-9


def test_an_empty_determined_component_is_the_exception() -> None:
    """Rows of ``a`` are determined; with none of them the keyless bound knows more."""
    query = next(q for q in QUERIES if q.name == "keyed_star")
    shape, beta = query.shape(), 1.0
    # f(0, 1) six times over; a(0), b(1, 2) and c(2) are empty
    instance: Instance = {"f": ((0, 0),) * 6, "a": (), "b": (), "c": ()}
    found = []
    for keys in (False, True):
        values = {b: query.boundary(instance, b) for b in required(shape, keys)}
        found.append(sensitivity.bound(shape, values, beta, "residual", keys).value)
    assert found[0] < found[1] <= found[0] * math.exp(3 * beta)


def test_a_forgotten_self_join_subset_is_caught() -> None:
    """Mutant: only single occurrences change; the property above must fail."""
    query = next(q for q in QUERIES if q.name == "self_triangle")
    shape = query.shape()
    caught = False
    generator = random.Random("mutant")
    from dpsql.core import residual

    for _ in range(60):
        instance = query.sample(generator, False)
        values = {b: query.boundary(instance, b) for b in required(shape)}
        terms = []
        everything = frozenset(range(3))
        for i in range(3):
            terms += residual._count_terms(
                shape,
                everything - {i},
                residual.PLAIN,
                values.__getitem__,
                residual._Parts(shape),
                lambda: None,
            )
        (wrong,) = residual._families(terms, lambda: None)
        bound = max(smooth_maximum([wrong], 1.0, 1).value, 1.0)
        count = query.count(instance)
        caught |= any(
            abs(query.count(n) - count) > bound for n in query.neighbours(instance, False)
        )
    assert caught
