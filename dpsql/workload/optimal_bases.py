"""Bases for ResidualPlanner that fit prefix, range and other queries on an attribute.

A basis with unit columns enters the planner by two numbers only: ``t``, the error of the
attribute's queries from its own residual, and ``s``, their error from spreading a total over
the levels (`Basis.errors`).  The optimum over all noise scales is ``F = (sum_B sqrt(v_B))^2``,
where ``v_B`` is multilinear in the pairs ``(t_i, s_i)``.  Here ``S_1 ... S_m`` are chosen
together to minimise ``F``, by L-BFGS on their entries with columns kept at length 1.

ResidualPlanner+ splits the total off orthogonally (``S 1 = 0``, hence ``u = 1/n``).  That is an
unnecessary constraint: ``S`` may have any null vector ``u`` with ``1^T u = 1``.  For prefix sums
a total spread evenly brings ``s = n/3``, one that sits near the last level little more than 1;
measured, this takes the prefix workloads 2 to 5 % below ResidualPlanner+, and for a single
attribute the family holds every Gaussian strategy, OPT_0's optimum included.

The derivative needs no formula for ``u``: for fixed ``lambda``, with ``M = S^T S``,

    ``t + lambda s = tr(V (M + 11^T / lambda)^-1)``

since ``(M + 11^T / lambda)^-1 = K K^T + lambda u u^T``; its gradient in ``S`` at
``lambda = (dF/ds) / (dF/dt)`` is that of ``F`` up to the factor ``dF/dt``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats, spread_down
from dpsql.workload.opt0_gaussian import opt0_gaussian
from dpsql.workload.residual_bases import Basis, Dense, Integers, Subtraction

#: Improvement of the logarithm below which the optimisation ends: about 1e-6 above where it leads.
FTOL = 3e-8
#: Relative gap of the strategies that begin the optimisation, and their eigendecompositions.
BEGINNING_GAP = 1e-5
BEGINNING_STEPS = 40


def beginning(gram: Floats, tick: Callable[[], None] = lambda: None) -> Floats:
    """Return the residual matrix of what OPT_0 finds for the attribute alone.

    For a single attribute it is the optimum, for several it is within some parts in ten thousand
    of it, from where few steps remain.

    Parameters
    ----------
    gram : array of shape (n, n)
        ``V = W^T W``, of full rank.
    tick : callable
        Called now and then; may raise to cancel.
    """
    found = opt0_gaussian(gram, gap=BEGINNING_GAP, iterations=BEGINNING_STEPS, tick=tick)
    return split_total(found.gram)


def split_total(information: Floats) -> Floats:
    """Split a strategy of one attribute into its total and a residual matrix.

    Any positive definite ``X`` is ``c 11^T + S^T S`` with ``c = 1 / (1^T X^-1 1)``, the largest for
    which the rest is positive semi-definite, and ``S`` of n - 1 rows; so a strategy that
    OPT_0 found for one attribute becomes a basis of a workload over several.

    Parameters
    ----------
    information : array of shape (n, n)
        ``X = A^T A`` of the strategy.

    Returns
    -------
    array of shape (n - 1, n)
        Scaled so that the longest column has length 1.
    """
    weight = 1.0 / float(np.linalg.inv(information).sum())
    values, vectors = np.linalg.eigh(information - weight)
    result = (vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))).T
    return np.asarray(result / math.sqrt(float((result**2).sum(axis=0).max())))


def optimal_bases(
    sizes: Sequence[int],
    weights: Mapping[int, float],
    grams: Mapping[int, Floats],
    *,
    bits: int = 10,
    iterations: int = 300,
    tick: Callable[[], None] = lambda: None,
) -> tuple[Basis, ...]:
    """Choose a basis for each attribute of a workload with other queries than marginals.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes.
    weights : mapping of mask to float
        The workload, as for `residual_planner.plan`.
    grams : mapping of attribute to array of shape (n, n)
        Gram matrix of the query matrix asked wherever a marginal keeps the attribute.  The
        others are asked cell by cell and keep `Subtraction`, which is optimal for them; so
        does an attribute that no marginal keeps.
    bits : int
        The bases are rounded to integers over ``2**bits``, so that exact noise can be drawn;
        `Basis` accounts for the rounded matrix, at 10 bits about 1e-6 worse.
    iterations : int
        Of L-BFGS.
    tick : callable
        Called at every evaluation; may raise to cancel.

    Raises
    ------
    InvalidParameter
        If a Gram matrix has another shape than its attribute.
    """
    for i, gram in grams.items():
        if gram.shape != (sizes[i], sizes[i]):
            raise InvalidParameter(
                f"the Gram matrix of attribute {i} has shape {gram.shape}",
                detail=f"The attribute has {sizes[i]} levels.",
            )
    asked = reduce(or_, weights, 0)
    chosen = {
        i: _of_full_rank(gram) for i, gram in grams.items() if sizes[i] > 1 and asked >> i & 1
    }
    matrices = _optimise(sizes, weights, chosen, iterations, tick)
    return tuple(
        Dense(round_columns(matrices[i], 2**bits), 2**bits) if i in matrices else Subtraction(n)
        for i, n in enumerate(sizes)
    )


def round_columns(matrix: Floats, scale: int, tick: Callable[[], None] = lambda: None) -> Integers:
    """Round ``scale * matrix`` to integers without lengthening a column past ``scale``.

    Plain rounding makes some column longer than the others, and the longest one is paid
    for: a loss of first order in ``1 / scale``.  Here single entries step back, those first
    that were rounded outwards most, then forward again while there is room: second order.

    Parameters
    ----------
    matrix : array of shape (rows, n)
        Columns of length at most 1.
    scale : int
        Positive.
    tick : callable
        Called before each column; may raise to cancel.
    """
    tick()
    scaled = matrix * scale
    tick()
    exact = np.asfortranarray(scaled)
    tick()
    scaled = np.rint(exact)
    tick()
    result: Integers = scaled.astype(np.int64)
    for column, wanted in zip(result.T, exact.T, strict=True):
        tick()
        room = scale * scale - int(column @ column)
        outward = (column - wanted) * np.sign(wanted)
        order = np.argsort(outward)
        if room < 0:
            back = order[::-1][column[order[::-1]] != 0]
            gained = np.cumsum(2 * np.abs(column[back]) - 1)
            back = back[: int(np.searchsorted(gained, -room)) + 1]
            column[back] -= np.sign(column[back])
            room += int(gained[len(back) - 1])
        ahead = order[(outward[order] < 0) & (wanted[order] != 0)]
        steps = 2 * np.abs(column[ahead]) + 1
        while (fits := steps <= room).any():
            ahead, steps = ahead[fits], steps[fits]
            spent = np.cumsum(steps)
            some = int(np.searchsorted(spent, room, side="right"))
            column[ahead[:some]] += np.sign(wanted[ahead[:some]]).astype(np.int64)
            room -= int(spent[some - 1])
            ahead, steps = ahead[some:], steps[some:]
    return np.ascontiguousarray(result)


def _of_full_rank(gram: Floats) -> Floats:
    """Ask a little for every direction, so that none is left unmeasured.

    A singular workload gets a millionth of its mean diagonal, which costs about a
    thousandth of the error for each direction beyond its rank.
    """
    values = np.linalg.eigvalsh(gram)
    if values[0] > 1e-10 * values[-1]:
        return gram
    return np.asarray(gram + 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram)))


def _optimise(
    sizes: Sequence[int],
    weights: Mapping[int, float],
    grams: Mapping[int, Floats],
    iterations: int,
    tick: Callable[[], None],
) -> dict[int, Floats]:
    if not grams:
        return {}
    from scipy.optimize import minimize

    own, spread = _cell_errors(sizes)
    starts = {i: beginning(gram, tick) for i, gram in grams.items()}
    ends = np.cumsum([start.size for start in starts.values()])

    def split(flat: Floats) -> dict[int, Floats]:
        parts = np.split(flat, ends[:-1])
        return {i: x.reshape(starts[i].shape) for i, x in zip(starts, parts, strict=True)}

    def objective(flat: Floats) -> tuple[float, Floats]:
        tick()
        matrices = split(flat)
        lengths = {i: np.sqrt((x**2).sum(axis=0)) for i, x in matrices.items()}
        points = {i: _Point.at(matrices[i] / lengths[i], gram) for i, gram in grams.items()}
        for i, point in points.items():
            own[i], spread[i] = point.own, point.spread
        value, by_own, by_spread = _logarithm(weights, own, spread)
        slopes = []
        for i, gram in grams.items():
            unit = points[i].unit
            slope = by_own[i] * points[i].slope(gram, by_spread[i] / by_own[i])
            slope -= unit * (unit * slope).sum(axis=0)
            slopes.append((slope / lengths[i]).ravel())
        return value, np.concatenate(slopes)

    result = minimize(
        objective,
        np.concatenate([start.ravel() for start in starts.values()]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20, "ftol": FTOL},
    )
    return {i: x / np.sqrt((x**2).sum(axis=0)) for i, x in split(result.x).items()}


def _cell_errors(sizes: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return ``t`` and ``s`` of `Subtraction`, scaled to cost 1."""
    own = [(n - 1) * (1 - 1 / n) for n in sizes]
    return own, [1 / n for n in sizes]


