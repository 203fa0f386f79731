"""Links of rows to rows of their own table, without cycles.

Post-processing of public values; seeded generators protect nothing.
"""

from __future__ import annotations

import numpy as np

from dpsql.workload.residual_bases import Integers


def without_cycles(
    parents: Integers, left: Integers, right: Integers, rng: np.random.Generator
) -> Integers:
    """Exchange parents until every row leads to one that has none.

    Parameters
    ----------
    parents : array of int64, shape (n,)
        The row that each row refers to, -1 for none.
    left, right : array of int64, shape (n,)
        Types of the rows as parents, and as children.
    rng : Generator

    Returns
    -------
    array of int64, shape (n,)
        Degrees are the same, and so are the links between types as far as a link outside of the
        cycle has the types of one on it.  Where all rows have a parent, one refers to itself.

    Notes
    -----
    Each row refers to one other, so that what is connected is a tree, or has one cycle.  Let a link
    ``c`` to ``p`` be on a cycle and ``c'`` to ``p'`` in a tree: ``c`` to ``p'`` and ``c'`` to ``p``
    instead makes both one tree, for the way up from ``p'`` never met ``c'``.  One exchange for
    each cycle is enough, and random links have few cycles, about half the logarithm of the rows.
    """
    found = parents.copy()
    itself = -1
    if found.size and not np.any(found < 0):
        itself = int(rng.integers(found.size))
        found[itself] = -1
    tops = _tops(found)
    links = np.flatnonzero((tops < 0) & (found >= 0))
    trees = _Links(links, found, left, right)
    seen: set[int] = set()
    for start in np.unique(tops[tops >= 0]).tolist():
        if start in seen:
            continue
        cycle = _around(start, found)
        seen.update(cycle)
        one, other = trees.alike(cycle, found, rng)
        if other is None:
            roots = np.flatnonzero(found < 0)
            found[one] = roots[rng.integers(roots.size)]
        else:
            found[one], found[other] = found[other], found[one]
        trees.add(np.asarray(cycle), found)
    if itself >= 0:
        found[itself] = itself
    return found


class _Links:
    """Links of trees by the types of their ends."""

    def __init__(
        self, children: Integers, parents: Integers, left: Integers, right: Integers
    ) -> None:
        self._left, self._right = left, right
        self._width = int(right.max(initial=0)) + 1
        self._children = children
        keys = self._keys(children, parents)
        order = np.argsort(keys, kind="stable")
        self._sorted, self._order = keys[order], children[order]
        self._more: list[int] = []

    def _keys(self, children: Integers, parents: Integers) -> Integers:
        return np.asarray(self._left[parents[children]] * self._width + self._right[children])

    def alike(
        self, cycle: list[int], parents: Integers, rng: np.random.Generator
    ) -> tuple[int, int | None]:
        """Choose a link of a cycle and one of a tree, of the same types if there are such."""
        nodes = rng.permutation(np.asarray(cycle, dtype=np.int64))
        wanted = self._keys(nodes, parents)
        low = np.searchsorted(self._sorted, wanted, side="left")
        many = np.searchsorted(self._sorted, wanted, side="right") - low
        if many.any():
            k = int(np.argmax(many > 0))
            return int(nodes[k]), int(self._order[low[k] + rng.integers(many[k])])
        if self._children.size:
            return int(nodes[0]), int(self._children[rng.integers(self._children.size)])
        if self._more:
            return int(nodes[0]), self._more[int(rng.integers(len(self._more)))]
        return int(nodes[0]), None

    def add(self, children: Integers, parents: Integers) -> None:
        """Take in links that are in a tree now."""
        self._more += [int(c) for c in children if parents[c] >= 0]


def _tops(parents: Integers) -> Integers:
    """Return -1 for rows of trees, a row of the cycle for others."""
    found = parents.copy()
    for _ in range(max(1, int(parents.size).bit_length())):
        up = found >= 0
        found[up] = found[found[up]]
    return found


def _around(start: int, parents: Integers) -> list[int]:
    found, at = [start], int(parents[start])
    while at != start:
        found.append(at)
        at = int(parents[at])
    return found
