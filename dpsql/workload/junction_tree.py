"""Junction trees over attribute sets: how large a graphical model is, and its marginals.

A graphical model has one table per clique of a tree in which the cliques of every attribute hang
together; neighbours agree on their separator, so that the model is
``prod_C p(C) / prod_S p(S)`` (Lauritzen and Spiegelhalter 1988).  Its size is a function of the
measured attribute sets alone.  Any marginal follows by summing along the part of the tree that
touches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_

import numpy as np

from dpsql.workload.marginals import Floats, attributes_of, cells, mask_of, shape

#: Cells of a message above which a marginal is made one level of an attribute at a time.
MOST_AT_ONCE = 1 << 25


@dataclass(frozen=True)
class JunctionTree:
    """Cliques and the edges between them.

    Attributes
    ----------
    sizes : tuple of int
        Levels of the attributes of the domain.
    cliques : tuple of int
        Maximal, as masks; every attribute with several levels is in one of them.
    edges : tuple of (int, int)
        Of a tree; neighbours may have nothing in common.
    """

    sizes: tuple[int, ...]
    cliques: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    def clique_of(self, mask: int) -> int | None:
        """Return the smallest clique that contains a set of attributes."""
        found = (c for c in self.cliques if mask & ~c == 0)
        return min(found, key=lambda c: cells(self.sizes, c), default=None)

    def marginal(self, tables: Mapping[int, Floats], mask: int) -> Floats:
        """Return a marginal of a model.

        Parameters
        ----------
        tables : mapping of clique to array
            Non-negative; neighbours agree on their separators.
        mask : int
            Any attributes.

        Returns
        -------
        array
            One axis per attribute of ``mask``, ascending.
        """
        inner = mask & _several_levels(self.sizes)
        clique = self.clique_of(inner)
        if clique is not None:
            found = summed(tables[clique], clique, inner)
        else:
            found = _contracted(self._rooted(tables, inner), inner, self.sizes)
        return found.reshape(shape(self.sizes, mask))

    def _rooted(self, tables: Mapping[int, Floats], mask: int) -> list[_Node]:
        """List what a marginal needs: the root first, then each clique given its parent."""
        neighbours = self._touched(mask)
        root = max(neighbours, key=lambda c: cells(self.sizes, c & mask))
        nodes = [_Node(tables[root], root, 0, 0)]
        seen = {root}
        for place, node in enumerate(nodes):  # which grows
            for clique in neighbours[node.clique]:
                if clique in seen:
                    continue
                seen.add(clique)
                common = clique & node.clique
                table = tables[clique]
                below = summed(table, clique, common)
                axes = tuple(k for k, i in enumerate(attributes_of(clique)) if not common >> i & 1)
                given = np.expand_dims(np.where(below > 0, below, 1.0), axes)
                nodes.append(_Node(table / given, clique, common, place))
        return nodes

    def _touched(self, mask: int) -> dict[int, list[int]]:
        """Return the neighbours in what is left without leaves that tell nothing of a mask."""
        neighbours: dict[int, list[int]] = {c: [] for c in self.cliques}
        for a, b in self.edges:
            neighbours[a].append(b)
            neighbours[b].append(a)
        pending = list(self.cliques)
        while pending:
            clique = pending.pop()
            around = neighbours.get(clique)
            if around is None or len(around) != 1 or clique & mask & ~around[0]:
                continue
            del neighbours[clique]
            neighbours[around[0]].remove(clique)
            pending.append(around[0])
        return neighbours


@dataclass(frozen=True)
class _Node:
    table: Floats
    clique: int
    common: int
    parent: int


def junction_tree(sizes: Sequence[int], masks: Iterable[int]) -> JunctionTree:
    """Build a tree for models of some marginals.

    Attributes are eliminated one by one: those whose neighbours are all joined already first, then
    those that make the smallest clique.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes of the domain.
    masks : iterable of int
        What was measured, or is to be.
    """
    cliques = _maximal(_eliminated(sizes, masks))
    joined: list[tuple[int, int]] = []
    group = {c: {c} for c in cliques}
    pairs = sorted(combinations(cliques, 2), key=lambda p: -(p[0] & p[1]).bit_count())
    for a, b in pairs:
        if group[a] is not group[b]:
            joined.append((a, b))
            group[a] |= group[b]
            for c in group[b]:
                group[c] = group[a]
    return JunctionTree(tuple(sizes), tuple(cliques), tuple(joined))


def model_cells(sizes: Sequence[int], masks: Iterable[int]) -> int:
    """Return the number of cells of all cliques of the tree that `junction_tree` would build."""
    return sum(cells(sizes, c) for c in _maximal(_eliminated(sizes, masks)))


def summed(table: Floats, clique: int, mask: int) -> Floats:
    """Sum a table over the attributes of a clique that are not in the mask."""
    axes = tuple(k for k, i in enumerate(attributes_of(clique)) if not mask >> i & 1)
    return np.asarray(table.sum(axis=axes))


def _several_levels(sizes: Sequence[int]) -> int:
    return mask_of(i for i, n in enumerate(sizes) if n > 1)


def _maximal(masks: Iterable[int]) -> list[int]:
    """List the masks that are no proper subset of another one, without all of their subsets."""
    found: list[int] = []
    for mask in sorted(set(masks), key=lambda m: -m.bit_count()):
        if all(mask & ~other for other in found):
            found.append(mask)
    return found


def _eliminated(sizes: Sequence[int], masks: Iterable[int]) -> list[int]:
    """Return the clique of every attribute when it is eliminated; one empty if there is none."""
    left = _several_levels(sizes)
    around = {i: 1 << i for i in attributes_of(left)}
    for mask in masks:
        for i in attributes_of(mask & left):
            around[i] |= mask & left
    found = []
    while around:

        def cost(i: int) -> tuple[bool, int]:
            own = around[i]
            fill = any(own & ~around[j] for j in attributes_of(own))
            return fill, cells(sizes, own)

        i = min(around, key=cost)
        own = around.pop(i)
        found.append(own)
        for j in attributes_of(own & ~(1 << i)):
            around[j] = (around[j] | own) & ~(1 << i)
    return found or [0]


def _contracted(nodes: Sequence[_Node], mask: int, sizes: Sequence[int]) -> Floats:
    """Sum a product of tables along the tree, from the leaves to the root."""
    scopes = [node.clique for node in nodes]
    widest = 0
    for place in range(len(nodes) - 1, -1, -1):
        scopes[place] &= mask | nodes[place].common
        widest = max(widest, cells(sizes, scopes[place]))
        if place:
            scopes[nodes[place].parent] |= scopes[place]
    split = max(attributes_of(mask), key=sizes.__getitem__)
    if widest > MOST_AT_ONCE and sizes[split] > 1:
        one = [1 if i == split else n for i, n in enumerate(sizes)]
        parts = [
            _contracted([_level(node, split, k) for node in nodes], mask, one)
            for k in range(sizes[split])
        ]
        return np.concatenate(parts, axis=attributes_of(mask).index(split))
    factors: list[list[tuple[Floats, int]]] = [[(node.table, node.clique)] for node in nodes]
    for place in range(len(nodes) - 1, -1, -1):
        found = _product(factors[place], scopes[place])
        if place:
            factors[nodes[place].parent].append((found, scopes[place]))
        factors[place] = []
    return found


def _product(factors: Sequence[tuple[Floats, int]], kept: int) -> Floats:
    """Multiply tables and sum over the attributes that are not kept."""
    number = {i: k for k, i in enumerate(attributes_of(reduce(or_, (s for _, s in factors))))}
    operands: list[object] = []
    for table, scope in factors:
        operands += [table, [number[i] for i in attributes_of(scope)]]
    wanted = [number[i] for i in attributes_of(kept)]
    way = ("greedy", MOST_AT_ONCE)
    return np.asarray(np.einsum(*operands, wanted, optimize=way))  # type: ignore[call-overload]


def _level(node: _Node, attribute: int, level: int) -> _Node:
    if not node.clique >> attribute & 1:
        return node
    axis = attributes_of(node.clique).index(attribute)
    table = node.table.take([level], axis=axis)
    return _Node(table, node.clique, node.common, node.parent)
