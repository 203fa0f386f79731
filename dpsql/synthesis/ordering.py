"""Rows of a table that refer to each other, in the order in which they could have been inserted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpsql.synthesis.generated import Generated
from dpsql.workload.residual_bases import Integers


def parents_first(given: Generated, own: int) -> tuple[Generated, Integers]:
    """Put every row behind the row of its table that it refers to, as CHECKs like to have it.

    Parameters
    ----------
    given : Generated
    own : int
        The reference; it leads in no circle, but rows may refer to themselves.

    Returns
    -------
    Generated, array of int64
        The rows in their new order, and for each old row its new place.
    """
    order = np.argsort(_depths(given.parents[own]), kind="stable")
    places = np.empty(given.rows, dtype=np.int64)
    places[order] = np.arange(given.rows)
    parents = tuple(
        np.where(p[order] >= 0, places[np.maximum(p[order], 0)], -1) if r == own else p[order]
        for r, p in enumerate(given.parents)
    )
    codes = np.asarray(given.codes).reshape(given.rows, len(given.levels))[order]
    return replace(given, codes=codes, parents=parents), places


def _depths(parents: Integers) -> Integers:
    """Count the rows above each, by jumps that double."""
    rows = np.arange(parents.size)
    above = np.where(parents == rows, -1, parents)
    depths = (above >= 0).astype(np.int64)
    for _ in range(max(1, parents.size).bit_length()):
        there = above >= 0
        if not there.any():
            break
        depths[there] += depths[above[there]]
        above = np.where(there, above[np.maximum(above, 0)], -1)
    return depths
