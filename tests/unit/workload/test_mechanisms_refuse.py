"""Workloads that would take hours or all memory are refused at once, by the mechanisms concerned."""

from __future__ import annotations

from fractions import Fraction
from time import process_time

import pytest

from dpsql.errors import InvalidParameter
from dpsql.workload.candidates import candidates, make, worth_trying
from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import Identity
from dpsql.workload.mechanism import Budget
from dpsql.workload.workload import Product, Workload

BUDGET = Budget(2, Fraction(1, 2))


def all_of(attributes: int) -> Workload:
    """One grouping set of many keys of two levels."""
    names = tuple(f"a{i}" for i in range(attributes))
    factors = Kronecker(tuple(Identity(2) for _ in names))
    return Workload(Domain(names, (2,) * attributes), (Product(factors, 1.0, ()),))


@pytest.mark.parametrize("name", ["residual_planner", "aim"])
def test_a_set_of_many_keys_has_too_many_residuals(name: str) -> None:
    begin = process_time()
    with pytest.raises(InvalidParameter, match="too many subsets"):
        make(name, all_of(24), BUDGET)
    assert process_time() - begin < 5  # it takes a thousandth; what is refused takes hours


def test_auto_finds_another_mechanism_then() -> None:
    workload = all_of(20)
    found, _ = candidates(workload, [BUDGET], names=lambda order: worth_trying(workload, order))
    assert {m.name for m in found} >= {"identity"}
    assert worth_trying(all_of(12), 2) == ("residual_planner",)
