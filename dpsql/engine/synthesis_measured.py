"""What a synthesis has measured: noisy numbers, with the levels of columns and other public facts.

All of it was paid for (PRIVACY.md section 2 (b)): what is made of it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_ask import Learned

if TYPE_CHECKING:
    from dpsql.engine.synthesis_parts import LinkPart, ProfilePart
    from dpsql.synthesis.links import LinkState
    from dpsql.workload.marginals import Floats
    from dpsql.workload.residual_bases import Integers

Texts = tuple[str | None, ...]


@dataclass(slots=True)
class MeasuredTable:
    """One table: levels of its columns, and rows of a public one or measurements of another.

    Attributes
    ----------
    levels : tuple of tuple of (str or None)
        Of each column of codes.
    codes : array, optional
        Of a public table: shape (rows, columns).
    keys : mapping of str to tuple of (str or None)
        Of a public table: the texts of its unique columns, row by row; links are numbers of rows.
    order : tuple of int
        The column of each attribute of the mechanism.
    method, rho, rows : str, Fraction, int
        What measured: see `table_mechanism`.
    measured : list of array
        By the mechanism; or one number, the noisy count, where there is nothing else.
    number : int, optional
        Rows that were declared.
    drawn : int, optional
        Rows that were counted apart, or that the degrees of parents say, if those are more.
    strata : tuple of int
        Where rows are told apart by how many their unit has: see `dpsql.synthesis.strata`.
    weights : tuple of float
        Of each stratum.
    """

    levels: tuple[Texts, ...]
    codes: Integers | None = None
    keys: Mapping[str, Texts] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    method: str = ""
    rho: Fraction = Fraction(0)
    rows: int = 1
    measured: list[Floats] = field(default_factory=list)
    number: int | None = None
    drawn: int | None = None
    strata: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def wanted(self) -> int | None:
        """How many rows, if that is not the noisy number of those that were counted."""
        return self.drawn if self.number is None else self.number

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(map(len, self.levels))

    @property
    def asked(self) -> tuple[int, ...]:
        """Levels of each attribute of the mechanism; the last one is the stratum, if any is."""
        sizes = self.sizes
        own = tuple(sizes[k] for k in self.order)
        return (*own, len(self.weights)) if self.strata else own


@dataclass(slots=True)
class MeasuredAxis:
    """An attribute across a reference: its columns, and the texts of its levels.

    ``groups`` has the number of each level's group, where several are measured as one.
    """

    columns: tuple[tuple[tuple[int, ...], int], ...]
    values: tuple[Texts, ...]
    groups: tuple[int, ...] = ()

    @property
    def shown(self) -> tuple[Texts, ...]:
        """The texts of a level of each group."""
        if not self.groups:
            return self.values
        return tuple(self.values[self.groups.index(n)] for n in range(self.size))

    @property
    def size(self) -> int:
        """Groups of levels."""
        return max(self.groups) + 1 if self.groups else len(self.values)


@dataclass(slots=True)
class MeasuredLink:
    """One reference: what was measured of its links; without a state they are random.

    ``sigma`` is the standard deviation of the histogram's noise, ``scale`` says how many links
    are made for one that was counted.  ``profile`` counts parents by each attribute of
    ``profiled`` and by groups of degrees from ``groups``, with noise of ``profile_sigma``.
    """

    place: int
    reference: int
    direct: Integers | None = None
    column: int | None = None
    left: tuple[MeasuredAxis, ...] = ()
    right: tuple[MeasuredAxis, ...] = ()
    histogram: Floats | None = None
    starts: tuple[int, ...] = ()
    most: int = 1
    sigma: float = 0.0
    state: LinkState | None = None
    scale: float = 1.0
    profiled: tuple[MeasuredAxis, ...] = ()
    profile: list[Floats] = field(default_factory=list)
    groups: tuple[int, ...] = ()
    profile_sigma: float = 0.0


@dataclass(slots=True)
class Measured:
    """All that was measured, and what is learnt of each table."""

    learnt: tuple[tuple[Learned, ...], ...]
    tables: list[MeasuredTable]
    links: list[MeasuredLink]
    notes: list[str] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)


def axes_of(part: LinkPart | ProfilePart, which: Sequence[int]) -> tuple[MeasuredAxis, ...]:
    """Write the attributes of one end as they are stored."""
    axes = [part.counted.axes[i] for i in which]
    return tuple(MeasuredAxis(axis.columns, axis.values) for axis in axes)
