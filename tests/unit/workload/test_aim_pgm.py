"""AIM+PGM: the same rounds and prices as AIM+GReM, with the tables of a graphical model."""

import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import mechanism_aim_pgm
from dpsql.workload.aim import Schedule
from dpsql.workload.candidates import make
from dpsql.workload.domain import Domain
from dpsql.workload.grem import Residuals
from dpsql.workload.junction_tree import model_cells
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.marginals import attributes_of, downward_closure, k_way
from dpsql.workload.matrix import Identity, Total
from dpsql.workload.mechanism import Budget
from dpsql.workload.model_estimates import ModelEstimates
from dpsql.workload.postprocessed import postprocessed, require_postprocessing
from dpsql.workload.selection import STEPS, Selector, candidate_weights
from dpsql.workload.workload import Product, Workload
from tests.unit.workload.test_aim import BASES, SIZES, WORKLOAD, Supply, count, rows

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="mbi needs Python 3.11")

RHO = Fraction(1, 2)
FEW = Schedule(rounds=4)


def workload(masks):
    names = tuple(f"a{i}" for i in range(len(SIZES)))
    products = [
        Product(
            Kronecker(
                tuple(Identity(n) if mask >> i & 1 else Total(n) for i, n in enumerate(SIZES))
            ),
            1.0,
            (),
        )
        for mask in masks
    ]
    return Workload(Domain(names, SIZES), tuple(products))


def test_what_is_drawn_costs_what_is_reported_and_no_more_than_the_budget():
    supply = Supply(rows(500))
    found = supply.run(RHO, schedule=Schedule(rounds=2), estimates=ModelEstimates)
    sensitivity = max(candidate_weights(WORKLOAD).values()) * STEPS
    chosen = sum((2 * sensitivity * rate) ** 2 / 8 for _, rate in supply.choices)
    assert chosen == sum(r.epsilon**2 / 8 for r in found.rounds)
    assert Fraction(999, 1000) * RHO < found.rho <= RHO
    assert len(supply.choices) == len(found.rounds)
    assert [sorted(batch) for batch in supply.batches] == [sorted(k_way(4, 2))]


def test_a_large_budget_finds_the_marginals():
    data = rows(400)
    seen = []

    def estimates(residuals):
        seen.append(ModelEstimates(residuals))
        return seen[-1]

    Supply(data).run(Fraction(100), schedule=FEW, estimates=estimates)
    for mask in WORKLOAD:
        assert np.abs(seen[0][mask] - count(data, mask)).sum() < 0.1 * 400


def test_rounds_keep_to_the_limit_of_the_model():
    most = model_cells(SIZES, [0b0011, 0b0100, 0b1000])  # any one pair of few levels, no triangle
    supply = Supply(rows(2000))
    few = Schedule(rounds=3, anneal=False)
    found = supply.run(Fraction(10), schedule=few, estimates=lambda r: ModelEstimates(r, most=most))
    assert model_cells(SIZES, [m for m in found.residuals.values if m]) <= most
    assert found.rounds
    free = Supply(rows(2000)).run(Fraction(10), schedule=few, estimates=ModelEstimates)
    assert model_cells(SIZES, [m for m in free.residuals.values if m]) > most


def test_at_first_only_a_part_of_the_limit_may_be_used():
    residuals = Residuals(BASES)
    for mask in (0, 1, 2, 4, 8):
        residuals.add(mask, np.zeros([SIZES[i] - 1 for i in attributes_of(mask)]), 1.0)
    estimates = ModelEstimates(residuals, most=30)
    masks = [1, 0b0011, 0b1100, 0b1111]
    assert estimates.allowed(masks, 1.0) == [1, 0b0011, 0b1100]  # 6 + 4 + 3 and 3 + 2 + 12 cells
    assert estimates.allowed(masks, 0.5) == [1, 0b0011]
    assert estimates.allowed(masks, 0.0) == [1]


