"""What was generated of a table, before keys are made up and values are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.workload.residual_bases import Integers


@dataclass(frozen=True, slots=True)
class Generated:
    """Rows of one synthetic table.

    Attributes
    ----------
    rows : int
    codes : array of int, shape (rows, attributes)
        Which level each attribute has, from 0.
    levels : tuple of tuple of (str or None)
        For each attribute the texts of its levels; numbers of bins where it has bins; None: NULL.
    parents : tuple of array of int, shape (rows,)
        For each reference the parent's row, from 0; -1: none.
    keys : mapping of str to sequence of (str or None)
        Of a public table the texts of its unique columns, row by row, as they were when the
        synthesis was measured.
    """

    rows: int
    codes: Integers
    levels: tuple[tuple[str | None, ...], ...]
    parents: tuple[Integers, ...] = ()
    keys: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
