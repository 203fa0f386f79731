"""Rows of heavy units, told apart: a table as all rows have it, learnt of some rows of each unit.

Of each privacy unit at most ``d_max`` rows count, so that those of units with many are too few, and
columns follow units with few.  How many rows its unit has is one more attribute of every row: it
is the unit's own, so that a unit more or less still changes ``d_max`` counts (PRIVACY.md section
5).  How many rows such units have in all is known from the degrees of their parents, which cost
the same however large they are; rows are drawn by that.  Everything here is post-processing of
public values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpsql.workload.marginals import Floats
from dpsql.workload.mixture import Mixture
from dpsql.workload.residual_bases import Integers

#: Methods whose rows are drawn from a mixture, which strata are weighed in.
METHODS = ("pairs", "aim", "residual_planner")
#: Where strata begin: at the bound, and at so many doublings of it at most; how many begin.
_MOST_DOUBLINGS, _MOST_STARTS = 4, 2
#: Levels that strata add at most.
MOST_LEVELS = _MOST_STARTS + 1
#: How many rows one may stand for: with more, noise that a fit does not take out is too large.
_HEAVIEST = 10.0
#: What part of ``d_max`` counts at least.
_LEAST = 8
#: How far columns of rows that have wrong weights are off, of what the weights are off by.
_FOLLOWS = 0.33
#: How much more noise an attribute has than if only single ones were measured.
_SHARED = 1.25
#: How much is left of the noise that weights of strata add, once a fit has taken some out.
_LEFT = 0.6
#: By how much more strata or fewer rows must be better.
_BETTER = 0.95


@dataclass(frozen=True, slots=True)
class Strata:
    """Units by their number of rows, of which some count.

    Attributes
    ----------
    rows : int
        How many of each count.
    starts : tuple of int
        A unit is in the stratum of how many of these its rows are more than; they increase.
    weights : tuple of float
        For each stratum how many rows there are for one that counts.
    """

    rows: int
    starts: tuple[int, ...]
    weights: tuple[float, ...]


def best_strata(
    degrees: Integers, most: int, rho: Fraction, sizes: Sequence[int], *, parted: bool = True
) -> Strata:
    """Choose how many rows of each unit count, and which strata are told apart.

    Parameters
    ----------
    degrees : array of int64
        Rows of each unit; drawn from what was measured.
    most : int
        ``d_max``: how many of each may count.
    rho : Fraction
        The budget of the table.
    sizes : sequence of int
        Levels of its attributes.
    parted : bool
        Whether there may be several strata.

    Notes
    -----
    What is expected of a column in total variation: its noise, if attributes share the budget, and
    as independent of that a share of how far the weights of units are from their rows.  The factors
    `_SHARED`, `_FOLLOWS` and `_LEFT` are as measured on the data of ``bench/synthesis.py``.
    """
    found = Strata(most, (), (1.0,))
    best = math.inf
    levels = sum(sizes) / max(len(sizes), 1)
    fewer = [1 << i for i in range(most.bit_length()) if most <= _LEAST << i and 1 << i < most]
    for rows in (most, *reversed(fewer)):
        plain = math.inf
        for starts in _choices(rows, degrees) if parted else [()]:
            weights, off, noise = _expected(degrees, rows, starts)
            if starts and max(weights) > _HEAVIEST:
                continue
            sigma = _SHARED * math.sqrt((len(sizes) + bool(starts)) / (2 * float(rho)))
            noise *= rows * sigma * levels / math.sqrt(2 * math.pi)
            plain = min(plain, noise)
            noise = math.hypot(plain, _LEFT * math.sqrt(noise**2 - plain**2))
            error = math.hypot(noise, _FOLLOWS * off)
            if error < _BETTER * best:
                best, found = error, Strata(rows, starts, weights)
    return found


def _choices(rows: int, degrees: Integers) -> list[tuple[int, ...]]:
    """List what strata may begin with: the bound and some doublings of it, that units exceed."""
    largest = int(degrees.max(initial=0))
    ends = [rows << i for i in range(_MOST_DOUBLINGS + 1) if rows << i < largest]
    found: list[tuple[int, ...]] = [()]
    for some in range(1, 1 << len(ends)):
        if some.bit_count() <= _MOST_STARTS:
            found.append(tuple(end for i, end in enumerate(ends) if some >> i & 1))
    return found


def _expected(
    degrees: Integers, rows: int, starts: tuple[int, ...]
) -> tuple[tuple[float, ...], float, float]:
    """Return weights, by how much those of units are off, and the noise of a share for unit noise.

    Of a table of one stratum all rows that count weigh as much.
    """
    every = max(float(degrees.sum()), 1.0)
    kept = np.minimum(degrees, rows)
    which = np.searchsorted(np.array(starts, dtype=np.int64), degrees, side="left")
    all_, some = (np.bincount(which, w, len(starts) + 1) for w in (degrees, kept))
    weights = np.maximum(all_, 1.0) / np.maximum(some, 1.0)
    off = float(np.abs(degrees - weights[which] * kept).sum()) / 2 / every
    noise = float(np.sqrt((weights**2).sum())) / every
    return tuple(float(w) for w in weights), off, noise


def weighed(model: Mixture, weights: Sequence[float]) -> Mixture:
    """Give the strata of a mixture, its last attribute, their weights; the total stays."""
    *levels, last = model.levels
    scaled = last * np.asarray(weights, dtype=np.float32)[:, None]
    sums = np.maximum(scaled.sum(axis=0), np.float32(1e-30))
    shares = model.weights * sums
    return replace(
        model,
        levels=(*levels, (scaled / sums).astype(np.float32)),
        weights=(shares / shares.sum()).astype(np.float32),
    )


def joined(table: Floats, weights: Sequence[float]) -> Floats:
    """Add the strata of a marginal up, the last axis, each by its weight."""
    return np.asarray(table @ np.asarray(weights, dtype=np.float64))
