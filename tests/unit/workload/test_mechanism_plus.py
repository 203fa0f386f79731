"""OPT_plus in releases: the joint estimate against dense least squares, shares, forms, refusals."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import joint, mechanism_plus
from dpsql.workload.candidates import candidates, make, quick, worth_trying
from dpsql.workload.joint import best_shares, joint_spectra, normal_inverse, terms_about
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import AllRange, Dense, Identity, Prefix, Total, Width
from dpsql.workload.mechanism import Budget, detailed
from dpsql.workload.mechanism_plus import UnionMechanism, plus, united
from dpsql.workload.mechanism_shared import Measured, SharedMechanism, shared
from dpsql.workload.opt_hdmm import opt_hdmm
from dpsql.workload.opt_plus import opt_plus
from dpsql.workload.opt_shared import _Point, _Problem, opt_shared
from tests.unit.workload import asked
from tests.unit.workload.test_mechanisms import WORKLOADS, table_for

BUDGETS = {1: Budget(1, Fraction(7, 5)), 2: Budget(2, Fraction(1, 8))}
#: Variance of noise at sensitivity 1: 2 / epsilon^2 and 1 / (2 rho).
UNIT = {1: 2 / 1.4**2, 2: 4.0}
TWO = asked.workload((6, 5), [Prefix(6), Total(5)], [Total(6), AllRange(5)])
THREE = asked.workload(
    (6, 5), [Prefix(6), Total(5)], [Total(6), AllRange(5)], [Width(6, 3), Prefix(5)]
)
#: Where shared parts are no identities.
LONG = asked.workload(
    (24, 6, 4),
    [Prefix(24), Identity(6), Total(4)],
    [Prefix(24), Total(6), Identity(4)],
    [Total(24), Identity(6), Identity(4)],
)


def dense_matrices(mechanism) -> list[np.ndarray]:
    """Write what is measured down, from outside: the response to each cell."""
    sizes = mechanism.workload.domain.sizes
    cells = np.eye(mechanism.workload.domain.cells, dtype=np.int64)
    return [
        np.stack([asked.shift(mechanism, k, c.reshape(sizes)) for c in cells], 1)
        for k in range(len(mechanism.measurements))
    ]


def check_best(mechanism) -> None:
    """Compare answers and errors with those of generalised least squares on written matrices."""
    workload = mechanism.workload
    rows = np.concatenate(
        [
            matrix / np.sqrt(asked.variance(mechanism.budget.order, m.parameter))
            for matrix, m in zip(dense_matrices(mechanism), mechanism.measurements, strict=True)
        ]
    )
    queries = asked.dense(workload)
    onto = np.linalg.pinv(rows)
    covariance = queries @ onto @ onto.T @ queries.T
    np.testing.assert_allclose(
        asked.errors(mechanism), np.sqrt(np.maximum(np.diag(covariance), 0)), rtol=1e-6, atol=1e-7
    )
    squares = asked.weights_of(workload) ** 2 * np.diag(covariance)
    assert mechanism.error == pytest.approx(squares.sum(), rel=1e-6)
    random_ = np.random.default_rng(11)
    noise = [random_.integers(-9, 10, m.count) for m in mechanism.measurements]
    table = table_for(mechanism)
    given = asked.answers(mechanism, table, noise)
    drawn = np.concatenate(
        [
            z / np.sqrt(asked.variance(mechanism.budget.order, m.parameter))
            for z, m in zip(noise, mechanism.measurements, strict=True)
        ]
    )
    wanted = queries @ (table.ravel() + onto @ drawn)
    slack = 1e-6 * (np.abs(wanted).max() + asked.errors(mechanism))
    assert (abs(given - wanted) <= slack).all()


def _for_shared(name: str) -> bool:
    products = WORKLOADS[name].products
    if any(product.either for product in products):
        return False
    factors = [f for p in products if not p.nothing for f in p.queries.factors]
    return any(detailed(f) and not isinstance(f, Identity) for f in factors)


CASES = [
    (name, form, order)
    for name in WORKLOADS
    for form, order in (("united", 1), ("united", 2), ("shared", 1))
    if form == "united" or _for_shared(name)
]


def of_form(form: str, workload, order: int):
    return {"united": united, "shared": shared}[form](workload, BUDGETS[order], seed=1)


@pytest.mark.parametrize(("name", "form", "order"), CASES)
def test_both_forms_are_the_best_linear_estimate(name: str, form: str, order: int) -> None:
    check_best(of_form(form, WORKLOADS[name], order))


def test_both_forms_of_a_longer_workload() -> None:
    for order in (1, 2):
        check_best(of_form("united", LONG, order))
    mechanism = of_form("shared", LONG, 1)
    assert len(mechanism.measurements) > 1
    assert mechanism.matrices[0].shape[0] > 24
    check_best(mechanism)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("workload", [TWO, THREE], ids=["two groups", "three groups"])
def test_together_is_at_most_the_paper_s_separate_error(workload, order: int) -> None:
    mechanism = united(workload, BUDGETS[order], seed=1)
    found = opt_plus(workload, order, seed=1)
    assert len(mechanism.parts) == len(found.parts) == len(workload.products)
    assert mechanism.error < 0.999 * UNIT[order] * found.error
    check_best(mechanism)


def test_shares_for_the_joint_error_are_better_than_those_for_the_separate_one() -> None:
    for order in (1, 2):
        found = opt_plus(TWO, order, seed=1)
        grams = [[f.gram() for f in part.strategy.queries.factors] for part in found.parts]
        terms = terms_about(TWO, (0, 1))
        begun = [part.share for part in found.parts]
        moved = best_shares(grams, begun, order, terms)
        assert sum(share**order for share in moved) == pytest.approx(1)

        def error(shares, grams=grams, terms=terms) -> float:
            return normal_inverse(grams, [share**2 for share in shares]).error(terms)

        assert error(moved) < error(begun)
        # no other share is better
        for part in np.linspace(0.02, 0.98, 49):
            other = [part ** (1 / order), (1 - part) ** (1 / order)]
            assert error(moved) <= error(other) * (1 + 1e-5)


def test_two_matrices_are_diagonal_together_whatever_their_ranks() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = np.random.default_rng(seed)
    for _ in range(40):
        sizes = [int(n) for n in random_.integers(1, 5, 2)]
        strategies = [
            [random_.integers(-3, 4, (int(random_.integers(1, 5)), n)) for n in sizes]
            for _ in range(2)
        ]
        for strategy in strategies:
            for matrix in strategy:
                matrix[0, 0] = 1  # not all zero
        grams = [[(m.T @ m).astype(float) for m in strategy] for strategy in strategies]
        weights = [0.3, 2.0]
        spectra = joint_spectra(grams)
        assert spectra is not None
        found = spectra.joint(weights)
        normal = sum(w * np.kron(*own) for w, own in zip(weights, grams, strict=True))
        columns = np.eye(len(normal)).reshape(-1, *sizes)
        inverse = np.stack([found.solve(c).ravel() for c in columns], 1)
        scale = np.abs(normal).max()
        np.testing.assert_allclose(normal @ inverse @ normal, normal, atol=1e-7 * scale)


def test_three_that_share_their_matrices_need_no_dense_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joint, "MOST_DENSE", 0)
    ranges, total, prefix = AllRange(5), Total(5), Prefix(5)
    workload = asked.workload((5, 5), [ranges, total], [total, prefix], [ranges, prefix])
    strategies = [Kronecker(p.queries.factors) for p in workload.products]
    check_best(UnionMechanism(workload, BUDGETS[2], strategies, [0.2, 0.3, 0.5]))
    with pytest.raises(InvalidParameter, match="no common form") as caught:
        united(THREE, BUDGETS[2], seed=1)
    assert "3 groups over 30 cells" in caught.value.detail
    # the other form needs none
    assert isinstance(plus(THREE, BUDGETS[1], seed=1), SharedMechanism)
    with pytest.raises(InvalidParameter, match="no common form"):
        plus(THREE, BUDGETS[2], seed=1)


def test_strategies_that_do_not_support_the_workload_are_refused() -> None:
    strategies = [Kronecker((Identity(6), Total(5))), Kronecker((Total(6), Identity(5)))]
    UnionMechanism(TWO, BUDGETS[2], strategies, [0.5, 0.5])
    with pytest.raises(InvalidParameter, match="does not support"):
        UnionMechanism(THREE, BUDGETS[2], strategies, [0.5, 0.5])
    with pytest.raises(InvalidParameter, match="does not support"):
        UnionMechanism(TWO, BUDGETS[2], strategies[:1], [1.0])


def test_too_many_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism_plus, "MOST_GROUPS", 2)
    with pytest.raises(InvalidParameter, match="too many") as caught:
        united(THREE, BUDGETS[1], seed=1)
    assert "3 groups" in caught.value.detail


def test_domains_that_are_too_large_for_a_joint_estimate_are_refused_at_once() -> None:
    for sizes in ((1200, 2), (300, 300, 300)):
        whole = [Identity(n) for n in sizes]
        totals = [Total(n) for n in sizes[1:]]
        workload = asked.workload(sizes, [Prefix(sizes[0]), *totals], whole)
        with pytest.raises(InvalidParameter, match="reconstructed together") as caught:
            united(workload, BUDGETS[1], seed=1)
        assert str(max(sizes)) in caught.value.detail


def test_rows_of_many_queries_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked.errors(united(TWO, BUDGETS[2], seed=1))
    monkeypatch.setattr(joint, "MOST_AT_ONCE", 20)
    mechanism = united(TWO, BUDGETS[2], seed=1)
    monkeypatch.setattr(joint, "MOST_AT_ONCE", 1)
    one = UnionMechanism(
        TWO,
        BUDGETS[2],
        [Kronecker((Prefix(6), Total(5))), Kronecker((Total(6), AllRange(5)))],
        [0.5, 0.5],
    )
    check_best(one)
    assert len(asked.errors(mechanism)) == len(whole)


# -- shared parts ---------------------------------------------------------------------------------


def test_the_error_of_shared_parts_and_its_slopes() -> None:
    workload = asked.workload(
        (5, 4, 3),
        [Prefix(5), AllRange(4), Total(3)],
        [Identity(5), Total(4), Identity(3)],
        [Total(5), Prefix(4), Identity(3)],
        [Prefix(5), Identity(4), Identity(3)],
        weights=[1, 2, 0.5, 1],
    )
    problem = _Problem(workload, 10, math.inf)
    random_ = np.random.default_rng(0)
    thetas = {i: random_.random((2, problem.sizes[i])) for i in problem.special}
    assert set(thetas) == {0, 1}
    weights = random_.random(8)
    value, by_weights, slopes = problem.evaluate(weights, thetas)
    points = {i: _Point.at(theta) for i, theta in thetas.items()}
    normal = np.zeros((60, 60))
    for a in range(8):
        parts = []
        for i, n in enumerate(problem.sizes):
            own = points[i].matrix.T @ points[i].matrix if i in points else np.eye(n)
            parts.append(own if a >> i & 1 else np.ones((n, n)))
        normal += weights[a] ** 2 * np.kron(np.kron(parts[0], parts[1]), parts[2])
    queries = asked.weights_of(workload)[:, None] * asked.dense(workload)
    written = np.trace(queries @ np.linalg.inv(normal) @ queries.T) * weights.sum() ** 2
    assert value == pytest.approx(written, rel=1e-9)
    step = 1e-6
    for a in range(8):
        near = [weights + s * step * (np.arange(8) == a) for s in (1, -1)]
        difference = [problem.evaluate(w, thetas)[0] for w in near]
        slope = (difference[0] - difference[1]) / (2 * step)
        assert by_weights[a] == pytest.approx(slope, rel=1e-4, abs=1e-5 * value)
    for i, theta in thetas.items():
        for place in np.ndindex(theta.shape):
            found = []
            for sign in (1, -1):
                moved = {k: x.copy() for k, x in thetas.items()}
                moved[i][place] += sign * step
                found.append(problem.evaluate(weights, moved)[0])
            slope = (found[0] - found[1]) / (2 * step)
            assert slopes[i][place] == pytest.approx(slope, rel=1e-4, abs=1e-5 * value)


def test_the_basis_of_a_measured_matrix() -> None:
    matrix = np.array([[3, 0, 0, 1], [0, 2, 0, 0], [0, 0, 4, 1], [1, 1, 1, 5], [2, 2, 0, 0]])
    basis = Measured(matrix)
    sub, center = basis.sub(np.eye(4), 0), basis.center(np.eye(3), 0)
    ones, null = np.ones(4), basis.smear(np.ones((1,)), 0)
    covariance = np.linalg.inv(matrix.T @ matrix)
    np.testing.assert_allclose(sub @ center, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(sub @ null, 0, atol=1e-12)
    np.testing.assert_allclose(ones @ center, 0, atol=1e-12)
    assert ones @ null == pytest.approx(1)
    np.testing.assert_allclose(sub @ covariance @ ones, 0, atol=1e-12)
    assert basis.total == pytest.approx(ones @ covariance @ ones)
    inner, _ = basis.covariance()
    np.testing.assert_allclose(inner, center @ sub @ covariance @ sub.T @ center.T, atol=1e-12)
    np.testing.assert_allclose(basis.from_lattice(matrix.astype(float), 0), sub, atol=1e-9)
    queries = np.tri(4)
    t, s = basis.errors(queries.T @ queries)
    own, spread = basis.variances(queries)
    assert (own.sum(), spread.sum()) == (pytest.approx(t), pytest.approx(s))
    assert basis.errors(None) == (
        pytest.approx(basis.errors(np.eye(4))[0]),
        pytest.approx(basis.errors(np.eye(4))[1]),
    )


def test_shared_parts_beat_the_paper_s_on_pairs_of_prefixes() -> None:
    """A small relative of table 6's Adult 2D prefix-marginals, on which HDMM's is 484."""
    sizes = (20, 20, 16, 5, 3)
    masks = [a for a in range(32) if a.bit_count() == 2]
    products = [
        [
            Total(n) if not a >> i & 1 else Prefix(n) if i < 3 else Identity(n)
            for i, n in enumerate(sizes)
        ]
        for a in masks
    ]
    workload = asked.workload(sizes, *products)
    found = opt_shared(workload, seed=1)
    paper = opt_plus(workload, 1, seed=1, restarts=1)
    assert found.error < 0.8 * paper.error
    mechanism = shared(workload, BUDGETS[1], seed=1)
    assert mechanism.error == pytest.approx(UNIT[1] * found.error, rel=2e-3)
    assert sum(found.theta.values()) == pytest.approx(1)
    assert opt_shared(workload, seed=1).error == found.error
    best = min(make(name, workload, BUDGETS[1]).error for name in ("identity", "opt_kron", "opt_m"))
    assert mechanism.error < 0.97 * best


def test_shared_parts_are_none_that_memory_cannot_hold() -> None:
    sizes = (6, 3, 3, 3)
    halves = asked.workload(
        sizes,
        *(
            [Prefix(n) if a >> i & 1 and i < 2 else Identity(n) if a >> i & 1 else Total(n)
             for i, n in enumerate(sizes)]
            for a in (3, 5, 9, 6, 10, 12)
        ),
    )  # fmt: skip
    free = opt_shared(halves, seed=1)
    most = 7 * 4  # about the first two, with one more query each
    kept = opt_shared(halves, seed=1, most_cells=most)
    assert max(map(int.bit_count, free.theta)) > 2
    assert max(map(int.bit_count, kept.theta)) == 2
    assert kept.error >= free.error * (1 - 1e-3)
    with pytest.raises(InvalidParameter, match="too many cells"):
        opt_shared(halves, seed=1, most_cells=most - 1)


def test_shared_parts_say_what_they_are_not_for() -> None:
    with pytest.raises(InvalidParameter, match="Laplace"):
        shared(TWO, BUDGETS[2], seed=1)
    with pytest.raises(InvalidParameter, match="plain marginals"):
        shared(WORKLOADS["cube"], BUDGETS[1], seed=1)
    with pytest.raises(InvalidParameter, match="too many levels"):
        shared(asked.workload((600,), [Prefix(600)], [Total(600)]), BUDGETS[1], seed=1)
    wide = asked.workload((2,) * 15, [Prefix(2)] * 15, [Total(2)] * 15)
    with pytest.raises(InvalidParameter, match="all sets of attributes"):
        shared(wide, BUDGETS[1], seed=1)
    either = [Dense(np.array([[1.0, 0, 1]])), Dense(np.array([[0.0, 1]]))]
    with pytest.raises(InvalidParameter, match="one of several"):
        opt_shared(asked.workload((3, 2), either, either=[(0, 1)]), seed=1)


# -- auto -----------------------------------------------------------------------------------------


def test_auto_tries_it_where_it_can_win() -> None:
    for order in (1, 2):
        assert "opt_plus" in worth_trying(TWO, order)
        assert "opt_plus" not in worth_trying(WORKLOADS["all ranges"], order)
        assert "opt_plus" not in worth_trying(asked.marginals((3, 4), 1, 2, 3), order)
    long = asked.workload((300, 2), [Prefix(300), Total(2)], [Total(300), Identity(2)])
    assert "opt_plus" not in quick(long)
    # as Adult's pairs, where its error is 0.7 times that of the best other one
    for sizes, tried in (((100, 90) + (2,) * 12, True), ((100, 90) + (2,) * 13, False)):
        whole = [Total(n) for n in sizes]
        many = asked.workload(
            sizes, [Prefix(100), *whole[1:]], [whole[0], Prefix(90), *whole[2:]], whole
        )
        assert ("opt_plus" in worth_trying(many, 1)) == tried
    wide = [Total(250)] * 13
    several = asked.workload(
        (250,) * 13, *([*wide[:i], Prefix(250), *wide[i + 1 :]] for i in range(13))
    )
    assert "opt_plus" not in quick(several)
    mechanism = make("opt_plus", TWO, BUDGETS[1])
    assert mechanism.name == "opt_plus"
    assert mechanism.error < make("opt_kron", TWO, BUDGETS[1]).error


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("workload", [TWO, THREE, LONG, WORKLOADS["weights"]])
def test_auto_has_what_opt_hdmm_finds(workload, order: int) -> None:
    """But for the rounding of matrices and of noise to integers."""
    tried = worth_trying(workload, order)
    good, _ = candidates(workload, [BUDGETS[order]], names=lambda _: tried)
    paper = opt_hdmm(workload, order, seed=1).error
    assert good[0].error <= UNIT[order] * paper * 1.003


# -- mutants: the checks above must see what they are about ---------------------------------------


def _separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other group's measurement forgotten in the variances."""
    right = joint.Joint.variances
    monkeypatch.setattr(joint.Joint, "variances", lambda self, a, b: 1.01 * right(self, a, b))


def _weights_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = joint.Spectra.joint
    monkeypatch.setattr(joint.Spectra, "joint", lambda self, w: right(self, [1.0] * len(w)))


def _plain_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total of estimated cells taken for that of independent ones."""
    right = Measured.__init__

    def forgets(self, matrix) -> None:
        right(self, matrix)
        self.total = float(self.size)

    monkeypatch.setattr(Measured, "__init__", forgets)


@pytest.mark.parametrize(
    ("mutant", "form"),
    [(_separate, "united"), (_weights_forgotten, "united"), (_plain_total, "shared")],
)
def test_the_checks_see_mutants(mutant, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check_best(of_form(form, LONG, 1))
