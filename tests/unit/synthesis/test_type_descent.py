"""Types reach what pairs reach, and projections are projections."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.synthesis.marginal_map import MarginalMap
from dpsql.synthesis.pairs import mirror_descent, singletons
from dpsql.synthesis.polytope import Bounds, Polytope, polytope_of
from dpsql.synthesis.records import Answer, Cross, Links
from dpsql.synthesis.relationship import many_to_many, one_to_many
from dpsql.synthesis.type_descent import Descent, fit
from dpsql.synthesis.types import refined, types_of
from tests.unit.synthesis.linking import (
    count_links,
    cross_workloads,
    dense_queries,
    exact_answers,
    planted,
    records,
)

TO_THE_END = Descent(steps=400, stop=0.0, still=1e-6)


def some_links(left, right, total, rng):
    cells = rng.permutation(left.count * right.count)[:total]
    return Links(cells // right.count, cells % right.count)


@given(st.integers(0, 2**32 - 1))
def test_types_number_the_distinct_rows(seed):
    rng = np.random.default_rng(seed)
    table = records(int(rng.integers(0, 40)), (2, 1, 3), rng)
    for mask in range(8):
        found = types_of(table, mask)
        used = [a for a in range(3) if mask >> a & 1]
        distinct = np.unique(table.rows[:, used], axis=0) if table.count else []
        assert found.number == len(distinct)
        assert (found.counts >= 1).all()
        assert found.counts.sum() == table.count
        assert (table.rows[found.first[found.of]][:, used] == table.rows[:, used]).all()
        assert (found.of[found.first] == np.arange(found.number)).all()
        if mask:
            coarse = types_of(table, mask & (mask - 1))
            assert (refined(coarse, found)[found.of] == coarse.of).all()


def test_types_of_wide_tables():
    rng = np.random.default_rng(1)
    table = records(50, (1000,) * 12, rng)
    assert types_of(table, (1 << 12) - 1).number == 50


def kinds(n1, n2, rng):
    total = n1 * n2 // 3
    cells = rng.permutation(n1 * n2)[:total]
    one = np.bincount(cells // n2, minlength=n1)
    return {
        "many-to-many": many_to_many(n1, n2, total),
        "with degrees": many_to_many(n1, n2, total, left_degrees=one),
        "bounded": many_to_many(n1, n2, total, most_left=n2 // 2),
        "foreign key": one_to_many(n1, n2),
        "nullable": one_to_many(n1, n2, without=n2 // 4),
        "counted children": one_to_many(
            n1, n2, degrees=np.bincount(rng.integers(0, n1, n2), minlength=n1)
        ),
    }


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", sorted(kinds(6, 6, np.random.default_rng(0))))
def test_types_and_pairs_reach_the_same_error(seed, kind):
    """On types, and with every row a type of its own, whose cells are the paper's pairs."""
    rng = np.random.default_rng(seed)
    left, right = records(9, (2, 3), rng), records(12, (3, 2), rng)
    relationship = kinds(9, 12, rng)[kind]
    workloads = [Cross(1, 1), Cross(2, 1), Cross(3, 2)]
    answers = []
    for w, variance in zip(workloads, (1, 4, 2), strict=True):
        true = count_links(left, right, some_links(left, right, relationship.total, rng), w)
        noisy = true + rng.normal(0, 0.5, true.shape)
        answers.append(Answer(w, noisy, Fraction(variance)))
    found = []
    for one, other in (
        (types_of(left, 3), types_of(right, 3)),
        (singletons(left), singletons(right)),
    ):
        polytope = polytope_of(relationship, one, other)
        mapping = MarginalMap(left, right, one, other, answers)
        start = np.multiply.outer(one.counts, other.counts).astype(float)
        result = fit(mapping, polytope, start, TO_THE_END)
        assert polytope.excess(result.table) < 1e-4 * relationship.total
        found.append(result.misfit)
    types, pairs = found
    if kind in ("with degrees", "counted children"):
        # degrees bound a type's cells together a little more loosely than row by row
        assert types <= pairs + 0.01 * (1 + pairs)
    else:
        assert abs(types - pairs) <= 0.01 * (1 + pairs)


