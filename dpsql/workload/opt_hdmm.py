"""OPT_HDMM: the best strategy of OPT_kron, OPT_plus and OPT_M for a union of products.

papers/hdmm.txt, section 8.3, Algorithm 2.  Which is best is a function of the workload alone, so
looking for it costs no privacy (PRIVACY.md section 8).
"""

from __future__ import annotations

import math

import numpy as np

from dpsql.workload.matrix import Order
from dpsql.workload.opt_kron import KroneckerStrategy, opt_kron
from dpsql.workload.opt_marginals import MarginalStrategy, marginal_approximation, opt_m
from dpsql.workload.opt_plus import UnionStrategy, opt_plus
from dpsql.workload.workload import Workload

Strategy = KroneckerStrategy | UnionStrategy | MarginalStrategy

#: OPT_M looks at every set of attributes.
MOST_ATTRIBUTES = 16
#: OPT_plus is left out where it would optimise more groups.
MOST_GROUPS = 200
#: A strategy that measures every cell is left out where there are more.
MOST_CELLS = 10**9


def opt_hdmm(workload: Workload, order: Order, *, seed: int) -> Strategy:
    """Select a strategy.

    Parameters
    ----------
    workload : Workload
        Any union of products.
    order : int
        1 for Laplace, 2 for Gaussian noise.
    seed : int
        Of random beginnings; the result is a function of the arguments.

    Returns
    -------
    KroneckerStrategy, UnionStrategy or MarginalStrategy
        Of sensitivity 1.
    """
    found: list[Strategy] = [opt_kron(workload, order, seed=seed)]
    if 1 < len(workload.products) <= MOST_GROUPS:
        found.append(opt_plus(workload, order, seed=seed))
    sizes = workload.domain.sizes
    if len(sizes) <= MOST_ATTRIBUTES and min(sizes) > 1:
        found.append(opt_m(sizes, marginal_weights(workload), order, seed=seed))
    return min(found, key=lambda strategy: strategy.error)


def marginal_weights(workload: Workload) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the marginal Gram matrix that every marginal strategy answers as well (Theorem 10)."""
    products = [
        (term.coefficient, [(float(np.trace(f)), math.fsum(f.ravel())) for f in term.factors])
        for term in workload.gram_terms
    ]
    return marginal_approximation(workload.domain.sizes, products)
