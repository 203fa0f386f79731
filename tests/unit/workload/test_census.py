"""The workloads SF1 and SF1+ of the benchmarks are those of papers/hdmm.txt."""

from __future__ import annotations

import math

import pytest

from bench.census import sf1
from dpsql.workload.opt_kron import opt_kron


@pytest.mark.parametrize(
    ("states", "queries", "laplace", "gaussian", "most"),
    [(False, 4151, 23.20, 69.32, 41), (True, 215852, 32.50, 97.08, 82)],
)
def test_size_and_error_of_identity(
    states: bool, queries: int, laplace: float, gaussian: float, most: int
) -> None:
    work = sf1(states=states)
    assert work.queries == queries
    cells = work.trace / queries
    assert round(math.sqrt(2 * cells), 2) == laplace
    assert round(4.224679 * math.sqrt(cells), 2) == gaussian
    assert work.sensitivity(1) == most


def test_opt_kron_is_as_good_as_published() -> None:
    work = sf1()
    error = opt_kron(work, 2, seed=1).error
    assert 4.224679 * math.sqrt(error / work.queries) < 9.80
