"""Plans measured at once: exact budgets, one batch, and what the residuals then say."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import at_most_k_way, attributes_of, k_way
from dpsql.workload.planned import measure_plan, plan_pairs
from dpsql.workload.residual_bases import subtraction
from dpsql.workload.residual_planner import privacy

SIZES = (3, 2, 4)
BASES = subtraction(SIZES)
RHO = Fraction(1, 7)


class Supply:
    def __init__(self):
        self.rng = np.random.default_rng(1)
        self.data = self.rng.integers(0, 30, SIZES)
        self.batches, self.drawn = [], []

    def batch(self, masks):
        self.batches.append(sorted(masks))
        return {m: self.count(m) for m in masks}

    def count(self, mask):
        return self.data.sum(axis=tuple(i for i in range(3) if not mask >> i & 1))

    def gaussian(self, variance, number):
        self.drawn.append((variance, number))
        return np.rint(self.rng.normal(0, math.sqrt(variance), number)).astype(np.int64)


def test_pairs_of_the_workload_are_planned_within_the_budget():
    chosen = plan_pairs([0b111], BASES, RHO)
    assert sorted(chosen.variances) == sorted(at_most_k_way(3, 2))
    assert chosen.cost() == pytest.approx(float(2 * RHO))
    assert sorted(plan_pairs([0b011, 0b100], BASES, RHO).variances) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("contribution", [1, 3])
def test_what_is_drawn_costs_what_is_reported(contribution):
    supply = Supply()
    told = []
    found, used = measure_plan(
        plan_pairs([0b111], BASES, RHO),
        RHO,
        supply,
        supply.gaussian,
        contribution=contribution,
        progress=lambda *state: told.append(state),
    )
    masks = list(found.values)
    assert supply.batches == [sorted(k_way(3, 2))]
    paid = Fraction(0)
    for mask, (variance, number) in zip(masks, supply.drawn, strict=True):
        scale = math.prod(SIZES[i] for i in attributes_of(mask))
        assert number == scale
        paid += privacy(BASES, mask) * scale**2 * contribution**2 / (2 * variance)
        assert found.precisions[mask] == pytest.approx(scale**2 / float(variance), rel=1e-6)
    assert paid == used
    assert Fraction(999, 1000) * RHO < used <= RHO
    assert [number for number, _, _ in told] == list(range(1, 8))
    assert told[-1][1:] == (used, RHO)


def test_with_little_noise_the_marginals_are_found():
    supply = Supply()
    rho = Fraction(10**8)
    found, _ = measure_plan(plan_pairs([0b111], BASES, rho), rho, supply, supply.gaussian)
    for mask, table in found.marginals(k_way(3, 2)):
        np.testing.assert_allclose(table, supply.count(mask), atol=0.05)


def test_a_plan_beyond_the_budget_reads_nothing():
    supply = Supply()
    chosen = plan_pairs([0b111], BASES, RHO * 2)
    with pytest.raises(InvalidParameter):
        measure_plan(chosen, RHO, supply, supply.gaussian)
    with pytest.raises(InvalidParameter):
        measure_plan(chosen, RHO * 3, supply, supply.gaussian, contribution=0)
    assert not supply.batches
