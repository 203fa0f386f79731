"""Whole rows of a mixture: tables of integers that agree with each other.

All counts of such rows are non-negative integers and consistent, which rounding single tables is
not.  The rows are spread over the components, and over the levels within each, by systematic
sampling, so that counts are off by less than independent draws would be.  Post-processing: it
costs no budget, and the seed is no privacy noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.workload.marginals import attributes_of, shape
from dpsql.workload.mixture import Mixture
from dpsql.workload.residual_bases import Integers


def sample_rows(model: Mixture, seed: int = 0, tick: Callable[[], None] = lambda: None) -> Integers:
    """Draw rows, as many as the model's total says, rounded.

    ``tick`` is called for each attribute of each component and may raise to cancel.

    Returns
    -------
    array of int64, shape (rows, attributes)
        Level numbers from 0, in order of components.
    """
    rng = np.random.default_rng(seed)
    number = round(model.total)
    weights = model.weights.astype(np.float64)
    component = _systematic(weights[:, None], np.array([number]), rng, tick)[0]
    counts = np.bincount(component, minlength=weights.size)
    columns = []
    for levels in model.levels:
        drawn = _systematic(levels.astype(np.float64), counts, rng, tick)
        columns.append(np.concatenate([rng.permutation(part) for part in drawn]))
    return np.stack(columns, axis=1).astype(np.int64)


def count_rows(
    rows: Integers, sizes: Sequence[int], masks: Sequence[int]
) -> Mapping[int, Integers]:
    """Count marginals of rows.

    Parameters
    ----------
    rows : array of int64, shape (rows, attributes)
    sizes : sequence of int
        Levels of the attributes.
    masks : sequence of int
        The marginals wanted.
    """
    result = {}
    for mask in masks:
        wanted = shape(sizes, mask)
        code = np.zeros(len(rows), dtype=np.int64)
        for i in attributes_of(mask):
            code = code * sizes[i] + rows[:, i]
        cells = int(np.prod(wanted, dtype=np.int64))
        result[mask] = np.bincount(code, minlength=cells).astype(np.int64).reshape(wanted)
    return result


def _systematic(
    shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> list[Integers]:
    """Draw positions by the columns' shares: each at its expected number, up or down by one."""
    result = []
    for column, count in zip(shares.T, counts, strict=True):
        tick()
        ends = np.cumsum(column)
        points = (rng.uniform() + np.arange(count)) * (ends[-1] / max(count, 1))
        found = np.searchsorted(ends, points, side="right")
        result.append(np.minimum(found, len(ends) - 1).astype(np.int64))
    return result
