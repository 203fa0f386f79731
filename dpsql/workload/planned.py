"""Measure what a plan says, all at once; and which plan a fit of mixtures wants.

A plan needs no look at the data, so its whole budget measures.  Pairs of attributes suffice for a
mixture of products (`dpsql.workload.mixture`) until the budget is so large that interactions of
three attributes stand out of the noise: over three attributes most cells are noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import sub_marginals
from dpsql.workload.grem import Residuals
from dpsql.workload.marginals import cells, downward_closure, maximal
from dpsql.workload.residual_bases import Basis, Integers
from dpsql.workload.residual_planner import (
    ResidualPlan,
    exact_cost,
    measure,
    noise_shape,
    noise_variances,
    plan,
)
from dpsql.workload.supply import Gaussian, Marginals, Progress

#: Weight of a pair's squared error by its number of cells: errors are summed, not squared, so that
#: large tables count for less than their squares would.
CELLS_POWER = -0.5
#: Single attributes count for more: where pairs drown in noise, they are all that a fit has.
SINGLES = 4.0


def plan_pairs(masks: Iterable[int], bases: Sequence[Basis], rho: Fraction) -> ResidualPlan:
    """Plan to measure all pairs of attributes that occur together in some marginal.

    Parameters
    ----------
    masks : iterable of int
        The marginals wanted.
    bases : sequence of Basis
        One per attribute of the domain.
    rho : Fraction
        The budget, zero-concentrated; positive.
    """
    sizes = [basis.size for basis in bases]
    pairs = [mask for mask in downward_closure(masks) if mask.bit_count() <= 2]
    weights = {
        mask: cells(sizes, mask) ** CELLS_POWER * (SINGLES if mask.bit_count() < 2 else 1.0)
        for mask in pairs
    }
    return plan(weights, bases, 2 * float(rho))


def measure_plan(
    chosen: ResidualPlan,
    rho: Fraction,
    data: Marginals,
    gaussian: Gaussian,
    *,
    contribution: int = 1,
    progress: Progress | None = None,
) -> tuple[Residuals, Fraction]:
    """Measure every residual of a plan once.

    Parameters
    ----------
    chosen : ResidualPlan
        Made for a cost of at most ``2 rho``.
    rho : Fraction
        The budget.
    data, gaussian
        See `dpsql.workload.supply`; one batch is read.
    contribution : int
        By how many rows neighbours differ at most; the plan's variances grow by its square.
    progress : Progress, optional
        Told after each residual; may raise.

    Returns
    -------
    tuple
        The residuals, and the rho that was used.

    Raises
    ------
    InvalidParameter
        If the plan costs more than the budget.  Nothing is read then.
    """
    if contribution < 1:
        raise InvalidParameter(f"a contribution of {contribution} rows is not positive")
    square = contribution * contribution
    # a hair below what the plan says: it was made in floating point
    scaled = {mask: v * square * (1 + 1e-12) for mask, v in chosen.variances.items()}
    exact = noise_variances(ResidualPlan(chosen.bases, scaled))
    costs = {m: exact_cost(chosen.bases, {m: v}) * square / 2 for m, v in exact.items()}
    if (total := sum(costs.values(), start=Fraction(0))) > rho:
        raise InvalidParameter(
            "the plan costs more than the budget",
            detail=f"It costs a rho of {float(total):.6g}, and {float(rho):.6g} is given.",
        )
    tables = sub_marginals(data.batch(maximal(exact)), [basis.size for basis in chosen.bases])
    result, used = Residuals(chosen.bases), Fraction(0)
    for number, (mask, variance) in enumerate(exact.items(), 1):
        wanted = noise_shape(chosen.bases, mask)
        noise = gaussian(variance, math.prod(wanted)).reshape(wanted)
        table: Integers = np.asarray(tables[mask], dtype=np.int64)
        result.add(mask, measure(table, mask, chosen.bases, noise), scaled[mask])
        used += costs[mask]
        if progress is not None:
            progress(number, used, rho)
    return result, used
