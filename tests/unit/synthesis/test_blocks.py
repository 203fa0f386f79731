"""Links of rows: different pairs, block sums, degrees and bounds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import InvalidParameter
from dpsql.synthesis.backends import ByTypes
from dpsql.synthesis.blocks import _level, sample_links
from dpsql.synthesis.degrees import draw, realise, to_total
from dpsql.synthesis.distinct import distinct, repair
from dpsql.synthesis.polytope import polytope_of
from dpsql.synthesis.relationship import End, Relationship, many_to_many, one_to_many
from dpsql.synthesis.round_blocks import round_blocks
from dpsql.synthesis.types import types_of
from tests.unit.synthesis.linking import records

SEEDS = st.integers(0, 2**32 - 1)


def sampled(relationship, left, right, rng):
    one, other = types_of(left, 3), types_of(right, 3)
    polytope = polytope_of(relationship, one, other)
    plain = np.multiply.outer(one.counts, other.counts) * rng.gamma(
        2, 1, (one.number, other.number)
    )
    table = polytope.settle(polytope.project(plain, sweeps=500))
    blocks = round_blocks(table, polytope, rng)
    assert (np.abs(blocks - table) < 1 + 1e-6).all()
    found = sample_links(blocks, one, other, relationship, rng)
    pairs = found.links.left * right.count + found.links.right
    assert np.unique(pairs).size == pairs.size
    got = np.zeros_like(blocks)
    np.add.at(got, (one.of[found.links.left], other.of[found.links.right]), 1)
    one_sided = relationship.left.degrees is None or relationship.right.degrees is None
    if not found.missed:
        assert (got == blocks).all()
        assert len(found.links.left) == relationship.total
    for end, rows, others in (
        (relationship.left, found.links.left, right.count),
        (relationship.right, found.links.right, left.count),
    ):
        degrees = np.bincount(rows, minlength=end.count)
        assert degrees.max(initial=0) <= end.limit(others)
        if end.degrees is not None and (one_sided or not found.missed):
            assert (degrees == end.degrees).all()
    return found


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(["free", "bounded", "degrees", "right degrees", "both bounded"]))
def test_links_of_a_link_table(seed, kind):
    rng = np.random.default_rng(seed)
    n1, n2 = (int(n) for n in rng.integers(2, 40, 2))
    left, right = records(n1, (2, 3), rng), records(n2, (3, 2), rng)
    total = int(rng.integers(0, n1 * n2 // 2 + 1))
    sparse = int(rng.integers(0, max(n1, n2)))
    relationship = {
        "free": lambda: many_to_many(n1, n2, total),
        "bounded": lambda: many_to_many(n1, n2, total, most_left=-(-total // n1) + 1),
        "degrees": lambda: many_to_many(
            n1, n2, sparse, left_degrees=to_total(rng.random(n1), sparse, n2, rng)
        ),
        "right degrees": lambda: many_to_many(
            n1, n2, sparse, right_degrees=to_total(rng.random(n2), sparse, n1, rng)
        ),
        "both bounded": lambda: many_to_many(
            n1, n2, total, most_left=-(-total // n1) + 2, most_right=-(-total // n2) + 2
        ),
    }[kind]()
    found = sampled(relationship, left, right, rng)
    if kind in ("free", "bounded"):
        assert found.missed == 0


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(["plain", "counted", "nullable", "bounded"]))
def test_every_child_has_one_parent(seed, kind):
    rng = np.random.default_rng(seed)
    parents, children = (int(n) for n in rng.integers(1, 50, 2))
    left, right = records(parents, (2, 3), rng), records(children, (3, 2), rng)
    without = int(rng.integers(0, children + 1)) if kind == "nullable" else 0
    relationship = one_to_many(
        parents,
        children,
        without=without,
        degrees=to_total(rng.random(parents) ** 4, children, children, rng)
        if kind == "counted"
        else None,
        most=-(-children // parents) + (kind != "plain") if kind == "bounded" else None,
    )
    found = sampled(relationship, left, right, rng)
    assert found.missed == 0
    children_linked = np.bincount(found.links.right, minlength=children)
    assert children_linked.max(initial=0) <= 1
    assert children_linked.sum() == children - without


def test_degrees_of_both_ends_are_met_on_sparse_tables():
    rng = np.random.default_rng(5)
    left, right = records(400, (2, 3), rng), records(300, (3, 2), rng)
    one = np.minimum(rng.zipf(2.0, 400), 30)
    total = int(one.sum())
    other = to_total(rng.gamma(1, 1, 300), total, 40, rng)
    relationship = many_to_many(400, 300, total, left_degrees=one, right_degrees=other)
    assert sampled(relationship, left, right, rng).missed == 0


def test_full_blocks_are_filled():
    rng = np.random.default_rng(6)
    one = records(6, (2, 2), rng), records(1, (2, 2), rng)
    assert sampled(many_to_many(6, 1, 6, most_left=1), *one, rng).missed == 0
    left, right = records(10, (2, 2), rng), records(8, (2, 2), rng)
    for relationship in (
        many_to_many(10, 8, 80),
        many_to_many(10, 8, 80, left_degrees=np.full(10, 8)),
        many_to_many(10, 8, 80, left_degrees=np.full(10, 8), right_degrees=np.full(8, 10)),
        many_to_many(10, 8, 70, most_left=7),
    ):
        assert sampled(relationship, left, right, rng).missed == 0


def test_what_cannot_be_is_refused():
    with pytest.raises(InvalidParameter, match="do not fit"):
        many_to_many(3, 3, 10)
    with pytest.raises(InvalidParameter, match="do not add up"):
        many_to_many(2, 3, 3, left_degrees=np.array([1, 1]))
    with pytest.raises(InvalidParameter, match="outside 0 to 1"):
        many_to_many(2, 3, 3, left_degrees=np.array([1, 2]), most_left=1)
    with pytest.raises(InvalidParameter, match="do not fit"):
        one_to_many(0, 3)
    with pytest.raises(InvalidParameter, match="one degree a row"):
        Relationship(End(2, np.ones(3, dtype=np.int64)), End(3), 3)
    with pytest.raises(InvalidParameter, match="do not fit"):
        to_total(np.ones(3), 7, 2, np.random.default_rng(1))


@pytest.mark.parametrize("counts", [(0, 0, 0), (3, 0, 0), (1, 1, 1), (1, 5, 0), (4, 5, 0)])
def test_tables_of_no_row_and_one_row(counts):
    rng = np.random.default_rng(7)
    n1, n2, total = counts
    left, right = records(n1, (2, 3), rng), records(n2, (3, 2), rng)
    backend = ByTypes(left, right, many_to_many(n1, n2, total))
    assert backend.fit([]) == 0
    assert len(backend.sample(rng).links.left) == total


@given(SEEDS, st.integers(0, 30), st.integers(1, 9))
def test_degrees_add_up_within_their_bound(seed, n, most):
    rng = np.random.default_rng(seed)
    total = int(rng.integers(0, n * most + 1))
    found = to_total(rng.gamma(0.5, 3, n) * (rng.random(n) < 0.7), total, most, rng)
    assert found.sum() == total
    assert found.min(initial=0) >= 0
    assert found.max(initial=0) <= most
    kept = rng.integers(0, most + 1, n)
    assert (to_total(kept.astype(float), int(kept.sum()), most, rng) == kept).all()


@given(SEEDS)
def test_drawn_degrees_add_up_by_type(seed):
    rng = np.random.default_rng(seed)
    of = rng.integers(0, 4, int(rng.integers(1, 30)))
    most = int(rng.integers(1, 5))
    sums = np.array([rng.integers(0, c * most + 1) for c in np.bincount(of, minlength=4)])
    found = draw(of, sums, most, rng)
    assert (np.bincount(of, weights=found, minlength=4) == sums).all()
    assert found.max() <= most
    with pytest.raises(InvalidParameter, match="more links"):
        draw(of, sums + 30 * most, most, rng)


def gale_ryser(left, right):
    ordered = np.sort(right)[::-1]
    return left.sum() == right.sum() and all(
        ordered[:k].sum() <= np.minimum(left, k).sum() for k in range(len(right) + 1)
    )


@given(SEEDS)
def test_degrees_are_realised_if_and_only_if_gale_and_ryser_say_so(seed):
    rng = np.random.default_rng(seed)
    n1, n2 = rng.integers(1, 7, 2)
    grid = rng.random((n1, n2)) < rng.random()
    left, right = grid.sum(axis=1), grid.sum(axis=0)
    if rng.random() < 0.5 and n1 > 1:  # the same sum, perhaps not to be had
        left[0], left[1] = left[0] + left[1], 0
    found = realise(left, right, rng)
    assert (found is not None) == gale_ryser(left, right)
    if found is not None:
        assert np.unique(found[0] * n2 + found[1]).size == left.sum()
        assert (np.bincount(found[0], minlength=n1) == left).all()
        assert (np.bincount(found[1], minlength=n2) == right).all()


def transport(degrees, wanted, caps):
    """Whether rows can have these degrees, columns these sums, and a column's cells its cap."""
    subsets = [list(s) for k in range(len(wanted) + 1) for s in combinations(range(len(wanted)), k)]
    return degrees.sum() == wanted.sum() and all(
        wanted[s].sum() <= np.minimum(degrees, caps[s].sum()).sum() for s in subsets
    )


