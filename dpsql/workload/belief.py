"""Sum-product on a junction tree: the marginals of a graphical model from its potentials.

A potential is a table of logarithms for each clique; the model is proportional to the exponential
of their sum.  Messages go from the leaves to the root (Lauritzen and Spiegelhalter 1988), after
which every clique knows its law given its parent; marginals follow from the root to the leaves.
One exponential a cell and a few sums, and no potential is too large for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpsql.workload.junction_tree import JunctionTree
from dpsql.workload.marginals import Floats, attributes_of, cells


@dataclass(frozen=True)
class _Node:
    """A clique, its parent, and which axes of both are not common to them."""

    clique: int
    parent: int
    own: tuple[int, ...]
    parents: tuple[int, ...]


class Belief:
    """Passes messages along a tree.

    Parameters
    ----------
    tree : JunctionTree
    """

    def __init__(self, tree: JunctionTree) -> None:
        neighbours: dict[int, list[int]] = {clique: [] for clique in tree.cliques}
        for a, b in tree.edges:
            neighbours[a].append(b)
            neighbours[b].append(a)
        self.root = max(tree.cliques, key=lambda clique: cells(tree.sizes, clique))
        self._nodes: list[_Node] = []
        reached = [self.root]
        seen = {self.root}
        for clique in reached:  # which grows
            for other in neighbours[clique]:
                if other in seen:
                    continue
                seen.add(other)
                reached.append(other)
                common = clique & other
                self._nodes.append(
                    _Node(other, clique, outside(other, common), outside(clique, common))
                )

    def shares(self, potentials: Mapping[int, Floats]) -> dict[int, Floats]:
        """Return the marginals of all cliques; each sums to 1.

        Parameters
        ----------
        potentials : mapping of clique to array
        """
        beliefs, given = dict(potentials), {}
        for node in reversed(self._nodes):
            own = beliefs[node.clique]
            top = own.max(axis=node.own, keepdims=True)
            grown = np.exp(own - top)
            sums = grown.sum(axis=node.own, keepdims=True)
            given[node.clique] = grown / sums
            message = (np.log(sums) + top).squeeze(node.own)
            beliefs[node.parent] = beliefs[node.parent] + np.expand_dims(message, node.parents)
        top = np.exp(beliefs[self.root] - beliefs[self.root].max())
        found = {self.root: top / top.sum()}
        for node in self._nodes:
            common = found[node.parent].sum(axis=node.parents)
            found[node.clique] = given[node.clique] * np.expand_dims(common, node.own)
        return found


def outside(clique: int, mask: int) -> tuple[int, ...]:
    """Return the axes of a clique's table whose attributes are not in a mask."""
    return tuple(k for k, i in enumerate(attributes_of(clique)) if not mask >> i & 1)
