"""Answers without negative counts are no further from the truth, whoever measured what."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import nnls

from dpsql.workload import nonnegative as module
from dpsql.workload import postprocessed as door
from dpsql.workload.candidates import make
from dpsql.workload.grem import Residuals
from dpsql.workload.matrix import Dense, Floats, Identity, Prefix, Total
from dpsql.workload.mechanism import Budget, Mechanism, variance
from dpsql.workload.mixture import Settings, fit_mixture
from dpsql.workload.nonnegative import Asked, nonnegative, whole
from dpsql.workload.postprocess import project_simplex, round_to_total
from dpsql.workload.postprocessed import postprocessed
from dpsql.workload.residual_bases import Integers, subtraction
from dpsql.workload.workload import Workload
from tests.unit.workload import asked
from tests.unit.workload.test_mechanisms import MARGINAL, WORKLOADS
from tests.unit.workload.test_mechanisms import _answerable as answerable

EITHER = asked.workload(
    (4, 2, 2, 2),
    [Identity(4)] + [Dense(np.array([[0.0, 1.0]]))] * 3,
    [Total(4), Total(2), Total(2), Total(2)],
    either=((1, 2, 3), ()),
)
MORE = {
    **WORKLOADS,
    "either of three": EITHER,
    "larger cube": asked.marginals((6, 5, 4), *range(8)),
    "longer prefixes": asked.workload((30,), [Prefix(30)]),
}
EVERY = (
    *(("identity", 1), ("opt_kron", 2), ("opt_m", 1), ("residual_planner", 2)),
    *(("opt_0", 2), ("opt_m", 2), ("eigen_design", 2), ("workload", 1)),
    ("opt_plus", 1),
)
CASES = [
    (workload, name, order)
    for workload in MORE
    for name, order in EVERY
    if workload not in WORKLOADS or answerable(workload, name, order)
    if name != "workload" or len(MORE[workload].products) == 1
    if not (name in MARGINAL and any(p.either for p in MORE[workload].products))
]


def tables(sizes: tuple[int, ...], random_: np.random.Generator) -> list[Integers]:
    """Small counts, and few that are not 0."""
    spikes = np.where(random_.random(sizes) < 0.15, 100, 0)
    return [random_.integers(0, 8, sizes), spikes]


def noise_of(mechanism: Mechanism, random_: np.random.Generator) -> list[Integers]:
    found = []
    for m in mechanism.measurements:
        deviation = np.sqrt(variance(mechanism.budget.order, m.parameter))
        laplace = mechanism.budget.order == 1
        drawn = random_.laplace(size=m.count) if laplace else random_.normal(size=m.count)
        scale = deviation / np.sqrt(2) if laplace else deviation
        found.append(np.rint(scale * drawn).astype(np.int64))
    return found


def processed(mechanism: Mechanism, measured: list[Floats], *, integral: bool = False) -> Floats:
    products = mechanism.workload.products
    found = postprocessed(
        mechanism, measured, "integral" if integral else "non_negative", tick=lambda: None
    )
    return np.concatenate(
        [np.broadcast_to(a, p.queries.rows).ravel() for a, p in zip(found, products, strict=True)]
    )


def errors_of(mechanism: Mechanism, seeds: int = 4) -> tuple[float, float, float]:
    """Return squared errors with weights: as estimated, without negative counts, and whole."""
    total = np.zeros(3)
    queries, weights = asked.dense(mechanism.workload), asked.weights_of(mechanism.workload)
    onto = queries @ np.linalg.pinv(queries)
    for seed in range(seeds):
        random_ = np.random.default_rng(seed)
        for table in tables(mechanism.workload.domain.sizes, random_):
            noise = noise_of(mechanism, random_)
            measured = asked.measured(mechanism, table, noise)
            truth = queries @ table.ravel()
            free, rounded = (processed(mechanism, measured, integral=i) for i in (False, True))
            for got in (free, rounded):
                assert np.isfinite(got).all()
                np.testing.assert_allclose(onto @ got, got, atol=1e-6 * (1 + abs(got).max()))
                if queries.min() >= 0:
                    assert got.min(initial=0) >= 0
            np.testing.assert_allclose(rounded, np.rint(rounded), atol=1e-9)
            for k, got in enumerate((asked.answers(mechanism, table, noise), free, rounded)):
                total[k] += ((weights / abs(weights).max() * (got - truth)) ** 2).sum()
    return tuple(total.tolist())


@pytest.mark.parametrize(("name", "what", "order"), CASES)
def test_answers_get_no_worse(name: str, what: str, order: int) -> None:
    """At all seeds together by a tenth at most; a whole number may be another half away."""
    loss = Fraction(1, 4) if order == 1 else Fraction(1, 30)
    mechanism = make(what, MORE[name], Budget(order, loss))  # type: ignore[arg-type]
    raw, free, rounded = errors_of(mechanism)
    assert free <= 1.1**2 * raw
    assert rounded <= 1.1**2 * raw + 8 * 0.25 * len(asked.weights_of(mechanism.workload))


def test_nearest_cells_are_far_from_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: what nobody asked for, and hardly anything is known of, is taken at its word."""
    mechanism = make("opt_0", EITHER, Budget(2, Fraction(1, 30)))
    raw, free, _ = errors_of(mechanism)
    assert free <= raw
    monkeypatch.setattr(
        door, "nonnegative", lambda _, vector, tick: project_simplex(vector, float(vector.sum()))
    )
    monkeypatch.setattr(door, "whole", lambda _, table, tick: round_to_total(table))
    raw, free, _ = errors_of(mechanism)
    assert free > 4 * raw


