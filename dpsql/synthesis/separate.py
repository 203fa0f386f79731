"""Make pairs of rows different where both ends have degrees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.synthesis.degrees import realise
from dpsql.synthesis.distinct import repair
from dpsql.synthesis.relationship import Relationship
from dpsql.synthesis.types import Types
from dpsql.workload.residual_bases import Integers

#: Blocks with more pairs are repaired by swaps alone.
_LISTED = 4_000_000


def separate(
    rows: Integers,
    columns: Integers,
    left: Types,
    right: Types,
    relationship: Relationship,
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> tuple[Integers, Integers, int]:
    """Make pairs different: by swaps, then block by block, then anywhere in the block.

    Parameters
    ----------
    rows, columns : array of int64, shape (m,)
        Both ends of the links; some pairs may occur twice.
    left, right : Types
    relationship : Relationship
        What no row's degree may pass.
    rng : Generator
    tick : callable

    Returns
    -------
    rows, columns : array of int64
        No pair twice; numbers of links between types as before, and degrees too, but where no
        choice within a block has them.
    dropped : int
        Links that found no place.
    """
    n1, n2 = relationship.left.count, relationship.right.count
    for _ in range(3):
        # ends of one type trade places: degrees and blocks stay
        order = np.argsort(left.of[rows], kind="stable")
        rows, columns = rows[order], columns[order]
        starts, ends = _ranges(left.of[rows])
        bad = repair(columns, rows, np.ones(n1, dtype=np.int64), starts, ends, rng, tick)
        if not bad.size:
            return rows, columns, 0
        order = np.argsort(right.of[columns], kind="stable")
        rows, columns = rows[order], columns[order]
        starts, ends = _ranges(right.of[columns])
        bad = repair(rows, columns, np.ones(n2, dtype=np.int64), starts, ends, rng, tick)
        if not bad.size:
            return rows, columns, 0
    k2 = right.number
    cell = left.of[rows] * k2 + right.of[columns]
    room = [
        end.limit(others) - np.bincount(ids, minlength=end.count)
        for end, others, ids in (
            (relationship.left, n2, rows),
            (relationship.right, n1, columns),
        )
    ]
    gone = np.zeros(rows.size, dtype=bool)
    more: list[tuple[Integers, Integers]] = []
    for block in np.unique(cell[bad]):
        tick()
        inside = np.flatnonzero(cell == block)
        gone[inside] = True
        ones = np.flatnonzero(left.of == block // k2)
        others = np.flatnonzero(right.of == block % k2)
        more.append(_rebuild(rows[inside], columns[inside], ones, others, room, rng))
    ones = np.concatenate([rows[~gone], *(a for a, _ in more)])
    others = np.concatenate([columns[~gone], *(b for _, b in more)])
    return ones, others, rows.size - ones.size


def _ranges(of: Integers) -> tuple[Integers, Integers]:
    """Return where each position's run of equal values begins and ends."""
    return (
        np.searchsorted(of, of).astype(np.int64),
        np.searchsorted(of, of, side="right").astype(np.int64),
    )


def _rebuild(
    rows: Integers,
    columns: Integers,
    ones: Integers,
    others: Integers,
    room: list[Integers],
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    """Find other links of one block with the same degrees; else move those that are double.

    Parameters
    ----------
    rows, columns : array of int64
        The block's links.
    ones, others : array of int64
        Its rows at both ends.
    room : list of two arrays
        How many more links each row may have; kept up to date.
    """
    a, b = np.searchsorted(ones, rows), np.searchsorted(others, columns)
    if ones.size * others.size <= _LISTED:
        found = realise(
            np.bincount(a, minlength=ones.size), np.bincount(b, minlength=others.size), rng
        )
        if found is not None:
            return ones[found[0]], others[found[1]]
    cells, first = np.unique(a * others.size + b, return_index=True)
    spare = np.ones(rows.size, dtype=bool)
    spare[first] = False
    np.add.at(room[0], rows[spare], 1)
    np.add.at(room[1], columns[spare], 1)
    kept = [(int(ones[c // others.size]), int(others[c % others.size])) for c in cells]
    if ones.size * others.size <= _LISTED:
        free = np.setdiff1d(np.arange(ones.size * others.size), cells)
        wanted = int(spare.sum())
        for c in rng.permutation(free):
            if not wanted:
                break
            i, j = int(ones[c // others.size]), int(others[c % others.size])
            if room[0][i] > 0 and room[1][j] > 0:
                room[0][i] -= 1
                room[1][j] -= 1
                kept.append((i, j))
                wanted -= 1
    found_rows, found_columns = np.array(kept, dtype=np.int64).T
    return found_rows, found_columns
