"""Masks, closures and sums over subsets against plain enumeration."""

from itertools import product

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import marginals as m

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)


def test_masks_and_attributes():
    assert m.mask_of([0, 3]) == 0b1001
    assert m.attributes_of(0b1001) == (0, 3)
    assert m.attributes_of(0) == ()
    assert m.shape((5, 6, 7, 8), 0b1001) == (5, 8)
    assert (m.cells((5, 6), 0), m.cells((5, 6), 3)) == (1, 30)
    assert list(m.subsets(0b101)) == [0, 1, 4, 5]
    assert list(m.subsets(0)) == [0]


def test_the_reference_workloads():
    adult = m.at_most_k_way(14, 3)
    assert (len(adult), m.total_cells(ADULT, adult)) == (470, 21_043_262)
    loans = m.small(LOANS, 5000)
    assert (len(loans), m.total_cells(LOANS, loans)) == (188, 279_751)
    assert set(loans) == {a for a in range(1 << 12) if m.cells(LOANS, a) <= 5000}
    pairs = m.k_way(14, 2)
    assert (len(pairs), m.total_cells(ADULT, pairs)) == (91, 148_137)


def test_closure_and_maximal_masks():
    closure = m.downward_closure([0b0110, 0b1010, 0b0010])
    assert closure == [0, 2, 4, 8, 6, 10]
    assert m.maximal(closure) == [6, 10]
    assert m.downward_closure([]) == []
    assert m.maximal([0]) == [0]


@pytest.mark.parametrize("masks", [[0b111], [0b011, 0b110], [0b101, 0], [0]])
def test_spread_and_gather_against_their_definitions(masks):
    inside, outside = [2.0, 3.0, 5.0], [0.5, 0.25, 7.0]
    closure = m.downward_closure(masks)

    def factor(a, b):
        return np.prod([inside[i] if b >> i & 1 else outside[i] for i in m.attributes_of(a)])

    weights = {mask: 1.0 + mask for mask in masks}
    assert m.spread_down(weights, inside, outside) == pytest.approx(
        {b: sum(w * factor(a, b) for a, w in weights.items() if a & b == b) for b in closure}
    )
    values = {mask: 2.0 + mask for mask in closure}
    assert m.gather_up(values, inside, outside) == pytest.approx(
        {a: sum(values[b] * factor(a, b) for b in m.subsets(a)) for a in closure}
    )


def test_zeta_transforms():
    v = np.random.default_rng(1).normal(size=16)
    masks = range(16)
    assert m.superset_sum(v) == pytest.approx(
        [sum(v[b] for b in masks if a & b == a) for a in masks]
    )
    assert m.subset_sum(v) == pytest.approx([sum(v[b] for b in masks if a & b == b) for a in masks])
    assert m.superset_difference(m.superset_sum(v)) == pytest.approx(v)
    both = m.product_over_attributes([2, 3], [5, 7])
    assert both == pytest.approx(
        [(5, 2)[1 - a] * (7, 3)[1 - b] for b, a in product((0, 1), (0, 1))]
    )


def test_bad_domains_are_named():
    with pytest.raises(InvalidParameter, match="attribute 1 of the domain has 0 levels"):
        m.check_sizes((2, 0))
    with pytest.raises(InvalidParameter, match="63 attributes"):
        m.check_sizes((2,) * 63)
    with pytest.raises(InvalidParameter, match="21 attributes"):
        m.dense_weights(21, {0: 1.0})
    assert m.check_sizes((2, 3)) == (2, 3)
