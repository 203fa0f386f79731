"""Columns as numbers: how a value is made from a number, and which number each row has.

A made-up key, a level, a value within a bin and the value of a parent's row are all a number and a
`Kind`; so a foreign key takes its parent's numbers and kind, through any chain of keys.  Nothing
here knows SQL: `dpsql.engine.synthesis_rows` writes the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dpsql.workload.matrix import Floats
from dpsql.workload.residual_bases import Integers

#: The number that stands for NULL; of floats it is NaN.
MISSING = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is made from its number.

    Attributes
    ----------
    form : str
        ``integer``: the number; ``numeric``: the number divided by ``10**scale``; ``float``;
        ``text``: ``text`` followed by the number; ``uuid``: a digest of ``text`` and the number;
        ``bytes``: the number's; ``date``: days, ``timestamp``, ``timestamptz``, ``time``:
        microseconds since 2000-01-01 or midnight; ``listed``: a place in ``levels`` from 0;
        ``constant``: ``text`` whatever the number.
    scale : int
    text : str
    levels : tuple of (str or None)
    type_name : str
        Of the levels, or of the constant, without a modifier.
    """

    form: str
    scale: int = 0
    text: str = ""
    levels: tuple[str | None, ...] = ()
    type_name: str = ""


Numbers: TypeAlias = "Integers | Floats"


@dataclass(frozen=True, slots=True)
class Source:
    """A column: ``at`` tells the numbers of rows, which are given by their places from 0."""

    kind: Kind
    at: Callable[[Integers], Numbers]


def stored(kind: Kind, numbers: Numbers) -> Source:
    """Return a column whose numbers are all there."""
    return Source(kind, lambda rows: numbers[rows])


def counted(kind: Kind, room: int | None = None, first: int = 1) -> Source:
    """Return a key that is made up: 1, 2, ...; with ``room`` from the beginning after so many."""
    if room is None:
        return Source(kind, lambda rows: rows.astype(np.int64) + first)
    return Source(kind, lambda rows: rows.astype(np.int64) % room + first)


def followed(source: Source, parents: Integers) -> Source:
    """Return the column of a child that repeats its parent's; without a parent it is NULL."""

    def at(rows: Integers) -> Numbers:
        chosen = parents[rows]
        found = source.at(np.maximum(chosen, 0)) if (chosen >= 0).any() else chosen
        missing = np.nan if found.dtype.kind == "f" else MISSING
        return np.where(chosen < 0, missing, found)

    return Source(source.kind, at)


def is_missing(numbers: Numbers) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Tell which numbers stand for NULL."""
    return np.isnan(numbers) if numbers.dtype.kind == "f" else numbers == MISSING
