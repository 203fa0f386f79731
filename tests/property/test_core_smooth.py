"""The smooth maximum against exhaustive enumeration."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.core.polynomial import CAPPED, evaluate
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
    n = draw(st.integers(1, 3))
    powers = st.tuples(*[st.sampled_from([0, 0, 1, 1, 2, CAPPED])] * n)
    size = st.one_of(st.integers(0, 3), st.integers(0, 10**4), st.just(10**40))
    polynomial = st.dictionaries(powers, size.filter(bool), min_size=1, max_size=7)
    return n, draw(st.lists(polynomial, min_size=1, max_size=3))


@settings(max_examples=150, deadline=None)
@given(families(), st.floats(0.3, 1.0))
def test_equals_exhaustive_enumeration(family, beta) -> None:
    n, polynomials = family
    truth = exhaustive(polynomials, beta, n)
    found = smooth_maximum(polynomials, beta, n)
    assert truth * (1 - 1e-12) <= found.value <= truth * (1 + 1.1e-9)
    at = max(evaluate(p, found.at) for p in polynomials) * math.exp(-beta * found.k)
    assert at >= truth * (1 - 1.1e-9)


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
