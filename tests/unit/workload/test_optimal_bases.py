"""Bases for prefix and range queries: derivatives, optimality and the published errors."""

import math

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import optimal_bases as ob
from dpsql.workload.marginals import k_way, small, total_cells
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.residual_bases import Dense, Subtraction, subtraction
from dpsql.workload.residual_planner import unit_squared_error

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
CPS = (50, 100, 7, 4, 2)
GAUSS = 4.224679  # the analytic Gaussian mechanism's sigma at epsilon 1, delta 1e-6


def prefix_gram(n):
    rows = np.tri(n)
    return rows.T @ rows


def rmse(sizes, masks, prefixes, **options):
    weights = dict.fromkeys(masks, 1.0)
    grams = {i: prefix_gram(sizes[i]) for i in prefixes}
    bases = ob.optimal_bases(sizes, weights, grams, **options)
    error = unit_squared_error(weights, bases, grams)
    return GAUSS * math.sqrt(error / total_cells(sizes, masks))


@pytest.mark.parametrize(
    ("sizes", "masks", "prefixes", "known", "ours"),
    [
        (ADULT, k_way(14, 2), range(5), 74.44, 70.86),
        (LOANS, small(LOANS, 5000), range(4), 54.90, 53.69),
        (CPS, [a for a in range(32) if a & 3 == 3], range(2), 29.475, 29.471),
    ],
)
def test_prefix_marginals_beat_the_best_known(sizes, masks, prefixes, known, ours):
    found = rmse(sizes, masks, prefixes)
    assert found < known
    assert found == pytest.approx(ours, rel=2e-4)


def test_a_single_attribute_attains_opt_0():
    """min tr(X^-1 V) over diag(X) <= 1: at the optimum the dual certificate closes.

    For any y > 0 with X = V^(1/2) ... the bound ``(tr sqrt(D^1/2 V D^1/2))^2``, ``D = diag(y)``,
    ``sum y = 1``, holds for every strategy of sensitivity 1; y follows from the strategy.
    """
    n = 24
    gram = prefix_gram(n)
    (basis,) = ob.optimal_bases((n,), {1: 1.0}, {0: gram}, bits=16)
    error = unit_squared_error({1: 1.0}, (basis,), {0: gram})
    own, spread = basis.errors(gram)
    total = math.sqrt(own) + math.sqrt(spread)
    information = (basis.matrix.T @ basis.matrix) * math.sqrt(own) / total
    information += math.sqrt(spread) / total
    assert np.diag(information).max() == pytest.approx(1.0, abs=1e-4)
    inverse = np.linalg.inv(information)
    assert np.trace(inverse @ gram) == pytest.approx(error, rel=1e-4)
    dual = np.maximum(np.diag(inverse @ gram @ inverse), 0)
    dual = np.sqrt(dual / dual.sum())
    roots = np.linalg.eigvalsh(dual[:, None] * gram * dual)
    bound = np.sqrt(np.maximum(roots, 0)).sum() ** 2
    assert bound <= error * (1 + 1e-9)
    assert error <= bound * (1 + 1e-4)


def test_the_identity_needs_no_other_basis_than_subtraction():
    sizes, weights = (5, 4), {0b11: 1.0, 0b01: 2.0}
    bases = ob.optimal_bases(sizes, weights, {0: np.eye(5)}, bits=14)
    assert isinstance(bases[0], Dense)
    assert isinstance(bases[1], Subtraction)
    assert unit_squared_error(weights, bases) == pytest.approx(
        unit_squared_error(weights, subtraction(sizes)), rel=1e-4
    )


def test_the_search_begins_at_the_optimum_of_one_attribute_and_near_that_of_several(monkeypatch):
    n = 40
    gram = prefix_gram(n)
    optimum = opt0_gaussian(gram, gap=1e-7).bound
    alone = ob._Point.at(ob.beginning(gram), gram)
    assert (math.sqrt(alone.own) + math.sqrt(alone.spread)) ** 2 < optimum * 1.001
    steps = []
    logarithm = ob._logarithm

    def counted(*given):
        steps.append(0)
        return logarithm(*given)

    monkeypatch.setattr(ob, "_logarithm", counted)
    ob.optimal_bases((n, 5, 3), dict.fromkeys(range(8), 1.0), {0: gram})
    assert 0 < len(steps) < 50  # from the eigenvectors of the centred workload: over 80