@pytest.mark.parametrize("what", ["opt_m", "residual_planner", "opt_kron", "opt_0"])
@pytest.mark.parametrize("loss", [100, 5000])
def test_hardly_any_noise_leaves_the_answers_alone(what: str, loss: int) -> None:
    order = 2 if what == "residual_planner" else 1
    workload = MORE["larger cube" if what != "opt_0" else "cube"]
    mechanism = make(what, workload, Budget(order, Fraction(loss)))  # type: ignore[arg-type]
    table = np.random.default_rng(1).integers(0, 50, workload.domain.sizes)
    measured = asked.measured(mechanism, table)
    for integral in (False, True):
        got = processed(mechanism, measured, integral=integral)
        np.testing.assert_allclose(got, asked.truth(workload, table), atol=0.1)


def test_a_mixture_stays_finite_where_nothing_is_left_of_the_noise() -> None:
    bases = subtraction((3, 4))
    values = {0: np.array(500.0), 1: np.array([20.0, 30.0]), 2: np.array([5.0, -9.0, 40.0])}
    found = Residuals(bases, values, dict.fromkeys(values, 1e30))
    table = fit_mixture(found, Settings(members=2)).marginal(3)
    assert np.isfinite(table).all()
    assert table.sum() == pytest.approx(500)


# -- the solver -----------------------------------------------------------------------------------


def written(asked_: Asked, workload: Workload) -> Floats:
    """Write the Gram matrix down: of the queries, times weights, and of the total if known."""
    weights = asked.weights_of(workload)
    rows = (weights / abs(weights).max())[:, None] * asked.dense(workload)
    gram = rows.T @ rows
    if asked_.total:
        gram = gram + asked_._terms[-1].coefficient
    return gram


def test_multiplication_is_that_of_the_written_matrix() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_, numbers = random.Random(seed), np.random.default_rng(seed)
    for _ in range(150):
        workload = asked.drawn(random_)
        if all(product.nothing for product in workload.products):
            continue
        multiply = Asked(workload)
        table = numbers.normal(size=workload.domain.sizes)
        gram = written(multiply, workload)
        # what nobody asks about was summed
        expected = multiply.reduced((gram @ table.ravel()).reshape(table.shape))
        others = workload.domain.cells // max(int(np.prod(multiply.sizes)), 1)
        np.testing.assert_allclose(
            multiply(multiply.reduced(table)) * others, expected, rtol=1e-9, atol=1e-9
        )
        answers = np.concatenate(
            [
                np.broadcast_to(a, p.queries.rows).ravel()
                for a, p in zip(
                    multiply.answers(multiply.reduced(table)), workload.products, strict=True
                )
            ]
        )
        np.testing.assert_allclose(
            answers, asked.dense(workload) @ table.ravel(), rtol=1e-9, atol=1e-9
        )


