"""AIM+GReM: exact budgets, bounded scores, and what it may see."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.workload.aim import Schedule, aim
from dpsql.workload.grem import Residuals
from dpsql.workload.lazy import LazyMarginals
from dpsql.workload.marginals import attributes_of, downward_closure, k_way
from dpsql.workload.residual_bases import Dense, subtraction
from dpsql.workload.residual_planner import privacy
from dpsql.workload.selection import STEPS, Selector, candidate_weights, l1_distance

SIZES = (3, 2, 4, 3)
BASES = subtraction(SIZES)
WORKLOAD = dict.fromkeys(k_way(4, 2), 1)
RHO = Fraction(1, 10)


def count(data, mask):
    outside = tuple(i for i in range(data.ndim) if not mask >> i & 1)
    return data.sum(axis=outside)


class Supply:
    """Counts from an array, noise from numpy: records what is asked."""

    def __init__(self, data, seed=1):
        self.data = data
        self.rng = np.random.default_rng(seed)
        self.batches, self.drawn, self.choices = [], [], []

    def batch(self, masks):
        self.batches.append(list(masks))
        return {mask: count(self.data, mask) for mask in masks}

    def gaussian(self, variance, number):
        self.drawn.append((variance, number))
        return np.rint(self.rng.normal(0, math.sqrt(variance), number)).astype(np.int64)

    def choose(self, scores, rate):
        assert all(type(score) is int for score in scores)
        self.choices.append((list(scores), rate))
        noise = self.rng.gumbel(size=len(scores))
        return int(np.argmax([float(rate * s) + e for s, e in zip(scores, noise, strict=True)]))

    def run(self, rho=RHO, workload=WORKLOAD, **options):
        return aim(BASES, workload, rho, self, self.gaussian, self.choose, **options)


def rows(number, seed=3):
    """Rows of which attribute 3 is the first attribute again."""
    rng = np.random.default_rng(seed)
    data = np.zeros(SIZES, dtype=np.int64)
    for _ in range(number):
        a = rng.choice(3, p=[0.6, 0.3, 0.1])
        data[a, rng.integers(2), rng.integers(4), a] += 1
    return data


def test_what_is_drawn_costs_what_is_reported_and_no_more_than_the_budget():
    supply = Supply(rows(500))
    found = supply.run()
    sensitivity = max(candidate_weights(WORKLOAD).values()) * STEPS
    chosen = sum((2 * sensitivity * rate) ** 2 / 8 for _, rate in supply.choices)
    # noise of every draw by its residual: of L x, whose columns have squared norm n (n - 1) each
    lengths = {
        math.prod(SIZES[i] for i in attributes_of(m)): privacy(BASES, m)
        * math.prod(SIZES[i] for i in attributes_of(m)) ** 2
        for m in downward_closure(WORKLOAD)
    }
    assert len(lengths) < len(downward_closure(WORKLOAD))  # 3 and 3: the same price
    measured = sum(lengths[number] / (2 * variance) for variance, number in supply.drawn)
    assert chosen + measured == found.rho
    assert Fraction(999, 1000) * RHO < found.rho <= RHO
    assert len(supply.choices) == len(found.rounds)
    assert [r.used for r in found.rounds] == sorted(r.used for r in found.rounds)
    assert [sorted(batch) for batch in supply.batches] == [sorted(k_way(4, 2))]


def test_a_large_budget_finds_the_marginals():
    data = rows(400)
    found = Supply(data).run(Fraction(10**7))
    for mask, table in found.residuals.marginals(WORKLOAD):
        assert np.abs(table - count(data, mask)).sum() < 1


def test_rounds_go_where_the_estimate_is_wrong():
    found = Supply(rows(5000)).run(Fraction(1), schedule=Schedule(rounds=10))
    assert found.rounds[0].mask == 0b1001  # the pair that is one attribute twice


def test_more_rows_of_a_neighbour_cost_more():
    one, three = Supply(rows(300)), Supply(rows(300))
    one.run(schedule=Schedule(anneal=False, rounds=4))
    found = three.run(schedule=Schedule(anneal=False, rounds=4), contribution=3)
    assert found.rho <= RHO
    assert float(three.drawn[0][0] / one.drawn[0][0]) == pytest.approx(9)
    assert three.choices[0][1] == one.choices[0][1] / 3


def test_progress_is_told_and_may_stop():
    told = []

    def progress(number, used, budget):
        told.append((number, used, budget))
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Supply(rows(100)).run(progress=progress, schedule=Schedule(anneal=False))
    assert [number for number, _, _ in told] == [0, 1, 2]
    assert 0 < told[0][1] < told[1][1] < told[2][1] < RHO
    assert {budget for _, _, budget in told} == {RHO}


def test_empty_data_runs_the_same_way():
    found = Supply(np.zeros(SIZES, dtype=np.int64)).run()
    assert found.rho <= RHO
    for _, table in found.residuals.marginals(WORKLOAD):
        assert np.isfinite(table).all()


def test_the_total_alone_and_single_attributes():
    found = Supply(rows(100)).run(workload={0: 1})
    assert set(found.residuals.values) == {0}
    assert found.rounds == ()
    assert found.rho <= RHO
    found = Supply(rows(100)).run(workload={1: 1, 4: 2})
    assert set(found.residuals.values) == {0, 1, 4}


def test_bad_requests_are_refused_before_anything_is_read():
    supply = Supply(rows(10))
    for options in (
        {"rho": Fraction(0)},
        {"workload": {}},
        {"workload": {1 << 4: 1}},
        {"workload": {3: 0}},
        {"contribution": 0},
        {"max_cells": 20},
    ):
        with pytest.raises(InvalidParameter):
            supply.run(**options)
    bases = (Dense(np.eye(2, 3, dtype=int), 1), *BASES[1:])
    with pytest.raises(InvalidParameter):
        aim(bases, WORKLOAD, RHO, supply, supply.gaussian, supply.choose)
    assert not supply.batches
    assert not supply.drawn


tables = st.lists(st.integers(0, 9), min_size=12, max_size=12)
guesses = st.lists(st.floats(-50, 1e10), min_size=12, max_size=12)


@given(tables, guesses, st.integers(0, 11))
def test_one_row_changes_a_distance_by_at_most_the_grid(table, guess, cell):
    """Exactly, whatever the estimates: integers, so that no rounding adds to it."""
    before = np.array(table)
    after = before.copy()
    after[cell] += 1
    estimate = np.array(guess)
    distances = [l1_distance(x.reshape(3, 4), estimate.reshape(3, 4)) for x in (before, after)]
    assert abs(distances[0] - distances[1]) <= STEPS
    inside = np.abs(estimate) < 2**28
    expected = np.abs(before - estimate)[inside].sum() * STEPS
    if inside.all():
        assert distances[0] == pytest.approx(expected, rel=1e-9, abs=12)


@given(st.integers(0, 2**32), st.lists(st.tuples(*[st.integers(0, n - 1) for n in SIZES])))
def test_one_row_changes_no_score_by_more_than_the_sensitivity(seed, changed):
    """All candidates of neighbours, with the same public estimates, and which are candidates."""
    rng = np.random.default_rng(seed)
    residuals = Residuals(BASES)
    for mask in downward_closure(WORKLOAD):
        shape = tuple(SIZES[i] - 1 for i in attributes_of(mask))
        residuals.add(mask, rng.normal(size=shape) * 20, 1.0)
    data = rows(20)
    asked = []

    def choose(scores, rate):
        asked.append((scores, rate))
        return 0

    number = min(len(changed), 3)
    for where in ([], changed[:number]):
        one = data.copy()
        for cell in where:
            one[cell] += 1
        tables = {m: count(one, m) for m in downward_closure(WORKLOAD)}
        selector = Selector(SIZES, WORKLOAD, tables, max(number, 1))
        selector.select(LazyMarginals(residuals), Fraction(1, 3), 2.0, 20.0, choose)
    (before, rate), (after, _) = asked
    assert len(before) == len(after)
    largest = max(abs(a - b) for a, b in zip(before, after, strict=True))
    assert 2 * largest * rate <= Fraction(1, 3)


def test_the_sensitivity_is_reached():
    """A mutant with half of it would be caught."""
    residuals = Residuals(BASES)
    residuals.add(0, np.array(0.0), 1.0)
    asked = []
    for number in (0, 1):
        data = np.zeros(SIZES, dtype=np.int64)
        data[0, 0, 0, 0] = number
        tables = {m: count(data, m) for m in downward_closure(WORKLOAD)}
        selector = Selector(SIZES, WORKLOAD, tables)
        selector.select(
            LazyMarginals(residuals), Fraction(1), 1.0, 1.0, lambda s, r: asked.append((s, r)) or 0
        )
    largest = max(abs(a - b) for a, b in zip(asked[0][0], asked[1][0], strict=True))
    assert 2 * largest * asked[0][1] == 1


def test_candidates_left_out_would_hardly_be_drawn():
    sizes = (2, 3, 60, 50)
    rng = np.random.default_rng(8)
    data = rng.multinomial(2000, rng.dirichlet(np.full(math.prod(sizes), 0.01))).reshape(sizes)
    workload = dict.fromkeys(k_way(4, 3), 1)
    tables = {m: count(data, m) for m in downward_closure(workload)}
    residuals = Residuals(subtraction(sizes))
    residuals.add(0, np.array(2000.0), 1.0)
    selector = Selector(sizes, workload, tables)
    lazy, epsilon, variance = LazyMarginals(residuals), 2.0, 400.0
    rate = epsilon / (2 * selector.sensitivity)
    kept = selector.promising(lazy, rate * STEPS, variance, 2000.0)
    weights = candidate_weights(workload)
    assert 0 < len(kept) < len(weights)
    scores = {
        m: w
        * (
            l1_distance(tables[m], lazy[m])
            - STEPS * math.sqrt(2 / math.pi * variance) * tables[m].size
        )
        for m, w in weights.items()
    }
    top = max(scores.values())
    shares = {m: math.exp(rate * (s - top)) for m, s in scores.items()}
    assert sum(shares[m] for m in weights if m not in kept) < 1e-8 * sum(shares.values())