def test_errors_are_those_of_the_basis():
    rng = np.random.default_rng(4)
    matrix = np.rint(rng.normal(size=(4, 5)) * 100).astype(int)
    gram = prefix_gram(5)
    point = ob._Point.at(matrix / 64, gram)
    assert (point.own, point.spread) == pytest.approx(Dense(matrix, 64).errors(gram))


def test_derivatives_by_finite_differences():
    rng = np.random.default_rng(9)
    weights = {0b011: 1.0, 0b110: 2.0, 0b001: 1.5}
    own, spread = [2.0, 0.7, 3.0], [0.4, 1.1, 0.2]
    _, by_own, by_spread = ob._logarithm(weights, own, spread)
    for values, slopes in ((own, by_own), (spread, by_spread)):
        for i in range(3):
            kept, step = values[i], 1e-6
            values[i] = kept + step
            up = ob._logarithm(weights, own, spread)[0]
            values[i] = kept - step
            down = ob._logarithm(weights, own, spread)[0]
            values[i] = kept
            assert slopes[i] == pytest.approx((up - down) / (2 * step), rel=1e-6)
    gram, ratio = prefix_gram(5), 0.8
    matrix = rng.normal(size=(4, 5))
    slope = ob._Point.at(matrix, gram).slope(gram, ratio)

    def value(x):
        point = ob._Point.at(x, gram)
        return point.own + ratio * point.spread

    for at in np.ndindex(4, 5):
        step = np.zeros((4, 5))
        step[at] = 1e-6
        assert slope[at] == pytest.approx(
            (value(matrix + step) - value(matrix - step)) / 2e-6, rel=1e-4
        )


@pytest.mark.parametrize("scale", [4, 64, 1024])
def test_rounded_columns_are_never_too_long(scale):
    rng = np.random.default_rng(scale)
    unit = rng.normal(size=(30, 31))
    unit /= np.sqrt((unit**2).sum(axis=0))
    rounded = ob.round_columns(unit, scale)
    assert (rounded**2).sum(axis=0).max() <= scale**2
    assert np.abs(rounded - unit * scale).max() <= 2.0
    # plain rounding, the mutant, is too long
    assert (np.rint(unit * scale) ** 2).sum(axis=0).max() > scale**2


def test_it_repeats_itself_and_can_be_cancelled():
    grams = {0: prefix_gram(6)}
    first = ob.optimal_bases((6, 3), {0b11: 1.0}, grams)
    second = ob.optimal_bases((6, 3), {0b11: 1.0}, grams)
    assert np.array_equal(first[0].matrix, second[0].matrix)

    def tick():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ob.optimal_bases((6, 3), {0b11: 1.0}, grams, tick=tick)


def test_bad_input_is_named():
    with pytest.raises(InvalidParameter, match="Gram matrix of attribute 0"):
        ob.optimal_bases((3,), {1: 1.0}, {0: np.eye(2)})
    assert isinstance(ob.optimal_bases((1,), {1: 1.0}, {0: np.eye(1)})[0], Subtraction)
    assert isinstance(ob.optimal_bases((3,), {1: 1.0}, {})[0], Subtraction)


def test_a_singular_workload_is_still_measured_whole():
    n = 12
    rows = np.array([[1.0] * 3 + [0.0] * 9, [0.0] * 6 + [1.0] * 6])
    gram = rows.T @ rows
    (basis,) = ob.optimal_bases((n,), {1: 1.0}, {0: gram})
    error = unit_squared_error({1: 1.0}, (basis,), {0: gram})
    # two disjoint queries: 2 at best
    assert 2.0 - 1e-9 <= error < 2.05


def test_an_attribute_that_nobody_asks_for():
    bases = ob.optimal_bases((3, 4), {0b10: 1.0}, {0: prefix_gram(3), 1: prefix_gram(4)})
    assert isinstance(bases[0], Subtraction)
    assert isinstance(bases[1], Dense)


def test_a_strategy_of_one_attribute_becomes_a_basis():
    rng = np.random.default_rng(8)
    n = 7
    strategy = np.vstack([np.eye(n), rng.normal(size=(5, n))])
    information = strategy.T @ strategy
    basis = ob.split_total(information)
    assert basis.shape == (n - 1, n)
    rest = information - 1 / np.linalg.inv(information).sum()
    assert basis.T @ basis == pytest.approx(rest / np.diag(rest).max())
    # it answers as well as the strategy itself, or better
    gram = prefix_gram(n)
    found = unit_squared_error({1: 1.0}, (Dense(np.rint(basis * 2**20), 2**20),), {0: gram})
    error = np.diag(information).max() * np.trace(np.linalg.inv(information) @ gram)
    assert found <= error * (1 + 1e-4)
