"""Algorithm 9: learn the links of a random slice of both tables at a time.

papers/relational-synthetic-data.txt, Appendix E.  Links are kept as pairs of row numbers; a slice's
pairs are dense, ``alpha^2 n_1 n_2`` of them.  (``alpha`` is used twice in the paper: there also for
the share of the budget that selects, `selection.Schedule.select_share` here.)

As published a slice is fitted to the whole answers, though it holds only ``m_slice`` of the links:
its counts are then far below and pulled to the wrong shape.  Here it is fitted to what the links
outside leave over.  Degrees that the relationship fixes stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.controlled import controlled_rounding
from dpsql.synthesis.marginal_map import MarginalMap
from dpsql.synthesis.pairs import require_pairs, singletons
from dpsql.synthesis.polytope import Bounds, Polytope
from dpsql.synthesis.records import Answer, Links, Records, count_links
from dpsql.synthesis.relationship import Relationship
from dpsql.synthesis.rounding import exponential
from dpsql.synthesis.type_descent import Descent, fit
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers


def learn_slice(
    left: Records,
    right: Records,
    links: Links,
    answers: Sequence[Answer],
    relationship: Relationship,
    chosen: float | tuple[Integers, Integers],
    rng: np.random.Generator,
    descent: Descent | None = None,
    tick: Callable[[], None] = lambda: None,
    counts: Sequence[Floats] | None = None,
) -> Links:
    """Replace the links within a random slice by better ones, as many.

    Parameters
    ----------
    left, right : Records
    links : Links
        Different pairs, within what the relationship allows.
    answers : sequence of Answer
    relationship : Relationship
        Where it bounds or fixes degrees, both ends' stay as they are; otherwise only the number
        of links does.
    chosen : float, or pair of array of int64
        ``alpha``, in (0, 1]: share of either table's rows; or which rows, in order, as of
        `rows_of_links`.
    rng : Generator
        Chooses the slice and rounds; post-processing.
    descent : Descent, optional
    tick : callable
        Called now and then; may raise.
    counts : sequence of array, optional
        What the links answer, where that is known.

    Raises
    ------
    InvalidParameter
        If the fraction is out of range, or the slice too large.
    """
    if isinstance(chosen, tuple):
        rows, columns = chosen
    elif 0 < chosen <= 1:
        rows, columns = (_some(end.count, chosen, rng) for end in (left, right))
    else:
        raise InvalidParameter(f"a slice of {chosen} of the rows is not in (0, 1]")
    one, other = _places(left.count, rows), _places(right.count, columns)
    inside = (one[links.left] >= 0) & (other[links.right] >= 0)
    ours = Links(one[links.left[inside]], other[links.right[inside]])
    rest = Links(links.left[~inside], links.right[~inside])
    total = int(inside.sum())
    if not total:
        return links
    part, next_part = (
        Records(left.rows[rows], left.sizes),
        Records(right.rows[columns], right.sizes),
    )
    require_pairs(part, next_part)
    if counts is None:
        counts = [count_links(left, right, links, a.workload).astype(np.float64) for a in answers]
    wanted = [  # less what the links outside answer
        replace(a, table=a.table - whole + count_links(part, next_part, ours, a.workload))
        for a, whole in zip(answers, counts, strict=True)
    ]
    mapping = MarginalMap(part, next_part, singletons(part), singletons(next_part), wanted)
    start = np.full((part.count, next_part.count), total / (part.count * next_part.count))
    ends = ((relationship.left, right.count), (relationship.right, left.count))
    bound = any(end.degrees is not None or end.limit(others) < others for end, others in ends)
    margins = (
        [_kept(ours.left, part.count), _kept(ours.right, next_part.count)]
        if bound
        else [None, None]
    )
    single = any(m is not None and m.high.max(initial=0.0) <= 1 for m in margins)
    polytope = Polytope(float(total), None if single else np.ones_like(start), *margins)
    relaxed = fit(mapping, polytope, start, descent, tick).table
    if bound:
        where = np.nonzero(
            controlled_rounding(np.minimum(polytope.settle(relaxed), 1.0), rng, tick)
        )
        found = Links(where[0], where[1])
    else:
        found = exponential(relaxed, total, rng)
    return Links(
        np.concatenate([rest.left, rows[found.left]]),
        np.concatenate([rest.right, columns[found.right]]),
    )


def rows_of_links(links: Links, number: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Choose the rows of both tables that some random links have.

    Random rows, as published, have ``alpha^2`` of the links between them: next to none where
    tables are large and each child has one parent.
    """
    some = rng.permutation(links.left.size)[:number]
    return np.unique(links.left[some]), np.unique(links.right[some])


def _some(count: int, fraction: float, rng: np.random.Generator) -> Integers:
    """Choose a share of the rows, in order."""
    return np.sort(rng.permutation(count)[: max(1, round(fraction * count))])


def _places(count: int, rows: Integers) -> Integers:
    """Return places by row number, -1 for rows that are not chosen."""
    place = np.full(count, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    return place


def _kept(rows: Integers, count: int) -> Bounds:
    sums = np.bincount(rows, minlength=count).astype(np.float64)
    return Bounds(sums, sums)
