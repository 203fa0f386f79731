"""Many samples without replacement at once, and swaps that make labels distinct."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.workload.residual_bases import Integers

_ROUNDS = 40


def distinct(sizes: Integers, populations: Integers, rng: np.random.Generator) -> Integers:
    """Draw a uniform subset of every population, all in one pass.

    Parameters
    ----------
    sizes : array of int64, shape (g,)
        How many to draw from each, at most its population.
    populations : array of int64, shape (g,)
    rng : Generator

    Returns
    -------
    array of int64, shape (sum of sizes,)
        Numbers from 0, group after group.

    Notes
    -----
    Groups that take more than half of their population list and shuffle it; others draw and
    draw again what they had, which succeeds at least every second time.
    """
    group = np.repeat(np.arange(sizes.size), sizes)
    result = np.zeros(group.size, dtype=np.int64)
    dense = 2 * sizes > populations
    if dense.any():
        chosen = np.flatnonzero(dense)
        many = populations[chosen]
        owner = np.repeat(np.arange(chosen.size), many)
        order = np.lexsort((rng.random(owner.size), owner))
        starts = np.cumsum(many) - many
        rank = np.arange(owner.size) - starts[owner]
        kept = rank < sizes[chosen][owner]
        result[dense[group]] = (order - starts[owner])[kept]
    rest = np.flatnonzero(~dense[group])
    owner, values = group[rest], np.zeros(rest.size, dtype=np.int64)
    again = np.arange(rest.size)
    while again.size:
        values[again] = rng.integers(0, populations[owner[again]])
        order = np.lexsort((values, owner))
        same = (np.diff(values[order], prepend=-1) == 0) & (np.diff(owner[order], prepend=-1) == 0)
        again = order[same]
    result[rest] = values
    return result


def repair(
    moving: Integers,
    fixed: Integers,
    limits: Integers,
    starts: Integers,
    ends: Integers,
    rng: np.random.Generator,
    tick: Callable[[], None] = lambda: None,
) -> Integers:
    """Swap labels until no pair of a moving and a fixed label occurs more often than allowed.

    Parameters
    ----------
    moving : array of int64, shape (m,)
        Labels; are swapped in place.
    fixed : array of int64, shape (m,)
    limits : array of int64
        How often any pair with a fixed label may occur, by that label.
    starts, ends : array of int64, shape (m,)
        Each position's swaps stay within this range.
    rng : Generator

    Returns
    -------
    array of int64
        Positions that are still one too many: none, but for instances that are nearly full.

    Notes
    -----
    A swap is made only if both pairs that it creates are allowed, so every swap helps.
    """
    width = int(limits.size)
    stale = 0
    keys = moving * width + fixed
    for _ in range(_ROUNDS):
        tick()
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        first = np.searchsorted(ordered, ordered)
        bad = order[np.arange(keys.size) - first >= limits[fixed[order]]]
        if not bad.size or stale > 12:
            return bad
        other = rng.integers(starts[bad], ends[bad])
        one, two = moving[other] * width + fixed[bad], moving[bad] * width + fixed[other]
        room_one = limits[fixed[bad]] - _count(ordered, one)
        room_two = limits[fixed[other]] - _count(ordered, two)
        good = (room_one > 0) & (room_two > 0) & (moving[other] != moving[bad])
        good &= _first_of_all(np.stack([bad, other])) & _first_of_all(np.stack([one, two]))
        p, q = bad[good], other[good]
        stale = 0 if p.size else stale + 1
        moving[p], moving[q] = moving[q], moving[p]
        keys[p], keys[q] = one[good], two[good]
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys[order], keys[order])
    return np.asarray(order[np.arange(keys.size) - first >= limits[fixed[order]]])


def _count(ordered: Integers, keys: Integers) -> Integers:
    return np.asarray(np.searchsorted(ordered, keys, side="right") - np.searchsorted(ordered, keys))


def _first_of_all(both: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Tell which columns hold two values that no earlier column and not each other holds."""
    _, first = np.unique(both.T.reshape(-1), return_index=True)
    fresh = np.zeros(both.size, dtype=bool)
    fresh[first] = True
    return np.asarray(fresh.reshape(-1, 2).all(axis=1))