@dataclass(frozen=True)
class _Point:
    """One attribute's ``S`` with unit columns, and what error and slope share."""

    unit: Floats
    inverse: Floats  # (M + 11^T)^-1 = K K^T + u u^T
    null: Floats  # u
    own: float
    spread: float

    @classmethod
    def at(cls, unit: Floats, gram: Floats) -> _Point:
        inverse: Floats = np.asarray(np.linalg.inv(unit.T @ unit + 1.0), dtype=np.float64)
        null = inverse.sum(axis=1)
        null /= null.sum()
        spread = float(null @ gram @ null)
        own = float(np.vdot(inverse, gram)) - spread
        return cls(unit, inverse, null, own, spread)

    def slope(self, gram: Floats, ratio: float) -> Floats:
        """Return the gradient of ``t + ratio s``; ``S u = 0`` spares a second inverse."""
        half = self.unit @ self.inverse @ gram
        along_null = (ratio - 1.0) * np.outer(half @ self.null, self.null)
        return np.asarray(-2.0 * (half @ self.inverse + along_null))


def _logarithm(
    weights: Mapping[int, float], own: Sequence[float], spread: Sequence[float]
) -> tuple[float, list[float], list[float]]:
    """Return ``log F`` and its derivatives in every ``t_i`` and ``s_i``.

    ``v_B`` is proportional to ``t_i`` where ``i`` is in ``B``; elsewhere its slope in ``s_i`` is
    ``v_{B + i} / t_i``.
    """
    values = {mask: v for mask, v in spread_down(weights, own, spread).items() if v > 0}
    roots = {mask: math.sqrt(v) for mask, v in values.items()}
    total = math.fsum(roots.values())
    by_own, by_spread = [], []
    for i, t in enumerate(own):
        bit = 1 << i
        inside = [mask for mask in values if mask & bit]
        by_own.append(sum(roots[m] for m in inside) / (t * total) if t > 0 else 0.0)
        by_spread.append(
            sum(values[m] / roots[m ^ bit] for m in inside) / (t * total) if t > 0 else 0.0
        )
    return 2.0 * math.log(total), by_own, by_spread
