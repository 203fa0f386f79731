"""The variance of any query that a release determines, whichever answers it is made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest

from dpsql.workload import spread as spreads
from dpsql.workload.candidates import make
from dpsql.workload.matrix import AllRange, Dense, Floats, Identity, Prefix, Total, Width
from dpsql.workload.mechanism import Budget, Mechanism
from dpsql.workload.spread import Form, Spread, load
from tests.unit.workload import asked

WORKLOADS = {
    "cube": asked.marginals((3, 2), 0, 1, 2, 3),
    "sets": asked.marginals((2, 3, 2), 3, 6),
    "prefix": asked.workload((5, 2), [Prefix(5), Identity(2)], [Prefix(5), Total(2)]),
    "ranges": asked.workload((4, 3), [AllRange(4), Total(3)], [Width(4, 2), Prefix(3)]),
    "condition": asked.workload((3, 3), [Dense(np.diag([1.0, 0, 1])), Total(3)], [Identity(3)] * 2),
    "total": asked.workload((2, 3), [Total(2), Identity(3)]),
}  # fmt: skip
GAUSSIAN = ("residual_planner", "eigen_design")
CASES = [
    (w, what, order)
    for w in WORKLOADS
    for what in ("identity", "opt_kron", "opt_m", "opt_0", *GAUSSIAN)
    for order in (1, 2)
    if order == 2 or what not in GAUSSIAN
]


def queries_of(sizes: tuple[int, ...]) -> list[tuple[Floats, ...]]:
    """Return every product of queries with 0 and 1."""
    each = [[np.array(q, dtype=np.float64) for q in product((0, 1), repeat=n)] for n in sizes]
    return list(product(*each))


def compared(mechanism: Mechanism, change: Callable[[Spread], Spread] = lambda s: s) -> int:
    """Compare with the covariance of all answers; returns how many queries could be."""
    workload = mechanism.workload
    effect, noise = asked.response(mechanism)
    covariance = (effect * noise) @ effect.T
    every = asked.dense(workload)
    back = np.linalg.pinv(every)
    kept = mechanism.spread()
    assert kept is not None
    again = change(load(json.loads(json.dumps(kept.dump()))))
    seen = 0
    for query in queries_of(workload.domain.sizes):
        flat = reduce(np.multiply.outer, query).ravel()
        combined = flat @ back
        if not flat.any() or not np.allclose(combined @ every, flat):
            continue  # nothing, or not determined
        found = again.variances([q[None, :] for q in query])
        assert found is not None
        np.testing.assert_allclose(found, combined @ covariance @ combined, rtol=1e-6, atol=1e-7)
        seen += 1
    return seen


def made(name: str, what: str, order: int) -> Mechanism:
    loss = Fraction(7, 5) if order == 1 else Fraction(1, 8)
    return make(what, WORKLOADS[name], Budget(order, loss))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "what", "order"), CASES)
def test_variances_are_those_of_every_combination_of_answers(
    name: str, what: str, order: int
) -> None:
    assert compared(made(name, what, order)) >= 5


@pytest.mark.parametrize("mutant", ["cells", "subtraction", "joint"])
def test_mutants_are_seen(mutant: str) -> None:
    def change(spread: Spread) -> Spread:
        if mutant == "joint":
            assert spread.joint is not None
            return Spread(spread.forms, spread.weights, np.diag(np.diag(spread.joint)))
        return Spread(tuple(Form(mutant) for _ in spread.forms), spread.weights)

    what = {"cells": "residual_planner", "subtraction": "identity", "joint": "opt_0"}[mutant]
    with pytest.raises(AssertionError):
        compared(made("cube", what, 2), change)


def test_many_products_are_looked_at_together() -> None:
    for what in ("identity", "opt_0", "residual_planner"):
        kept = made("cube", what, 2).spread()
        assert kept is not None
        rows = [np.array([[1.0, 1, 0]]), np.eye(2)]
        found = kept.variances(rows)
        assert found is not None
        single = [kept.variances([rows[0], rows[1][i : i + 1]]) for i in range(2)]
        np.testing.assert_allclose(found, np.concatenate([s for s in single if s is not None]))


def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Any = made("prefix", "opt_kron", 2).spread()
    assert kept.dump() is not None
    monkeypatch.setattr(spreads, "MOST_KEPT", kept.numbers - 1)
    assert kept.dump() is None
    monkeypatch.setattr(spreads, "MOST_LOOKED_AT", 5)
    assert kept.variances([np.ones((1, 5)), np.ones((1, 2))]) is None
    # where the total alone was measured nothing is said of levels
    total: Any = made("total", "identity", 2).spread()
    assert total.variances([np.array([[1.0, 0]]), np.ones((1, 3))]) is None
