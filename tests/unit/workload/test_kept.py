"""A strategy that was selected is not selected again, and what is kept is bounded and public."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.workload import candidates as selection
from dpsql.workload import kept as module
from dpsql.workload.candidates import candidates, quick, worth_trying
from dpsql.workload.kept import Kept, size_of
from dpsql.workload.matrix import Dense, Identity, Permuted, Prefix, Stacked, Total
from dpsql.workload.mechanism import Budget
from dpsql.workload.workload import Domain, Workload
from tests.unit.workload import asked

BUDGETS = [Budget(2, Fraction(3, 100)), Budget(1, Fraction(1))]


def prefixes() -> Workload:
    """A workload that is made anew each time."""
    some = Dense(np.tri(6)[::2])
    return Workload.of(
        Domain(("a", "b"), (6, 6)),
        (Prefix(6), Total(6)),
        (some, Identity(6)),
        (Permuted(Prefix(6), (5, 0, 1, 2, 3, 4)), Stacked.of(some, Identity(6))),
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was selected, by name and noise."""
    tried: list[tuple[str, int]] = []
    make = selection.make

    def noted(name, workload, budget, *rest):  # type: ignore[no-untyped-def]
        tried.append((name, budget.order))
        return make(name, workload, budget, *rest)

    monkeypatch.setattr(selection, "make", noted)
    return tried


@pytest.mark.parametrize("build", [prefixes, lambda: asked.marginals((8, 9), 1, 2)])
def test_a_release_after_its_plan_selects_nothing_anew(build, made) -> None:  # type: ignore[no-untyped-def]
    fresh, _ = candidates(
        build(), BUDGETS, names=lambda order: worth_trying(build(), order), best=True
    )
    kept: dict[bytes, object] = {}
    planned, refused = candidates(build(), BUDGETS, names=lambda _: quick(build()), kept=Kept(kept))
    made.clear()
    heard: list[int] = []
    work = build()
    found, _ = candidates(
        work,
        BUDGETS,
        lambda: heard.append(1),
        lambda order: worth_trying(work, order),
        best=True,
        kept=Kept(kept),
    )
    assert set(made) <= {(name, budget.order) for name, budget, _ in refused}
    assert found[0].name in {m.name for m in planned}
    # the same strategy, whatever was selected before: what was paid is found again by it
    assert (found[0].name, found[0].identity) == (fresh[0].name, fresh[0].identity)
    assert found[0].measurements == fresh[0].measurements
    heard.clear()
    found[0].tick()
    assert heard  # the command that runs is asked, not the one that selected
    assert all(m.tick() is None for m, _ in kept.values())  # type: ignore[attr-defined]
    assert len(heard) == 1


def test_whatever_differs_is_selected_anew(made) -> None:  # type: ignore[no-untyped-def]
    kept = Kept({})
    work = Workload.of(Domain.of(6), (Dense(np.tri(6)),))
    budget = BUDGETS[0]

    def select(work: Workload, budget: Budget, name: str = "identity") -> None:
        candidates(work, [budget], names=lambda _: [name], kept=kept)

    changed = np.tri(6)
    changed[3, 3] = 2
    weighed = replace(work, products=(replace(work.products[0], weight=2.0),))
    asks = [
        (work, budget),
        (work, budget, "opt_kron"),
        (work, replace(budget, loss=Fraction(4, 100))),
        (work, replace(budget, rows=2)),
        (work, BUDGETS[1]),
        (Workload.of(Domain.of(6), (Dense(changed),)), budget),
        (Workload.of(Domain.of(6), (Prefix(6),)), budget),
        (Workload.of(Domain.of(6), (Permuted(Prefix(6), (1, 0, 2, 3, 4, 5)),)), budget),
        (Workload.of(Domain.of(6), (Permuted(Prefix(6), (2, 1, 0, 3, 4, 5)),)), budget),
        (Workload.of(Domain.of(6), (Stacked((Prefix(6), Total(6)), (1.0, 2.0)),)), budget),
        (Workload.of(Domain.of(6), (Stacked((Prefix(6), Total(6)), (1.0, 3.0)),)), budget),
        (weighed, budget),
    ]
    for n, one in enumerate(asks, 1):
        select(*one)
        assert len(made) == n
    for one in asks:
        select(*one)
    assert len(made) == len(asks)


def test_what_is_kept_is_bounded(made, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    held: dict[bytes, object] = {}
    monkeypatch.setattr(module, "MOST_STRATEGIES", 3)

    def select(n: int, name: str = "workload") -> None:
        work = Workload.of(Domain.of(n), (Prefix(n),))
        candidates(work, [BUDGETS[0]], names=lambda _: [name], kept=Kept(held))  # type: ignore[arg-type]

    for n in (4, 5, 6, 4, 7):  # 5 was used longest ago
        select(n)
    assert len(held) == 3
    made.clear()
    for n in (4, 6, 7):
        select(n)
    assert not made
    select(5)
    assert len(made) == 1
    (size, *_) = (size for _, size in held.values())  # type: ignore[attr-defined]
    assert 0 < size < 10_000
    monkeypatch.setattr(module, "MOST_BYTES", 50_000)
    select(200)  # by itself more than that
    assert len(held) == 3
    made.clear()
    select(200)
    assert len(made) == 1


def test_the_size_counts_every_array_once() -> None:
    work = Workload.of(Domain.of(50), (Prefix(50),))
    found, _ = candidates(work, [BUDGETS[0]], names=lambda _: ["workload"])
    assert size_of(found[0]) >= 2 * 8 * 50 * 50  # matrix and inverse
    array = np.zeros(10)
    assert size_of([array, {1: array}, (array, np.zeros(1))]) == 88


def test_mechanisms_whose_rounds_read_data_are_not_kept(made) -> None:  # type: ignore[no-untyped-def]
    held: dict[bytes, object] = {}
    work = asked.marginals((8, 9), 1, 2)
    for _ in range(2):
        candidates(work, [BUDGETS[0]], names=lambda _: ["aim", "pairs"], kept=Kept(held))  # type: ignore[arg-type]
    assert len(made) == 4
    assert not held
