"""Conditional ResidualPlanner (CRP): what one more round should measure, given what is known.

With precision ``a_B`` known from earlier rounds and ``x_B >= 0`` bought now, the squared error of
the target marginal is ``sum_B v_B / (a_B + x_B)`` and the price ``sum_B p_B x_B``
(papers/aim-grem.txt, problem 2 and appendix D).  The paper solves the problem without ``x >= 0``
in closed form (Theorem D.1) and, where that is infeasible, calls a conic solver.  None is needed:
by the conditions of Karush, Kuhn and Tucker ``x_B = max(0, s sqrt(v_B / p_B) - a_B)`` for one
level ``s``, which is found exactly by sorting ``a_B sqrt(p_B / v_B)``, as water fills a vessel.
Where all ``x_B > 0`` that is the paper's closed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import subsets
from dpsql.workload.residual_bases import Basis
from dpsql.workload.residual_planner import coefficients, privacy

#: A residual that would get less of the round's budget is not measured (appendix D.2, eta).
LEAST_SHARE = 1e-3


def conditional_plan(
    target: int,
    precisions: Mapping[int, float],
    bases: Sequence[Basis],
    cost: float,
    least: float = LEAST_SHARE,
) -> dict[int, float]:
    """Choose the variances of the residuals of a marginal, given earlier estimates.

    Parameters
    ----------
    target : int
        Mask of the marginal whose squared error is minimised.
    precisions : mapping of mask to float
        ``1 / sigma^2`` of earlier estimates; absent means never measured.
    bases : sequence of Basis
        One per attribute of the domain.
    cost : float
        What this round may cost, ``2 rho``; positive.
    least : float
        Residuals whose share of the cost would be smaller are left out, and the others share
        what they would have cost; from 0 to below 1.

    Returns
    -------
    dict
        ``sigma_B^2`` of each residual that is to be measured; empty only if the target has no
        residual that costs anything.

    Raises
    ------
    InvalidParameter
        If the cost or the share is out of range.
    """
    if not (cost > 0 and math.isfinite(cost)):
        raise InvalidParameter(f"the cost {cost} is not positive")
    if not 0 <= least < 1:
        raise InvalidParameter(f"a least share of {least} is not below 1")
    errors = coefficients({target: 1.0}, bases)
    terms = {}
    for mask in subsets(target):
        price = float(privacy(bases, mask))
        if price > 0 and errors[mask] > 0:
            terms[mask] = errors[mask], price, precisions.get(mask, 0.0)
    while terms:
        bought = water_fill(terms, cost)
        kept = {
            mask: term
            for mask, term in terms.items()
            if bought[mask] > 0 and term[1] * bought[mask] >= least * cost
        }
        if len(kept) == len(terms):
            return {mask: 1.0 / x for mask, x in bought.items()}
        terms = kept or dict([max(terms.items(), key=lambda t: t[1][1] * bought[t[0]])])
    return {}


def water_fill(terms: Mapping[int, tuple[float, float, float]], cost: float) -> dict[int, float]:
    """Minimise ``sum v / (a + x)`` over ``x >= 0`` with ``sum p x = cost``, exactly.

    Parameters
    ----------
    terms : mapping of key to (v, p, a)
        ``v > 0``, ``p > 0``, ``a >= 0``; at least one.
    cost : float
        Positive.
    """
    floors = {k: a * math.sqrt(p / v) for k, (v, p, a) in terms.items()}
    order = sorted(terms, key=floors.__getitem__)
    left, roots, floor = cost, 0.0, floors[order[0]]
    covered = []
    for key in order:
        rise = roots * (floors[key] - floor)
        if rise >= left:
            break
        left, floor = left - rise, floors[key]
        covered.append(key)
        roots += math.sqrt(terms[key][0] * terms[key][1])
    # heights above the floors, not levels: where much is known and little bought, digits count
    bought = dict.fromkeys(terms, 0.0)
    for key in covered:
        v, p, _ = terms[key]
        bought[key] = math.sqrt(v / p) * (floor - floors[key] + left / roots)
    spent = math.fsum(terms[k][1] * x for k, x in bought.items())
    return {k: x * (cost / spent) for k, x in bought.items()}
