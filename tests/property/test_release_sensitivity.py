"""No neighbour of a table changes the measurements of a release by more than the budget allows.

Random workloads, every mechanism, every neighbour: each multiset of at most ``rows`` rows more or
less.  All in fractions, so that nothing hides in rounding (PRIVACY.md sections 3 and 5; the cost
is the Renyi divergence of shifted noise: ``|d|_1/b`` for Laplace, ``|d|_2^2/(2 sigma^2)`` for
Gaussian noise).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement

import numpy as np
import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload import mechanism as mechanisms
from dpsql.workload import mechanism_kronecker, mechanism_shared
from dpsql.workload.candidates import make
from dpsql.workload.mechanism import Budget, Mechanism
from dpsql.workload.mechanism_plus import united
from dpsql.workload.mechanism_shared import shared
from dpsql.workload.names import DATA_INDEPENDENT
from tests.unit.workload import asked

CASES = 40
#: Within so many every mechanism is met, but for a probability below 1e-20.
MOST_CASES = 400


def built(random_: random.Random) -> list[Mechanism]:
    """Draw a workload and a budget; all mechanisms that can answer it."""
    workload = asked.drawn(random_)
    rows = random_.choice([1, 1, 2, 3])
    found = []
    for order in (1, 2):
        loss = Fraction(random_.randint(1, 400), 100)
        budget = Budget(order, loss, rows)  # type: ignore[arg-type]
        select: list[Callable[[], Mechanism]] = [
            partial(make, name, workload, budget) for name in DATA_INDEPENDENT if name != "opt_plus"
        ]
        # both forms of opt_plus, which takes the better one
        select += [partial(form, workload, budget, seed=1) for form in (united, shared)]
        for selected in select:
            try:
                found.append(selected())
            except InvalidParameter:
                continue
    return found


def excess(mechanism: Mechanism) -> Fraction:
    """Return the largest cost of a neighbour, as a part of the budget's loss."""
    sizes = mechanism.workload.domain.sizes
    cells = mechanism.workload.domain.cells
    worst = Fraction(0)
    for number in range(1, mechanism.budget.rows + 1):
        for chosen in combinations_with_replacement(range(cells), number):
            change = np.bincount(chosen, minlength=cells).astype(np.int64).reshape(sizes)
            worst = max(worst, asked.cost(mechanism, change))
    return worst / mechanism.budget.loss


def test_no_neighbour_costs_more_than_the_budget() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    seen: dict[tuple[str, int], Fraction] = {}
    for case in range(MOST_CASES):
        if case >= CASES and tight(seen):
            break
        for mechanism in built(random_):
            worst = excess(mechanism)
            assert worst <= 1, mechanism.workload
            key = mechanism.name, mechanism.budget.order
            seen[key] = max(seen.get(key, Fraction(0)), worst)
            assert worst * mechanism.budget.loss <= mechanism.loss <= mechanism.budget.loss
    assert tight(seen), seen


def tight(seen: dict[tuple[str, int], Fraction]) -> bool:
    """Tell whether every mechanism was looked at and came near its bound."""
    every = len(seen) == 2 * len(DATA_INDEPENDENT) - 2  # two have Gaussian noise only
    return every and all(worst > Fraction(99, 100) for worst in seen.values())


def test_what_is_measured_is_the_shift_of_the_noise() -> None:
    """Tables that differ by d, with noise z and z + L d, are measured alike: L d is all that shows."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    numbers = np.random.default_rng(seed)
    for _ in range(CASES // 2):
        for mechanism in built(random_):
            sizes = mechanism.workload.domain.sizes
            table, change = (numbers.integers(0, 50, sizes) for _ in range(2))
            noise = [numbers.integers(-99, 100, m.count) for m in mechanism.measurements]
            moved = [z + asked.shift(mechanism, k, change) for k, z in enumerate(noise)]
            one = asked.measured(mechanism, table + change, noise)
            other = asked.measured(mechanism, table, moved)
            for a, b in zip(one, other, strict=True):
                assert a.tolist() == b.tolist()


def _one_row_only(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mechanisms.noise_for

    def forgets(budget, norm, share):  # type: ignore[no-untyped-def]
        return right(Budget(budget.order, budget.loss, 1), norm, share)

    for module in (mechanism_kronecker, mechanism_shared, mechanisms):
        monkeypatch.setattr(module, "noise_for", forgets)


def _first_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        mechanism_kronecker,
        "largest_column",
        lambda m, order: int((abs(m[:, 0]) ** order).sum()) or 1,
    )


def _wrong_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mechanisms.largest_column
    monkeypatch.setattr(mechanism_kronecker, "largest_column", lambda m, order: right(m, 3 - order))


def _rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mechanisms.round_up
    monkeypatch.setattr(
        mechanisms, "round_up", lambda value: right(value * (1 - Fraction(1, 10**6)))
    )


@pytest.mark.parametrize("mutant", [_one_row_only, _first_column, _wrong_norm, _rounded_down])
def test_mutants_are_found(mutant, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    mutant(monkeypatch)
    random_ = random.Random(7)
    assert any(excess(m) > 1 for _ in range(CASES) for m in built(random_))
