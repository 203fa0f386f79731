"""Numbers of links of single rows: fitted to a total, drawn where nothing is known.

Post-processing of public values; seeded generators protect nothing.
"""

from __future__ import annotations

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.rounding import systematic
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers

_ROUNDS = 30


def to_total(degrees: Floats, total: int, most: int, rng: np.random.Generator) -> Integers:
    """Make degrees add up to a number of links, none below 0 or above a bound.

    Parameters
    ----------
    degrees : array of shape (n,)
        Wanted: noisy, or from an attribute of the synthetic rows.
    total : int
        Links.
    most : int
        Largest degree allowed: ``d_max``, or the rows of the other end.
    rng : Generator

    Returns
    -------
    array of int64
        Scaled by one factor, cut off at `most`, and rounded without bias.  Rows of degree 0 stay
        so unless the others cannot hold the total.

    Raises
    ------
    InvalidParameter
        If so many links do not fit.
    """
    n = degrees.size
    if not 0 <= total <= n * most:
        raise InvalidParameter(f"{total} links do not fit {n} rows of at most {most} each")
    wanted = np.clip(np.asarray(degrees, dtype=np.float64), 0.0, float(most))
    if total == int(wanted.sum()) and np.array_equal(wanted, np.rint(wanted)):
        return wanted.astype(np.int64)
    if int((wanted > 0).sum()) * most < total:
        wanted = np.maximum(wanted, min(1e-3, most))
    factor = total / max(float(wanted.sum()), 1e-300)
    for _ in range(200):  # more rows are full with every step: ends
        full = wanted * factor >= most
        free = float(wanted[~full].sum())
        better = (total - most * int(full.sum())) / free if free > 0 else factor
        if better <= factor * (1 + 1e-14):
            break
        factor = better
    scaled = np.minimum(wanted * factor, most)
    order = rng.permutation(n)
    result = np.empty(n, dtype=np.int64)
    result[order] = systematic(scaled[order], rng)
    return _settle(result, total, most, rng)


def _settle(degrees: Integers, total: int, most: int, rng: np.random.Generator) -> Integers:
    """Repair what floating point left over: a link or two."""
    gap = total - int(degrees.sum())
    while gap:
        able = np.flatnonzero(degrees < most if gap > 0 else degrees > 0)
        some = rng.permutation(able)[: abs(gap)]
        degrees[some] += 1 if gap > 0 else -1
        gap = total - int(degrees.sum())
    return degrees


def draw(of: Integers, sums: Integers, most: int, rng: np.random.Generator) -> Integers:
    """Draw degrees of rows whose types have given numbers of links.

    Parameters
    ----------
    of : array of int64, shape (n,)
        Types of the rows.
    sums : array of int64, shape (k,)
        Links of each type.
    most : int
        Largest degree.
    rng : Generator

    Returns
    -------
    array of int64, shape (n,)
        Every link goes to a random row of its type; those that find it full go to another one.

    Raises
    ------
    InvalidParameter
        If a type has more links than its rows can hold.
    """
    counts = _counts(of, sums, most)
    order, starts = np.argsort(of, kind="stable"), np.cumsum(counts) - counts
    pending = np.repeat(np.arange(sums.size), sums)
    rows = order[starts[pending] + rng.integers(0, counts[pending])]
    return _spread(np.bincount(rows, minlength=of.size), of, counts, most, rng)


def _counts(of: Integers, sums: Integers, most: int) -> Integers:
    """Count the rows of each type; refuses more links than they can hold."""
    counts: Integers = np.bincount(of, minlength=sums.size)
    if np.any(sums > counts * most):
        raise InvalidParameter(f"a type has more links than its rows hold, at most {most} each")
    return counts


def _spread(
    degrees: Integers, of: Integers, counts: Integers, most: int, rng: np.random.Generator
) -> Integers:
    """Move what is beyond the largest degree to random rows of the same type."""
    order, starts = np.argsort(of, kind="stable"), np.cumsum(counts) - counts
    for _ in range(_ROUNDS):
        excess = np.maximum(degrees - most, 0)
        if not excess.any():
            return degrees
        pending = np.repeat(of, excess)
        rows = order[starts[pending] + rng.integers(0, counts[pending])]
        degrees = degrees - excess + np.bincount(rows, minlength=of.size)
    excess = np.maximum(degrees - most, 0)
    left = np.bincount(np.repeat(of, excess), minlength=counts.size)
    return _fill(degrees - excess, of, left, most, rng)


