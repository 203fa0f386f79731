"""Optimal errors, exact costs and measurements of ResidualPlanner."""

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import residual_planner as rp
from dpsql.workload.axis import decomp, reconstruct_all, sub_marginals
from dpsql.workload.marginals import (
    at_most_k_way,
    attributes_of,
    cells,
    downward_closure,
    k_way,
    shape,
    small,
    subsets,
    total_cells,
)
from dpsql.workload.residual_bases import Dense, Subtraction, subtraction

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
CPS = (50, 100, 7, 4, 2)
SIZES = (3, 2, 4)


def hilly(n):
    return Dense(np.eye(n - 1, n, dtype=int) * 5 - 2 * np.eye(n - 1, n, 1, dtype=int), 4)


MIXED = (hilly(3), Subtraction(2), hilly(4))
WHOLE = subtraction(SIZES, 2)


def unit_rmse(sizes, masks):
    error = rp.unit_squared_error(dict.fromkeys(masks, 1.0), subtraction(sizes))
    return math.sqrt(error / total_cells(sizes, masks))


@pytest.mark.parametrize(
    ("sizes", "masks", "optimum"),
    [
        (CPS, k_way(5, 1), "1.7439"),
        (CPS, k_way(5, 2), "2.0346"),
        (CPS, k_way(5, 3), "2.0477"),
        (CPS, at_most_k_way(5, 3), "2.2759"),
        (ADULT, k_way(14, 1), "3.0468"),
        (ADULT, k_way(14, 2), "6.3587"),
        (ADULT, k_way(14, 3), "10.5153"),
        (ADULT, at_most_k_way(14, 3), "10.6650"),
        (LOANS, k_way(12, 1), "2.8753"),
        (LOANS, k_way(12, 2), "5.6343"),
        (LOANS, k_way(12, 3), "8.7019"),
        (LOANS, at_most_k_way(12, 3), "8.8756"),
        (LOANS, small(LOANS, 5000), "8.2065"),
    ],
)
def test_optimal_unit_rmse(sizes, masks, optimum):
    assert f"{unit_rmse(sizes, masks):.4f}" == optimum


@pytest.mark.parametrize("bases", [subtraction(SIZES), MIXED])
def test_the_error_of_a_plan_against_dense_matrices(bases):
    """Least squares on the dense strategy gives the same total error and cost."""
    weights = {0b011: 1.0, 0b110: 2.5, 0b001: 0.5}
    queries = {0: np.tri(3)}
    grams = {0: queries[0].T @ queries[0]}
    chosen = rp.plan(weights, bases, 3.0, grams)

    def kron(matrices):
        return reduce(np.kron, matrices, np.eye(1))

    strategy = np.vstack(
        [
            kron(
                basis.lattice(np.eye(basis.size, dtype=np.int64), 0) / basis.scale
                if mask >> i & 1
                else np.ones((1, basis.size))
                for i, basis in enumerate(bases)
            )
            / math.sqrt(variance)
            for mask, variance in chosen.variances.items()
        ]
    )
    assert (strategy**2).sum(axis=0).max() == pytest.approx(3.0)
    assert chosen.cost() == pytest.approx(3.0)
    inverse = np.linalg.pinv(strategy.T @ strategy)
    errors = {}
    for mask in weights:
        rows = kron(
            queries.get(i, np.eye(n)) if mask >> i & 1 else np.ones((1, n))
            for i, n in enumerate(SIZES)
        )
        covariance = rows @ inverse @ rows.T
        errors[mask] = np.trace(covariance)
        assert chosen.cell_variances(mask, queries).ravel() == pytest.approx(np.diag(covariance))
    assert chosen.squared_errors(weights, grams) == pytest.approx(errors)
    total = chosen.squared_error(weights, grams)
    assert total == pytest.approx(rp.unit_squared_error(weights, bases, grams) / 3.0)


def test_no_other_plan_of_that_cost_is_better():
    rng = np.random.default_rng(5)
    weights = dict.fromkeys(k_way(3, 2), 1.0)
    bases = subtraction(SIZES)
    best = rp.plan(weights, bases)
    for _ in range(50):
        other = rp.ResidualPlan(
            bases, {b: v * math.exp(0.1 * rng.normal()) for b, v in best.variances.items()}
        )
        other = rp.ResidualPlan(bases, {b: v * other.cost() for b, v in other.variances.items()})
        assert other.cost() == pytest.approx(1.0)
        assert other.squared_error(weights) > best.squared_error(weights)


def test_the_largest_variance():
    sizes = (2, 3, 10)
    bases = subtraction(sizes)
    weights = {mask: 1.0 / cells(sizes, mask) for mask in at_most_k_way(3, 2)}
    chosen, excess = rp.plan_max(weights, bases, 2.0)
    assert excess <= 1e-3
    assert chosen.cost() == pytest.approx(2.0)
    largest = max(chosen.cell_variances(mask).max() for mask in weights)
    errors = chosen.squared_errors(weights)
    assert largest == pytest.approx(max(weights[m] * errors[m] for m in weights))
    sums = rp.plan(weights, bases, 2.0)
    assert largest < 0.99 * max(sums.cell_variances(mask).max() for mask in weights)
    # a single marginal: both are the same problem
    one = rp.plan_max({0b101: 1.0}, bases)[0]
    assert one.variances == pytest.approx(rp.plan({0b101: 1.0}, bases).variances)


