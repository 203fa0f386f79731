"""Free post-processing of single tables: non-negative, and integral.

None of this costs budget.  Tables treated one by one no longer agree with each other on common
sub-marginals; `dpsql.workload.mixture` is for tables that do.
"""

from __future__ import annotations

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers


def clip_and_rescale(table: Floats, total: float) -> Floats:
    """Set negative cells to zero and scale the rest to the total.

    Parameters
    ----------
    table : array
        Any noisy marginal.
    total : float
        The number of rows, an estimate; one below zero counts as zero.

    Returns
    -------
    array
        Uniform if no cell is positive.
    """
    clipped = np.maximum(table, 0.0)
    most = clipped.max(initial=0.0)
    if most <= 0:
        return np.full(table.shape, max(total, 0.0) / max(table.size, 1))
    shares = clipped / most  # a total of subnormal cells has no reciprocal
    return np.asarray(shares * (max(total, 0.0) / shares.sum()))


def project_simplex(table: Floats, total: float) -> Floats:
    """Return the closest non-negative table, in Euclidean distance, with the given total.

    One number is subtracted from all cells and what is negative is cut off (Duchi,
    Shalev-Shwartz, Singer and Chandra 2008, figure 1).
    """
    if total <= 0:
        return np.zeros(table.shape)
    values = np.sort(table, axis=None)[::-1]
    excess = (np.cumsum(values) - total) / np.arange(1, values.size + 1)
    above = np.flatnonzero(values > excess)
    last = int(above[-1]) if above.size else 0  # the total is lost in the entries' rounding
    return np.asarray(np.maximum(table - excess[last], 0.0))


def round_to_total(table: Floats) -> Integers:
    """Round a non-negative table to integers that add up to its rounded total.

    Every cell is rounded down or up; those with the largest fractions go up, the first ones
    of equals.

    Raises
    ------
    InvalidParameter
        If a cell is negative.
    """
    if table.size and table.min() < 0:
        raise InvalidParameter("only a table without negative cells is rounded to its total")
    floors = np.floor(table)
    result = floors.astype(np.int64).reshape(-1)
    missing = round(float(table.sum())) - int(result.sum())
    order = np.argsort((floors - table).reshape(-1), kind="stable")
    result[order[: max(missing, 0)]] += 1
    return result.reshape(table.shape)