def _fill(
    degrees: Integers, of: Integers, left: Integers, most: int, rng: np.random.Generator
) -> Integers:
    """Put what is left of each type on free places of its rows, listed one by one."""
    free = np.where(left[of] > 0, np.minimum(most - degrees, left[of]), 0)
    places = np.repeat(np.arange(of.size), free)
    places = places[rng.permutation(places.size)]
    places = places[np.argsort(of[places], kind="stable")]
    rank = np.arange(places.size) - np.searchsorted(of[places], of[places])
    return degrees + np.bincount(places[rank < left[of[places]]], minlength=of.size)


def follow(
    of: Integers, sums: Integers, wanted: Integers, most: int, rng: np.random.Generator
) -> Integers:
    """Spread the links of each type over its rows in proportion to wanted degrees.

    Parameters
    ----------
    of : array of int64, shape (n,)
        Types of the rows.
    sums : array of int64, shape (k,)
        Links of each type.
    wanted : array of int64, shape (n,)
        At least 0; rows of a type that has links and wants none are alike.
    most : int
        Largest degree.
    rng : Generator

    Returns
    -------
    array of int64, shape (n,)
        Adds up to ``sums`` over each type; rounded without bias, what exceeds ``most`` goes to
        other rows of the type.

    Raises
    ------
    InvalidParameter
        If a type has more links than its rows can hold.
    """
    counts = _counts(of, sums, most)
    if not of.size:
        return np.zeros(0, dtype=np.int64)
    shape = np.maximum(wanted, 0).astype(np.float64)
    totals = np.bincount(of, weights=shape, minlength=sums.size)
    shape[(totals == 0)[of]] = 1.0
    totals = np.where(totals == 0, counts, totals)
    mixed = rng.permutation(of.size)
    order = mixed[np.argsort(of[mixed], kind="stable")]
    kinds = of[order]
    begins = np.cumsum(counts) - counts
    running = np.cumsum(shape[order])
    before = np.concatenate([[0.0], running])[begins]
    share = np.clip((running - before[kinds]) / totals[kinds], 0.0, 1.0)
    last = (begins + counts - 1)[counts > 0]
    share[last] = 1.0  # not by rounding
    moved = np.floor(share * sums[kinds] + rng.random(sums.size)[kinds]).astype(np.int64)
    degrees = np.empty(of.size, dtype=np.int64)
    degrees[order] = np.diff(moved, prepend=0)
    degrees[order[begins[counts > 0]]] = moved[begins[counts > 0]]
    return _spread(degrees, of, counts, most, rng)


def assign(degrees: Integers, expected: Floats, rng: np.random.Generator) -> Integers:
    """Give degrees to rows so that those which are expected to have more get more.

    Parameters
    ----------
    degrees : array of int64, shape (n,)
        In any order; all are given out.
    expected : array of shape (n,)
        What each row is expected to have, at least 0, up to a factor.
    rng : Generator

    Returns
    -------
    array of int64, shape (n,)
        A permutation of ``degrees``: a random one, times what is expected, says by its ranks who
        gets which.
    """
    drawn = (rng.permutation(degrees) + rng.random(degrees.size)) * np.maximum(expected, 0.0)
    found = np.empty(degrees.size, dtype=np.int64)
    found[np.argsort(drawn, kind="stable")] = np.sort(degrees)
    return found


def realise(
    left: Integers, right: Integers, rng: np.random.Generator
) -> tuple[Integers, Integers] | None:
    """Find different pairs with given degrees of both ends, if there are any (Gale and Ryser).

    Parameters
    ----------
    left : array of int64, shape (n1,)
    right : array of int64, shape (n2,)
    rng : Generator
        Orders rows of equal degree.

    Returns
    -------
    tuple of array or None
        Row numbers; None where no bipartite graph has these degrees.

    Notes
    -----
    Each row of the right end in turn, the largest degree first, takes the rows of the left end with
    the largest remaining degrees (Havel and Hakimi's rule; Ryser 1957).
    """
    if int(left.sum()) != int(right.sum()):
        return None
    remaining = left.copy()
    ones, others = [], []
    for j in np.argsort(-right, kind="stable"):
        wanted = int(right[j])
        if not wanted:
            break
        best = np.lexsort((rng.random(remaining.size), -remaining))[:wanted]
        if best.size < wanted or remaining[best[-1]] < 1:
            return None
        remaining[best] -= 1
        ones.append(best)
        others.append(np.full(wanted, j))
    if not ones:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(ones).astype(np.int64), np.concatenate(others).astype(np.int64)
