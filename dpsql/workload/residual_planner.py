"""ResidualPlanner: how much noise each residual of a workload gets, and what that costs.

Measuring the residual over ``B`` with variance ``sigma_B^2`` costs ``p_B / sigma_B^2`` (twice the
zCDP ``rho``; a Gaussian mechanism of unit sensitivity and variance costs 1), where ``p_B`` is
the product of its attributes' `Basis.privacy`, ``prod (1 - 1/n_i)`` for subtraction.  The squared
error of the workload is ``sum_B v_B sigma_B^2``; both sums are separable, so that

    ``sigma_B^2 = sqrt(p_B / v_B) * r / cost``,  error ``r^2 / cost``,  ``r = sum_C sqrt(p_C v_C)``

(ResidualPlanner, Xiao et al. 2023, Theorem 3; for marginals it equals the SVD bound, so no
Gaussian matrix mechanism does better).  Other query matrices than the identity enter by their
Gram matrices, other bases by their `Basis.errors` (ResidualPlanner+).

A row's cost for one residual is a product over the attributes, so that one cell of the data is the
costliest for all residuals at once: ``sum p_B / sigma_B^2`` is the cost itself, not a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.axis import cell_variances
from dpsql.workload.marginals import (
    Floats,
    attributes_of,
    check_sizes,
    downward_closure,
    gather_up,
    shape,
    spread_down,
    subsets,
)
from dpsql.workload.residual_bases import Basis, Integers

Grams = Mapping[int, Floats]

_INT64 = 2**63 - 1
#: Leading bits that the parameter of a noise keeps: rounded up, so that nothing is spent beyond.
ROUNDED_BITS = 24


@dataclass(frozen=True)
class ResidualPlan:
    """Variances of all residuals of a workload.

    Attributes
    ----------
    bases : tuple of Basis
        One per attribute of the domain.
    variances : dict
        ``sigma_B^2 > 0`` for each mask ``B`` that is measured.
    """

    bases: tuple[Basis, ...]
    variances: dict[int, float]

    def cost(self) -> float:
        """Return ``sum p_B / sigma_B^2``: twice the zCDP rho."""
        return sum(float(privacy(self.bases, b)) / v for b, v in self.variances.items())

    def squared_errors(self, masks: Iterable[int], grams: Grams | None = None) -> dict[int, float]:
        """Return the expected total squared error of marginals.

        Parameters
        ----------
        masks : iterable of int
            Marginals that the plan measures whole.
        grams : mapping of attribute to array of shape (n, n), optional
            Gram matrices of the attributes' query matrices; identity where absent.

        Raises
        ------
        InvalidParameter
            If a marginal has a residual that is not measured.
        """
        wanted = list(masks)
        own, spread = _errors(self.bases, grams)
        values = {mask: self._variance(mask, own) for mask in downward_closure(wanted)}
        errors = gather_up(values, own, spread)
        return {mask: errors[mask] for mask in wanted}

    def squared_error(self, weights: Mapping[int, float], grams: Grams | None = None) -> float:
        """Return the weighted sum of `squared_errors` over a workload."""
        errors = self.squared_errors(weights, grams)
        return sum(weight * errors[mask] for mask, weight in weights.items())

    def cell_variances(self, mask: int, queries: Mapping[int, Floats] | None = None) -> Floats:
        """Return the variance of every cell of a marginal (`axis.cell_variances`)."""
        grams = {i: rows.T @ rows for i, rows in (queries or {}).items()}
        own, _ = _errors(self.bases, grams)
        values = {below: self._variance(below, own) for below in subsets(mask)}
        return cell_variances(mask, values, self.bases, queries)

    def _variance(self, mask: int, own: Sequence[float]) -> float:
        found = self.variances.get(mask)
        if found is not None:
            return found
        if any(own[i] == 0.0 for i in attributes_of(mask)):
            return 0.0  # nothing asked depends on it
        raise InvalidParameter(
            f"the plan does not measure the residual over attributes {attributes_of(mask)}"
        )


def privacy(bases: Sequence[Basis], mask: int) -> Fraction:
    """Return ``p_B``, the cost of one residual at unit variance, exactly."""
    return math.prod((bases[i].privacy for i in attributes_of(mask)), start=Fraction(1))


def coefficients(
    weights: Mapping[int, float], bases: Sequence[Basis], grams: Grams | None = None
) -> dict[int, float]:
    """Return ``v_B``: what one unit of variance of each residual adds to the squared error.

    Parameters
    ----------
    weights : mapping of mask to float
        The workload; each weight multiplies the squared error of a marginal's queries.
    bases : sequence of Basis
        One per attribute of the domain.
    grams : mapping of attribute to array of shape (n, n), optional
        Gram matrix of the query matrix that is asked on an attribute wherever a marginal
        keeps it; identity where absent.
    """
    own, spread = _errors(bases, grams)
    return spread_down(weights, own, spread)


def plan(
    weights: Mapping[int, float],
    bases: Sequence[Basis],
    cost: float = 1.0,
    grams: Grams | None = None,
) -> ResidualPlan:
    """Minimise the weighted sum of squared errors at a given cost, in closed form.

    Parameters
    ----------
    weights : mapping of mask to float
        The workload: positive weights.
    bases : sequence of Basis
        One per attribute of the domain.
    cost : float
        ``2 rho`` of zCDP, positive.
    grams : mapping, optional
        As in `coefficients`.

    Raises
    ------
    InvalidParameter
        If the workload is empty, a weight is not positive or the cost is not.
    """
    _check(weights, bases, cost)
    products = {
        mask: (v, float(privacy(bases, mask)))
        for mask, v in coefficients(weights, bases, grams).items()
        if v > 0
    }
    root = math.fsum(math.sqrt(v * p) for v, p in products.values())
    return ResidualPlan(
        tuple(bases),
        {mask: math.sqrt(p / v) * root / cost for mask, (v, p) in products.items() if p > 0},
    )


def unit_squared_error(
    weights: Mapping[int, float], bases: Sequence[Basis], grams: Grams | None = None
) -> float:
    """Return the least squared error at cost 1: ``(sum_B sqrt(p_B v_B))^2``."""
    values = coefficients(weights, bases, grams)
    return math.fsum(math.sqrt(v * float(privacy(bases, b))) for b, v in values.items()) ** 2


def plan_max(
    weights: Mapping[int, float],
    bases: Sequence[Basis],
    cost: float = 1.0,
    grams: Grams | None = None,
    *,
    gap: float = 1e-3,
    rounds: int = 2000,
) -> tuple[ResidualPlan, float]:
    """Minimise the largest weighted squared error of a marginal instead of the sum.

    With ``weights = 1 / cells`` the largest variance of a cell.  By minimax duality the value
    is the largest, over weights ``lambda`` on the simplex, of `unit_squared_error` for
    ``lambda * weights``, which is concave; ``lambda`` is multiplied by each marginal's share of the
    error until the largest error is within ``gap`` of that lower bound.

    Returns
    -------
    tuple
        The plan, and its certificate: largest error / lower bound - 1, at most ``gap``
        unless ``rounds`` ran out.
    """
    _check(weights, bases, cost)
    masks = list(weights)
    share = np.full(len(masks), 1.0 / len(masks))
    factors = np.array([weights[mask] for mask in masks])
    best: tuple[ResidualPlan, float] | None = None
    for _ in range(rounds):
        chosen = plan(dict(zip(masks, share * factors, strict=True)), bases, cost, grams)
        errors = chosen.squared_errors(masks, grams)
        own = factors * np.array([errors[mask] for mask in masks])
        bound = float(share @ own)
        excess = float(own.max()) / bound - 1.0
        if best is None or excess < best[1]:
            best = chosen, excess
        if excess <= gap:
            break
        share = np.maximum(share * own / bound, 1e-12)
        share /= share.sum()
    assert best is not None  # noqa: S101
    return best


def noise_shape(bases: Sequence[Basis], mask: int) -> tuple[int, ...]:
    """Return how many independent noise draws a residual takes, one axis per attribute."""
    return tuple(bases[i].rows for i in attributes_of(mask))


def noise_variances(chosen: ResidualPlan, bits: int = ROUNDED_BITS) -> dict[int, Fraction]:
    """Return the variance of the integer noise of each residual, rounded up.

    Each is ``sigma_B^2`` times the squared scales of the attributes, rounded up to ``bits``
    leading bits, so that exact samplers of discrete Gaussians can take it; `exact_cost`
    says what the rounded variances cost.
    """
    return {
        mask: round_up(Fraction(variance) * _scale(chosen.bases, mask) ** 2, bits)
        for mask, variance in chosen.variances.items()
    }


def exact_cost(bases: Sequence[Basis], variances: Mapping[int, Fraction]) -> Fraction:
    """Return twice the zCDP rho of measuring with these integer noises, exactly.

    Independent discrete Gaussians of variance parameter ``s^2`` on an integer vector that
    one row changes by ``D`` are ``|D|^2 / (2 s^2)``-zCDP, as continuous ones are (Canonne, Kamath
    and Steinke 2020, Theorem 14); ``|D|^2`` is at most ``p_B`` times the squared scales.
    """
    return sum(
        (privacy(bases, mask) * _scale(bases, mask) ** 2 / v for mask, v in variances.items()),
        start=Fraction(0),
    )


def measure(table: Integers, mask: int, bases: Sequence[Basis], noise: Integers) -> Floats:
    """Turn a marginal and integer noise into a noisy residual.

    All arithmetic before and at the addition of the noise is exact; what follows is
    post-processing of the noisy integers.

    Parameters
    ----------
    table : array of int64
        The true marginal over ``mask``.
    mask : int
        The residual to measure.
    bases : sequence of Basis
        One per attribute of the domain.
    noise : array of int64, shape `noise_shape`
        Independent discrete Gaussians of the variance given by `noise_variances`.

    Returns
    -------
    array
        The residual plus noise of variance ``sigma_B^2``, n - 1 positions per axis.

    Raises
    ------
    InvalidParameter
        If a shape does not fit.

    Notes
    -----
    Where 64 bits might not hold a sum the same arithmetic runs on Python's integers,
    slower: no error depends on the data.
    """
    attributes = attributes_of(mask)
    sizes = [basis.size for basis in bases]
    if table.shape != shape(sizes, mask) or noise.shape != noise_shape(bases, mask):
        raise InvalidParameter(
            f"a table of shape {table.shape} and noise of shape {noise.shape} "
            f"do not measure the residual over attributes {attributes}"
        )
    largest = math.prod(bases[i].lattice_bound() for i in attributes) * largest_of(table)
    if largest + largest_of(noise) > _INT64:
        table, noise = table.astype(object), noise.astype(object)
    values = table
    for axis, i in enumerate(attributes):
        values = bases[i].lattice(values, axis)
    noisy = (values + noise).astype(np.float64)
    for axis, i in enumerate(attributes):
        noisy = bases[i].from_lattice(noisy, axis)
    return noisy


def largest_of(values: Integers) -> int:
    """Return the largest magnitude, 0 of no values."""
    return max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))


def _scale(bases: Sequence[Basis], mask: int) -> int:
    return math.prod(bases[i].scale for i in attributes_of(mask))


def round_up(value: Fraction, bits: int = ROUNDED_BITS) -> Fraction:
    """Round a positive number up to so many leading bits, which exact samplers can take."""
    grain = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - bits)
    return math.ceil(value / grain) * grain


def _errors(bases: Sequence[Basis], grams: Grams | None) -> tuple[list[float], list[float]]:
    pairs = [basis.errors((grams or {}).get(i)) for i, basis in enumerate(bases)]
    return [own for own, _ in pairs], [spread for _, spread in pairs]


def _check(weights: Mapping[int, float], bases: Sequence[Basis], cost: float) -> None:
    check_sizes([basis.size for basis in bases])
    if not weights:
        raise InvalidParameter("the workload holds no marginal")
    for mask, weight in weights.items():
        if mask < 0 or mask >> len(bases):
            raise InvalidParameter(
                f"a marginal over attributes {attributes_of(mask)} is outside the domain",
                detail=f"The domain has {len(bases)} attributes.",
            )
        if not (weight > 0 and math.isfinite(weight)):
            raise InvalidParameter(f"the weight {weight} of a marginal is not positive")
    if not (cost > 0 and math.isfinite(cost)):
        raise InvalidParameter(f"the cost {cost} is not positive")
