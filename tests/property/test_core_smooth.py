"""The smooth maximum against exhaustive enumeration."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.core.polynomial import CAPPED, cliques, evaluate
from dpsql.core.smooth import smooth_maximum


def exhaustive(polynomials, beta, n):
    best = 0.0
    for p in polynomials:
        tops = [max((max(m[i], 1) for m in p if m[i]), default=0) for i in range(n)]
        for point in product(*(range(math.ceil(t / beta) + 2 if t else 1) for t in tops)):
            best = max(best, evaluate(p, point) * math.exp(-beta * sum(point)))
    return best


@st.composite
def families(draw):
    n = draw(st.integers(1, 4))
    powers = st.tuples(*[st.sampled_from([0, 0, 1, 1, 2, CAPPED])] * n)
    size = st.one_of(st.integers(0, 3), st.integers(0, 10**4), st.just(10**40))
    polynomial = st.dictionaries(powers, size.filter(bool), min_size=1, max_size=7)
    return n, draw(st.lists(polynomial, min_size=1, max_size=3))


@settings(max_examples=150, deadline=None)
@given(families(), st.one_of(st.floats(0.3, 1.0), st.floats(1.0, 80.0)))
def test_equals_exhaustive_enumeration(family, beta) -> None:
    n, polynomials = family
    truth = exhaustive(polynomials, beta, n)
    found = smooth_maximum(polynomials, beta, n)
    assert truth * (1 - 1e-12) <= found.value <= truth * (1 + 1.1e-9)
    at = max(evaluate(p, found.at) for p in polynomials) * math.exp(-beta * found.k)
    assert at >= truth * (1 - 1.1e-9)


def test_a_search_that_finds_nothing_better_offers_nothing() -> None:
    """The last polynomial is 0 at the origin and small elsewhere."""
    constant = {(0, 0, 0, 0): 7, (0, 0, 0, 1): 1}
    mixed = {(1, 0, 0, 0): 1, (1, 1, 0, 0): 1, (1, 0, 1, 0): 1, (0, 1, 1, 0): 3, (1, 1, 1, 0): 1}
    found = smooth_maximum([constant, mixed], 60.0, 4)
    assert 7 <= found.exact <= 7 * (1 + 1e-9)
    assert found.at == (0, 0, 0, 0)


def dense(n, p, coefficient):
    others = [i for i in range(n) if i != p]
    return {
        tuple(int(i in chosen) for i in range(n)): coefficient(chosen)
        for size in range(n)
        for chosen in combinations(others, size)
        if coefficient(chosen)
    }


@pytest.mark.parametrize(
    "coefficient",
    [
        lambda c: 1,
        lambda c: {0: 1, 1: 10**9}.get(len(c), 1),
        lambda c: 30 ** (3 - len(c)) + sum(c),
        lambda c: {(0, 1): 10**6, (2,): 10**7}.get(c, 1),
    ],
    ids=["ones", "ridge", "powers", "two_maxima"],
)
def test_equals_fine_enumeration_for_three_variables(coefficient) -> None:
    beta = 0.06
    p = dense(4, 3, coefficient)
    truth = exhaustive([p], beta, 4)
    found = smooth_maximum([p], beta, 4)
    assert truth * (1 - 1e-12) <= found.value <= truth * (1 + 1.1e-9)


def test_coordinate_ascent_would_miss_the_maximum() -> None:
    """From the origin no single coordinate improves, the maximum is elsewhere."""
    beta = 0.05
    p = {(0, 0): 100, (1, 1): 10}
    here = evaluate(p, (0, 0))
    for s in range(1, 200):
        assert evaluate(p, (s, 0)) * math.exp(-beta * s) < here
        assert evaluate(p, (0, s)) * math.exp(-beta * s) < here
    assert smooth_maximum([p], beta, 2).value > 4 * here


def test_zero_and_constant_polynomials() -> None:
    assert smooth_maximum([{}], 0.1, 2).exact == 0
    assert smooth_maximum([{(0, 0): 7}, {(0, 0): 3}], 0.0, 2).exact == 7
    assert smooth_maximum([{(0,): 10**400}], 0.5, 1).exact == 10**400


def everywhere(polynomial, beta, n):
    """Maximum over a whole grid, with numpy: for multilinear polynomials."""
    axes = np.meshgrid(*[np.arange(math.ceil(1 / beta) + 2.0)] * n, indexing="ij")
    total = np.zeros(axes[0].shape)
    for powers, c in polynomial.items():
        total += c * math.prod((x for x, a in zip(axes, powers, strict=True) if a), start=1.0)
    return float((total * np.exp(-beta * sum(axes))).max())


def all_subsets(n, coefficient):
    """A polynomial with every monomial of n linear variables."""
    chosen = [c for size in range(n + 1) for c in combinations(range(n), size)]
    return {tuple(int(i in c) for i in range(n)): 1 + int(coefficient(c)) for c in chosen}


def log_normal(seed, base, spread):
    """Coefficients that let every degree matter (base near 1/beta), nearly equal or not."""
    generator = random.Random(seed)
    return lambda c: base ** (5 - len(c)) * math.exp(generator.gauss(0, spread))


def near_tie(groups, weight, rest):
    """``weight`` times a product of sums, whose maxima form a ridge, and a little more."""

    def coefficient(c):
        hit = len(c) == len(groups) and all(len(set(c) & g) == 1 for g in groups)
        return (weight if hit else 0) + rest(c)

    return coefficient


HARD = {
    **{f"spread {s} {b}": log_normal(7, b, s) for s in (0.01, 1, 5) for b in (10, 30, 60, 100)},
    "tie on a plane": near_tie([{0, 1, 2, 3, 4}], 10**9, lambda c: 1),
    "product of sums": near_tie([{0, 1}, {2, 3, 4}], 10**12, lambda c: 1),
    "product of three sums": near_tie([{0, 1}, {2, 3}, {4}], 10**12, lambda c: 100 * (len(c) == 2)),
    "one of two": near_tie([{0, 1}, {2, 3}, {4}], 10**10, lambda c: 10**4 * (len(c) <= 2)),
    "two maxima": lambda c: {(0, 1): 10**6, (2,): 10**8, (2, 3, 4): 10**4}.get(c, 0),
}


@pytest.mark.parametrize("name", HARD)
def test_equals_the_whole_grid_for_five_variables(name) -> None:
    polynomial = all_subsets(5, HARD[name])
    truth = everywhere(polynomial, 0.08, 5)
    found = smooth_maximum([polynomial], 0.08, 5)
    assert truth * (1 - 1e-12) <= found.value <= truth * (1 + 1.1e-9)


@pytest.mark.parametrize("name", HARD)
def test_work_for_five_variables_at_a_small_beta(name) -> None:
    """Nodes of the search, which do not depend on the machine: 3 microseconds each, or so."""
    seen = 0

    def tick():
        nonlocal seen
        seen += 1

    smooth_maximum([all_subsets(5, HARD[name])], 0.01, 5, tick)
    assert 2 <= seen <= 60  # ticks: one per region, one per level or 2,048 nodes


def test_random_polynomials_with_all_subsets() -> None:
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    for _ in range(60):
        n, beta = generator.choice([(2, 0.02), (3, 0.04), (4, 0.1)])
        base, spread = (
            (1 / beta) ** generator.choice([0, 0.5, 0.9, 1.1]),
            generator.choice([0, 1, 4]),
        )
        polynomial = {
            p: 1 + int(base ** (n - sum(p)) * math.exp(generator.gauss(0, spread)))
            for p in product((0, 1), repeat=n)
            if generator.random() < 0.8
        } or {(0,) * n: 1}
        truth = everywhere(polynomial, beta, n)
        found = smooth_maximum([polynomial], beta, n)
        assert truth * (1 - 1e-12) <= found.value <= truth * (1 + 1.1e-9), (seed, polynomial, beta)


def test_self_joins_in_three_variables() -> None:
    """Powers up to three: several occurrences of each relation."""
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    for _ in range(8):
        polynomial = {
            p: 1 + int(6 ** (7 - sum(p)) * math.exp(generator.gauss(0, 1.5)))
            for p in product(range(4), range(3), range(3))
        }
        truth = exhaustive([polynomial], 0.4, 3)
        found = smooth_maximum([polynomial], 0.4, 3)
        assert truth * (1 - 1e-12) <= found.value <= truth * (1 + 1.1e-9), (seed, polynomial)


def test_a_cancel_gets_through() -> None:
    class Cancelled(Exception):
        pass

    def tick():
        raise Cancelled

    with pytest.raises(Cancelled):
        smooth_maximum([all_subsets(5, log_normal(1, 60, 0.01))], 0.01, 5, tick)


def test_cliques_keep_the_maximum() -> None:
    """Variables that never meet: one of each pair rests, and nothing is lost."""
    polynomial = {(1, 0, 1): 5, (0, 2, 1): 3, (1, 0, 0): 40, (0, 0, 0): 100, (0, 1, 0): 9}
    parts = list(cliques(polynomial, (0, 0, 0)))
    assert {frozenset(i for p in part for i, a in enumerate(p) if a) for part in parts} == {
        frozenset((0, 2)),
        frozenset((1, 2)),
    }
    for beta in (0.2, 0.5, 1.0):
        assert exhaustive(parts, beta, 3) == exhaustive([polynomial], beta, 3)


@pytest.mark.parametrize("excess", [-6e-10, -2e-10, 2e-10, 6e-10])
def test_never_below_where_the_origin_nearly_ties(excess) -> None:
    """A constant almost equal to what is gained elsewhere, within the search's tolerance."""
    beta, slope = 0.05, 10**12
    gain = [slope * s * s * math.exp(-beta * s) / -math.expm1(-beta * s) for s in range(1, 90)]
    constant = int(max(gain) * (1 + excess))
    for others in ((), ((0, 2),), ((0, 1), (1, 1))):
        polynomial = {(0, 0): constant, (2, 0): slope, **dict.fromkeys(others, 1)}
        truth = exhaustive([polynomial], beta, 2)
        found = smooth_maximum([polynomial], beta, 2)
        assert truth * (1 - 1e-13) <= found.value <= truth * (1 + 1.1e-9)
