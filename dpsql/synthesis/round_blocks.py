"""Round links between types in the cheapest way that keeps what is fixed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.synthesis.controlled import controlled_rounding
from dpsql.synthesis.polytope import Bounds, Polytope
from dpsql.synthesis.rounding import systematic
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers

_TRIES = 3


def round_blocks(
    table: Floats,
    polytope: Polytope,
    rng: np.random.Generator,
    tick: Callable[[], None] = lambda: None,
) -> Integers:
    """Round to integers within the polytope, every cell down or up, without bias.

    Notes
    -----
    Where only one end has sums to keep, systematic sampling along that end does; its result is
    taken if the other end's bounds hold, which they nearly always do, else drawn again, and at
    last by `controlled_rounding`, which keeps all.  (Drawing again is a bias of the order of the
    probability that it is needed.)
    """
    table = polytope.settle(table)
    fixed = _exact(polytope.rows), _exact(polytope.columns)
    for _ in range(0 if all(fixed) else _TRIES):
        tick()
        if fixed[1]:
            found = systematic(table, rng)
        elif fixed[0]:
            found = systematic(table.T, rng).T
        else:
            found = systematic(table.reshape(-1), rng).reshape(table.shape)
        bounds = ((polytope.rows, 1), (polytope.columns, 0))
        if all(b is None or _within(found.sum(axis=axis), b) for b, axis in bounds):
            return np.asarray(found)
    return controlled_rounding(table, rng, tick)


def _exact(bounds: Bounds | None) -> bool:
    return bounds is not None and bool(np.array_equal(bounds.low, bounds.high))


def _within(sums: Integers, bounds: Bounds) -> bool:
    return bool(np.all((sums >= bounds.low) & (sums <= bounds.high)))
