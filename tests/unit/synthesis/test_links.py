"""The adaptive loop: sensitivities over all neighbours, exact prices, and better links."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.synthesis.backends import ByPairs, ByTypes
from dpsql.synthesis.links import Learner, LinkState, finish
from dpsql.synthesis.records import Cross, Links, Records, count_links, cross_workloads
from dpsql.synthesis.relationship import many_to_many, one_to_many
from dpsql.synthesis.selection import Schedule, Selector, price
from dpsql.synthesis.slicing import learn_slice
from dpsql.synthesis.type_descent import Descent
from dpsql.workload.selection import STEPS
from tests.unit.synthesis.linking import Supply, distance, exact_answers, planted, records

RHO = Fraction(1, 2)


def neighbours(left_rows, right, links, most):
    """Yield all tables of links that lack one parent with its links, or have one more."""
    for i in range(len(left_rows)):
        rest = [(a - (a > i), b) for a, b in links if a != i]
        yield left_rows[:i] + left_rows[i + 1 :], rest
    for row in itertools.product(range(2), range(2)):
        for k in range(most + 1):
            for chosen in itertools.combinations(range(len(right.rows)), k):
                yield [*left_rows, row], [*links, *((len(left_rows), j) for j in chosen)]


def largest_changes(most):
    """Return the largest change of a score and of a marginal, in L1 and squared L2."""
    right = Records(np.array([[0, 1], [0, 1], [1, 0]]), (2, 2))
    workloads = cross_workloads((2, 2), (2, 2), 2) + cross_workloads((2, 2), (2, 2), 3)
    rng = np.random.default_rng(4)
    estimates = {
        w: rng.random((4, 4)).reshape(-1)[: 2 ** (w.left.bit_count() + w.right.bit_count())] * 3
        for w in workloads
    }

    def counted(rows, links):
        table = Records(np.array(rows, dtype=np.int64).reshape(-1, 2), (2, 2))
        pairs = np.array(links, dtype=np.int64).reshape(-1, 2)
        return {w: count_links(table, right, Links(pairs[:, 0], pairs[:, 1]), w) for w in workloads}

    score = one = two = 0
    for rows, links in (
        ([(0, 0), (1, 0)], [(0, 0), (0, 1), (1, 2)]),
        ([(0, 1)], []),
        ([(1, 1), (1, 1), (0, 1)], [(0, 0), (1, 0), (2, 0), (2, 1)]),
    ):
        before = counted(rows, links)
        ours = Selector(before, 1)
        for others, more in neighbours(rows, right, links, most):
            after = counted(others, more)
            theirs = Selector(after, 1)
            for w in workloads:
                shape = before[w].shape
                a = ours.score(w, estimates[w].reshape(shape), Fraction(3))
                b = theirs.score(w, estimates[w].reshape(shape), Fraction(3))
                score = max(score, abs(a - b))
                change = np.abs(before[w] - after[w])
                one, two = max(one, change.sum()), max(two, (change**2).sum())
    return score, one, two


def test_scores_move_by_their_sensitivity_over_all_neighbours():
    most = 2
    score, one, two = largest_changes(most)
    tables = {Cross(1, 1): np.zeros((2, 2), dtype=np.int64)}
    assert score <= Selector(tables, most).sensitivity == most * STEPS
    assert one <= most
    assert two <= most**2
    # all links in one cell: the L2 norm is d_max, not its root
    assert two == most**2
    # mutants: a row counted as one link; a bound of sqrt(d_max) in L2
    assert score > Selector(tables, 1).sensitivity
    assert two > most


def learner(supply, backend, **options):
    workloads = options.pop("workloads", cross_workloads(supply.left.sizes, supply.right.sizes, 2))
    return Learner(
        (supply.left.sizes, supply.right.sizes),
        workloads,
        options.pop("rho", RHO),
        supply,
        supply.gaussian,
        supply.choose,
        backend,
        **options,
    )


def test_what_is_drawn_costs_what_is_reported_and_no_more_than_the_budget():
    left, right, links = planted(50, 200)
    supply = Supply(left, right, links)
    backend = ByTypes(left, right, one_to_many(50, 200))
    state = learner(supply, backend, schedule=Schedule(2, 3, 0.3), contribution=5).run()
    chosen = sum((2 * 5 * STEPS * rate) ** 2 / 8 for _, rate in supply.choices)
    measured = sum(Fraction(25) / (2 * variance) for variance, _ in supply.drawn)
    assert chosen + measured == state.used <= RHO
    assert float(state.used) > 0.9999 * float(RHO)
    assert len(supply.choices) == len(supply.drawn) == len(state.answers) == 6
    assert len({a.workload for a in state.answers}) == 6
    assert [count for _, count in supply.drawn] == [16] * 6
    assert len(supply.batches) == 1
    # alpha of every pick's budget chooses
    assert float(chosen) == pytest.approx(0.3 * float(RHO), rel=1e-6)


@pytest.mark.parametrize("rho", [Fraction(1, 10**9), Fraction(1, 3), Fraction(10**6)])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_prices_are_at_most_the_budget(rho, share):
    found = price(rho, share, 7)
    assert found.rho == found.epsilon**2 / 8 + Fraction(49) / (2 * found.variance) <= rho
    assert float(found.rho) > (1 - 1e-6) * float(rho)


def test_all_workloads_are_measured_where_the_schedule_has_room_for_them():
    left, right, links = planted(30, 60, attributes=2)
    supply = Supply(left, right, links)
    backend = ByTypes(left, right, one_to_many(30, 60))
    state = learner(supply, backend, schedule=Schedule(2, 2)).run()
    assert not supply.choices
    assert len(state.answers) == 4
    assert state.rounds == 1


def baseline(left, right, seed):
    rng = np.random.default_rng(seed)
    return Links(rng.integers(0, left.count, right.count), np.arange(right.count))


def test_a_planted_correlation_is_recovered():
    """Deterministic: fixed seeds.  At most half of the distance of random links."""
    left, right, links = planted(400, 2000)
    supply = Supply(left, right, links)
    backend = ByTypes(left, right, one_to_many(400, 2000))
    state = learner(
        supply, backend, rho=Fraction(2), schedule=Schedule(3, 1), contribution=10
    ).run()
    assert {a.workload for a in state.answers} >= {Cross(1, 1), Cross(2, 2)}
    found = finish(backend, 3)
    assert found.missed == 0
    random = baseline(left, right, 3)
    for w in (Cross(1, 1), Cross(2, 2)):
        assert distance(left, right, links, random, w) > 0.4
        assert distance(left, right, links, found.links, w) < 0.05
    both = Cross(3, 3)
    assert distance(left, right, links, found.links, both) < 0.5 * distance(
        left, right, links, random, both
    )
    assert (finish(backend, 3).links.left == found.links.left).all()


def test_pairs_and_types_learn_alike():
    left, right, links = planted(30, 90, size=3, attributes=2)
    relationship = one_to_many(30, 90)
    for backend in (ByPairs(left, right, relationship), ByTypes(left, right, relationship)):
        supply = Supply(left, right, links)
        learner(supply, backend, rho=Fraction(50), schedule=Schedule(2, 1)).run()
        found = finish(backend, 1)
        assert distance(left, right, links, found.links, Cross(1, 1)) < 0.08
        expected = backend.estimates([Cross(1, 1), Cross(3, 2)])
        for w, table in expected.items():
            assert table.sum() == pytest.approx(90)
            assert np.abs(count_links(left, right, found.links, w) - table).sum() < 0.35 * 90


def test_a_stopped_run_goes_on_and_may_finish_without_reading():
    left, right, links = planted(50, 200)
    relationship = one_to_many(50, 200)

    class Stopped(Exception):
        pass

    kept = []

    def store(state):
        kept.append(state)
        if len(kept) == 2:
            raise Stopped

    supply = Supply(left, right, links)
    run = learner(supply, ByTypes(left, right, relationship), schedule=Schedule(4, 1), store=store)
    with pytest.raises(Stopped):
        run.run()
    state = kept[-1]
    assert state.rounds == 2
    again = Supply(left, right, links, seed=2)
    told = []
    backend = ByTypes(left, right, relationship)
    final = learner(
        again, backend, schedule=Schedule(4, 1), progress=lambda *seen: told.append(seen)
    ).run(state)
    assert final.answers[:2] == state.answers
    assert len(again.drawn) == 2
    assert [rounds for rounds, _, _ in told] == [3, 4]
    assert final.used <= RHO
    silent = Supply(left, right, links)
    other = ByTypes(left, right, relationship)
    learner(silent, other, schedule=Schedule(4, 1)).refit(final)
    assert not silent.batches
    assert np.allclose(other.table.sum(), 200)


def test_workloads_with_too_many_types_are_no_candidates():
    left, right, links = planted(60, 300)
    supply = Supply(left, right, links)
    backend = ByTypes(left, right, one_to_many(60, 300), most_types=16)
    state = learner(supply, backend, schedule=Schedule(3, 1)).run()
    assert len(state.answers) == 1
    assert backend.table.size <= 16
    none = ByTypes(left, right, one_to_many(60, 300), most_types=15)
    assert learner(supply, none, schedule=Schedule(3, 1)).run() == LinkState()


def test_half_as_many_synthetic_links_are_fitted_to_scaled_answers():
    left, right, links = planted(60, 300)
    half = Records(right.rows[::2], right.sizes)
    supply = Supply(left, right, links)
    backend = ByTypes(left, half, one_to_many(60, 150))
    learner(supply, backend, rho=Fraction(50), schedule=Schedule(1, 1), scale=0.5).run()
    true = count_links(left, right, links, Cross(1, 1)) / 300
    assert np.abs(backend.estimates([Cross(1, 1)])[Cross(1, 1)] / 150 - true).sum() < 0.3


@pytest.mark.parametrize("kind", ["one-to-many", "many-to-many"])
def test_slices_come_nearer_and_keep_what_is_fixed(kind):
    left, right, links = planted(40, 120, size=3, attributes=2)
    workloads = [Cross(1, 1), Cross(2, 2)]
    answers = exact_answers(left, right, links, workloads, Fraction(1))
    rng = np.random.default_rng(12)
    relationship = one_to_many(40, 120) if kind == "one-to-many" else many_to_many(40, 120, 120)
    current = baseline(left, right, 12)
    before = [distance(left, right, links, current, w) for w in workloads]
    for _ in range(12):
        current = learn_slice(
            left, right, current, answers, relationship, 0.5, rng, Descent(steps=25)
        )
        pairs = current.left * 120 + current.right
        assert np.unique(pairs).size == 120
        if kind == "one-to-many":
            assert (np.sort(current.right) == np.arange(120)).all()
    after = [distance(left, right, links, current, w) for w in workloads]
    assert all(b < 0.7 * a for a, b in zip(before, after, strict=True))
    with pytest.raises(InvalidParameter, match="slice"):
        learn_slice(left, right, current, answers, relationship, 0.0, rng)


def test_what_does_not_fit_is_refused():
    left, right, links = planted(10, 20)
    supply = Supply(left, right, links)
    backend = ByTypes(left, right, one_to_many(10, 20))
    for options, match in (
        ({"rho": Fraction(0)}, "not positive"),
        ({"workloads": []}, "missing"),
        ({"workloads": [Cross(1, 1)] * 2}, "twice"),
        ({"workloads": [Cross(0, 1)]}, "does not cross"),
        ({"workloads": [Cross(1, 8)]}, "does not cross"),
        ({"scale": 0.0}, "scale"),
    ):
        with pytest.raises(InvalidParameter, match=match):
            learner(supply, backend, **options).run()
    assert not supply.batches
    with pytest.raises(InvalidParameter, match="schedule"):
        Schedule(0, 1)
    with pytest.raises(InvalidParameter, match="stored"):
        learner(supply, backend).run(LinkState((), Fraction(9), 1))
    with pytest.raises(InvalidParameter, match="other numbers of rows"):
        ByTypes(left, right, one_to_many(11, 20))
    with pytest.raises(InvalidParameter, match="outside its domain"):
        Records(np.array([[2]]), (2,))
    rng = np.random.default_rng(1)
    with pytest.raises(InvalidParameter, match="pairs of rows"):
        ByPairs(records(3000, (2,), rng), records(3000, (2,), rng), one_to_many(3000, 3000))
