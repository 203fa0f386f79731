"""OPT_0 on every factor of a product: the published errors of the CPS workloads."""

from __future__ import annotations

import pytest

from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import Dense, Identity, Prefix, Stacked, Total
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.opt0_laplace import opt0_laplace
from dpsql.workload.workload import Workload

CPS = (50, 100, 7, 4, 2)
both = [Stacked.of(Identity(n), Total(n)) for n in CPS]
all_marginals = Workload.of(Domain.of(*CPS), both)
all_prefix_marginals = Workload.of(Domain.of(*CPS), [Prefix(50), Prefix(100), *both[2:]])


@pytest.mark.parametrize(
    ("workload", "gaussian", "laplace"),
    [(all_marginals, 7.852, 4.84), (all_prefix_marginals, 29.47, 40.59)],
)
def test_products_of_optimal_factors(workload: Workload, gaussian: float, laplace: float) -> None:
    # HDMM, Tables 6 and 7; best known under Gaussian noise (7.852 is the optimum).
    grams = workload.gram_terms[0].factors
    strategy = Kronecker(tuple(Dense(opt0_gaussian(gram).matrix()) for gram in grams))
    assert strategy.sensitivity(2) <= 1 + 1e-12
    rmse = workload.rmse(workload.kronecker_error(strategy, 2), 4.224679)
    assert rmse == pytest.approx(gaussian, rel=1e-4)
    strategy = Kronecker(tuple(Dense(opt0_laplace(gram, seed=0).matrix()) for gram in grams))
    assert strategy.sensitivity(1) == pytest.approx(1)
    rmse = workload.rmse(workload.kronecker_error(strategy, 1), 2**0.5)
    assert 0.99 * laplace < rmse < 1.005 * laplace
