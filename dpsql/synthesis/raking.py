"""Marginals across a reference that agree with the rows that are there.

A marginal is counted over some rows of each unit, and noisy; the synthetic parents' degrees and the
children's rows say what its sums are.  Proportional fitting keeps what it says of how both ends go
together and takes the sums from them.  Post-processing of public values (PRIVACY.md section 2 (b)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpsql.synthesis.records import Answer, Records
from dpsql.workload.marginals import Floats, cells
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Integers

_ROUNDS = 100
#: By how many standard deviations of the noise a singular value must be beyond the largest that
#: noise has on average: of tables of noise alone at most one in two hundred has any.
_DOUBT = 1.0
#: By how much less a table varies once noise is taken out: fits go on until they are as near.
_CERTAIN = 25
#: The share of a marginal that is spread as if the ends had nothing in common: no cell is empty.
_SPREAD = 0.01


def raked(
    answers: Sequence[Answer], left: Records, right: Records, degrees: Integers | None
) -> list[Answer]:
    """Fit the sums of noisy marginals to the rows of both ends.

    Parameters
    ----------
    answers : sequence of Answer
    left, right : Records
        Parents, and the children that have one.
    degrees : array of int64, optional
        Children of each parent; without them the parents' sums are those of each marginal.
    """
    found = []
    for a in answers:
        rows = None if degrees is None else _sums(left, a.workload.left, degrees)
        columns = _sums(right, a.workload.right, None)
        table = fitted(a.table, rows, columns, float(a.variance))
        found.append(replace(a, table=table, variance=a.variance / _CERTAIN))
    return found


def _sums(records: Records, mask: int, weights: Integers | None) -> Floats:
    found = np.bincount(records.codes(mask), weights, cells(records.sizes, mask))
    return np.asarray(found, dtype=np.float64)


def fitted(table: Floats, rows: Floats | None, columns: Floats, variance: float = 0.0) -> Floats:
    """Return the nearest table in relative entropy to what is left of one without its noise.

    Parameters
    ----------
    table : array, shape (k1, k2)
        Noisy.
    rows, columns : array
        Sums that the result has, of equal totals; without ``rows`` the table's own.
    variance : float
        Of the noise in each cell.
    """
    total = float(columns.sum())
    if total <= 0 or (rows is not None and rows.sum() <= 0):
        return np.zeros_like(table, dtype=np.float64)
    found = _quiet(table, variance)
    found *= total / max(float(found.sum()), 1e-300)
    if rows is None:
        rows = found.sum(axis=1)
    found += _SPREAD * np.multiply.outer(rows, columns) / total
    for _ in range(_ROUNDS):
        found *= (rows / np.maximum(found.sum(axis=1), 1e-300))[:, None]
        sums = found.sum(axis=0)
        found *= (columns / np.maximum(sums, 1e-300))[None, :]
        if float(np.abs(sums - columns).sum()) <= 1e-6 * total:
            break
    return found


def _quiet(table: Floats, variance: float) -> Floats:
    """Take out what noise explains: draw a table towards what its sums say of it, by so much.

    Sums are drawn towards each other's product by singular values: what two ends have in common is
    mostly a few patterns, each far above noise that is spread over all of them, and those that
    noise alone can have say nothing (`shrunk`).  A table that is mostly noise says that the ends
    have nothing in common, which is what is known then.
    """
    total = max(float(table.sum()), 1.0)
    rows, columns = (project_simplex(table.sum(axis=axis), total) for axis in (1, 0))
    plain = np.multiply.outer(rows, columns) / total
    kept = shrunk(table - plain, variance)
    return project_simplex(plain + kept, total).reshape(table.shape)


def shrunk(apart: Floats, variance: float) -> Floats:
    """Take noise out of a matrix whose sums are about 0, by singular values.

    The shrinkage of least expected squared error (Gavish and Donoho 2017, "Optimal shrinkage of
    singular values", section 3.1) for noise of known variance, beyond an edge that noise alone
    hardly passes.

    Parameters
    ----------
    apart : array, shape (k1, k2)
    variance : float
        Of the noise in each entry.
    """
    if min(apart.shape) < 2:
        return np.zeros_like(apart)
    centred = apart - apart.mean(axis=0) - apart.mean(axis=1)[:, None] + apart.mean()
    if variance <= 0:
        return np.asarray(centred)
    one, values, other = np.linalg.svd(centred, full_matrices=False)
    k1, k2 = ((n - 1) * variance for n in apart.shape)
    square = values**2
    inside = np.maximum((square - k1 - k2) ** 2 - 4 * k1 * k2, 0.0)
    edge = math.sqrt(k1) + math.sqrt(k2) + _DOUBT * math.sqrt(variance)
    left = np.where(values > edge, np.sqrt(inside) / np.maximum(values, 1e-300), 0.0)
    return np.asarray((one * left) @ other)
