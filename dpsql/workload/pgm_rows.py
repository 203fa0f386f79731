"""Whole rows of a graphical model, by systematic sampling.

The rows are spread over the cells of one clique of the junction tree, and then, clique by clique,
over the cells of each next one that go with what is known of them: every count is at what is
expected given the cliques before, up or down by one.  Post-processing: it costs no budget, and the
seed is no privacy noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.workload.marginals import Floats, attributes_of, shape
from dpsql.workload.pgm import GraphicalModel
from dpsql.workload.residual_bases import Integers


def sample_model(
    model: GraphicalModel,
    number: int,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> Integers:
    """Draw rows.

    Parameters
    ----------
    model : GraphicalModel
    number : int
        How many rows.
    seed : int
        Equal seeds give equal rows.
    tick : callable
        Called for each clique; may raise to cancel.

    Returns
    -------
    array of int64, shape (number, attributes)
        Level numbers from 0.
    """
    rng = np.random.default_rng(seed)
    tree = model.tree
    rows = np.zeros((number, len(tree.sizes)), dtype=np.int64)
    known = 0
    for clique in _order(tree.cliques, tree.edges):
        tick()
        common = clique & known
        before, new = attributes_of(common), attributes_of(clique & ~common)
        if not new:
            continue
        axes = attributes_of(clique)
        moved = model.tables[clique].transpose([axes.index(i) for i in (*before, *new)])
        table = moved.reshape(int(np.prod(shape(tree.sizes, common), dtype=np.int64)), -1)
        given = np.zeros(number, dtype=np.int64)
        for i in before:
            given = given * tree.sizes[i] + rows[:, i]
        drawn = _conditional(np.maximum(table, 0.0), given, rng)
        wanted = [tree.sizes[i] for i in new]
        for i, levels in zip(new, np.unravel_index(drawn, wanted), strict=True):
            rows[:, i] = levels
        known |= clique
    return rows


def _order(cliques: tuple[int, ...], edges: tuple[tuple[int, int], ...]) -> list[int]:
    """List the cliques so that each follows a neighbour."""
    found = [cliques[0]]
    for clique in found:  # which grows
        for a, b in edges:
            other = b if a == clique else a if b == clique else None
            if other is not None and other not in found:
                found.append(other)
    return found


def _conditional(table: Floats, given: Integers, rng: np.random.Generator) -> Integers:
    """Draw a column of a table for each row that is given the table's line.

    Of the rows of a line, in random order, the k-th takes the column at ``(k + u) / rows`` of the
    line's cumulative shares.  A line without anything is that of all together.
    """
    sums = table.sum(axis=1, keepdims=True)
    whole = table.sum(axis=0, keepdims=True)
    if not whole.sum() > 0:
        whole = np.ones_like(whole)
    shares = np.where(sums > 0, table / np.where(sums > 0, sums, 1.0), whole / whole.sum())
    ends = np.cumsum(shares, axis=1)
    ends /= ends[:, -1:]
    shuffled = rng.permutation(len(given))
    order = shuffled[np.argsort(given[shuffled], kind="stable")]
    counts = np.bincount(given, minlength=len(table))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    line = given[order]
    place = (np.arange(len(given)) - starts[line] + rng.uniform(size=len(table))[line]) / counts[
        line
    ]
    # lines one after the other: line i reaches from i to i + 1
    flat = (ends + np.arange(len(table))[:, None]).reshape(-1)
    found = np.searchsorted(flat, line + np.minimum(place, 1 - 1e-12), side="right")
    width = table.shape[1]
    found = np.clip(found, line * width, line * width + width - 1) - line * width
    result = np.empty_like(given)
    result[order] = found
    return result
