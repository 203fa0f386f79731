"""Elastic sensitivity (paper Definition 5; PRIVACY.md section 4).

For a changed set ``D`` of occurrences the others hang on it along a spanning tree of
the join graph; every occurrence ``j`` contributes its maximum frequency on what it
shares with its parent, plus the distance ``k`` if it is private (one ``k`` for all, as
in the paper: each relation may have changed in up to ``k`` rows).  So the polynomials
have one variable.  Only maximum frequencies of single occurrences are read.

Every spanning tree gives a smooth upper bound (docs/proofs/elastic.md); ``_tree`` fixes
one from the shape alone, and all roots use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dpsql.core.polynomial import Polynomial, Powers, add_term
from dpsql.core.residual import subsets
from dpsql.model import Boundary, Shape

Look = Callable[[Boundary], int]

_BETWEEN_TICKS = 64


def required(shape: Shape, tick: Callable[[], None] = lambda: None) -> frozenset[Boundary]:
    """List the maximum frequencies that ``polynomials`` reads."""
    wanted: set[Boundary] = set()

    def look(boundary: Boundary) -> int:
        wanted.add(boundary)
        return 1

    _candidate(shape, look, tick)
    return frozenset(wanted)


def polynomials(
    shape: Shape, values: Mapping[Boundary, int], tick: Callable[[], None] = lambda: None
) -> list[list[Polynomial]]:
    """Give one candidate: polynomials in the single distance ``k``.

    Parameters
    ----------
    shape : Shape
        The query's hypergraph.
    values : mapping of Boundary to int
        At least ``required(shape)``.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    """
    return [_candidate(shape, values.__getitem__, tick)]


def _candidate(shape: Shape, look: Look, tick: Callable[[], None]) -> list[Polynomial]:
    tree = _tree(shape)
    everything = frozenset(range(len(shape.attributes)))
    result: list[Polynomial] = []
    for relation in range(shape.private_count):
        own = [i for i in everything if shape.physical[i] == relation]
        polynomial: dict[Powers, int] = {}
        for number, changed in enumerate(subsets(own)[1:]):
            if number % _BETWEEN_TICKS == 0:
                tick()
            product = [1]
            for j, shared in _walk(shape, tree, changed):
                frequency = look(Boundary(frozenset({j}), shared))
                product = _times(product, frequency, shape.physical[j] is not None)
            for power, coefficient in enumerate(product):
                add_term(polynomial, (power,), coefficient)
        result.append(polynomial)
    return result


def _times(product: list[int], frequency: int, private: bool) -> list[int]:
    """Multiply coefficients by ``frequency + k`` (public relations: by ``frequency``)."""
    scaled = [c * frequency for c in product]
    if not private:
        return scaled
    return [a + b for a, b in zip([*scaled, 0], [0, *product], strict=True)]


def _tree(shape: Shape) -> dict[int, set[int]]:
    """Span the join graph: neighbours of every occurrence in the tree.

    Prim's algorithm from the first private occurrence, for the largest number of shared
    attributes; unconnected parts stay apart.
    """
    count = len(shape.attributes)
    tree: dict[int, set[int]] = {i: set() for i in range(count)}
    weight = dict.fromkeys(range(count), 0)
    parent: dict[int, int] = {}
    first = next((i for i in range(count) if shape.physical[i] is not None), 0)
    while weight:
        node = max(weight, key=lambda i: (weight[i], i)) if len(weight) < count else first
        del weight[node]
        if node in parent:
            tree[node].add(parent[node])
            tree[parent[node]].add(node)
        for other in weight:
            shared = len(shape.attributes[node] & shape.attributes[other])
            if shared > weight[other]:
                weight[other], parent[other] = shared, node
    return tree


def _walk(
    shape: Shape, tree: Mapping[int, set[int]], changed: frozenset[int]
) -> Iterator[tuple[int, frozenset[int]]]:
    """Visit every other occurrence once, after its parent, with what it shares with it."""
    reached = sorted(changed)
    for start in range(-1, len(shape.attributes)):
        if start >= 0 and start not in reached:  # a part that does not hold the change
            yield start, frozenset()
            reached.append(start)
        for parent in reached:  # grows while it is read
            for child in sorted(tree[parent]):
                if child not in reached:
                    reached.append(child)
                    yield child, shape.attributes[child] & shape.attributes[parent]
