"""The rows of one synthetic table: which mechanism measures it, and what is sampled from that.

Any mechanism whose measurements are residuals of marginals yields a distribution: a mixture of
products (`dpsql.workload.mixture`) or a graphical model (`dpsql.workload.pgm`) is fitted to them.
Post-processing of public values (PRIVACY.md section 2 (b)); a seeded generator protects nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.strata import METHODS as MIXED
from dpsql.synthesis.strata import MOST_LEVELS, weighed
from dpsql.workload.candidates import make
from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.marginals import Floats, cells, k_way
from dpsql.workload.matrix import Identity, Total
from dpsql.workload.mechanism import Budget, Mechanism
from dpsql.workload.mechanism_aim_pgm import AimPgmMechanism
from dpsql.workload.mechanism_mst import MstMechanism
from dpsql.workload.mixture import MAX_LEVELS, fit_mixture
from dpsql.workload.mixture_rows import sample_rows
from dpsql.workload.pgm import fit_model
from dpsql.workload.pgm_rows import sample_model
from dpsql.workload.residual_bases import Integers
from dpsql.workload.workload import Product, Workload

#: Mechanisms that tables are measured by.
METHODS = ("aim", "pairs", "residual_planner", "aim_pgm", "mst")
#: Cells of the marginals that a table's mechanism is asked for, and how many marginals.
MOST_CELLS = 20_000_000
MOST_MARGINALS = 3_000


def table_mechanism(
    sizes: Sequence[int],
    method: str,
    rho: Fraction,
    rows: int,
    tick: Callable[[], None] = lambda: None,
) -> Mechanism:
    """Select what measures a table: all marginals of three attributes, or of two if they are many.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes, one of which has several.
    method : str
        One of `METHODS`.
    rho : Fraction
        Zero-concentrated budget.
    rows : int
        By how many rows neighbours differ at most.
    tick : callable
        May raise to cancel.

    Raises
    ------
    InvalidParameter
        If the method is none, or cannot measure so many attributes or levels.
    """
    if method not in METHODS:
        raise InvalidParameter(
            f'parameter "method" must be one of {", ".join(METHODS)}', detail=f"Got {method}."
        )
    if method == "mst":
        return _tree(sizes, Budget(2, rho, rows))
    refused: InvalidParameter | None = None
    for k in (3, 2, 1):
        if k > len(sizes) and k > 1:
            continue
        masks = k_way(len(sizes), k)
        if k > 1 and len(masks) > MOST_MARGINALS:
            continue
        if k > 1 and sum(cells(sizes, mask) for mask in masks) > MOST_CELLS:
            continue
        try:
            return make(method, _workload(sizes, masks), Budget(2, rho, rows), tick)
        except InvalidParameter as error:
            refused = error
    raise refused or InvalidParameter("a table has no attributes to measure")


def require_levels(name: str, sizes: Sequence[int], method: str) -> None:
    """Refuse a table of more levels than rows can be drawn from, strata of units counted in.

    Raises
    ------
    InvalidParameter
    """
    number, most = sum(sizes), MAX_LEVELS - MOST_LEVELS
    if method in MIXED and number > most:
        raise InvalidParameter(
            f"the attributes of relation {name} have {number} levels together",
            detail=f"Rows are drawn from at most {most} by method => '{method}'.",
            hint="Declare fewer values of columns, ranges, which are cut into bins, or call it with"
            " fewer bins.",
        )


def _tree(sizes: Sequence[int], budget: Budget) -> Mechanism:
    masks = k_way(len(sizes), min(2, len(sizes)))
    found = sum(cells(sizes, mask) for mask in masks)
    if found > MOST_CELLS:
        raise InvalidParameter(
            f"all pairs of attributes have {found} cells",
            detail=f"method => 'mst' counts all of them, and at most {MOST_CELLS}.",
            hint="Use another method, fewer bins or fewer columns with domains.",
        )
    return MstMechanism(_workload(sizes, masks), budget)


def _workload(sizes: Sequence[int], masks: Sequence[int]) -> Workload:
    names = tuple(f"a{i}" for i in range(len(sizes)))
    products = tuple(
        Product(
            Kronecker(
                tuple(Identity(n) if mask >> i & 1 else Total(n) for i, n in enumerate(sizes))
            )
        )
        for mask in masks
    )
    return Workload(Domain(names, tuple(sizes)), products)


def table_rows(
    mechanism: Mechanism,
    measured: Sequence[Floats],
    number: int | None,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    *,
    strata: Sequence[float] = (),
) -> Integers:
    """Sample rows from what was measured.

    Parameters
    ----------
    mechanism : Mechanism
        Of `table_mechanism`.
    measured : sequence of array
        By it.
    number : int, optional
        How many rows; by default the noisy number of them, at least 0.
    seed : int
        Equal seeds give equal rows.
    tick : callable
        May raise to cancel.
    strata : sequence of float
        Weights of the levels of the last attribute: see `dpsql.synthesis.strata`.

    Returns
    -------
    array of int32, shape (rows, attributes)
        Levels, in random order.
    """
    rows = _sampled(mechanism, measured, number, seed, tick, strata)
    order = np.random.default_rng([seed, 1]).permutation(len(rows))
    tick()
    return np.asarray(rows.astype(np.int32)[order])


def _sampled(
    mechanism: Mechanism,
    measured: Sequence[Floats],
    number: int | None,
    seed: int,
    tick: Callable[[], None],
    strata: Sequence[float],
) -> Integers:
    """Fit a distribution to what was measured, and spread rows over it."""
    if isinstance(mechanism, MstMechanism):
        return mechanism.rows(measured, number, seed, tick)
    residuals = mechanism.residuals(measured)
    if isinstance(mechanism, AimPgmMechanism):
        graphical = fit_model(residuals, tick=tick)
        wanted = max(0, round(graphical.total) if number is None else number)
        return sample_model(graphical, wanted, seed, tick)
    model = fit_mixture(residuals, seed=seed, tick=tick)
    if strata:
        model = weighed(model, strata)
    wanted = max(0, round(model.total) if number is None else number)
    return sample_rows(replace(model, total=float(wanted)), seed=seed, tick=tick)


def noisy_total(mechanism: Mechanism, measured: Sequence[Floats]) -> tuple[float, float]:
    """Return the noisy number of rows, and the variance of its noise."""
    residuals = mechanism.residuals(measured)
    return float(residuals.values[0]), 1 / float(residuals.precisions[0])


def nearest(*estimates: tuple[float, float]) -> tuple[float, float]:
    """Weigh independent estimates by their variances: pairs of a number and its variance."""
    weights = [1 / variance for _, variance in estimates]
    whole = math.fsum(weights)
    sums = math.fsum(w * number for w, (number, _) in zip(weights, estimates, strict=True))
    return sums / whole, 1 / whole


def several(sizes: Sequence[int]) -> bool:
    """Whether any attribute has more than one level: else a table is its number of rows."""
    return any(n > 1 for n in sizes)
