"""OPT_kron, OPT_plus and OPT_HDMM against written matrices and the published errors."""

import math

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import opt_kron as opt_kron_module
from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import (
    AllRange,
    Dense,
    Identity,
    Permuted,
    Prefix,
    Stacked,
    Total,
    Width,
)
from dpsql.workload.opt_hdmm import opt_hdmm
from dpsql.workload.opt_kron import best_factor, opt_kron, single_query
from dpsql.workload.opt_plus import by_attributes, opt_plus
from dpsql.workload.svd_bound import svd_bound, workload_bound
from dpsql.workload.workload import Product, Workload

CPS = (50, 100, 7, 4, 2)
GAUSS = 4.224679


def union(*products, weights=None):
    sizes = [factor.shape[1] for factor in products[0]]
    weights = weights or [1.0] * len(products)
    made = [Product(Kronecker(tuple(f)), w) for f, w in zip(products, weights, strict=True)]
    return Workload(Domain.of(*sizes), tuple(made))


RANGES = union((Prefix(6), Total(5)), (Total(6), AllRange(5)), (Identity(6), Identity(5)))
HEAVY = union((Prefix(6), Total(5)), (Total(6), AllRange(5)), weights=[7.0, 0.5])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("workload", [RANGES, HEAVY], ids=["ranges", "weighted"])
def test_the_error_is_that_of_the_written_strategy(workload, order):
    found = opt_kron(workload, order, seed=1)
    assert found.queries.sensitivity(order) == pytest.approx(1, rel=1e-6)
    assert found.error == pytest.approx(workload.kronecker_error(found.queries, order), rel=1e-5)
    strategy, queries = found.queries.dense(), []
    for product in workload.products:
        queries.append(product.weight * product.queries.dense())
    written = np.linalg.norm(np.concatenate(queries) @ np.linalg.pinv(strategy)) ** 2
    assert found.error == pytest.approx(written, rel=1e-4)


@pytest.mark.parametrize("order", [1, 2])
def test_factors_that_take_turns_beat_factors_of_their_own(order):
    """One turn each, with the products as Identity leaves them, is the beginning only."""
    begun = opt_kron(HEAVY, order, seed=1, restarts=1, rounds=1)
    found = opt_kron(HEAVY, order, seed=1)
    assert found.error <= begun.error * (1 + 1e-9)
    assert found.error < HEAVY.trace
    assert found.error >= workload_bound(HEAVY).value * (1 - 1e-6)


def test_cps_prefix_marginals_are_the_published_ones():
    pair = [Stacked.of(Identity(n), Total(n)) for n in CPS[2:]]
    workload = union((Prefix(50), Prefix(100), *pair))
    found = opt_kron(workload, 2, seed=1)
    assert workload.rmse(found.error, GAUSS) == pytest.approx(29.47, abs=0.01)


@pytest.mark.parametrize("order", [1, 2])
def test_a_single_query_is_asked_itself(order):
    many = [Total(4), Dense(3 * np.ones((2, 4)))]
    assert best_factor(9 * np.ones((4, 4)), order, single_query(many), seed=1).queries == Total(4)
    query = np.array([[0.0, 2.0, -1.0]])
    found = best_factor(query.T @ query, order, single_query([Dense(query)]), seed=1)
    assert found.error == pytest.approx(4)
    np.testing.assert_allclose(found.queries.dense(), query / 2)
    np.testing.assert_allclose(found.inverse, np.linalg.pinv(query.T @ query / 4), atol=1e-12)
    two = np.eye(3)
    two[2, 2] = 0
    assert best_factor(two, order, seed=1).queries.shape[0] > 1


def test_queries_are_one_only_if_all_are_multiples_of_it():
    one = np.array([[0.0, 2.0, -1.0]])
    assert single_query([Dense(one), Dense(np.concatenate([-3 * one, 0 * one]))]) is not None
    for other in (Identity(3), Prefix(3), AllRange(3), Width(3, 2), Total(3), Dense(-one[:, ::-1])):
        assert single_query([Dense(one), other]) is None
        assert (single_query([other]) is None) == (other.shape[0] > 1)
    almost = np.array([[0.0, 2.0, -1.0 + 1e-12]])
    assert single_query([Dense(one), Dense(1e-9 * almost)]) is None
    assert single_query([Dense(0 * one)]) is None
    assert single_query([Identity(1), Prefix(1)]) is not None
    assert single_query([Permuted(AllRange(3), (2, 0, 1))]) is None


