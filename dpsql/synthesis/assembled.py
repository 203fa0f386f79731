"""What is known of a table that is ready to be written, and of the types of its columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.synthesis.values import Source
from dpsql.workload.residual_bases import Integers


@dataclass(frozen=True, slots=True)
class Base:
    """The base type of a column: its name in ``pg_type``, as SQL writes it, and its modifier."""

    name: str
    type_name: str
    modifier: int


@dataclass(slots=True)
class Assembled:
    """One table, ready to be written.

    Attributes
    ----------
    rows : int
    columns : dict of (str, Source)
        Those that are written; the others have their default or NULL.
    free : tuple of str
        Attributes whose values may be replaced by those of another row.
    notes : list of str
        What was changed so that constraints hold.
    moved : array, optional
        For each row that was generated its place, -1: it was left out; None: all are in place.
    codes : array, optional
        The codes of its attributes.
    """

    rows: int
    columns: dict[str, Source]
    free: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    moved: Integers | None = None
    codes: Integers | None = None
