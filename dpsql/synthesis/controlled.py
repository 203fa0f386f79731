"""Controlled rounding: every cell down or up, unbiased, row and column sums kept.

A cycle of fractional cells that turns at every cell, alternating along rows and columns, can be
moved up and down in turn without changing any sum, until one of its cells is integral.  Moving by
``+u`` with probability ``d / (u + d)`` and by ``-d`` otherwise changes no expectation.  When no
cycle is left, no fraction is left, for fractions whose sums are integral always lie on cycles
(dependent rounding: Gandhi, Khuller, Parthasarathy and Srinivasan 2006; controlled rounding: Cox
1987).  Sums that are not integral get a slack row or column that takes the rest, and so are rounded
down or up as well.

Rectangles, the shortest cycles, are found and moved for disjoint pairs of rows all at once, then
for pairs of columns; only what they leave is walked through cell by cell.  Fractions are integers
over `UNIT`, so that no sum is ever off by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from dpsql.errors import InternalError
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers

#: Fractions are multiples of one over this.
UNIT = 1 << 40
#: Cells that rectangles are looked for in while one cycle is walked, about.
_WALKED = 4000
#: A sum so close to an integer is that integer.
NEAR = 1e-6


def controlled_rounding(
    table: Floats,
    rng: np.random.Generator,
    tick: Callable[[], None] = lambda: None,
) -> Integers:
    """Round a table at random: cells, row sums, column sums and total all down or up.

    Parameters
    ----------
    table : array of shape (k1, k2)
        At least 0.
    rng : Generator
        Post-processing: protects nothing.
    tick : callable
        Called now and then; may raise.

    Returns
    -------
    array of int64
        The expectation is the table, but for `NEAR`.

    Notes
    -----
    A sum within `NEAR` of an integer is kept exactly; it would be missed with a probability of
    `NEAR` by the law above, and then the rounding is done again.
    """
    low = np.floor(table)
    parts = np.rint((table - low) * UNIT).astype(np.int64)
    low = low.astype(np.int64)
    goals = [_goal(table.sum(axis=axis)) for axis in (1, 0)]
    for _ in range(50):
        found = low + _round(_with_slack(parts), rng, tick)[:-1, :-1]
        sums = [found.sum(axis=axis) for axis in (1, 0)]
        if all(bool(np.all((s >= a) & (s <= b))) for s, (a, b) in zip(sums, goals, strict=True)):
            return np.asarray(found)
    raise InternalError("a table of links could not be rounded")


def _goal(sums: Floats) -> tuple[Integers, Integers]:
    near = np.rint(sums)
    exact = np.abs(sums - near) <= NEAR
    low = np.where(exact, near, np.floor(sums))
    return low.astype(np.int64), np.where(exact, near, np.ceil(sums)).astype(np.int64)


def _with_slack(parts: Integers) -> Integers:
    """Append a row and a column that make all sums multiples of `UNIT`."""
    k1, k2 = parts.shape
    wide = np.zeros((k1 + 1, k2 + 1), dtype=np.int64)
    wide[:k1, :k2] = parts
    wide[:k1, k2] = -parts.sum(axis=1) % UNIT
    wide[k1, :] = -wide[:k1].sum(axis=0) % UNIT
    return wide


def _round(parts: Integers, rng: np.random.Generator, tick: Callable[[], None]) -> Integers:
    """Move cycles until every cell is 0 or `UNIT`."""
    left = int(_open(parts).sum())
    misses = 0
    while left > 64 and misses < 4:
        tick()
        moved = _rectangles(parts, rng) + _rectangles(parts.T, rng)
        left = int(_open(parts).sum())
        misses = misses + 1 if moved * _WALKED < parts.size else 0
    if left:
        _walk(parts, rng, tick)
    return parts // UNIT


def _open(parts: Integers) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (parts > 0) & (parts < UNIT)


def _rectangles(parts: Integers, rng: np.random.Generator) -> int:
    """Move disjoint rectangles of a random pairing of rows, in place; return how many."""
    order = rng.permutation(parts.shape[0])
    half = order.size // 2
    one, other = order[:half], order[half : 2 * half]
    turn = int(rng.integers(max(parts.shape[1], 1)))
    fractional = _open(parts)
    pair, column = np.nonzero(np.roll(fractional[one] & fractional[other], -turn, axis=1))
    column = (column + turn) % max(parts.shape[1], 1)
    starts = np.searchsorted(pair, np.arange(half))
    rank = np.arange(pair.size) - starts[pair]
    first = np.flatnonzero((rank[:-1] % 2 == 0) & (pair[:-1] == pair[1:]))
    if not first.size:
        return 0
    r, q = one[pair[first]], other[pair[first]]
    c, e = column[first], column[first + 1]
    a, b, f, g = parts[r, c], parts[r, e], parts[q, c], parts[q, e]
    up = np.minimum(np.minimum(UNIT - a, b), np.minimum(f, UNIT - g))
    down = np.minimum(np.minimum(a, UNIT - b), np.minimum(UNIT - f, g))
    step = np.where(rng.integers(0, up + down) < down, up, -down)
    parts[r, c], parts[r, e] = a + step, b - step
    parts[q, c], parts[q, e] = f - step, g + step
    return int(first.size)


def _walk(parts: Integers, rng: np.random.Generator, tick: Callable[[], None]) -> None:
    """Move one cycle after the other: walk along fractional cells until a node comes again."""
    k1 = parts.shape[0]
    near: list[set[int]] = [set() for _ in range(k1 + parts.shape[1])]
    weight: dict[tuple[int, int], int] = {}
    for r, c in zip(*(x.tolist() for x in np.nonzero(_open(parts))), strict=True):
        near[r].add(k1 + c)
        near[k1 + c].add(r)
        weight[r, k1 + c] = int(parts[r, c])
    place: dict[int, int] = {}  # of the nodes on the path
    path: list[int] = []
    for begin in range(k1):
        while near[begin] or path:
            if not path:
                path, place = [begin], {begin: 0}
            node = path[-1]
            came = path[-2] if len(path) > 1 else -1
            # the shortest way back, if there is any
            start = max((place[n] for n in near[node] & place.keys() if n != came), default=-1)
            if start < 0:
                to = next((n for n in near[node] if n != came), -1)
                if to < 0:
                    raise InternalError("a fractional cell lies on no cycle")
                place[to] = len(path)
                path.append(to)
                continue
            cycle = [*path[start:], path[start]]
            edges = [(min(x, y), max(x, y)) for x, y in pairwise(cycle)]
            _turn(edges, weight, rng)
            cut = len(path)
            for k, edge in enumerate(edges):
                if weight[edge] in (0, UNIT):
                    cut = min(cut, start + k + 1)
                    near[edge[0]].discard(edge[1])
                    near[edge[1]].discard(edge[0])
                    parts[edge[0], edge[1] - k1] = weight.pop(edge)
            for node in path[cut:]:
                del place[node]
            del path[cut:]
            if len(path) == 1 and not near[path[0]]:
                path, place = [], {}
        tick()


def _turn(
    edges: list[tuple[int, int]], weight: dict[tuple[int, int], int], rng: np.random.Generator
) -> None:
    even, odd = edges[::2], edges[1::2]
    up = min(min(UNIT - weight[e] for e in even), min(weight[e] for e in odd))
    down = min(min(weight[e] for e in even), min(UNIT - weight[e] for e in odd))
    step = up if int(rng.integers(0, up + down)) < down else -down
    for e in even:
        weight[e] += step
    for e in odd:
        weight[e] -= step