def test_algorithm_5_reaches_that_error_too():
    rng = np.random.default_rng(8)
    left, right = records(9, (2, 3), rng), records(12, (3, 2), rng)
    workloads = [Cross(1, 1), Cross(2, 3)]
    relationship = many_to_many(9, 12, 40)
    answers = exact_answers(left, right, some_links(left, right, 40, rng), workloads, Fraction(1))
    answers = [replace(a, table=a.table + rng.normal(0, 3, a.table.shape)) for a in answers]
    one, other = singletons(left), singletons(right)
    polytope = polytope_of(relationship, one, other)
    mapping = MarginalMap(left, right, one, other, answers)
    relaxed = mirror_descent(mapping, polytope, np.ones((9, 12)), outer=3000)
    assert polytope.excess(relaxed) < 1e-6
    # the objective by Lemma 1's dense queries
    target = np.concatenate([a.table.reshape(-1) for a in answers])
    dense = dense_queries(left, right, workloads)
    error = float(((dense @ relaxed.reshape(-1) - target) ** 2).sum())
    types = types_of(left, 3), types_of(right, 3)
    best = fit(
        MarginalMap(left, right, *types, answers),
        polytope_of(relationship, *types),
        np.ones((types[0].number, types[1].number)),
        TO_THE_END,
    )
    assert error == pytest.approx(best.misfit, rel=0.02, abs=0.02)
    # cutting off and rescaling, as published, leaves the box
    full = np.array([[5.0, 1.0], [1.0, 1.0]])
    mapping = MarginalMap(left, right, types_of(left, 0), types_of(right, 0), [])
    clamped = mirror_descent(mapping, Polytope(3.0), full, outer=1, clamp=1, step=0.0)
    assert clamped.max() > 1
    assert clamped.sum() == pytest.approx(3)


def test_the_map_is_lemma_1_and_its_back_is_the_transpose():
    rng = np.random.default_rng(2)
    left, right = records(7, (2, 40), rng), records(6, (3, 2), rng)
    workloads = [Cross(1, 1), Cross(2, 3), Cross(3, 2)]
    answers = exact_answers(left, right, some_links(left, right, 10, rng), workloads, Fraction(1))
    mapping = MarginalMap(left, right, singletons(left), singletons(right), answers)
    order = [a.workload for a in mapping.answers]
    table = rng.random((7, 6))
    dense = dense_queries(left, right, order)
    seen = np.concatenate([m.reshape(-1) for m in mapping.forward(table)])
    assert np.allclose(seen, dense @ table.reshape(-1))
    forces = [rng.normal(size=a.table.shape) for a in mapping.answers]
    back = mapping.back(forces, np.empty((7, 6)))
    flat = np.concatenate([f.reshape(-1) for f in forces])
    assert np.allclose(back.reshape(-1), dense.T @ flat)


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.booleans())
def test_projections_are_feasible_and_closest(seed, boxed, by_rows, by_columns):
    """Closest by the three-point inequality against random members."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, 2))
    members = [rng.random(shape) for _ in range(4)]
    cap = np.max(members, axis=0) * 1.1 if boxed else None
    rows = columns = None
    first = members[0]
    if by_rows:
        rows = Bounds(first.sum(axis=1), first.sum(axis=1))
    if by_columns:
        columns = Bounds(first.sum(axis=0) * 0.5, first.sum(axis=0) * 1.2)
    polytope = Polytope(float(first.sum()), cap, rows, columns)
    plain = rng.gamma(1, 1, shape) + 1e-3
    found = polytope.project(plain.copy(), sweeps=20000, tolerance=1e-12)
    assert polytope.excess(found) < 1e-6
    # gradient of the divergence at the projection: no member lies further down
    assert (np.log(np.maximum(found, 1e-300) / plain) * (first - found)).sum() > -1e-5


def test_descent_stops_at_the_noise():
    left, right, links = planted(60, 300)
    rng = np.random.default_rng(7)
    answers = [
        replace(a, table=a.table + rng.normal(0, 4, a.table.shape))
        for a in exact_answers(
            left, right, links, cross_workloads(left.sizes, right.sizes, 2), Fraction(16)
        )
    ]
    one, other = types_of(left, 7), types_of(right, 7)
    polytope = polytope_of(one_to_many(60, 300), one, other)
    mapping = MarginalMap(left, right, one, other, answers)
    start = np.ones((one.number, other.number))
    found = fit(mapping, polytope, start)
    cells = sum(a.table.size for a in answers)
    assert found.misfit == pytest.approx(cells, rel=1e-3)
    ticks = []
    fit(mapping, polytope, np.ones_like(start), tick=lambda: ticks.append(1))
    assert len(ticks) == found.steps > 0
