"""Post-processing of an estimated data vector: no negative counts, whole counts.

Functions of noisy measurements alone, hence free (PRIVACY.md section 2 (b)).  Every answer is then
computed from one vector, so that grouping sets still agree.
"""

from __future__ import annotations

import numpy as np

from dpsql.workload.matrix import Floats


def project(vector: Floats) -> Floats:
    """Return the nearest vector without negative entries that has the same total.

    The nearest point, in squared distance, of the simplex of that size: all entries are lowered by
    one number and cut at 0 (Duchi et al. 2008).  A total below 0 counts as 0.

    Parameters
    ----------
    vector : array
        Any shape.
    """
    flat = vector.ravel()
    total = float(flat.sum())
    if total <= 0:
        return np.zeros_like(vector)
    if flat.min() >= 0:
        return np.asarray(vector, dtype=np.float64)
    ordered = np.sort(flat)[::-1]
    sums = np.cumsum(ordered)
    places = np.arange(1, len(flat) + 1)
    kept = np.flatnonzero(ordered * places > sums - total)
    last = int(kept[-1]) if len(kept) else 0
    lowered = (float(sums[last]) - total) / (last + 1)
    return np.asarray(np.maximum(vector - lowered, 0.0))


def whole(vector: Floats) -> Floats:
    """Round a vector without negative entries to whole numbers, keeping its total to within one.

    Entries are rounded down, and as many as are missing up: those with the largest fractions, the
    first of equal ones.
    """
    down = np.floor(vector)
    missing = round(float(vector.sum()) - float(down.sum()))
    if missing <= 0:
        return np.asarray(down)
    fractions = (vector - down).ravel()
    order = np.argsort(-fractions, kind="stable")[:missing]
    result = down.ravel().copy()
    result[order] += 1
    return np.asarray(result.reshape(vector.shape))
