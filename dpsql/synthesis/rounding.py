"""From relaxed links to links: the paper's three roundings, and systematic sampling.

papers/relational-synthetic-data.txt, Algorithms 6, 7 and 8.  All randomness here is
post-processing of public values: it comes from a seeded generator and protects nothing.
"""

from __future__ import annotations

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.records import Links
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers


def randomised(relaxed: Floats, total: int, rng: np.random.Generator) -> Links:
    """Draw distinct pairs one after the other with probability ``B_ij`` (Algorithm 6).

    Parameters
    ----------
    relaxed : array of shape (n1, n2)
        At least 0.
    total : int
        Links.
    rng : Generator

    Raises
    ------
    InvalidParameter
        If fewer than `total` entries are positive: the paper's loop never ends then.

    Notes
    -----
    Pairs already drawn are drawn again, as published.  A pair is *not* in the result with
    probability ``B_ij``: with ``B = (1, 1/2, 1/2)`` and two links the first is left out once in
    six times.  `systematic` and `dpsql.synthesis.controlled` are unbiased.
    """
    flat = _positive(relaxed, total)
    sums = np.cumsum(flat)
    taken = np.zeros(flat.size, dtype=bool)
    found = 0
    while found < total:
        k = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        if k < flat.size and flat[k] > 0 and not taken[k]:
            taken[k] = True
            found += 1
    return _links(taken, relaxed.shape[1])


def exponential(relaxed: Floats, total: int, rng: np.random.Generator) -> Links:
    """Take the pairs of the smallest exponential times of rates ``B_ij`` (Algorithm 7).

    Parameters
    ----------
    relaxed, total, rng
        As of `randomised`, whose law it has (Theorem 5), in one pass.

    Notes
    -----
    The paper writes the rate ``B_i,:`` of row ``i``; its proof needs one rate per pair, and so
    does this.  An entry of 0 has no time at all and is never taken.
    """
    flat = _positive(relaxed, total)
    times = np.full(flat.size, np.inf)
    some = flat > 0
    times[some] = rng.standard_exponential(int(some.sum())) / flat[some]
    taken = np.zeros(flat.size, dtype=bool)
    if total:
        taken[np.argpartition(times, total - 1)[:total]] = True
    return _links(taken, relaxed.shape[1])


def categorical(relaxed: Floats, rng: np.random.Generator) -> Links:
    """Draw one link for every row (Algorithm 8): one-to-many.

    Parameters
    ----------
    relaxed : array of shape (n1, n2)
        Rows sum to 1: here rows are the children, as in the paper.

    Raises
    ------
    InvalidParameter
        If a row does not sum to 1.

    Notes
    -----
    Unbiased for every count; rows are independent, so the variance of a count is that of
    multinomials.  `dpsql.synthesis.controlled` keeps parents' sums as well.
    """
    sums = np.cumsum(relaxed, axis=1)
    if relaxed.min(initial=0.0) < 0 or not np.allclose(sums[:, -1], 1.0, rtol=0, atol=1e-6):
        raise InvalidParameter("categorical rounding needs rows that sum to 1")
    drawn = rng.random(relaxed.shape[0]) * sums[:, -1]
    right = (sums <= drawn[:, None]).sum(axis=1)
    return Links(np.arange(relaxed.shape[0], dtype=np.int64), right.astype(np.int64))


def systematic(table: Floats, rng: np.random.Generator) -> Integers:
    """Round down or up with probability the fraction, keeping sums along the first axis.

    Parameters
    ----------
    table : array of shape (k,) or (k, c)
        Columns are rounded independently of each other.

    Notes
    -----
    Systematic sampling: the running sums, moved by one uniform number a column, are cut down to
    integers.  So every run of cells, and the column, gets its sum rounded down or up; an integral
    column sum is kept.
    """
    sums = np.cumsum(table, axis=0)
    whole = np.rint(sums[-1:])
    sums[-1:] = np.where(np.abs(sums[-1:] - whole) < 1e-6, whole, sums[-1:])  # not by rounding
    moved = np.floor(np.minimum(sums, sums[-1:]) + rng.random(table.shape[1:]))
    return np.asarray(np.diff(moved, axis=0, prepend=0.0), dtype=np.int64)


def _positive(relaxed: Floats, total: int) -> Floats:
    flat = np.asarray(relaxed, dtype=np.float64).reshape(-1)
    if flat.size and not flat.min() >= 0:
        raise InvalidParameter("relaxed links are negative")
    if total < 0 or total > int((flat > 0).sum()):
        raise InvalidParameter(
            f"{total} different links cannot be drawn",
            detail=f"{int((flat > 0).sum())} pairs have a positive weight.",
        )
    return flat


def _links(taken: np.ndarray[tuple[int], np.dtype[np.bool_]], width: int) -> Links:
    where = np.flatnonzero(taken)
    return Links(where // max(width, 1), where % max(width, 1))
