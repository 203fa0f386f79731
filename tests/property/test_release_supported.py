"""Whatever a workload asks, and however little it counts, every mechanism measures it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import mechanism_kronecker, opt_kron
from dpsql.workload.candidates import DATA_INDEPENDENT, make
from dpsql.workload.matrix import Floats
from dpsql.workload.mechanism import Budget, Mechanism
from dpsql.workload.workload import MOST_RATIO, Workload
from tests.unit.workload import asked

CASES = 25
#: Within so many every mechanism is met, but for a probability below 1e-20.
MOST_CASES = 400


def weighed(random_: random.Random) -> Workload:
    """Draw a workload whose weights differ as much as they may."""
    workload = asked.drawn(random_)
    base, spread = 10.0 ** random_.randint(-80, 80), random_.choice([1.0, 1e3, MOST_RATIO])
    weights = [base * spread ** random_.choice([0.0, 0.5, 1.0]) for _ in workload.products]
    products = [replace(p, weight=w) for p, w in zip(workload.products, weights, strict=True)]
    return Workload(workload.domain, tuple(products))


def built(random_: random.Random) -> Iterator[Mechanism]:
    """Draw a workload; all mechanisms that can answer it."""
    workload = weighed(random_)
    for order in (1, 2):
        for name in DATA_INDEPENDENT:
            try:
                yield make(name, workload, Budget(order, Fraction(1, 4)))  # type: ignore[arg-type]
            except InvalidParameter:
                continue


def lost(mechanism: Mechanism) -> Floats:
    """Return how far answers without noise are from the truth, beyond rounding.

    Weights that differ by a million leave errors of up to 0.002 standard errors; a query that is
    lost is off by its truth.
    """
    sizes = mechanism.workload.domain.sizes
    table = np.random.default_rng(7).integers(0, 1000, sizes)
    answers, truth = asked.answers(mechanism, table), asked.truth(mechanism.workload, table)
    slack = 0.02 * asked.errors(mechanism) + 1e-6 * (1 + table.sum())
    return np.maximum(abs(answers - truth) - slack, 0.0)


def test_answers_without_noise_are_the_truth() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    seen: set[tuple[str, int]] = set()
    for case in range(MOST_CASES):
        if case >= CASES and len(seen) == 2 * len(DATA_INDEPENDENT) - 2:
            break
        for mechanism in built(random_):
            assert not lost(mechanism).any(), (mechanism.name, mechanism.workload)
            seen.add((mechanism.name, mechanism.budget.order))
    assert len(seen) == 2 * len(DATA_INDEPENDENT) - 2, seen  # two have Gaussian noise only


def _one_query_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest query alone is kept."""
    right = opt_kron.best_factor

    def first(gram, order, single=None, **rest):  # type: ignore[no-untyped-def]
        return right(gram, order, opt_kron.single_query([opt_kron.Dense(gram[:1])]), **rest)

    monkeypatch.setattr(opt_kron, "best_factor", first)


def test_a_strategy_that_leaves_a_query_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    few = asked.marginals((4, 3), 3, 1, weights=(1e-6, 1.0))
    budget = Budget(2, Fraction(1))
    assert not lost(make("opt_kron", few, budget)).any()
    _one_query_of_many(monkeypatch)
    with pytest.raises(InvalidParameter, match="does not support"):
        make("opt_kron", few, budget)
    # and is what the property above would see
    monkeypatch.setattr(mechanism_kronecker, "require_support", lambda *_: None)
    assert lost(make("opt_kron", few, budget)).any()
