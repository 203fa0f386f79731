"""Every mechanism against dense linear algebra: answers, standard errors, expected errors, losses."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import grem, mechanism_kronecker, mechanism_residuals
from dpsql.workload.candidates import candidates, make
from dpsql.workload.matrix import (
    AllRange,
    Dense,
    Identity,
    Permuted,
    Prefix,
    Stacked,
    Total,
    Width,
)
from dpsql.workload.mechanism import (
    Budget,
    Mechanism,
    detailed,
    exact_product,
    noise_for,
    noisy,
    round_up,
    row_products,
)
from dpsql.workload.mechanism_kronecker import BITS, MOST_BITS, _shared_bits, integers
from dpsql.workload.names import DATA_INDEPENDENT
from dpsql.workload.optimal_bases import round_columns
from tests.unit.workload import asked

WORKLOADS = {
    "cube": asked.marginals((3, 2), 0, 1, 2, 3),
    "rollup of three": asked.marginals((2, 3, 2), 0, 1, 3, 7),
    "one set": asked.marginals((3, 4), 3),
    "one total": asked.marginals((3, 2), 0),
    "one attribute": asked.marginals((5,), 1),
    "one level": asked.marginals((1, 3, 1), 7, 2, 5, 0),
    "only one cell": asked.marginals((1,), 0, 1),
    "asked twice": asked.marginals((3, 2), 3, 3, 1),
    "weights": asked.marginals((3, 2), 3, 1, 0, weights=(0.5, 3.0, 7.0)),
    "weights far apart": asked.marginals((3, 2), 3, 1, 2, weights=(1e-6, 1.0, 1e-3)),
    "weights, huge": asked.workload((4, 3), [Prefix(4), Total(3)], [Total(4), Identity(3)], weights=(1e99, 1e93)),
    "weights, tiny": asked.workload((4, 3), [Prefix(4), Identity(3)], [Identity(4), Total(3)], weights=(1e-96, 1e-99)),
    "one that hardly counts": asked.workload((3, 4, 3), [Identity(3), Dense(np.eye(4)[[2]]), Dense(np.eye(3)[[1]])], [Total(3), Prefix(4), Prefix(3)], weights=(1e-6, 1.0)),
    "prefix": asked.workload((6, 2), [Prefix(6), Identity(2)], [Prefix(6), Total(2)]),
    "all ranges": asked.workload((5,), [AllRange(5)]),
    "permuted": asked.workload((5, 2), [Permuted(AllRange(5), (2, 0, 4, 1, 3)), Identity(2)], [Permuted(Stacked.of(Prefix(5), Total(5)), (1, 0, 4, 3, 2)), Total(2)]),
    "width": asked.workload((2, 6), [Identity(2), Width(6, 3)], [Total(2), Identity(6)]),
    "mixed forms": asked.workload((4, 3), [Prefix(4), Identity(3)], [AllRange(4), Total(3)], [Total(4), Prefix(3)]),
    "condition": asked.workload((3, 4), [Dense(np.diag([1.0, 0, 1])), Total(4)], [Total(3), Dense(np.array([[1.0, 1, 0, 0]]))]),
    "repeated rows": asked.workload((3, 2), [Dense(np.array([[1.0, 0, 1], [1, 0, 1], [2, 0, 2]])), Total(2)], [Total(3), Identity(2)]),
    "differences": asked.workload((3, 2), [Dense(np.array([[1.0, -1, 0], [0, 1, -1]])), Identity(2)]),
    "nothing holds once": asked.workload((3, 2), [Dense(np.zeros((3, 3))), Identity(2)], [Identity(3), Total(2)]),
    "either": asked.workload((3, 2), [Dense(np.array([[1.0, 0, 1]])), Dense(np.array([[0.0, 1]]))], [Identity(3), Total(2)], either=((0, 1), ())),
    "either, both, weighted": asked.workload((2, 3, 2), [Dense(np.array([[1.0, 0]])), Dense(np.array([[1.0, 1, 0]])), Identity(2)], weights=(2.0,), either=((0, 1),)),
}  # fmt: skip
MARGINAL = ("opt_m", "residual_planner")
#: What has Gaussian noise only.
GAUSSIAN = ("residual_planner", "eigen_design")


def _answerable(name: str, what: str, order: int) -> bool:
    """Tell whether a mechanism is for such workloads and such noise; all others must be."""
    products = WORKLOADS[name].products
    disjunct = any(p.either for p in products)
    if what == "workload":
        return len(products) == 1 and not disjunct
    return not (what in MARGINAL and disjunct) and not (what in GAUSSIAN and order == 1)


CASES = [
    (w, name, order)
    for w in WORKLOADS
    for name in DATA_INDEPENDENT
    for order in (1, 2)
    if _answerable(w, name, order)
]


def found(name: str, what: str, order: int, rows: int = 1) -> Mechanism:
    loss = Fraction(7, 5) if order == 1 else Fraction(1, 8)
    return make(what, WORKLOADS[name], Budget(order, loss, rows))  # type: ignore[arg-type]


def table_for(mechanism: Mechanism, seed: int = 5) -> np.ndarray:
    sizes = mechanism.workload.domain.sizes
    return np.random.default_rng(seed).integers(0, 1000, sizes)


@pytest.mark.parametrize("name", WORKLOADS)
def test_someone_answers_every_workload_with_either_noise(name: str) -> None:
    for budget in (Budget(1, Fraction(1)), Budget(2, Fraction(1))):
        good, refused = candidates(WORKLOADS[name], [budget])
        assert {"identity", "opt_kron"} <= {m.name for m in good}
        assert len(good) + len(refused) == len(DATA_INDEPENDENT)
        assert [m.error for m in good] == sorted(m.error for m in good)


@pytest.mark.parametrize(("name", "what", "order"), CASES)
def test_answers_errors_and_loss(name: str, what: str, order: int) -> None:
    mechanism = found(name, what, order)
    workload = mechanism.workload
    table = table_for(mechanism)
    # to rounding, of what next to no budget went to, too
    slack = 1e-6 * (1 + asked.errors(mechanism)) + 1e-8 * table.sum()
    assert (abs(asked.answers(mechanism, table) - asked.truth(workload, table)) <= slack).all()
    effect, spread = asked.response(mechanism)
    covariance = (effect * spread) @ effect.T
    # an estimate is unbiased for every table only if it answers exactly without noise, as above
    np.testing.assert_allclose(
        asked.errors(mechanism), np.sqrt(np.diag(covariance)), rtol=1e-7, atol=1e-7
    )
    squares = asked.weights_of(workload) ** 2 * np.diag(covariance)
    assert mechanism.error == pytest.approx(squares.sum(), rel=1e-7)
    assert mechanism.rmse == pytest.approx(np.sqrt(squares.mean()), rel=1e-7)
    assert mechanism.draws == len(spread)
    assert 0 < mechanism.loss <= mechanism.budget.loss
    # hardly anything of the budget is left over
    assert mechanism.loss > mechanism.budget.loss * Fraction(999, 1000)


@pytest.mark.parametrize(("name", "what", "order"), CASES)
def test_sets_agree_whatever_the_noise(name: str, what: str, order: int) -> None:
    """All answers come from one estimate: what is a sum of cells in truth is one in the answers."""
    mechanism = found(name, what, order)
    random_ = np.random.default_rng(3)
    noise = [random_.integers(-9, 10, m.count) for m in mechanism.measurements]
    given = asked.answers(mechanism, table_for(mechanism), noise)
    queries = asked.dense(mechanism.workload)
    onto = queries @ np.linalg.pinv(queries)
    np.testing.assert_allclose(onto @ given, given, atol=1e-6)


@pytest.mark.parametrize("what", DATA_INDEPENDENT)
@pytest.mark.parametrize("rows", [2, 5])
def test_rows_of_a_unit_cost_as_many_rows(what: str, rows: int) -> None:
    for order in (1, 2):
        if what in GAUSSIAN and order == 1:
            continue
        loss = Fraction(1, 100)
        one = make(what, WORKLOADS["one set"], Budget(order, loss))  # type: ignore[arg-type]
        more = make(what, WORKLOADS["one set"], Budget(order, loss, rows))  # type: ignore[arg-type]
        assert more.rmse == pytest.approx(rows * one.rmse, rel=1e-4)
        assert more.loss <= loss


def test_auto_is_never_worse_than_a_mechanism_and_often_better() -> None:
    for order in (1, 2):
        budget = Budget(order, Fraction(1))  # type: ignore[arg-type]
        good, _ = candidates(asked.marginals((8, 9), 1, 2), [budget])
        assert good[0].error == min(m.error for m in good)
        assert max(m.error for m in good) > 1.5 * good[0].error


def test_a_strategy_is_a_function_of_its_input() -> None:
    for what in DATA_INDEPENDENT:
        for order in (1, 2):
            try:
                one, other = (
                    make(what, WORKLOADS["prefix"], Budget(order, Fraction(1)))  # type: ignore[arg-type]
                    for _ in range(2)
                )
            except InvalidParameter:
                continue
            assert (one.identity, one.measurements, one.error) == (
                other.identity,
                other.measurements,
                other.error,
            )


def test_mechanisms_of_different_matrices_have_different_identities() -> None:
    """The ledger finds measurements again by it (PRIVACY.md section 7)."""
    seen = {}
    for name, workload in WORKLOADS.items():
        for what in DATA_INDEPENDENT:
            try:
                mechanism = make(what, workload, Budget(2, Fraction(1)))
            except InvalidParameter:
                continue
            matrices = []
            for k, m in enumerate(mechanism.measurements):
                cells = np.eye(workload.domain.cells, dtype=np.int64)
                columns = [
                    asked.shift(mechanism, k, c.reshape(workload.domain.sizes)) for c in cells
                ]
                matrices.append((m.mask, np.array(columns).tolist()))
            key = (what, workload.domain.sizes, mechanism.identity, repr(mechanism.measurements))
            assert seen.setdefault(key, matrices) == matrices, name


def test_a_domain_that_is_too_large_names_who_needs_less() -> None:
    large = asked.marginals((2000, 2000, 20), 1, 2, 4)
    budget = Budget(2, Fraction(1))
    for what in ("identity", "opt_kron"):
        with pytest.raises(InvalidParameter, match="domain is too large") as caught:
            make(what, large, budget)
        assert "residual_planner" in (caught.value.hint or "")
    good, _ = candidates(large, [budget])
    assert {m.name for m in good} == {"opt_m", "residual_planner"}


def test_ranges_of_too_many_levels_are_refused_by_those_that_write_pairs() -> None:
    wide = asked.workload((5000,), [Prefix(5000)])
    for what in ("opt_kron", "residual_planner", "opt_m"):
        with pytest.raises(InvalidParameter, match="too many levels"):
            make(what, wide, Budget(2, Fraction(1)))
    assert make("identity", wide, Budget(2, Fraction(1))).draws == 5000


@pytest.mark.parametrize("either", [(), (0, 1)])
def test_a_workload_of_zeros_is_refused_by_all(either: tuple[int, ...]) -> None:
    zeros = [Dense(np.zeros((1, 3))), Dense(np.zeros((1, 2)))]
    nothing = asked.workload((3, 2), zeros, zeros, either=(either, either))
    for budget in (Budget(1, Fraction(1)), Budget(2, Fraction(1))):
        good, refused = candidates(nothing, [budget])
        assert good == []
        assert all("is 0 on the whole domain" in error.message for _, _, error in refused)


def test_a_disjunction_is_nothing_only_if_neither_holds() -> None:
    zero, one = Dense(np.zeros((1, 3))), Dense(np.array([[1.0, 0]]))
    some = asked.workload((3, 2), [zero, one], either=((0, 1),))
    mechanism = make("identity", some, Budget(2, Fraction(1)))
    table = table_for(mechanism)
    assert asked.answers(mechanism, table).tolist() == [table[:, 0].sum()]


def test_an_unknown_mechanism_is_named() -> None:
    with pytest.raises(InvalidParameter, match="there is no mechanism 'magic'"):
        make("magic", WORKLOADS["cube"], Budget(1, Fraction(1)))


# -- mutants: the checks above must see what they are about ---------------------------------------


def _wrong_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mechanism_kronecker.invert
    monkeypatch.setattr(mechanism_kronecker, "invert", lambda *given: right(*given) * 1.01)


def _no_cross_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = mechanism_kronecker.KroneckerMechanism
    monkeypatch.setattr(
        kind, "_variances", lambda self, p: self._diagonal(p.parts()[0], p.parts()[0])
    )


def _weight_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = mechanism_kronecker.KroneckerMechanism
    right = kind._expected
    monkeypatch.setattr(kind, "_expected", lambda self, p: right(self, p) / p.weight)


def _own_variance_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = mechanism_residuals.Residual
    right = kind._spread
    monkeypatch.setattr(
        kind,
        "_spread",
        lambda self, mask, own, variances: right(self, mask, own, {**variances, 0: 0.0}),
    )


def _equal_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals of several marginals averaged, whatever their noise: no longer the best weights."""
    kind = grem.Residuals
    right = kind.add

    def averaged(self, mask, residual, variance):  # type: ignore[no-untyped-def]
        return right(self, mask, residual, 1.0)

    monkeypatch.setattr(kind, "add", averaged)


