"""What cannot be the best is not looked for, and what is found is as good."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.workload import candidates as selection
from dpsql.workload.candidates import SLACK, candidates, quick, taken, worth_trying
from dpsql.workload.matrix import Identity, Prefix, Total, Width
from dpsql.workload.mechanism import Budget
from dpsql.workload.workload import Domain, Workload
from tests.unit.workload import asked

BUDGETS = [Budget(2, Fraction(3, 100)), Budget(1, Fraction(1))]
CHEAP_GAUSSIAN = [Budget(2, Fraction(50)), Budget(1, Fraction(1))]
PREFIXES = Workload.of(Domain.of(40), [Prefix(40)])


@pytest.mark.parametrize("budgets", [BUDGETS, CHEAP_GAUSSIAN])
@pytest.mark.parametrize("workload", [PREFIXES, asked.marginals((8, 9), 1, 2)])
def test_what_is_left_out_is_not_better(workload: Workload, budgets: list[Budget]) -> None:
    def names(order):  # type: ignore[no-untyped-def]
        return worth_trying(workload, order)

    whole, _ = candidates(workload, budgets, names=names)
    found, _ = candidates(workload, budgets, names=names, best=True)
    assert found[0].error <= whole[0].error * (1 + 2 * SLACK)


@pytest.mark.parametrize(("budgets", "order"), [(BUDGETS, 1), (CHEAP_GAUSSIAN, 2)])
def test_a_noise_that_cannot_win_is_not_optimised(
    budgets: list[Budget], order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    make = selection.make

    def noted(name, workload, budget, *rest):  # type: ignore[no-untyped-def]
        tried.append((name, budget.order))
        return make(name, workload, budget, *rest)

    monkeypatch.setattr(selection, "make", noted)
    found, _ = candidates(
        PREFIXES, budgets, names=lambda order: worth_trying(PREFIXES, order), best=True
    )
    assert found[0].budget.order == order
    assert {noise for _, noise in tried} == {order}
    if order == 2:  # opt_kron is the optimum of a single product, with its proof
        assert ("residual_planner", 2) not in tried


@pytest.mark.parametrize(
    "workload",
    [
        PREFIXES,
        Workload.of(Domain.of(1, 60, 1), [Total(1), Width(60, 7), Identity(1)]),
        asked.workload((50,), [Prefix(50)], [Identity(50)], weights=(3.0, 0.5)),
    ],
)
def test_many_levels_are_bounded_by_some_of_them(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [selection._least(workload, budget) for budget in BUDGETS]
    monkeypatch.setattr(selection, "MOST_BOUNDED", 20)
    some = [selection._least(workload, budget) for budget in BUDGETS]
    for budget, least, most in zip(BUDGETS, some, whole, strict=True):
        assert 0.2 * most < least <= most
        for mechanism in candidates(workload, [budget])[0]:
            assert least <= mechanism.error * (1 + 1e-6)


def test_a_bound_of_a_mechanism_is_below_its_error() -> None:
    for budget in BUDGETS:
        found, _ = candidates(PREFIXES, [budget])
        for mechanism in found:
            assert 0 <= mechanism.bound <= mechanism.error * (1 + 1e-6)
        best = next(m for m in found if m.name == "opt_kron")
        assert (best.bound > best.error * 0.999) == (budget.order == 2)


@pytest.mark.parametrize("slack", [SLACK, 100.0])
@pytest.mark.parametrize("workload", [PREFIXES, asked.marginals((8, 9), 1, 2)])
def test_a_plan_names_what_a_release_takes(
    workload: Workload, slack: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "SLACK", slack)

    def tried(order):  # type: ignore[no-untyped-def]
        return worth_trying(workload, order)

    released, _ = candidates(workload, BUDGETS, names=tried, best=True)
    found, refused = candidates(workload, BUDGETS, names=lambda _: quick(workload))
    planned = taken(workload, BUDGETS, found, refused, tried, best=True)
    assert [(m.name, m.budget, m.error) for m in planned] == [
        (m.name, m.budget, m.error) for m in released
    ]
    assert all(any(m is other for other in found) for m in planned)
    if slack > 1 and workload is PREFIXES:  # the first one that is looked at is taken, not the best
        assert planned[0] is not found[0]