@pytest.mark.parametrize("order", [1, 2])
def test_groups_share_the_budget_as_well_as_can_be(order):
    found = opt_plus(RANGES, order, seed=1)
    assert [part.products for part in found.parts] == [(0,), (1,), (2,)]
    assert sum(part.share**order for part in found.parts) == pytest.approx(1)
    errors = [part.strategy.error for part in found.parts]
    assert found.error == pytest.approx(
        sum(e / part.share**2 for e, part in zip(errors, found.parts, strict=True))
    )
    assert found.error == pytest.approx(
        sum(e ** (order / (2 + order)) for e in errors) ** ((2 + order) / order)
    )
    equal = len(errors) ** (2 / order) * sum(errors)
    assert found.error < equal


def test_groups_must_be_a_partition():
    assert by_attributes(HEAVY) == [(0,), (1,)]
    for groups in ([[0]], [[0, 1], [1]], [[0, 1, 2]]):
        with pytest.raises(InvalidParameter, match="every product"):
            opt_plus(HEAVY, 2, seed=1, groups=groups)
    assert len(opt_plus(HEAVY, 2, seed=1, groups=[[1, 0]]).parts) == 1


@pytest.mark.parametrize(("order", "paper"), [(1, 4.84), (2, 7.852)])
def test_the_best_of_all_is_taken(order, paper):
    workload = union([Stacked.of(Identity(n), Total(n)) for n in CPS])
    found = opt_hdmm(workload, order, seed=1).error
    deviation = GAUSS if order == 2 else math.sqrt(2)
    assert workload.rmse(found, deviation) <= paper * 1.0005
    assert found <= opt_kron(workload, order, seed=1).error * (1 + 1e-9)


@pytest.mark.parametrize("matrix", [Prefix(1200), AllRange(1200)])
def test_many_levels_of_prefixes_and_ranges_are_optimised(matrix):
    """A tree of counts is 1.6 times off."""
    gram = matrix.gram()
    found = best_factor(gram, 2, seed=1)
    assert found.error < 1.03 * svd_bound(gram) * (1.02 if isinstance(matrix, Prefix) else 1)
    assert found.error == pytest.approx(np.vdot(found.inverse, gram), rel=1e-4)
    assert np.allclose((found.queries.dense() ** 2).sum(axis=0), 1)


@pytest.mark.parametrize("n", [200, 201])
def test_many_levels_of_ranges_of_a_width_are_optimised(n, monkeypatch):
    monkeypatch.setattr(opt_kron_module, "MOST_OPTIMISED", 100)
    gram = Width(n, 16).gram()
    asked = opt_kron_module.best_factor(gram, 2, seed=1)
    assert asked.error < 1.04 * svd_bound(gram)
    assert asked.error == pytest.approx(np.vdot(asked.inverse, gram), rel=1e-4)
    tree = opt_kron_module._tree(gram, 1, lambda: None)
    found = opt_kron_module.best_factor(gram, 1, seed=1)
    monkeypatch.undo()
    assert found.error < 1.03 * best_factor(gram, 1, seed=1).error
    assert found.error < 0.8 * tree.error


def test_many_levels_of_others_get_a_tree():
    gram = Width(1200, 5).gram()
    gram[0, 0] += 1  # not the same from behind
    found = best_factor(gram, 2, seed=1)
    assert found.error == pytest.approx(np.vdot(found.inverse, gram))
    assert found.error < 1200 * 5  # Identity's


def test_disjunctions_have_strategies():
    either = Product(Kronecker.of(Dense(np.tri(3)), Dense(np.eye(4))), either=(0, 1))
    workload = Workload(Domain.of(3, 4), (either,))
    found = opt_kron(workload, 2, seed=1)
    assert found.error == pytest.approx(workload.kronecker_error(found.queries, 2), rel=1e-5)
    assert found.error <= workload.trace * (1 + 1e-9)


def test_example_13_of_the_paper():
    """Two attributes, the distribution of each: 14252 by a union, 33385 by one product."""
    workload = union((Prefix(100), Total(100)), (Total(100), Prefix(100)))
    together = opt_plus(workload, 1, seed=1)
    assert together.error <= 14252
    assert sum(math.prod(p.strategy.queries.rows) for p in together.parts) <= 212
    assert opt_kron(workload, 1, seed=1, restarts=1, rounds=6).error <= 33385 * 1.002
