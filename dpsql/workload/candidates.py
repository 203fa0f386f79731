"""SELECT: the mechanism with the least exact expected error (PRIVACY.md section 8: free).

Every candidate is a function of workload and budget alone, so comparing them reads no data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.kept import Kept
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.marginals import cells
from dpsql.workload.matrix import Identity, Order, Total
from dpsql.workload.mechanism import Budget, Mechanism, mask_of_product, noise_for, variance
from dpsql.workload.mechanism_aim import AimMechanism
from dpsql.workload.mechanism_aim_pgm import AimPgmMechanism
from dpsql.workload.mechanism_dense import eigen, opt0
from dpsql.workload.mechanism_kronecker import (
    KroneckerMechanism,
    identity,
    kronecker,
    require_cells,
)
from dpsql.workload.mechanism_pairs import PairsMechanism
from dpsql.workload.mechanism_plus import plus, worth_uniting
from dpsql.workload.mechanism_residuals import (
    MarginalMechanism,
    ResidualMechanism,
    has_few_residuals,
)
from dpsql.workload.names import DATA_INDEPENDENT, MECHANISMS
from dpsql.workload.opt_kron import MOST_PAIRED, Known
from dpsql.workload.svd_bound import svd_bound, workload_bound
from dpsql.workload.workload import Workload

#: Cells up to which OPT_0 of the whole domain is among those that are compared by themselves.
QUICK = 512
#: Levels of an attribute, and cells, of workloads whose SVD bound is looked at.
MOST_BOUNDED = 1100
#: What a mechanism may be worse than another one for that not to be looked for, as a part of the
#: squared error; and what rounding may lift a bound by.
SLACK = 1e-3
ROUNDING = 1e-6
#: Beginnings of every optimisation are drawn from this seed: a strategy is a function of its input.
SEED = 1
#: What numerical libraries raise where an optimisation breaks down; a cancel is none of these.
_BREAKDOWNS = (ArithmeticError, ValueError, RuntimeError, MemoryError)


class SelectionFailed(InvalidParameter):
    """An optimisation broke down: another mechanism has to answer."""


def make(
    name: str,
    workload: Workload,
    budget: Budget,
    tick: Callable[[], None] = lambda: None,
    known: Known | None = None,
) -> Mechanism:
    """Select the strategy of one mechanism.

    ``known`` is what was found for single attributes of the same workload.

    Raises
    ------
    InvalidParameter
        When it cannot answer the workload, or not with this noise; says why.
    """
    if all(product.nothing for product in workload.products):
        raise InvalidParameter("every query of the workload is 0 on the whole domain")
    scaled, largest = workload.scaled()
    found = _select(name, scaled, budget, tick, known)
    for measurement in found.measurements:
        require_cells(cells(workload.domain.sizes, measurement.mask))
    found.workload, found.error = workload, found.error * largest * largest
    found.bound *= largest * largest
    return found


def _select(
    name: str, workload: Workload, budget: Budget, tick: Callable[[], None], known: Known | None
) -> Mechanism:
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
        return KroneckerMechanism("workload", workload, budget, own, tick)
    if name == "opt_kron":
        return kronecker(workload, budget, seed=SEED, tick=tick, known=known)
    if name == "opt_plus":
        return plus(workload, budget, seed=SEED, tick=tick, known=known)
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
    *,
    best: bool = False,
    kept: Kept | None = None,
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
    best : bool
        Only the best one counts: what cannot be better than what was found, by `SLACK`, is left
        out.
    kept : Kept, optional
        Strategies that were selected before.

    Returns
    -------
    found : list of Mechanism
        By expected error, the best first; last those whose error is not known.
    refused : list of (name, budget, InvalidParameter)
        Those that cannot, or whose optimisation failed (`SelectionFailed`).
    """
    found: list[Mechanism] = []
    refused = []
    known = Known()
    kept = Kept() if kept is None else kept
    bounds = {budget: _least(workload, budget) if best else 0.0 for budget in budgets}
    # the noise whose bound is the lowest may spare the other one
    for budget in sorted(bounds, key=bounds.__getitem__):
        for name in names(budget.order):
            tick()
            reached = min((m.error for m in found if m.name in DATA_INDEPENDENT), default=math.inf)
            if best and reached <= bounds[budget] * (1 + SLACK) and name in DATA_INDEPENDENT:
                continue
            try:
                find = partial(_selected, name, workload, budget, tick, Known(known))
                found.append(kept.mechanism(name, workload, budget, tick, find))
                bounds[budget] = max(bounds[budget], found[-1].bound)
            except InvalidParameter as error:
                refused.append((name, budget, error))
    return sorted(found, key=lambda m: (math.isnan(m.error), m.error, m.draws)), refused