MUTANTS = [
    (_wrong_inverse, "mixed forms", "opt_kron", 2),
    (_wrong_inverse, "all ranges", "workload", 2),
    (_no_cross_terms, "either", "identity", 1),
    (_weight_forgotten, "weights", "identity", 2),
    (_own_variance_only, "cube", "residual_planner", 2),
    (_own_variance_only, "cube", "opt_m", 2),
    (_equal_weights, "weights", "opt_m", 2),
]


@pytest.mark.parametrize(("mutant", "name", "what", "order"), MUTANTS)
def test_the_checks_see_mutants(mutant, name, what, order, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test_answers_errors_and_loss(name, what, order)


# -- parts ----------------------------------------------------------------------------------------


def test_noise_parameters_are_exact_and_rounded_up() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for _ in range(300):
        order = random_.choice([1, 2])
        loss = Fraction(random_.randint(1, 10**9), random_.randint(1, 10**9))
        norm = Fraction(random_.randint(1, 10**6))
        share = Fraction(random_.randint(1, 100), 100)
        rows = random_.randint(1, 20)
        parameter, spent = noise_for(Budget(order, loss, rows), norm, share)  # type: ignore[arg-type]
        assert spent <= loss * share
        assert spent > loss * share * (1 - Fraction(1, 2**20))
        exact = rows * norm / spent if order == 1 else rows**2 * norm / (2 * spent)
        assert parameter == exact
        assert parameter == round_up(parameter)


def test_products_are_exact_at_every_size() -> None:
    matrix = np.array([[3, -2, 1], [0, 5, 4]], dtype=np.int64)
    for size in (10, 2**40, 2**51, 2**60, 2**62):
        table = np.array([[size, size - 1], [size - 3, 1], [7, size - 5]], dtype=np.int64)
        got = exact_product({0: matrix}, table)
        expected = [
            [sum(int(m) * int(x) for m, x in zip(row, column, strict=True)) for column in table.T]
            for row in matrix
        ]
        assert got.tolist() == expected
        noise = np.array([size, -size, 1, -1])
        floats = noisy(got, noise)
        assert floats.ravel().tolist() == [
            float(a + int(b))
            for a, b in zip([x for row in expected for x in row], noise.tolist(), strict=True)
        ]


@pytest.mark.parametrize("sizes", [[2, 2, 64, 115, 51], [64], [0, 0], [50, 100, 0, 0, 0], [9] * 14])
def test_bits_are_shared_within_the_limit(sizes: list[int]) -> None:
    bits = _shared_bits(sizes)
    assert sum(bits) <= MOST_BITS
    assert all(0 < b <= BITS if n else b == 0 for n, b in zip(sizes, bits, strict=True))
    assert sum(bits) >= min(MOST_BITS, BITS * sum(n > 0 for n in sizes))


def test_small_factors_are_rounded_on_the_grid_that_fits() -> None:
    angle = np.array([0.0, 0.7])
    matrix = np.array([[1.0, np.cos(angle[1])], [0.0, np.sin(angle[1])]])
    norms = (integers(Dense(matrix), 2, 7) ** 2).sum(axis=0)
    assert norms.min() > 0.999 * norms.max()
    plain = (round_columns(matrix, 128) ** 2).sum(axis=0)
    assert plain.min() < 0.999 * plain.max()


def test_ranges_over_permuted_levels_are_not_written_down() -> None:
    n = 1024
    order = tuple(int(i) for i in np.random.default_rng(3).permutation(n))
    ranges = Permuted(AllRange(n), order)
    with pytest.raises(InvalidParameter, match="too large to be written down"):
        ranges.dense()
    assert detailed(ranges)
    assert detailed(Stacked.of(Total(n), ranges))
    assert not detailed(Stacked.of(Total(n), Permuted(Total(n), order)))
    assert integers(Permuted(Prefix(n), order), 1).max() == 1
    inner = np.diag(np.arange(1.0, n + 1))
    found = row_products(ranges, ranges, inner)
    assert found.max() == n * (n + 1) / 2
    single = row_products(AllRange(n), AllRange(n), inner[np.ix_(order, order)])
    np.testing.assert_array_equal(found, single)


def test_aim_looks_at_marginals_by_their_weights() -> None:
    budget = Budget(2, Fraction(1, 8))
    plain, weighted, twice = (
        make("aim", asked.marginals((3, 2), *masks, weights=weights), budget)
        for masks, weights in (
            ((3, 1, 0), (1.0, 1.0, 1.0)),
            ((3, 1, 0), (2.5, 1.0, 9.0)),
            ((3, 1, 3), (7.0, 7.0, 7.0)),
        )
    )
    wanted = [mechanism.wanted for mechanism in (plain, weighted, twice)]  # type: ignore[attr-defined]
    assert [found[3] / found[1] for found in wanted] == [1, 2.5, 2]
    assert all(set(found) == {1, 3} for found in wanted)
    # what is measured depends on them: it is not found again for others
    assert plain.identity != weighted.identity
