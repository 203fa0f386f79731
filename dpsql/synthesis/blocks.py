"""From numbers of links between types to links between rows.

Which rows of a type are linked changes no answer that was fitted, only degrees and what nobody
measured; so it is drawn at random, as evenly as the degrees allow.  Links are different pairs; a
row's degree is met where any choice of links within the blocks meets it, but for both-sided
degrees, where that is tried block by block (Gale and Ryser).

Where one end has degrees, row ``i`` of type ``s`` has links to type ``t`` in proportion to its
degree: ``b_ij = X_st d_i / (D_s c_t)``, cut off at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.degrees import draw, follow
from dpsql.synthesis.distinct import distinct, repair
from dpsql.synthesis.records import Links
from dpsql.synthesis.relationship import End, Relationship
from dpsql.synthesis.separate import separate
from dpsql.synthesis.types import Types
from dpsql.workload.residual_bases import Integers


@dataclass(frozen=True)
class Sampled:
    """Links of rows.

    Attributes
    ----------
    links : Links
    missed : int
        Links that found no place in their block, and degrees that are off, by so many in all.
    """

    links: Links
    missed: int


def sample_links(
    blocks: Integers,
    left: Types,
    right: Types,
    relationship: Relationship,
    rng: np.random.Generator,
    tick: Callable[[], None] = lambda: None,
) -> Sampled:
    """Draw links between rows.

    Parameters
    ----------
    blocks : array of int64, shape (k1, k2)
        Links between types.
    left, right : Types
    relationship : Relationship
        Degrees and bounds.
    rng : Generator
        Post-processing: protects nothing.
    tick : callable
        Called now and then; may raise.
    """
    one = _degrees(relationship.left, left, blocks.sum(axis=1), relationship.right.count, rng)
    other = _degrees(relationship.right, right, blocks.sum(axis=0), relationship.left.count, rng)
    if one is not None and other is not None:
        return _both(blocks, left, right, one, other, relationship, rng, tick)
    if one is not None:
        return _one_free(blocks, left, right, one, relationship.left, rng, tick)
    if other is not None:
        found = _one_free(blocks.T, right, left, other, relationship.right, rng, tick)
        return Sampled(Links(found.links.right, found.links.left), found.missed)
    return _free(blocks, left, right, rng)


def _degrees(
    end: End, types: Types, sums: Integers, others: int, rng: np.random.Generator
) -> Integers | None:
    """Return degrees that add up to the blocks, or None where any will do."""
    limit = end.limit(others)
    if end.degrees is None:
        if end.wanted is not None:
            return follow(types.of, sums, end.wanted, limit, rng)
        return None if limit >= others else draw(types.of, sums, limit, rng)
    gaps = sums - np.bincount(types.of, weights=end.degrees, minlength=sums.size).astype(np.int64)
    if not gaps.any():
        return end.degrees
    # no table of links has these sums: as near as it gets
    degrees = end.degrees.copy()
    for s in np.flatnonzero(gaps):
        rows = np.flatnonzero(types.of == s)
        gap = int(gaps[s])
        while gap:
            able = rows[degrees[rows] < limit] if gap > 0 else rows[degrees[rows] > 0]
            if not able.size:
                raise InvalidParameter(
                    "no links have these degrees and bounds",
                    detail="A type of rows needs more links than its rows may have.",
                )
            some = rng.permutation(able)[: abs(gap)]
            degrees[some] += 1 if gap > 0 else -1
            gap -= some.size if gap > 0 else -some.size
    return degrees


def _missed(end: End, rows: Integers) -> int:
    """Count by how much degrees are off."""
    if end.degrees is None:
        return 0
    return int(np.abs(np.bincount(rows, minlength=end.count) - end.degrees).sum())


def _members(types: Types) -> tuple[Integers, Integers]:
    """Return the rows type by type, and where each type begins."""
    return np.argsort(types.of, kind="stable"), np.cumsum(types.counts) - types.counts


def _free(blocks: Integers, left: Types, right: Types, rng: np.random.Generator) -> Sampled:
    """Draw different pairs of every block, all alike."""
    s, t = np.nonzero(blocks)
    sizes = blocks[s, t]
    cells = distinct(sizes, left.counts[s] * right.counts[t], rng)
    width = np.repeat(right.counts[t], sizes)
    ones, starts = _members(left)
    others, begins = _members(right)
    rows = ones[np.repeat(starts[s], sizes) + cells // width]
    columns = others[np.repeat(begins[t], sizes) + cells % width]
    return Sampled(Links(rows, columns), 0)


def _assign(
    blocks: Integers,
    types: Types,
    others: Types,
    degrees: Integers,
    given: bool,
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> Integers:
    """Deal the blocks' links to rows, in row-major order of blocks; -1 where no row could take one.

    Every row gets its degree, at most ``c_t`` of it from the blocks of type ``t``; degrees that
    were only drawn are made even where they do not fit.
    """
    k2 = others.number
    rows = np.repeat(np.arange(degrees.size), degrees)
    rows = rows[rng.permutation(rows.size)]
    rows = rows[np.argsort(types.of[rows], kind="stable")]
    label = np.repeat(np.tile(np.arange(k2), types.number), blocks.reshape(-1))
    used = blocks.any(axis=0)
    if int(degrees.max(initial=0)) <= int(others.counts[used].min(initial=1 << 62)):
        return rows
    sums = blocks.sum(axis=1)
    ends = np.cumsum(sums)
    of = types.of[rows]
    bad = repair(rows, label, others.counts, (ends - sums)[of], ends[of], rng, tick)
    for s in np.unique(of[bad]):
        tick()
        where = slice(ends[s] - sums[s], ends[s])
        members = np.flatnonzero(types.of == s)
        if given:
            rows[where] = _level(members, degrees, blocks[s], others.counts, rng)
        else:  # in turn: the degrees drawn were no must, and even ones always fit
            rows[where] = np.resize(rng.permutation(members), sums[s])
    return rows


def _level(
    rows: Integers, degrees: Integers, wanted: Integers, caps: Integers, rng: np.random.Generator
) -> Integers:
    """Deal the links of one type by taking from the largest remaining degrees.

    That leaves remaining degrees as even as can be, and whatever can be dealt to uneven ones can
    be dealt to more even ones (``sum of min(d_i, c)`` is Schur-concave): so all are dealt if
    any way deals them.
    """
    remaining = degrees[rows].copy()
    dealt: dict[int, Integers] = {}
    for t in rng.permutation(np.flatnonzero(wanted)):  # the first ones get the largest degrees
        number = int(wanted[t])
        low, high = 0, int(remaining.max())
        while low < high:  # the least level that takes no more than wanted
            level = (low + high) // 2
            if int(np.clip(remaining - level, 0, caps[t]).sum()) <= number:
                high = level
            else:
                low = level + 1
        taken = np.clip(remaining - low, 0, caps[t])
        if low:
            extra = np.flatnonzero(np.clip(remaining - low + 1, 0, caps[t]) > taken)
            taken[rng.permutation(extra)[: number - int(taken.sum())]] += 1
        remaining -= taken
        found = np.repeat(rows, taken)
        dealt[int(t)] = np.concatenate([found, np.full(number - found.size, -1)])
    return np.concatenate([dealt[t] for t in sorted(dealt)]).astype(np.int64)


def _one_free(
    blocks: Integers,
    left: Types,
    right: Types,
    degrees: Integers,
    end: End,
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> Sampled:
    """Deal degrees of one end; each row then takes different rows of the other end, all alike."""
    rows = _assign(blocks, left, right, degrees, end.degrees is not None, rng, tick)
    label = np.repeat(np.tile(np.arange(right.number), left.number), blocks.reshape(-1))
    kept = rows >= 0
    rows, label = rows[kept], label[kept]
    moved = int((~kept).sum())
    if moved:
        rows, label = _elsewhere(rows, label, degrees, right)
    order = np.lexsort((label, rows))
    rows, label = rows[order], label[order]
    runs = np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (np.diff(label, prepend=-1) != 0))
    sizes = np.diff(np.append(runs, rows.size))
    picked = distinct(sizes, right.counts[label[runs]], rng)
    others, begins = _members(right)
    links = Links(rows, others[begins[label] + picked])
    return Sampled(links, moved + _missed(end, rows))


def _elsewhere(
    rows: Integers, label: Integers, degrees: Integers, right: Types
) -> tuple[Integers, Integers]:
    """Give rows the links that their blocks had no place for, to any type with rows left."""
    lacking = degrees - np.bincount(rows, minlength=degrees.size)
    more, labels = [rows], [label]
    for i in np.flatnonzero(lacking > 0):
        has = np.bincount(label[rows == i], minlength=right.number)
        room = right.counts - has
        taken = np.diff(np.minimum(np.cumsum(room), lacking[i]), prepend=0)
        more.append(np.full(int(taken.sum()), i))
        labels.append(np.repeat(np.arange(right.number), taken))
    return np.concatenate(more), np.concatenate(labels)


def _both(
    blocks: Integers,
    left: Types,
    right: Types,
    one: Integers,
    other: Integers,
    relationship: Relationship,
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> Sampled:
    """Deal both ends' degrees to the blocks, join them at random, and swap away what is double."""
    k1, k2 = blocks.shape
    ends = relationship.left, relationship.right
    rows = _assign(blocks, left, right, one, ends[0].degrees is not None, rng, tick)
    dealt = _assign(blocks.T, right, left, other, ends[1].degrees is not None, rng, tick)
    cell = np.repeat(np.arange(k1 * k2), blocks.reshape(-1))
    # from column-major to row-major
    turned = np.empty_like(dealt)
    turned[np.argsort(cell % k2, kind="stable")] = dealt
    # within a block both ends are in random order, but for `_level`
    order = np.lexsort((rng.random(cell.size), cell))
    columns = turned[order]
    kept = (rows >= 0) & (columns >= 0)
    lost = int((~kept).sum())
    rows, columns = rows[kept], columns[kept]
    if not relationship.single:
        rows, columns, dropped = separate(rows, columns, left, right, relationship, rng, tick)
        lost += dropped
    missed = _missed(relationship.left, rows) + _missed(relationship.right, columns)
    return Sampled(Links(rows, columns), lost + missed)
