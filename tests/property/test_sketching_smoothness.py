"""Sketching sensitivity is exactly smooth for fixed seeds, and covers LS under all signs.

Signs are enumerated: with every assignment of signs as one estimator, means over estimators are
expectations, so that nothing may fail with any probability and tau is 0.  Smoothness must hold
for any signs, so a few of them, drawn once, do as well; it is compared in integers.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from dpsql.core import sketching
from dpsql.core.polynomial import evaluate
from dpsql.core.sketching import PROVED, Promise, Sketch, families, incident, joining

sys.path.insert(0, str(Path(__file__).parent))
from joins import QUERIES, Instance, Query

THREE = (
    Query("three", (("r", (0,)), ("s", (0,)), ("t", (0,)))),
    Query("three_public", (("r", (0,)), ("s", (0, 1)), ("t", (0, 1))), frozenset("t")),
    Query("self_three", (("r", (0, 1)), ("r", (0, 2)), ("s", (0,)))),
)
ALL = (*QUERIES, *THREE)
Signs = dict[tuple[int, int], int]  # by family and value


def all_signs(query: Query) -> list[Signs]:
    places = list(product(range(len(families(query.shape()))), range(query.domain)))
    return [dict(zip(places, s, strict=True)) for s in product((1, -1), repeat=len(places))]


def some_signs(query: Query, generator: random.Random, number: int = 7) -> list[Signs]:
    places = list(product(range(len(families(query.shape()))), range(query.domain)))
    return [{place: generator.choice((1, -1)) for place in places} for _ in range(number)]


def counter(query: Query, instance: Instance, occurrence: int, signs: Signs, same: bool) -> int:
    """Sum the products of signs; ``same`` is the mutant with one family for each attribute."""
    relation, columns = query.occurrences[occurrence]
    shape = query.shape()
    own = incident(shape, occurrence)
    if same:
        first = {f.attribute: f.number for f in reversed(families(shape))}
        chosen = [(a, first[a]) for a in sorted({f.attribute for f in own})]
    else:
        chosen = [(f.attribute, f.number) for f in own]
    return sum(
        math.prod(signs[number, row[columns.index(a)]] for a, number in chosen)
        for row in instance[relation]
    )


def norms(query: Query, instance: Instance, occurrence: int) -> dict[frozenset[int], int]:
    relation, columns = query.occurrences[occurrence]
    own = sorted(joining(query.shape())[occurrence])
    keys = Counter(tuple(row[columns.index(a)] for a in own) for row in instance[relation])
    found = {}
    for bits in range(1 << len(own)):
        fixed = [k for k in range(len(own)) if bits >> k & 1]
        sums: Counter[tuple[int, ...]] = Counter()
        for key, count in keys.items():
            sums[tuple(key[k] for k in fixed)] += count * count
        found[frozenset(own[k] for k in fixed)] = max(sums.values(), default=0)
    return found


def sketch_of(
    query: Query, instance: Instance, estimators: Sequence[Signs], same: bool = False
) -> Sketch:
    places = range(len(query.occurrences))
    values = [[counter(query, instance, i, signs, same) for signs in estimators] for i in places]
    moments = tuple(
        sum(
            math.prod(abs(values[i][s]) for i in places if bits >> i & 1)
            for s in range(len(estimators))
        )
        for bits in range(1 << len(values))
    )
    return Sketch(
        len(estimators),
        1,
        (len(estimators),) * len(values),
        tuple(norms(query, instance, i) for i in places),
        tuple(sum(v * v for v in own) for own in values),
        (moments,),
    )


def promised(estimator: str, tau: Fraction = Fraction(0)) -> Promise:
    return Promise(estimator, PROVED, tau, Fraction(0))


def polynomials(query: Query, sketch: Sketch, promise: Promise, shifts: Sequence[int], keys: bool):
    shape = query.shape()
    if promise.estimator == "mean":
        assert sketch.moments is not None
        return sketching._mean_polynomials(shape, sketch.moments[0], shifts, lambda: None)
    return sketching._norm_polynomials(shape, sketch, promise, shifts, keys, lambda: None)


def rough(query: Query, estimator: str, generator: random.Random, **replaced: object) -> bool:
    """Whether ``L^s(I) <= L^(s + e_i)(I')`` fails for some neighbours, in whole numbers."""
    shape = query.shape()
    keys = bool(query.keys) and estimator != "mean"
    relations = list(dict.fromkeys(r for r, _ in query.occurrences if r not in query.public))
    promise = promised(estimator, Fraction(1, 7) if estimator == "norm" else Fraction(0))
    for _ in range(6):
        signs = some_signs(query, generator)
        shifts = [generator.choice((0, 0, 2)) for _ in query.occurrences]
        instance = query.sample(generator, keys)
        here = polynomials(query, sketch_of(query, instance, signs), promise, shifts, keys)
        for other in query.neighbours(instance, keys):
            moved = next(r for r in relations if instance[r] != other[r])
            there = polynomials(query, sketch_of(query, other, signs), promise, shifts, keys)
            for point in product((0, 1, 3), repeat=shape.private_count):
                further = list(point)
                further[relations.index(moved)] += 1
                for one, two in zip(here, there, strict=True):
                    if evaluate(one, point) > evaluate(two, further):
                        return True
                    if evaluate(two, point) > evaluate(one, further):
                        return True
    return False


CASES = [(query, e) for query in ALL for e in sketching.ESTIMATORS]


def named(value: object) -> str:
    return str(getattr(value, "name", value))


@pytest.mark.parametrize(("query", "estimator"), CASES, ids=named)
def test_smoothness_holds_in_whole_numbers(query: Query, estimator: str) -> None:
    assert not rough(query, estimator, random.Random(f"{query.name} {estimator}"))


@pytest.mark.parametrize(("query", "estimator"), CASES, ids=named)
@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_bound_covers_local_sensitivity_and_is_smooth(
    query: Query, estimator: str, beta: float
) -> None:
    assert not fails(query, estimator, beta, random.Random(f"{query.name} {estimator} {beta}"))


def fails(
    query: Query, estimator: str, beta: float, generator: random.Random, same: bool = False
) -> bool:
    """Whether ``LS <= S`` or ``S(I) <= e^beta S(I')`` fails, under all assignments of signs."""
    shape, signs = query.shape(), all_signs(query)
    keys = bool(query.keys)
    known: dict[tuple[tuple[tuple[int, ...], ...], ...], float] = {}

    def bound(instance: Instance) -> float:
        name = tuple(tuple(sorted(instance[r])) for r in query.relations())
        if name not in known:
            sketch = sketch_of(query, instance, signs, same)
            found = sketching.bound(shape, sketch, beta, promised(estimator), use_keys=keys)
            known[name] = max(found.value, 1.0)
        return known[name]

    for _ in range(3):
        instance = query.sample(generator, keys)
        count, here = query.count(instance), bound(instance)
        others = list(query.neighbours(instance, keys))
        for other in generator.sample(others, min(6, len(others))):
            there = bound(other)
            if abs(query.count(other) - count) > min(here, there) * (1 + 1e-12):
                return True
            if abs(math.log(here / there)) > beta + 2e-9:
                return True
    return False


@pytest.mark.parametrize("estimator", sketching.ESTIMATORS)
def test_counters_that_do_not_grow_are_caught(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: ``|sk|`` in place of ``|sk| + k``."""
    times = sketching._times
    monkeypatch.setattr(sketching, "_times", lambda p, c, _slope, v: times(p, c, 0, v))
    query = next(q for q in ALL if q.name == "path")
    assert rough(query, estimator, random.Random("mutant"))


def test_growth_without_the_error_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the norm is divided by ``sqrt(1 - tau)``, the distance is not."""
    norm = sketching._norm
    monkeypatch.setattr(sketching, "_norm", lambda *a: (norm(*a)[0], sketching._STEP))
    query = next(q for q in ALL if q.name == "path")
    assert rough(query, "norm", random.Random("mutant"))


def biased(query: Query, generator: random.Random, same: bool = False) -> bool:
    """Whether the mean of the products of counters differs from the count, for some instance."""
    signs, places = all_signs(query), range(len(query.occurrences))
    for _ in range(4):
        instance = query.sample(generator, False)
        total = sum(math.prod(counter(query, instance, i, s, same) for i in places) for s in signs)
        if total != len(signs) * query.count(instance):
            return True
    return False


@pytest.mark.parametrize("query", ALL, ids=named)
def test_products_of_counters_estimate_the_count(query: Query) -> None:
    assert not biased(query, random.Random(query.name))


def test_one_family_for_three_occurrences_is_caught() -> None:
    """Mutant: a family shared by a whole class; three signs of a value do not cancel."""
    assert biased(THREE[0], random.Random("mutant"), same=True)


@pytest.mark.parametrize("estimator", sketching.ESTIMATORS)
def test_a_forgotten_self_join_subset_is_caught(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: only single occurrences change."""
    changed = sketching._changed
    monkeypatch.setattr(
        sketching, "_changed", lambda shape, r: [c for c in changed(shape, r) if len(c) == 1]
    )
    query = next(q for q in ALL if q.name == "self_triangle")
    generator = random.Random("mutant")
    assert any(fails(query, estimator, 1.0, generator) for _ in range(100))


@pytest.mark.parametrize("query", ALL, ids=named)
def test_moments_are_as_small_as_the_tail_bounds_need(query: Query) -> None:
    """``E sk^4 <= 3^d (E sk^2)^2`` and ``E X^2 <= 2^b e^(4i) (E|X|)^2``, under all signs."""
    generator, shape, signs = random.Random(query.name), query.shape(), all_signs(query)
    places = range(len(query.occurrences))
    for _ in range(3):
        instance = query.sample(generator, False)
        values = [[counter(query, instance, i, s, False) for s in signs] for i in places]
        for i in places:
            squares = sum(v * v for v in values[i])
            fourth = sum(v**4 for v in values[i])
            assert squares == len(signs) * norms(query, instance, i)[frozenset()]
            assert len(signs) * fourth <= 3 ** len(incident(shape, i)) * squares**2
        for inside in sketching.subsets(places)[1:]:
            ends = [sum(j in inside for j in f.occurrences) for f in families(shape)]
            products = [math.prod(values[j][s] for j in inside) for s in range(len(signs))]
            spread = 2.0 ** ends.count(1) * math.exp(4.0 * ends.count(2))
            mean = sum(map(abs, products))
            assert len(signs) * sum(x * x for x in products) <= spread * mean**2 * (1 + 1e-12)
