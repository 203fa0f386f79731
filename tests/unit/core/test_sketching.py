"""Sketching sensitivity: families, promises and bounds of small shapes, by hand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from dpsql.core import sketching
from dpsql.core.sketching import (
    HEURISTIC,
    PROVED,
    Promise,
    Sketch,
    bound,
    families,
    incident,
    joining,
    promise,
)
from dpsql.core.smooth import smooth_maximum
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Shape


def cycle(size: int) -> Shape:
    return Shape(
        tuple(frozenset({(i - 1) % size, i}) for i in range(size)), tuple(range(size)), ((),) * size
    )


def path(size: int) -> Shape:
    ends = [frozenset(x for x in (i - 1, i) if 0 <= x < size - 1) for i in range(size)]
    return Shape(tuple(ends), tuple(range(size)), ((),) * size)


TWO = path(2)
EXACT = Promise("exact_norm", PROVED, Fraction(0), Fraction(0))


def two(first: int, second: int) -> Sketch:
    """Two relations on one column, with these sums of squares and largest squares 1."""
    everything, nothing = frozenset({0}), frozenset[int]()
    return Sketch(
        estimators=4,
        rows=1,
        totals=(4, 4),
        norms=({nothing: first, everything: 9}, {nothing: second, everything: 4}),
        squares=(4 * first, 4 * second),
        moments=((4, 12, 8, 20),),
    )


def test_a_class_of_three_has_two_families_and_each_joins_two() -> None:
    shape = Shape((frozenset({0}),) * 3, (0, 1, None))
    assert [f.occurrences for f in families(shape)] == [(0, 1), (1, 2)]
    assert [len(incident(shape, i)) for i in range(3)] == [1, 2, 1]


def test_attributes_of_one_occurrence_have_no_family() -> None:
    shape = Shape((frozenset({0, 1}), frozenset({1, 2})), (0, 1))
    assert joining(shape) == (frozenset({1}), frozenset({1}))
    assert [f.attribute for f in families(shape)] == [1]


def test_exact_norms_promise_everything() -> None:
    assert promise(path(5), "exact_norm", 1, 1) == EXACT


@pytest.mark.parametrize(("shape", "degree"), [(path(2), 1), (cycle(3), 2), (path(5), 2)])
def test_norms_are_proved_from_the_stated_number_of_estimators_on(
    shape: Shape, degree: int
) -> None:
    eta = Fraction(1, 10**9)
    enough = math.ceil(2 * 3**degree * math.log(len(shape.attributes) / float(eta)) * 4) + 2
    assert promise(shape, "norm", enough, 1).label == PROVED
    assert promise(shape, "norm", enough, 1).tau <= Fraction(1, 2)
    assert promise(shape, "norm", enough - 5, 1).label == HEURISTIC
    assert promise(shape, "norm", enough - 5, 2).label == PROVED
    found = promise(shape, "norm", 100 * enough, 1)
    assert float(found.tau) == pytest.approx(0.05, rel=1e-2)
    assert found.eta == eta


def test_means_are_proved_for_triangles_and_not_for_long_paths() -> None:
    """A triangle has two ends and one inner family: 2^2 e^4 against 9^4."""
    assert promise(cycle(3), "mean", 100_000, 1).label == PROVED
    assert promise(path(5), "mean", 100_000, 1).label == HEURISTIC
    assert promise(cycle(4), "mean", 100_000, 1).label == HEURISTIC
    eta = 1e-9
    needed = 2 * 4 * math.exp(4) * math.log(1 / eta) / 0.25
    assert promise(cycle(3), "mean", math.ceil(needed * 1.0001), 1).label == PROVED
    assert promise(cycle(3), "mean", math.floor(needed * 0.9999), 1).label == HEURISTIC


def test_a_median_of_rows_needs_fewer_estimators_a_row() -> None:
    assert promise(cycle(3), "mean", 25_000, 1).label == HEURISTIC
    assert promise(cycle(3), "mean", 25_000, 5).label == PROVED


@pytest.mark.parametrize(("occurrences", "rows"), [(3, 5), (4, 5), (5, 7)])
def test_a_median_may_fail_for_other_sets_in_every_row(occurrences: int, rows: int) -> None:
    """Exactly: each row fails for each set alone, with the probability that its tau leaves."""
    shape = Shape(
        tuple(frozenset({i, (i + 1) % occurrences}) for i in range(occurrences)), (0,) * occurrences
    )
    eta, estimators = Fraction(1, 10**4), 10**9
    sets = 2**occurrences - 1
    tau = float(promise(shape, "mean", estimators, rows, eta).tau)
    spread = max(
        2.0 ** sum(len(f & rest) == 1 for f in joints)
        * math.exp(4.0 * sum(f <= rest for f in joints))
        for joints in [[frozenset(f.occurrences) for f in sketching.families(shape)]]
        for size in range(occurrences)
        for rest in map(frozenset, itertools.combinations(range(occurrences), size))
    )
    one = sets * math.exp(-(tau**2) * estimators / (2 * spread))
    low = sum(
        math.comb(rows, k) * one**k * (1 - one) ** (rows - k)
        for k in range(rows // 2 + 1, rows + 1)
    )
    assert low <= float(eta) * 1.01
    assert low > float(eta) / 10, "not wastefully far below"


def test_parameters_are_checked() -> None:
    with pytest.raises(InvalidParameter, match="unknown estimator"):
        promise(TWO, "median", 10, 1)
    for eta in (Fraction(0), Fraction(1)):
        with pytest.raises(InvalidParameter, match="eta"):
            promise(TWO, "norm", 10, 1, eta)


def test_two_relations_by_hand() -> None:
    """The changed row fixes the column: the largest frequencies remain, 3 and 2."""
    assert bound(TWO, two(25, 16), 2.0, EXACT).value == pytest.approx(3, rel=1e-8)
    # whole norms 5 and 4, over sqrt(1 - 0.19) = 0.9
    norm = Promise("norm", PROVED, Fraction(19, 100), Fraction(1, 100))
    assert bound(TWO, two(25, 16), 2.0, norm).value == pytest.approx(5 / 0.9, rel=1e-3)
    assert bound(TWO, two(25, 16), 2.0, norm).exact >= Fraction(50, 9)
    # means 12/4 and 8/4, over 0.5
    mean = Promise("mean", PROVED, Fraction(1, 2), Fraction(1, 100))
    assert bound(TWO, two(25, 16), 2.0, mean).value == pytest.approx(6, rel=1e-8)


@pytest.mark.parametrize("estimator", ["exact_norm", "norm", "mean"])
def test_far_rows_count(estimator: str) -> None:
    """With a small beta the maximum is at a distance: (x + k) e^(-beta k)."""
    promised = Promise(estimator, PROVED, Fraction(0), Fraction(0))
    start = {"exact_norm": 3, "norm": 5, "mean": 3}[estimator]
    best = max((start + k) * math.exp(-0.05 * k) for k in range(100))
    found = bound(TWO, two(25, 16), 0.05, promised)
    assert found.value == pytest.approx(best, rel=1e-8)
    assert found.k > 0


@pytest.mark.parametrize("estimator", ["exact_norm", "norm", "mean"])
def test_staleness_adds_rows_to_public_relations_too(estimator: str) -> None:
    shape = Shape((frozenset({0}), frozenset({0})), (0, None))
    promised = Promise(estimator, PROVED, Fraction(0), Fraction(0))
    start = {"exact_norm": 2, "norm": 4, "mean": 2}[estimator]
    for shift in (0, 7):
        found = bound(shape, two(25, 16), 0.01, promised, shifts=(3, shift))
        assert found.value == pytest.approx(start + shift, rel=1e-8)
        assert found.k == 0


def test_the_upper_median_of_rows_is_used() -> None:
    promised = Promise("mean", PROVED, Fraction(0), Fraction(0))
    base = two(25, 16)
    rows = tuple((4, 4 * m, 0, 0) for m in (9, 1, 5, 7))
    sketch = Sketch(4, 4, (16, 16), base.norms, base.squares, rows)
    assert bound(TWO, sketch, 2.0, promised).value == pytest.approx(7, rel=1e-8)


def test_a_key_makes_a_norm_one_for_ever() -> None:
    shape = Shape((frozenset({0}), frozenset({0})), (0, 1), ((), (frozenset({0}),)))
    sketch = two(25, 16)
    assert bound(shape, sketch, 0.01, EXACT).value > 30  # r may grow
    public = Shape(shape.attributes, (0, None), shape.keys)
    assert bound(public, sketch, 0.01, EXACT).value == pytest.approx(1, rel=1e-8)
    assert bound(public, sketch, 0.01, EXACT, use_keys=False).value == pytest.approx(2, rel=1e-8)


def test_means_need_counters_of_one_building() -> None:
    base = two(25, 16)
    mixed = Sketch(4, 1, (4, 4), base.norms, base.squares, None)
    promised = promise(TWO, "mean", 4, 1)
    with pytest.raises(InternalError):
        bound(TWO, mixed, 1.0, promised)


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.24, 0.26, 0.5, 0.51, 2.0])
def test_the_search_is_saved_only_where_distance_0_is_best(beta: float) -> None:
    """Coefficients of the derivatives tell; a square without a linear term is never sure."""
    mixed = {(0, 0): 4, (1, 0): 1, (0, 1): 2, (1, 1): 1}
    settled = sketching._settled(mixed, beta)
    assert (settled == {(0, 0): 4}) == (beta >= 1)
    square = {(0, 0): 4, (2, 0): 1}
    assert sketching._settled(square, beta) == square
    product = {(0, 0): 8, (1, 0): 4, (0, 1): 2, (1, 1): 1}  # (4 + t)(2 + s)
    assert (sketching._settled(product, beta) == {(0, 0): 8}) == (beta >= 0.5)
    for polynomial in (mixed, product):
        whole = smooth_maximum([polynomial], beta, 2)
        least = smooth_maximum([sketching._settled(polynomial, beta)], beta, 2)
        assert float(least.exact) == pytest.approx(float(whole.exact), rel=2e-9)


def test_what_is_summed_over() -> None:
    """A row fixes the ends of what is left; whole norms fix nothing; keys leave nothing to sum."""
    assert sketching.summed(TWO, "exact_norm") == (frozenset(), frozenset())
    assert sketching.summed(TWO, "norm") == (frozenset({0}), frozenset({0}))
    assert sketching.summed(path(3), "exact_norm") == tuple(
        frozenset(s) for s in ({0}, {0, 1}, {1})
    )
    keyed = Shape(TWO.attributes, (0, 1), ((), (frozenset({0}),)))
    assert sketching.summed(keyed, "norm") == (frozenset({0}), frozenset())
    assert sketching.summed(keyed, "mean") == (frozenset({0}), frozenset({0}))
