"""Algorithm 5 as published: mirror descent on the links of all pairs of rows.

papers/relational-synthetic-data.txt, Appendix B.  Memory and time are ``n_1 n_2``: for small
tables, and as the reference for `type_descent`, which reaches the same objective.

Where the published text is loose:

- it starts at ``b0 / m``, a distribution, but the gradient is that of links that add up to ``m``;
  here ``b`` is links throughout;
- cutting at 1 and rescaling ``T_i`` times is no projection onto the box with a total, and leaves
  entries above 1 whenever it stops (`clamp`); the default is the Kullback-Leibler projection,
  which is what mirror descent with the entropy needs;
- an entry of 0 stays 0 for ever, so a start must be positive;
- answers of different variances count alike; here they are weighted;
- "we introduce a linear equation for each entry" (Appendix D, one-to-many) gives no algorithm: that
  projection is a rescaling of every child's links.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.marginal_map import MarginalMap
from dpsql.synthesis.polytope import TINY, Polytope
from dpsql.synthesis.records import Records
from dpsql.synthesis.types import Types
from dpsql.workload.marginals import Floats

#: Pairs of rows at most.
MOST_PAIRS = 4_000_000


def singletons(records: Records) -> Types:
    """Give every row a type of its own."""
    each = np.arange(records.count)
    return Types((1 << len(records.sizes)) - 1, each, np.ones(records.count, dtype=np.int64), each)


def require_pairs(left: Records, right: Records) -> None:
    """Refuse tables whose pairs do not fit memory."""
    if left.count * right.count > MOST_PAIRS:
        raise InvalidParameter(
            f"the tables have {left.count * right.count} pairs of rows",
            detail=f"At most {MOST_PAIRS} are optimised one by one.",
            hint="Link types of rows instead.",
        )


def mirror_descent(
    mapping: MarginalMap,
    polytope: Polytope,
    start: Floats,
    *,
    outer: int,
    step: float | None = None,
    clamp: int | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Floats:
    """Descend ``outer`` times with a fixed step (Algorithm 5).

    Parameters
    ----------
    mapping : MarginalMap
        Of `singletons`.
    polytope : Polytope
    start : array of shape (n1, n2)
        Positive.
    outer : int
        ``T_o``.
    step : float, optional
        ``eta`` for the objective in shares of the links; the default is the largest one for
        which every step is known to descend, ``m / (2 sum of weights)``.
    clamp : int, optional
        ``T_i``: cut off and rescale so many times instead of projecting, as published.
    tick : callable
        Called at every step; may raise.
    """
    total = polytope.total
    least = min((float(a.variance) for a in mapping.answers), default=1.0)
    weights = [least / float(a.variance) for a in mapping.answers]
    eta = total / (2 * sum(weights)) if step is None and weights else (step or 0.0)
    links = polytope.project(np.array(start, dtype=np.float64))
    slope = np.empty_like(links)
    for _ in range(outer):
        tick()
        seen = mapping.forward(links)
        forces = [
            2 * w * (m - a.table) / total**2
            for w, m, a in zip(weights, seen, mapping.answers, strict=True)
        ]
        mapping.back(forces, slope)
        slope -= slope.min()
        moved = np.maximum(links * np.exp(-eta * slope), TINY)
        links = polytope.project(moved) if clamp is None else _clamp(moved, total, clamp)
    return links


def _clamp(links: Floats, total: float, times: int) -> Floats:
    links = links * (total / links.sum())
    for _ in range(times):
        links = np.minimum(links, 1.0)
        links = links * (total / links.sum())
    return np.asarray(links)
