"""Links, fits and roundings of synthesis are those that cvxpy finds.

Instances are a function of the seed that names the test.
"""

from __future__ import annotations

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

from dpsql.synthesis import profile, raking
from dpsql.synthesis.controlled import NEAR, controlled_rounding
from dpsql.synthesis.marginal_map import MarginalMap
from dpsql.synthesis.pairs import mirror_descent, singletons
from dpsql.synthesis.polytope import Bounds, Polytope, polytope_of
from dpsql.synthesis.records import Answer, Cross, Records
from dpsql.synthesis.relationship import many_to_many
from dpsql.synthesis.type_descent import Descent, fit
from dpsql.synthesis.types import types_of
from dpsql.workload.marginals import Floats
from tests.property.convex import POINT, TOLERANCE, least, most
from tests.unit.synthesis.linking import dense_queries


def divergence(table: Floats, plain: Floats) -> float:
    """Kullback and Leibler's, of tables of any totals."""
    positive = table > 0
    logs = np.log(table[positive] / plain[positive])
    return float(table[positive] @ logs - table.sum() + plain.sum())


def drawn(seed: int) -> tuple[Polytope, Floats]:
    """Draw a polytope with a member inside of it, and a table to project."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 6, 2))
    members = [random.random(shape) for _ in range(3)]
    first, kind = members[0], seed % 8
    cap = np.max(members, axis=0) * 1.1 if kind & 1 else None
    rows = Bounds(first.sum(axis=1), first.sum(axis=1)) if kind & 2 else None
    sums = first.sum(axis=0)
    columns = Bounds(sums * 0.5, sums * 1.2) if kind & 4 else None
    return Polytope(float(first.sum()), cap, rows, columns), random.gamma(1, 1, shape) + 1e-3


def inside(x: cp.Variable, polytope: Polytope) -> list[cp.Constraint]:
    """Write the definition down."""
    found = [cp.sum(x) == polytope.total]
    if polytope.cap is not None:
        found.append(x <= polytope.cap)
    for bounds, axis in ((polytope.rows, 1), (polytope.columns, 0)):
        if bounds is not None:
            sums = cp.sum(x, axis=axis)
            found += [sums >= bounds.low, sums <= bounds.high]
    return found


def check_projection(polytope: Polytope, plain: Floats, table: Floats) -> None:
    x = cp.Variable(plain.shape, nonneg=True)
    best = least(cp.sum(cp.kl_div(x, plain)), inside(x, polytope))
    assert polytope.excess(table) <= 1e-6 * polytope.total
    assert abs(divergence(table, plain) - best) <= 10 * TOLERANCE * (1 + abs(best))
    np.testing.assert_allclose(table, x.value, atol=POINT * max(polytope.total, 1))


@pytest.mark.parametrize("seed", range(16))
def test_projections_are_the_nearest_tables(seed: int) -> None:
    polytope, plain = drawn(seed)
    found = polytope.project(plain.copy(), sweeps=20_000, tolerance=1e-10)
    check_projection(polytope, plain, found)


def test_projections_without_a_multiplier_are_caught() -> None:
    """Cutting off and scaling, as Algorithm 5 does, is no projection; nor is one sweep."""
    seen = 0
    for seed in range(16):
        polytope, plain = drawn(seed)
        scaled = plain * (polytope.total / plain.sum())
        for _ in range(50):
            if polytope.cap is not None:
                scaled = np.minimum(scaled, polytope.cap)
            scaled *= polytope.total / scaled.sum()
        found = polytope.project(plain.copy(), sweeps=20_000, tolerance=1e-10)
        if np.abs(scaled - found).max() > 0.01:
            seen += 1
            with pytest.raises(AssertionError):
                check_projection(polytope, plain, scaled)
    assert seen > 8


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_raked_tables_are_the_nearest_with_their_sums(seed: int, given: bool) -> None:
    """Without noise: the table, spread by a hundredth, in relative entropy."""
    random = np.random.default_rng(seed)
    table = random.gamma(0.5, 4, (3, 4))
    columns = random.gamma(2, 4, 4)
    rows = random.gamma(2, 4, 3)
    rows *= columns.sum() / rows.sum()
    found = raking.fitted(table, rows if given else None, columns)
    total = float(columns.sum())
    plain = raking._quiet(table, 0.0)
    plain *= total / plain.sum()
    wanted = rows if given else plain.sum(axis=1)
    plain += raking._SPREAD * np.multiply.outer(wanted, columns) / total
    polytope = Polytope(total, None, Bounds(wanted, wanted), Bounds(columns, columns))
    check_projection(polytope, plain, found)
    mutant = plain * (columns / plain.sum(axis=0))
    with pytest.raises(AssertionError):
        check_projection(polytope, plain, mutant)


@pytest.mark.parametrize("seed", range(3))
def test_degrees_of_kinds_are_the_nearest_to_independence(seed: int) -> None:
    """Sums by kind and by level, which some table has."""
    random = np.random.default_rng(seed)
    kinds = np.array([[a, b] for a in range(2) for b in range(3)])
    true = random.gamma(1, 5, (len(kinds), 3))
    counts, sums = true.sum(axis=1), true.sum(axis=0)
    levels = [np.eye(n)[:, kinds[:, i]] for i, n in enumerate((2, 3))]
    targets = [own @ true for own in levels]
    found = profile._fitted(kinds, counts, targets, sums, lambda: None)
    plain = np.multiply.outer(counts, sums / sums.sum())
    x = cp.Variable(plain.shape, nonneg=True)
    fixed = [own @ x == target for own, target in zip(levels, targets, strict=True)]
    best = least(cp.sum(cp.kl_div(x, plain)), [*fixed, cp.sum(x, axis=1) == counts])
    # fitting ends where sums are off by a part of 1e-4 together
    assert abs(divergence(found, plain) - best) <= 1e-3 * float(counts.sum())
    np.testing.assert_allclose(found, x.value, atol=1e-3 * float(counts.sum()))
    assert np.abs(plain - x.value).max() > 1e-2 * float(counts.sum())  # a mutant: no fit at all


@pytest.mark.parametrize("seed", range(4))
def test_links_have_the_least_misfit(seed: int) -> None:
    """``min sum |M_w x - a_w|^2 / variance`` over pairs; by types, and by Algorithm 5 pair by pair.

    Descent ends within a hundredth of the least misfit (of Algorithm 5: two).
    """
    random = np.random.default_rng(seed)
    left, right = (
        Records(np.stack([random.integers(0, k, n) for k in sizes], axis=1), sizes)
        for n, sizes in ((7, (2, 3)), (9, (3, 2)))
    )
    relationship = many_to_many(7, 9, 25)
    workloads = [Cross(1, 1), Cross(2, 3)]
    dense = dense_queries(left, right, workloads)
    chosen = random.permutation(63)[:25]
    true = dense[:, chosen].sum(axis=1) + random.normal(0, 4, len(dense))
    shapes = [(2, 3), (3, 6)]
    cuts = np.split(true, [6])
    variances = (1, 3) if seed % 2 else (1, 1)
    answers = [
        Answer(w, cut.reshape(shape), Fraction(v))
        for w, cut, shape, v in zip(workloads, cuts, shapes, variances, strict=True)
    ]
    weights = np.concatenate([np.full(len(c), 1 / v) for c, v in zip(cuts, variances, strict=True)])
    one, other = singletons(left), singletons(right)
    polytope = polytope_of(relationship, one, other)
    x = cp.Variable((7, 9), nonneg=True)
    off = dense @ cp.vec(x, order="C") - true
    best = least(cp.sum(cp.multiply(weights, cp.square(off))), inside(x, polytope))
    types = types_of(left, 3), types_of(right, 3)
    start = np.multiply.outer(types[0].counts, types[1].counts).astype(float)
    by_types = fit(
        MarginalMap(left, right, *types, answers),
        polytope_of(relationship, *types),
        start.copy(),
        Descent(steps=2000, stop=0.0, still=1e-6),
    ).misfit
    assert best * (1 - 1e-3) - 1e-3 <= by_types <= best * 1.01 + 0.01
    begun = polytope.project(np.ones((7, 9)))
    beginning = float(weights @ (dense @ begun.ravel() - true) ** 2)
    assert beginning > best * 1.01 + 0.01  # a mutant: no descent at all
    if variances == (1, 1):
        mapping = MarginalMap(left, right, one, other, answers)
        relaxed = mirror_descent(mapping, polytope, np.ones((7, 9)), outer=1500)
        error = float(((dense @ relaxed.ravel() - true) ** 2).sum())
        assert best * (1 - 1e-3) - 1e-3 <= error <= best * 1.02 + 0.02


@pytest.mark.parametrize("seed", range(6))
def test_controlled_roundings_are_in_the_polytope(seed: int) -> None:
    """Cells and sums rounded down or up: no linear function is above its maximum there."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(2, 6, 2))
    table = random.gamma(1, 2, shape)
    if seed % 2:  # whole sums by rows
        table *= (np.ceil(table.sum(axis=1)) / table.sum(axis=1))[:, None]

    def largest(cost: Floats) -> float:
        x = cp.Variable(shape)
        limits = [x >= np.floor(table), x <= np.ceil(table)]
        for axis in (0, 1, None):
            sums = table.sum(axis=axis)
            limits += [
                cp.sum(x, axis=axis) >= np.floor(sums + NEAR),
                cp.sum(x, axis=axis) <= np.ceil(sums - NEAR),
            ]
        return most(cp.sum(cp.multiply(cost, x)), limits)

    costs = [np.asarray(random.normal(size=shape)) for _ in range(3)]
    costs += [np.ones(shape), -np.ones(shape)]
    limits = [largest(cost) for cost in costs]

    def check(whole: Floats) -> None:
        for cost, limit in zip(costs, limits, strict=True):
            assert float((cost * whole).sum()) <= limit + 1e-5

    for _ in range(20):
        check(controlled_rounding(table, random))
    with pytest.raises(AssertionError):
        check(np.ceil(table) + np.eye(*shape))
