"""How often sketched bounds are too small: no more often than ``eta``, on adverse data.

Each test counts failures over independent seeds and fails if so many, or more, have probability
below 1e-11 under the stated ``eta``: thirteen tests together raise fewer than 1e-9 false alarms,
even if all claims were tight.  A failure names the seed that all others are drawn from.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest

from dpsql.core.sketching import PROVED, Promise, Sketch, bound, families, incident, promise
from dpsql.model import Shape
from dpsql.statistics.signs import Counters
from dpsql.statistics.sketch_build import products

pytestmark = pytest.mark.stat
ALPHA = 1e-11
ETA = Fraction(1, 20)
Rows = list[tuple[str, ...]]


def too_many(failures: int, runs: int, eta: float) -> bool:
    from scipy.stats import binom

    return bool(binom.sf(failures - 1, runs, eta) < ALPHA)


def zipf(generator: random.Random, rows: int) -> list[str]:
    weights = [1 / (i + 1) ** 1.5 for i in range(100)]
    return [str(v) for v in generator.choices(range(100), weights, k=rows)]


def columns(name: str, generator: random.Random) -> list[str]:
    if name == "hub":
        return ["hub"] * 100 + [str(i) for i in range(60)]
    if name == "zipf":
        return zipf(generator, 200)
    if name == "two":
        return ["a"] * 50 + ["b"] * 50  # the heaviest lower tail of one family
    return [str(i % 50) for i in range(100)]


def seeds(generator: random.Random, number: int) -> list[bytes]:
    return [generator.randbytes(32) for _ in range(number)]


def counted(rows: Rows, factors: list[tuple[int, bytes]], estimators: int) -> list[int]:
    keys = Counter(rows)
    counters = Counters(factors, estimators, 1 << 22)
    counters.add(list(keys), list(keys.values()))
    return counters.values().tolist()


def enough(shape: Shape, estimator: str) -> int:
    """Return about the least number of estimators for which something is promised."""
    low, high = 1, 1 << 20
    while low < high:
        middle = (low + high) // 2
        if promise(shape, estimator, middle, 1, ETA).label == PROVED:
            high = middle
        else:
            low = middle + 1
    return low


def norm_failures(
    width: int, name: str, estimators: int, tau: Fraction, runs: int, generator: random.Random
) -> int:
    """Count how often the sketched norm of a relation with ``width`` families is too small."""
    each = [columns(name, generator) for _ in range(width)]
    for column in each[1:]:
        generator.shuffle(column)
    rows = list(zip(*each, strict=True))
    square = sum(c * c for c in Counter(rows).values())
    failures = 0
    for _ in range(runs):
        values = counted(rows, list(enumerate(seeds(generator, width))), estimators)
        failures += sum(v * v for v in values) < (1 - tau) * estimators * square
    return failures


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("name", ["hub", "zipf", "two", "even"])
def test_norms_are_too_small_no_more_often_than_eta(width: int, name: str) -> None:
    start = f"{width} {name}"
    # one relation of that many columns, each joined with another relation
    shape = Shape(
        (frozenset(range(width)), *(frozenset({a}) for a in range(width))), tuple(range(width + 1))
    )
    estimators = enough(shape, "norm")
    tau = promise(shape, "norm", estimators, 1, ETA).tau
    runs = 400
    failures = norm_failures(width, name, estimators, tau, runs, random.Random(start))
    assert not too_many(failures, runs, float(ETA) / (width + 1)), f"seed {start!r}"


def test_too_few_estimators_are_caught() -> None:
    """Mutant: three estimators in place of some hundred."""
    failures = norm_failures(2, "two", 3, Fraction(1, 2), 400, random.Random("mutant"))
    assert too_many(failures, 400, float(ETA))


TRIANGLE = Shape(tuple(frozenset({(i - 1) % 3, i}) for i in range(3)), (0, 1, 2), ((),) * 3)


def test_means_are_too_small_no_more_often_than_eta() -> None:
    """A triangle: the bound at distance 0 against the largest number of common neighbours."""
    generator = random.Random("triangle")
    relations: list[Rows] = []
    for _ in range(3):
        heads, tails = zipf(generator, 60), zipf(generator, 60)
        relations.append([*zip(heads, tails, strict=True), *[("0", "0")] * 20])
    local = max(largest(relations, i) for i in range(3))
    estimators = enough(TRIANGLE, "mean")
    promised = promise(TRIANGLE, "mean", estimators, 1, ETA)
    runs, failures = 100, 0
    for _ in range(runs):
        drawn = seeds(generator, len(families(TRIANGLE)))
        values = []
        for i, rows in enumerate(relations):
            # a row's first column is the attribute before it, the second its own
            factors = [
                (0 if f.attribute == (i - 1) % 3 else 1, drawn[f.number])
                for f in incident(TRIANGLE, i)
            ]
            values.append(counted(rows, factors, estimators))
        failures += bound_of(values, estimators, promised) < local
    assert not too_many(failures, runs, float(ETA)), "seed 'triangle'"


def largest(relations: list[Rows], left_out: int) -> int:
    """Return the boundary of the two relations that are left."""
    first, second = relations[(left_out + 1) % 3], relations[(left_out + 2) % 3]
    pairs: Counter[tuple[str, str]] = Counter()
    tails: dict[str, list[str]] = {}
    for head, tail in second:
        tails.setdefault(head, []).append(tail)
    for head, middle in first:
        for tail in tails.get(middle, ()):
            pairs[head, tail] += 1
    return max(pairs.values(), default=0)


def bound_of(values: list[list[int]], estimators: int, promised: Promise) -> float:
    moments = tuple(products(values, estimators, lambda: None))
    empty: dict[frozenset[int], int] = {}
    sketch = Sketch(estimators, 1, (estimators,) * 3, (empty,) * 3, (0,) * 3, (moments,))
    return bound(TRIANGLE, sketch, 5.0, promised).value