@pytest.mark.parametrize("bases", [subtraction(SIZES), MIXED, WHOLE])
def test_without_noise_the_answers_are_exact(bases):
    rng = np.random.default_rng(11)
    cube = rng.integers(0, 1000, SIZES).astype(np.int64)
    tables = sub_marginals({0b011: cube.sum(axis=2), 0b110: cube.sum(axis=0)}, SIZES)
    residuals = {}
    for mask, table in tables.items():
        zero = np.zeros(rp.noise_shape(bases, mask), dtype=np.int64)
        residuals[mask] = rp.measure(table, mask, bases, zero)
        assert residuals[mask] == pytest.approx(decomp(table.astype(float), mask, mask, bases))
    for mask, estimate in reconstruct_all(residuals, tables, bases):
        assert estimate == pytest.approx(tables[mask], abs=1e-8)


@pytest.mark.parametrize("bases", [subtraction(SIZES), MIXED, WHOLE])
def test_the_cost_of_the_integer_noise_is_exact(bases):
    """The largest change of a measured integer vector by one row, over its noise."""
    chosen = rp.plan(dict.fromkeys(k_way(3, 2), 1.0), bases, 0.37)
    rounded = rp.noise_variances(chosen)
    cost = rp.exact_cost(bases, rounded)
    assert isinstance(cost, Fraction)
    assert 0.37 * (1 - 1e-6) < cost <= 0.37 * (1 + 1e-12)
    paid = np.zeros(SIZES)
    for cell in np.ndindex(*SIZES):
        for mask, variance in rounded.items():
            table = np.zeros(shape(SIZES, mask), dtype=np.int64)
            table[tuple(cell[i] for i in attributes_of(mask))] = 1
            change = table
            for axis, i in enumerate(attributes_of(mask)):
                change = bases[i].lattice(change, axis)
            assert change.shape == rp.noise_shape(bases, mask)
            paid[cell] += int((change**2).sum()) / variance
    assert paid.max() == pytest.approx(float(cost))
    # a mutant that forgets one residual pays less
    assert rp.exact_cost(bases, {b: v for b, v in rounded.items() if b}) < cost


def test_the_noise_has_the_planned_variance():
    # 6,000 draws: relative error of a variance 1.8 %; 16 % is 8 standard errors
    rng = np.random.default_rng(2)
    bases = (Subtraction(3), hilly(2))
    chosen = rp.plan({0b11: 1.0}, bases, 1e-4)
    scales = {mask: math.sqrt(v) for mask, v in rp.noise_variances(chosen).items()}
    table = np.array([[5, 7], [1, 2], [0, 9]], dtype=np.int64)
    tables = sub_marginals({0b11: table}, (3, 2))
    draws = []
    for _ in range(6_000):
        residuals = {}
        for mask, scale in scales.items():
            noise = np.rint(rng.normal(0, scale, rp.noise_shape(bases, mask))).astype(np.int64)
            residuals[mask] = rp.measure(tables[mask], mask, bases, noise)
        draws.append(next(reconstruct_all(residuals, [0b11], bases))[1])
    assert np.var(draws, axis=0) == pytest.approx(chosen.cell_variances(0b11), rel=0.16)
    errors = np.sqrt(chosen.cell_variances(0b11) / len(draws))
    assert (np.abs(np.mean(draws, axis=0) - table) < 7 * errors).all()


def test_sums_beyond_64_bits_stay_exact():
    bases = (Subtraction(1000), hilly(40))
    table = np.full((1000, 40), 2**50, dtype=np.int64)
    table[3, 4] += 1
    noise = np.full(rp.noise_shape(bases, 0b11), 10**9, dtype=np.int64)
    plain = rp.measure(table - 2**50, 0b11, bases, noise)
    large = rp.measure(table, 0b11, bases, noise)
    wanted = plain + bases[1].sub(bases[0].sub(np.full((1000, 40), 2.0**50), 0), 1)
    assert large == pytest.approx(wanted, abs=1e-6)
    assert abs(large).max() > 0.1


def test_variances_are_rounded_up_only():
    for value in (Fraction(1, 3), Fraction(10**9 + 1, 7), Fraction(1, 10**9), Fraction(4)):
        up = rp.round_up(value, 24)
        assert value <= up <= value * (1 + Fraction(1, 2**22))
        assert up.denominator & (up.denominator - 1) == 0


def test_one_level_and_unneeded_residuals():
    bases = subtraction((1, 3))
    chosen = rp.plan({0b11: 1.0}, bases)
    assert set(chosen.variances) == {0, 0b10}
    assert chosen.squared_error({0b11: 1.0}) == pytest.approx(
        rp.plan({1: 1.0}, subtraction((3,))).squared_error({1: 1.0})
    )
    assert set(rp.plan({0b01: 1.0}, subtraction((2, 2))).variances) == {0, 1}
    assert list(downward_closure([3])) == list(subsets(3))


def test_bad_input_is_named():
    bases = subtraction((2, 3))
    with pytest.raises(InvalidParameter, match="no marginal"):
        rp.plan({}, bases)
    with pytest.raises(InvalidParameter, match="outside the domain"):
        rp.plan({4: 1.0}, bases)
    with pytest.raises(InvalidParameter, match="weight 0"):
        rp.plan({1: 0.0}, bases)
    with pytest.raises(InvalidParameter, match="cost -1"):
        rp.plan({1: 1.0}, bases, -1)
    with pytest.raises(InvalidParameter, match="cost nan"):
        rp.plan({1: 1.0}, bases, math.nan)
    with pytest.raises(InvalidParameter, match="does not measure"):
        rp.plan({1: 1.0}, bases).squared_errors([3])
    with pytest.raises(InvalidParameter, match="does not measure"):
        rp.plan({1: 1.0}, bases).cell_variances(2)
    with pytest.raises(InvalidParameter, match="do not measure"):
        rp.measure(np.zeros(2, dtype=np.int64), 1, bases, np.zeros(3, dtype=np.int64))
