"""More attributes than types can hold: as near as types where these could, and within bounds."""

from fractions import Fraction

import numpy as np

from dpsql.synthesis import by_slices, slicing
from dpsql.synthesis.backends import ByTypes
from dpsql.synthesis.by_slices import BySlices
from dpsql.synthesis.records import Answer, Cross, Links, count_links
from dpsql.synthesis.relationship import one_to_many
from tests.unit.synthesis.linking import distance, records

PARENTS, CHILDREN, ATTRIBUTES, LEVELS = 150, 600, 6, 3
NOISE = 3.0


def wide(seed=1):
    """Children agree with their parent on every attribute with a probability."""
    rng = np.random.default_rng(seed)
    left, right = (records(n, (LEVELS,) * ATTRIBUTES, rng) for n in (PARENTS, CHILDREN))
    parent = rng.integers(0, PARENTS, CHILDREN)
    for a in range(ATTRIBUTES):
        agree = rng.random(CHILDREN) < 0.7
        right.rows[agree, a] = left.rows[parent[agree], a]
    right._codes.clear()
    links = Links(parent.astype(np.int64), np.arange(CHILDREN))
    answers = []
    for w in (Cross(1 << a, 1 << a) for a in range(ATTRIBUTES)):
        noise = rng.normal(0, NOISE, (LEVELS, LEVELS))
        answers.append(
            Answer(w, count_links(left, right, links, w) + noise, Fraction(int(NOISE**2)))
        )
    return left, right, links, answers


def error(found, left, right, links, answers):
    return np.mean([distance(left, right, links, found, a.workload) for a in answers])


def test_slices_come_as_near_as_types_where_these_do_not_fit():
    """Deterministic: fixed seeds."""
    left, right, links, answers = wide()
    degrees = np.bincount(links.left, minlength=PARENTS)
    relationship = one_to_many(PARENTS, CHILDREN, degrees=degrees)
    whole = ByTypes(left, right, relationship)
    whole.fit(answers)
    few = ByTypes(left, right, relationship, most_types=1000)
    assert not few.fits([a.workload for a in answers])
    few.fit(answers[:3])
    rng = np.random.default_rng(3)
    backend = BySlices(left, right, relationship, most_types=8000)
    assert backend.fits([a.workload for a in answers])
    backend.fit(answers)
    assert backend.table.size <= 1000
    began = ByTypes.sample(backend, rng).links
    found = {
        "types": whole.sample(rng).links,
        "few types": few.sample(rng).links,
        "slices": backend.sliced(began, rng),
        "all": backend.sample(rng).links,
    }
    off = {name: error(them, left, right, links, answers) for name, them in found.items()}
    print(off)  # noqa: T201
    assert off["few types"] > 0.2
    assert off["slices"] < off["types"] + 0.03
    assert off["all"] < off["types"] + 0.01
    for them in found.values():
        assert np.array_equal(np.bincount(them.left, minlength=PARENTS), degrees)
        assert np.array_equal(np.sort(them.right), np.arange(CHILDREN))


def test_types_alone_are_used_where_they_hold_all(monkeypatch):
    left, right, _, answers = wide()
    monkeypatch.setattr(by_slices, "learn_slice", None)
    monkeypatch.setattr(by_slices, "BySwaps", None)
    relationship = one_to_many(PARENTS, CHILDREN)
    monkeypatch.setattr(by_slices, "MOST_LINKS", CHILDREN - 1)
    assert not BySlices(left, right, relationship, most_types=1000).fits(
        [a.workload for a in answers]
    )
    one, other = BySlices(left, right, relationship), ByTypes(left, right, relationship)
    assert one.fit(answers[:2]) == other.fit(answers[:2])
    found, same = (b.sample(np.random.default_rng(5)).links for b in (one, other))
    assert np.array_equal(found.left, same.left)
    assert np.array_equal(found.right, same.right)


def test_a_slice_has_few_pairs_and_many_links_get_none(monkeypatch):
    left, right, links, answers = wide()
    pairs = []
    right_map = slicing.MarginalMap

    def seen(part, next_part, *given):
        pairs.append(part.count * next_part.count)
        return right_map(part, next_part, *given)

    monkeypatch.setattr(slicing, "MarginalMap", seen)
    monkeypatch.setattr(by_slices, "SLICE", 40)
    backend = BySlices(left, right, one_to_many(PARENTS, CHILDREN), most_types=8000)
    backend.fit(answers)
    first = error(
        ByTypes.sample(backend, np.random.default_rng(2)).links, left, right, links, answers
    )
    backend.sample(np.random.default_rng(2))
    assert pairs
    assert max(pairs) <= 40 * 40
    assert len(pairs) <= by_slices.PASSES * CHILDREN // 40
    pairs.clear()
    monkeypatch.setattr(by_slices, "MOST_SLICES", 10)
    found = backend.sample(np.random.default_rng(2)).links
    assert not pairs
    assert error(found, left, right, links, answers) < 0.3 * first


def test_slices_of_random_links_hold_these():
    _, _, links, _ = wide()
    rows, columns = slicing.rows_of_links(links, 50, np.random.default_rng(1))
    assert columns.size == 50
    assert np.array_equal(rows, np.unique(links.left[columns]))