def test_the_distance_is_nearly_the_least() -> None:
    """Always the same workloads: how far descent comes in its steps has no bound by chance."""
    random_, numbers = random.Random(20), np.random.default_rng(20)
    for _ in range(60):
        workload = asked.drawn(random_)
        if all(product.nothing for product in workload.products):
            continue
        multiply = Asked(workload)
        full = numbers.normal(0.5, 3, workload.domain.sizes)
        weights = asked.weights_of(workload)
        rows = (weights / abs(weights).max())[:, None] * asked.dense(workload)
        if multiply.total:
            extra = np.sqrt(multiply._terms[-1].coefficient)
            rows = np.concatenate([rows, np.full((1, full.size), extra)])
        goal = rows @ full.ravel()
        best, least = nnls(rows, goal, maxiter=10_000)
        estimate = multiply.reduced(full)
        found = nonnegative(multiply, estimate)
        assert found.min() >= 0
        # the table that nnls found, and that one, over the attributes that are asked about
        nearest = multiply.reduced(best.reshape(full.shape))

        def squares(table: Floats, multiply: Asked = multiply, own: Floats = estimate) -> float:
            return max(float(np.vdot(table - own, multiply(table - own))), 0.0)

        assert squares(nearest) == pytest.approx(least**2, rel=1e-6, abs=1e-6)
        assert np.sqrt(squares(found)) <= 1.02 * least + 0.005 * float(np.linalg.norm(goal))


def test_whole_numbers_keep_what_is_asked() -> None:
    workload = asked.marginals((12, 30, 20), 1, 2, 4, 3)
    multiply = Asked(workload)
    shares = [1 / np.arange(1, n + 1) for n in workload.domain.sizes]
    table = np.einsum("i,j,k->ijk", *shares)
    table *= 3000 / table.sum()
    counts = whole(multiply, table)
    assert counts.dtype == np.int64
    assert counts.min() >= 0

    def worst(rounded: Integers) -> float:
        pairs = zip(multiply.answers(rounded.astype(float)), multiply.answers(table), strict=True)
        return max(float(np.abs(a - b).max()) for a, b in pairs)

    assert worst(counts) <= 3
    # by the largest fractions alone the largest levels take all
    assert worst(round_to_total(table)) > 20


def test_a_table_of_whole_numbers_stays() -> None:
    table = np.random.default_rng(2).integers(0, 3, (5, 6)).astype(np.float64)
    assert (whole(Asked(asked.marginals((5, 6), 1, 2)), table) == table).all()


def test_what_nobody_asks_about_is_left_out() -> None:
    multiply = Asked(asked.marginals((3, 4, 5), 1, 4))
    assert multiply.sizes == (3, 5)
    assert multiply.reduced(np.ones((3, 4, 5))).tolist() == np.full((3, 5), 4.0).tolist()


def test_a_total_alone() -> None:
    multiply = Asked(asked.marginals((3, 4), 0))
    for total, expected in ((7.4, 7.4), (-3.0, 0.0)):
        found = nonnegative(multiply, np.asarray(total))
        assert float(found) == pytest.approx(expected)
        assert [float(a.sum()) for a in multiply.answers(whole(multiply, found))] == [
            round(expected)
        ]


@pytest.mark.parametrize("solve", [nonnegative, whole])
def test_it_can_be_cancelled(solve: object) -> None:
    class CancelledError(Exception):
        pass

    calls = 0

    def tick() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise CancelledError

    multiply = Asked(asked.marginals((9, 8, 7), 1, 2, 4, 7))
    estimate = np.random.default_rng(1).normal(0.3, 2, (9, 8, 7))
    with pytest.raises(CancelledError):
        solve(multiply, estimate if solve is nonnegative else abs(estimate), tick)  # type: ignore[operator]


def test_steps_are_few_where_cells_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORK", 0)
    steps: list[int] = []
    multiply = Asked(asked.workload((40,), [Prefix(40)]))
    nonnegative(multiply, np.random.default_rng(1).normal(0, 9, 40), lambda: steps.append(1))
    assert len(steps) <= module.FEWEST + module.LINEAR


def test_a_simplex_whose_total_is_lost_in_rounding() -> None:
    found = project_simplex(np.array([1e20, 1e20, -1e20]), 1e-3)
    assert found.min() >= 0
