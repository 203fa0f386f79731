"""What was generated of a table, before keys are made up and values are written."""

from __future__ import annotations

from dataclasses import dataclass

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
        For each reference the parent's row, from 0; -1: none.  Of a public table the place in
        `dpsql.engine.synthesis_public.listed_again`.
    """

    rows: int
    codes: Integers
    levels: tuple[tuple[str | None, ...], ...]
    parents: tuple[Integers, ...] = ()