@given(SEEDS)
def test_links_of_a_type_are_all_dealt_if_and_only_if_they_can_be(seed):
    """By max flow and min cut over all sets of types."""
    rng = np.random.default_rng(seed)
    caps = rng.integers(1, 4, int(rng.integers(1, 5)))
    degrees = rng.integers(0, 6, int(rng.integers(1, 5)))
    wanted = rng.multinomial(int(degrees.sum()), np.full(caps.size, 1 / caps.size))
    if not wanted.any():
        return
    dealt = _level(np.arange(degrees.size), degrees, wanted, caps, rng)
    label = np.repeat(np.arange(caps.size), wanted)
    assert dealt.size == label.size
    table = np.zeros((degrees.size, caps.size), dtype=int)
    np.add.at(table, (dealt[dealt >= 0], label[dealt >= 0]), 1)
    assert (table <= caps).all()
    assert (table.sum(axis=1) <= degrees).all()
    assert (dealt >= 0).all() == transport(degrees, wanted, caps)


@given(SEEDS)
def test_samples_without_replacement_are_distinct(seed):
    rng = np.random.default_rng(seed)
    populations = rng.integers(1, 20, int(rng.integers(1, 12)))
    sizes = np.array([rng.integers(0, p + 1) for p in populations])
    found = np.split(distinct(sizes, populations, rng), np.cumsum(sizes)[:-1])
    for part, size, population in zip(found, sizes, populations, strict=True):
        assert np.unique(part).size == size
        assert ((part >= 0) & (part < population)).all()