def taken(
    workload: Workload,
    budgets: Iterable[Budget],
    found: Sequence[Mechanism],
    refused: Sequence[tuple[str, Budget, InvalidParameter]],
    names: Callable[[Order], Iterable[str]],
    *,
    best: bool,
) -> list[Mechanism]:
    """Return those of ``found`` that `candidates` with these arguments looks at, in its order.

    A search for the best one ends near a bound, and the best of all may be a little better.
    """

    class Seen(Kept):
        def mechanism(self, name: str, _: Workload, budget: Budget, *__: object) -> Mechanism:
            for mechanism in found:
                if (mechanism.name, mechanism.budget) == (name, budget):
                    return mechanism
            raise next(error for what, b, error in refused if (what, b) == (name, budget))

    return candidates(workload, budgets, names=names, best=best, kept=Seen())[0]


def _least(workload: Workload, budget: Budget) -> float:
    """Bound the expected error of every strategy from below, where that is quickly done."""
    most = max(workload.domain.sizes)
    single = sum(n > 1 for n in workload.domain.sizes) == 1
    if most > MOST_BOUNDED and not (single and most <= MOST_PAIRED):
        return 0.0
    scaled, largest = workload.scaled()
    parameter, _ = noise_for(budget, Fraction(1), Fraction(1))
    try:
        with np.errstate(all="ignore"):
            if most > MOST_BOUNDED:
                bound = _bound_of_some(scaled)
            else:
                bound = workload_bound(scaled, most_cells=MOST_BOUNDED).value
    except _BREAKDOWNS:
        return 0.0
    found = variance(budget.order, parameter) * bound * largest * largest
    return found * (1 - ROUNDING) if math.isfinite(found) else 0.0


def _bound_of_some(workload: Workload) -> float:
    """Bound the error about one attribute by that of some of its levels.

    Who knows that no row has another level has no larger error, with the same strategy.
    """
    sizes = workload.domain.sizes
    (i,) = (i for i, n in enumerate(sizes) if n > 1)
    some = np.rint(np.linspace(0, sizes[i] - 1, min(sizes[i], MOST_BOUNDED))).astype(np.intp)
    total = np.zeros((len(some), len(some)))
    for term in workload.gram_terms:
        others = math.prod(float(f[0, 0]) for k, f in enumerate(term.factors) if k != i)
        total += term.coefficient * others * term.factors[i][np.ix_(some, some)]
    return svd_bound((total + total.T) / 2)


def _selected(
    name: str, workload: Workload, budget: Budget, tick: Callable[[], None], known: Known
) -> Mechanism:
    """Select a strategy; one that came out of a breakdown is none."""
    failed = SelectionFailed(
        f"the optimisation of {name} failed", hint="Use mechanism => 'auto', or another one."
    )
    try:
        # what leaves floating point is seen in the error, and is nothing for a server's log
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            mechanism = make(name, workload, budget, tick, known)
    except _BREAKDOWNS:
        raise failed from None
    if name in DATA_INDEPENDENT and not math.isfinite(mechanism.error):
        raise failed
    return mechanism
