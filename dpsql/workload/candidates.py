"""SELECT: the mechanism with the least exact expected error (PRIVACY.md section 8: free).

Every candidate is a function of workload and budget alone, so comparing them reads no data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.matrix import Identity, Order, Total
from dpsql.workload.mechanism import Budget, Mechanism, mask_of_product
from dpsql.workload.mechanism_aim import AimMechanism
from dpsql.workload.mechanism_aim_pgm import AimPgmMechanism
from dpsql.workload.mechanism_dense import eigen, opt0
from dpsql.workload.mechanism_kronecker import KroneckerMechanism, identity, kronecker
from dpsql.workload.mechanism_pairs import PairsMechanism
from dpsql.workload.mechanism_plus import plus, worth_uniting
from dpsql.workload.mechanism_residuals import (
    MarginalMechanism,
    ResidualMechanism,
    has_few_residuals,
)
from dpsql.workload.names import DATA_INDEPENDENT, MECHANISMS
from dpsql.workload.workload import Workload

#: Cells up to which OPT_0 of the whole domain is among those that are compared by themselves.
QUICK = 512
#: Beginnings of every optimisation are drawn from this seed: a strategy is a function of its input.
SEED = 1
#: What numerical libraries raise where an optimisation breaks down; a cancel is none of these.
_BREAKDOWNS = (ArithmeticError, ValueError, RuntimeError, MemoryError)


class SelectionFailed(InvalidParameter):
    """An optimisation broke down: another mechanism has to answer."""


def make(
    name: str, workload: Workload, budget: Budget, tick: Callable[[], None] = lambda: None
) -> Mechanism:
    """Select the strategy of one mechanism.

    Raises
    ------
    InvalidParameter
        When it cannot answer the workload, or not with this noise; says why.
    """
    if all(product.nothing for product in workload.products):
        raise InvalidParameter("every query of the workload is 0 on the whole domain")
    scaled, largest = workload.scaled()
    found = _select(name, scaled, budget, tick)
    found.workload, found.error = workload, found.error * largest * largest
    return found


def _select(name: str, workload: Workload, budget: Budget, tick: Callable[[], None]) -> Mechanism:
    """Select the strategy of one mechanism, for weights of at most 1."""
    if name == "identity":
        return identity(workload, budget)
    if name == "workload":
        if len(workload.products) > 1 or workload.products[0].either:
            raise InvalidParameter(
                "measuring the workload itself is for one set of groups",
                hint="Use mechanism => 'auto'.",
            )
        own = Kronecker(workload.products[0].queries.factors)
        return KroneckerMechanism("workload", workload, budget, own)
    if name == "opt_kron":
        return kronecker(workload, budget, seed=SEED, tick=tick)
    if name == "opt_plus":
        return plus(workload, budget, seed=SEED, tick=tick)
    if name == "opt_m":
        return MarginalMechanism(workload, budget, seed=SEED, tick=tick)
    if name == "residual_planner":
        return ResidualMechanism(workload, budget, tick)
    if name == "opt_0":
        return opt0(workload, budget, seed=SEED, tick=tick)
    if name == "eigen_design":
        return eigen(workload, budget, tick)
    if name == "aim":
        return AimMechanism(workload, budget)
    if name == "aim_pgm":
        return AimPgmMechanism(workload, budget, tick)
    if name == "pairs":
        return PairsMechanism(workload, budget)
    raise InvalidParameter(
        f"there is no mechanism {name!r}",
        hint=f"Use one of {', '.join(MECHANISMS)}.",
    )


def worth_trying(workload: Workload, order: Order) -> tuple[str, ...]:
    """Name the mechanisms that ``auto`` compares: not those that cannot win.

    Of marginals ResidualPlanner is optimal with Gaussian noise, and OPT_0 is at least as good as
    Eigen-Design where both are quick.
    """
    asked = {type(f) for p in workload.products for f in p.queries.factors}
    few = has_few_residuals(mask_of_product(p) for p in workload.products)
    if order == 2 and asked <= {Identity, Total} and few:
        return ("residual_planner",)
    return tuple(n for n in quick(workload) if n != "eigen_design")


def quick(workload: Workload) -> tuple[str, ...]:
    """Name the mechanisms that are selected in seconds at most."""
    whole = len(workload.products) == 1 and not workload.products[0].either
    slow = set() if whole else {"workload"}
    if not worth_uniting(workload):
        slow.add("opt_plus")
    if whole or workload.domain.cells > QUICK:
        slow |= {"opt_0", "eigen_design"}
    return tuple(name for name in DATA_INDEPENDENT if name not in slow)


def candidates(
    workload: Workload,
    budgets: Iterable[Budget],
    tick: Callable[[], None] = lambda: None,
    names: Callable[[Order], Iterable[str]] = lambda _: DATA_INDEPENDENT,
) -> tuple[list[Mechanism], list[tuple[str, Budget, InvalidParameter]]]:
    """Select the strategies of all mechanisms, and tell why others cannot answer.

    Parameters
    ----------
    workload : Workload
        What is to be answered.
    budgets : iterable of Budget
        For Gaussian noise, for Laplace noise, or both.
    tick : callable
        Called now and then; may raise to cancel.
    names : callable
        Which mechanisms are compared for a noise.

    Returns
    -------
    found : list of Mechanism
        By expected error, the best first; last those whose error is not known.
    refused : list of (name, budget, InvalidParameter)
        Those that cannot, or whose optimisation failed (`SelectionFailed`).
    """
    found: list[Mechanism] = []
    refused = []
    for budget in budgets:
        for name in names(budget.order):
            tick()
            try:
                found.append(_selected(name, workload, budget, tick))
            except InvalidParameter as error:
                refused.append((name, budget, error))
    return sorted(found, key=lambda m: (math.isnan(m.error), m.error, m.draws)), refused


def _selected(name: str, workload: Workload, budget: Budget, tick: Callable[[], None]) -> Mechanism:
    """Select a strategy; one that came out of a breakdown is none."""
    failed = SelectionFailed(
        f"the optimisation of {name} failed", hint="Use mechanism => 'auto', or another one."
    )
    try:
        # what leaves floating point is seen in the error, and is nothing for a server's log
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            mechanism = make(name, workload, budget, tick)
    except _BREAKDOWNS:
        raise failed from None
    if name in DATA_INDEPENDENT and not math.isfinite(mechanism.error):
        raise failed
    return mechanism
