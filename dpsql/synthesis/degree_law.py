"""How many children parents have: bins of degrees, and draws from a noisy histogram of them.

Degrees are told apart one by one up to a bound, then by bins whose ends grow by a quarter: few
numbers to perturb, however large ``d_max``.  What is drawn is post-processing of public values.
"""

from __future__ import annotations

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.marginals import Floats
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Integers

#: Degrees that are told apart.
SINGLE = 16


def edges(most: int) -> tuple[int, ...]:
    """Return the least degree of each bin, from 1 to ``most``, which the last bin holds.

    Raises
    ------
    InvalidParameter
        If the largest degree is below 1.
    """
    if most < 1:
        raise InvalidParameter(f"a largest degree of {most} allows no link")
    found = list(range(1, min(SINGLE, most) + 1))
    while found[-1] < most:
        after = max(found[-1] + 1, found[-1] * 5 // 4)
        if after > most:
            break
        found.append(after)
    return tuple(found)


def draw_degrees(
    histogram: Floats, starts: tuple[int, ...], most: int, parents: int, rng: np.random.Generator
) -> Integers:
    """Draw the degree of every parent from a noisy histogram.

    Parameters
    ----------
    histogram : array of shape (bins,)
        Parents by their number of children, those without any left out; noisy.
    starts : tuple of int
        Of `edges`.
    most : int
        The largest degree.
    parents : int
        Rows; those that the histogram does not hold have no children.
    rng : Generator

    Returns
    -------
    array of int64, shape (parents,)
        In random order; within a bin all degrees are alike.
    """
    with_children = float(np.clip(histogram.sum(), 0.0, parents))
    shares = project_simplex(np.asarray(histogram, dtype=np.float64), with_children)
    ends = np.array([*starts[1:], most + 1])
    shares = np.concatenate([[max(parents - float(shares.sum()), 0.0)], shares])
    total = float(shares.sum())
    if parents == 0 or total <= 0:
        return np.zeros(parents, dtype=np.int64)
    points = (rng.random() + np.arange(parents)) * (total / parents)
    bins = np.searchsorted(np.cumsum(shares), points, side="right")
    bins = rng.permutation(np.minimum(bins, len(starts)))
    low = np.array([0, *starts])[bins]
    width = np.concatenate([[1], ends - np.array(starts)])[bins]
    return np.asarray(low + (rng.random(parents) * width).astype(np.int64), dtype=np.int64)
