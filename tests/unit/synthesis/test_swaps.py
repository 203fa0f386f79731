"""Links bettered by moves: degrees, bounds, different pairs, and a misfit that is exact."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.synthesis.backends import ByTypes
from dpsql.synthesis.degrees import to_total
from dpsql.synthesis.links import finish
from dpsql.synthesis.records import Cross, Links, count_links, cross_workloads
from dpsql.synthesis.relationship import many_to_many, one_to_many
from dpsql.synthesis.swaps import BySwaps, _Moves
from tests.unit.synthesis.linking import distance, exact_answers, planted, records

KINDS = ("foreign key", "counted", "nullable", "link table", "with degrees", "bounded", "dense")


def relationship_of(kind, n1, n2, rng):
    if kind == "foreign key":
        return one_to_many(n1, n2)
    if kind == "counted":
        return one_to_many(n1, n2, degrees=to_total(rng.random(n1), n2, n2, rng))
    if kind == "nullable":
        return one_to_many(n1, n2, without=n2 // 3, most=n2)
    if kind == "bounded":
        return many_to_many(n1, n2, n1 * 2, most_left=3)
    if kind == "with degrees":
        return many_to_many(n1, n2, n1, left_degrees=to_total(rng.random(n1), n1, n2, rng))
    return many_to_many(n1, n2, n1 * n2 * (9 if kind == "dense" else 2) // 10)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
def test_moves_keep_what_is_fixed_and_never_make_it_worse(seed, kind):
    rng = np.random.default_rng(seed)
    left, right = records(8, (2, 3), rng), records(14, (3, 2), rng)
    relationship = relationship_of(kind, 8, 14, rng)
    backend = BySwaps(left, right, relationship, rng, stop=0.0, sweeps=2)
    total = relationship.total
    cells = rng.permutation(8 * 14)[:total]
    answers = exact_answers(
        left, right, Links(cells // 14, cells % 14), [Cross(1, 1), Cross(3, 2)], Fraction(2)
    )
    start = _Moves(backend, answers).misfit()
    found = backend.fit(answers)
    links = backend.sample(rng).links
    again = sum(
        ((count_links(left, right, links, a.workload) - a.table) ** 2).sum() / 2 for a in answers
    )
    assert found == pytest.approx(again)
    assert found <= start
    assert np.unique(links.left * 14 + links.right).size == total
    for end, rows, others in (
        (relationship.left, links.left, 14),
        (relationship.right, links.right, 8),
    ):
        degrees = np.bincount(rows, minlength=end.count)
        assert degrees.max(initial=0) <= end.limit(others)
        if end.degrees is not None:
            assert (degrees == end.degrees).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_gain_is_what_the_misfit_gains(seed):
    rng = np.random.default_rng(seed)
    left, right = records(5, (2, 3), rng), records(7, (3, 2), rng)
    backend = BySwaps(left, right, many_to_many(5, 7, 12), rng)
    true = Links(rng.integers(0, 5, 9), rng.integers(0, 7, 9))
    answers = exact_answers(left, right, true, [Cross(1, 1), Cross(2, 3)], Fraction(3, 2))
    moves = _Moves(backend, answers)
    e, f = rng.permutation(12)[:2]
    one, other = backend.links.left[[e, f]], backend.links.right[[e, f]]
    for old, new in (
        ((one[:, None], other[:, None]), (one[:, None], other[::-1, None])),
        ((one[:1, None], other[:1, None]), (one[1:, None], other[:1, None])),
    ):
        expected = moves._gain(old, new)[0]
        before = moves.misfit()
        moves._shift(tuple(x.ravel() for x in old), tuple(x.ravel() for x in new))
        assert moves.misfit() - before == pytest.approx(expected, abs=1e-9)


def _shared(one: Links, other: Links) -> float:
    """Return the part of the links of ``one`` that ``other`` has too."""
    pairs = [(links.left.astype(np.int64) << 32) + links.right for links in (one, other)]
    return float(np.isin(*pairs).mean())


def test_many_attributes_are_fitted_where_types_are_too_many():
    """Seeds are fixed, but trajectories differ between processors: each margin is wide."""
    left, right, links = planted(300, 1500, attributes=6)
    relationship = one_to_many(300, 1500, degrees=np.bincount(links.left, minlength=300))
    workloads = cross_workloads(left.sizes, right.sizes, 2)
    answers = exact_answers(left, right, links, workloads, Fraction(4))
    assert not ByTypes(left, right, relationship, most_types=200_000).fits(workloads)
    backend = BySwaps(left, right, relationship, np.random.default_rng(3))
    misfit = backend.fit(answers)
    assert misfit <= sum(a.table.size for a in answers)
    found = finish(backend, 1)
    for w in workloads:
        assert distance(left, right, links, found.links, w) < 0.04
    # Links of types are nearer to the truth in marginals that nobody measured.
    coarse = ByTypes(left, right, relationship, most_types=300)
    coarse.fit([a for a in answers if coarse.fits([a.workload]) and max(a.workload) < 4])
    begun = coarse.sample(np.random.default_rng(2)).links
    assert distance(left, right, links, begun, Cross(3, 3)) < distance(
        left, right, links, found.links, Cross(3, 3)
    )
    # Moves that begin with them keep many of them: a third, where chance alone keeps a thirtieth.
    second = BySwaps(left, right, relationship, np.random.default_rng(3), begun)
    assert second.fit(answers) <= sum(a.table.size for a in answers)
    assert _shared(second.links, begun) > 5 * _shared(found.links, begun)
    estimated = backend.estimates([Cross(3, 3)])[Cross(3, 3)]
    assert (estimated == count_links(left, right, found.links, Cross(3, 3))).all()
