"""Rows that must be different: move those that repeat others, and tell which cannot be moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.synthesis.hashing import Flags, Hashes, any_missing, beyond, counts, hashed
from dpsql.synthesis.schema import Unique
from dpsql.synthesis.values import Numbers
from dpsql.workload.residual_bases import Integers

_ROUNDS = 60
_NONE: Hashes = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Mover:
    """A way to change some columns of rows.

    Attributes
    ----------
    columns : frozenset of str
    move : callable
        Changes rows at random.
    alternatives : callable, optional
        All numbers that the one column can have, None: too many.
    place : callable, optional
        Gives rows these numbers.
    empty : callable, optional
        Makes the columns of rows NULL.
    """

    columns: frozenset[str]
    move: Callable[[Integers], None]
    alternatives: Callable[[], Numbers | None] | None = None
    place: Callable[[Integers, Numbers], None] | None = None
    empty: Callable[[Integers], None] | None = None


def settle(
    uniques: Sequence[Unique],
    numbers: Callable[[str, Integers], Numbers],
    movers: Sequence[Mover],
    alive: Flags,
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> Integers:
    """Move rows that repeat earlier ones, as many as a constraint has room for, until none does.

    Parameters
    ----------
    uniques : sequence of Unique
        Rows with a NULL among the columns repeat none, unless NULLs are not distinct.
    numbers : callable
        The numbers of a column in some rows, as of now.
    movers : sequence of Mover
    alive : array of bool
        Rows that exist.
    rng : Generator
    tick : callable

    Returns
    -------
    array of int64
        Rows that still repeat others.
    """
    taken: list[Hashes] = []
    waiting = np.zeros(alive.size, dtype=bool)
    found = []
    for unique in uniques:
        hashes, missing = _state(unique, numbers, np.arange(alive.size))
        found.append((hashes, missing))
        waiting |= beyond(hashes, missing | ~alive, _NONE, unique.room)
    for hashes, missing in found:
        taken.append(np.sort(hashes[alive & ~waiting & ~missing]))
    rows = np.flatnonzero(waiting)
    for turn in range(_ROUNDS):
        tick()
        # rows that were moved for one constraint may stay where the others let them
        rows = _accept(rows, uniques, numbers, taken)
        if not rows.size or not movers:
            break
        useful = [m for m in movers if m.columns & _broken(rows, uniques, numbers, taken)]
        if not useful:
            break
        useful[turn % len(useful)].move(rows)
    for unique, mover in _exhaustive(uniques, movers):
        rows = _fill(rows, unique, mover, uniques, numbers, taken, rng)
    for mover in movers:
        rows = _emptied(rows, mover, uniques, numbers, taken)
    return rows


class Accepted:
    """Rows that repeat none, and which others may join them.

    Parameters
    ----------
    uniques : sequence of Unique
    numbers : callable
        As of `settle`.
    rows : array of int64
        Rows that are there.
    """

    def __init__(
        self,
        uniques: Sequence[Unique],
        numbers: Callable[[str, Integers], Numbers],
        rows: Integers,
    ) -> None:
        self._uniques, self._numbers = uniques, numbers
        states = [_state(unique, numbers, rows) for unique in uniques]
        self._taken = [np.sort(hashes[~missing]) for hashes, missing in states]

    def among(self, rows: Integers, able: Flags) -> Flags:
        """Take in those of the able rows that repeat none; tells which."""
        found: Flags = able.copy()
        refused = _accept(rows[able], self._uniques, self._numbers, self._taken)
        found[np.isin(rows, refused)] = False
        return found


def _state(
    unique: Unique, numbers: Callable[[str, Integers], Numbers], rows: Integers
) -> tuple[Hashes, Flags]:
    found = [numbers(name, rows) for name in unique.columns]
    missing = any_missing(found)
    return hashed(found), missing & unique.nulls_distinct


def _broken(
    rows: Integers,
    uniques: Sequence[Unique],
    numbers: Callable[[str, Integers], Numbers],
    taken: Sequence[Hashes],
) -> set[str]:
    """Return the columns of constraints that some of the rows break."""
    result: set[str] = set()
    for unique, there in zip(uniques, taken, strict=True):
        hashes, missing = _state(unique, numbers, rows)
        if beyond(hashes, missing, there, unique.room).any():
            result.update(unique.columns)
    return result


def _accept(
    rows: Integers,
    uniques: Sequence[Unique],
    numbers: Callable[[str, Integers], Numbers],
    taken: list[Hashes],
) -> Integers:
    """Take in the rows that repeat none, and return the others."""
    if not rows.size:
        return rows
    refused = np.zeros(rows.size, dtype=bool)
    states = [_state(unique, numbers, rows) for unique in uniques]
    for unique, (hashes, missing), there in zip(uniques, states, taken, strict=True):
        refused |= beyond(hashes, missing, there, unique.room)
    for n, (hashes, missing) in enumerate(states):
        new = hashes[~refused & ~missing]
        if new.size:
            taken[n] = np.sort(np.concatenate([taken[n], new]))
    return rows[refused]


def _exhaustive(uniques: Sequence[Unique], movers: Sequence[Mover]) -> list[tuple[Unique, Mover]]:
    """Return the constraints on one column whose values can be listed."""
    return [
        (unique, mover)
        for unique in uniques
        for mover in movers
        if mover.columns == set(unique.columns) and mover.alternatives is not None
    ]


def _fill(
    rows: Integers,
    unique: Unique,
    mover: Mover,
    uniques: Sequence[Unique],
    numbers: Callable[[str, Integers], Numbers],
    taken: list[Hashes],
    rng: np.random.Generator,
) -> Integers:
    """Give the last rows the values that are left."""
    values = mover.alternatives() if mover.alternatives is not None else None
    if values is None or mover.place is None or not rows.size:
        return rows
    there = taken[list(uniques).index(unique)]
    left = unique.room - counts(hashed([values]), there)
    unused = np.repeat(values, np.maximum(left, 0))
    many = min(unused.size, rows.size)
    if many:
        mover.place(rows[:many], rng.permutation(unused)[:many])
    return _accept(rows, uniques, numbers, taken)


def _emptied(
    rows: Integers,
    mover: Mover,
    uniques: Sequence[Unique],
    numbers: Callable[[str, Integers], Numbers],
    taken: list[Hashes],
) -> Integers:
    """Give the last rows a NULL where that makes them different."""
    if mover.empty is None or not rows.size:
        return rows
    broken = np.zeros(rows.size, dtype=bool)
    for unique, there in zip(uniques, taken, strict=True):
        if unique.nulls_distinct and mover.columns & set(unique.columns):
            hashes, missing = _state(unique, numbers, rows)
            broken |= beyond(hashes, missing, there, unique.room)
    mover.empty(rows[broken])
    return _accept(rows, uniques, numbers, taken)