def test_samples_without_replacement_are_uniform():
    """Hoeffding over 8000 draws: 2 exp(-2 n t^2) < 1e-11 for each of 9 numbers at t = 0.04."""
    rng = np.random.default_rng(9)
    draws = 8000
    sizes, populations = np.tile([1, 3], draws), np.tile([5, 4], draws)
    found = distinct(sizes, populations, rng).reshape(draws, 4)
    sparse, dense = np.bincount(found[:, 0]) / draws, np.bincount(found[:, 1:].ravel()) / draws
    assert np.abs(sparse - 1 / 5).max() < 0.04
    assert np.abs(dense - 3 / 4).max() < 0.04


@given(SEEDS)
def test_repairs_keep_labels_within_their_ranges(seed):
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, 3, 40))
    moving, fixed = rng.integers(0, 8, 40), rng.integers(0, 6, 40)
    limits = rng.integers(1, 4, 6)
    before = moving.copy()
    starts, ends = np.searchsorted(group, group), np.searchsorted(group, group, side="right")
    bad = repair(moving, fixed, limits, starts, ends, rng)
    for g in range(3):
        assert (np.sort(moving[group == g]) == np.sort(before[group == g])).all()
    counts = np.zeros((8, 6), dtype=int)
    np.add.at(counts, (moving, fixed), 1)
    assert np.maximum(counts - limits, 0).sum() == bad.size