def test_one_row_changes_no_score_by_more_than_the_sensitivity():
    """All candidates of neighbours, with the same model, and which are candidates."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    rng = np.random.default_rng(seed)
    for _ in range(3):
        residuals = Residuals(BASES)
        for mask in (0, 1, 2, 4, 8, 0b0011, 0b1100):
            shape = tuple(SIZES[i] - 1 for i in attributes_of(mask))
            residuals.add(mask, rng.normal(size=shape) * 20 + 20, 1.0)
        estimates = ModelEstimates(residuals)
        for mask, (low, high) in estimates.bounds(list(WORKLOAD)).items():
            assert np.abs(estimates[mask]).sum() == pytest.approx(low) == pytest.approx(high)
        data = rows(20)
        asked = []

        def choose(scores, rate, asked=asked):
            asked.append((scores, rate))
            return 0

        for _ in range(20):
            changed = [tuple(rng.integers(SIZES)) for _ in range(rng.integers(1, 4))]
            asked.clear()
            for where in ([], changed):
                one = data.copy()
                for cell in where:
                    one[cell] += 1
                tables = {m: count(one, m) for m in downward_closure(WORKLOAD)}
                selector = Selector(SIZES, WORKLOAD, tables, len(changed))
                selector.select(estimates, Fraction(1, 3), 2.0, 20.0, choose, 0.5)
            (before, rate), (after, _) = asked
            assert len(before) == len(after)
            largest = max(abs(a - b) for a, b in zip(before, after, strict=True))
            assert 2 * largest * rate <= Fraction(1, 3)


def test_the_sensitivity_is_reached():
    """A mutant with half of it would be caught."""
    residuals = Residuals(BASES)
    residuals.add(0, np.array(1.0), 1.0)
    estimates = ModelEstimates(residuals)
    asked = []
    for number in (2, 3):
        data = np.zeros(SIZES, dtype=np.int64)
        data[0, 0, 0, 0] = number
        tables = {m: count(data, m) for m in downward_closure(WORKLOAD)}
        Selector(SIZES, WORKLOAD, tables).select(
            estimates, Fraction(1), 1.0, 3.0, lambda s, r: asked.append((s, r)) or 0
        )
    largest = max(abs(a - b) for a, b in zip(asked[0][0], asked[1][0], strict=True))
    assert 2 * largest * asked[0][1] == 1


def test_the_mechanism_answers_without_negative_counts_and_with_sums_that_agree():
    masks = [0b0011, 0b0110, 0b0111, 0b1000]
    ticks = []
    mechanism = make("aim_pgm", workload(masks), Budget(2, RHO), lambda: ticks.append(1))
    assert mechanism.loss == RHO
    assert math.isnan(mechanism.error)
    supply = Supply(rows(50))
    measured = mechanism.run(supply, supply.gaussian, supply.choose)
    assert len(ticks) > 2 * len(supply.choices)
    answers = list(mechanism.answers(measured))
    tables = [answer.values for answer in answers]
    for error, answer in zip(mechanism.errors(measured), answers, strict=True):
        assert error.shape == answer.errors.shape
        assert np.isnan(error).all()
    assert all(table.min() >= 0 for table in tables)
    assert np.allclose(tables[0], tables[2].sum(axis=2, keepdims=True), atol=1e-6)
    assert np.allclose(tables[1], tables[2].sum(axis=0, keepdims=True), atol=1e-6)
    for way in ("non_negative", "pgm"):
        require_postprocessing(mechanism, way)
        again = postprocessed(mechanism, measured, way, tick=lambda: None)
        for table, other in zip(tables, again, strict=True):
            assert np.allclose(table, other, atol=1e-9)


@pytest.mark.parametrize("name", ["residual_planner", "pairs", "identity", "opt_m", "aim"])
def test_what_others_measure_becomes_a_model(name):
    masks = [0b0011, 0b0110, 0b1100]
    mechanism = make(name, workload(masks), Budget(2, Fraction(50)))
    require_postprocessing(mechanism, "pgm")
    data, supply = rows(300), Supply(rows(300))
    if name == "aim":
        measured = mechanism.run(supply, supply.gaussian, supply.choose)
    else:
        measured = [
            mechanism.measure(k, count(data, m.mask), supply.gaussian(m.parameter, m.count))
            for k, m in enumerate(mechanism.measurements)
        ]
    tables = list(postprocessed(mechanism, measured, "pgm", tick=lambda: None))
    raw = [answer.values for answer in mechanism.answers(measured)]
    totals = {round(float(table.sum()), 6) for table in tables}
    assert len(totals) == 1
    for table, other, mask in zip(tables, raw, masks, strict=True):
        assert table.min() >= 0
        assert table.shape == other.shape
        # rho is 50: noise of a cell is far below 3
        assert np.abs(table.reshape(-1) - count(data, mask).reshape(-1)).max() < 12


def test_what_cannot_become_a_model_is_refused():
    several = workload([0b0011, 0b0110])
    with pytest.raises(InvalidParameter, match="no marginals"):
        require_postprocessing(make("opt_0", several, Budget(2, RHO)), "pgm")
    names = tuple(f"a{i}" for i in range(3))
    sizes = (200, 200, 200)
    whole = tuple(
        Product(
            Kronecker(tuple(Identity(n) if i != k else Total(n) for i, n in enumerate(sizes))),
            1.0,
            (),
        )
        for k in range(3)
    )
    large = Workload(Domain(names, sizes), whole)
    with pytest.raises(InvalidParameter, match=r"would take 61\.0 MB"):
        require_postprocessing(make("residual_planner", large, Budget(2, RHO)), "pgm")
    with pytest.raises(InvalidParameter, match="aim_pgm needs Gaussian noise"):
        make("aim_pgm", several, Budget(1, RHO))


def test_without_mbi_nothing_is_chosen(monkeypatch):
    def missing():
        raise InvalidParameter("no mbi")

    monkeypatch.setattr(mechanism_aim_pgm, "require_mbi", missing)
    with pytest.raises(InvalidParameter, match="no mbi"):
        make("aim_pgm", workload([0b0011]), Budget(2, RHO))
