"""What a synthesis measures: kinds of parts, with their bounds and weights in the budget.

Public facts only: what is measured is decided before any protected row is read, and costs what
all parts together cost, under zero-concentrated differential privacy (PRIVACY.md section 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.synthesis_ask import Ask, Path
from dpsql.engine.synthesis_changes import NONE, Others

if TYPE_CHECKING:
    from dpsql.model import JoinQuery, Key
    from dpsql.statistics.tabulation_sql import Levels

#: What parts weigh against each other when the budget is split.
_TABLE, _LINK, _DEGREE, _COUNT = Fraction(4), Fraction(4), Fraction(1), Fraction(1, 4)
_PROFILE = Fraction(1)
#: How many rows a table has, beside its columns.
_ROWS = Fraction(1, 8)
#: Where units can have so many children, what degrees are weighs twice, and whose they are four
#: times as much: most rows are in the tail.
MANY = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """An attribute of a statement: the columns that make it, and the texts of its levels."""

    columns: tuple[tuple[Path, int], ...]
    values: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """An admitted statement: the query, its levels, and the results of a unit that count.

    ``rows`` is what one unit changes: the ``cut`` of what it is cut off by, or more where rows
    have units by other ways (`dpsql.engine.synthesis_changes`).
    """

    ask: Ask
    query: JoinQuery
    levels: tuple[Levels, ...]
    axes: tuple[Axis, ...]
    rows: int
    relations: tuple[int, ...]
    fingerprint: str
    policies: str
    roots: tuple[int, ...]
    cut: int


@dataclass(frozen=True, slots=True)
class TablePart:
    """The rows of one table: by what is learnt of them, or only how many there are.

    ``alone``: rows belong to one unit each.
    """

    place: int
    counted: Counted
    alone: bool = False
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _TABLE if self.counted.axes else _COUNT


@dataclass(frozen=True, slots=True)
class CountPart:
    """How many rows a table has whose columns are learnt.

    What measures columns counts rows with what of its budget is best for columns: of 14 attributes
    a hundredth, or with all marginals of three of them a ten thousandth.
    """

    place: int
    counted: Counted
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _ROWS


@dataclass(frozen=True, slots=True)
class DegreePart:
    """How many children the parents of one reference have.

    ``others`` is what units of other ways change than that which is cut off, ``many`` whether
    ``d_max`` says that units can have many children.
    """

    place: int
    reference: int
    query: JoinQuery
    bound: int
    most: int
    whole: bool
    relations: tuple[int, ...]
    fingerprint: str
    roots: tuple[int, ...]
    others: Others = NONE
    many: bool = False
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _DEGREE * (2 if self.many else 1)

    @property
    def changed(self) -> int:
        """What one unit changes of the histogram, in L1: what noise hides."""
        from dpsql.statistics.degrees import sensitivity

        return self.others.beside(sensitivity(self.query, self.bound, whole=self.whole))


@dataclass(frozen=True, slots=True)
class LinkPart:
    """The marginals across one reference; ``left`` axes are the parent's.

    ``alone``: rows belong to one unit each, which changes as many as are counted of it.
    """

    place: int
    reference: int
    counted: Counted
    left: tuple[int, ...]
    right: tuple[int, ...]
    alone: bool
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _LINK


@dataclass(frozen=True, slots=True)
class ProfilePart:
    """How many children parents of each level of each of their attributes have.

    ``query`` counts by ``keys`` of the parents and then attributes, whose levels are ``levels``.
    """

    place: int
    reference: int
    counted: Counted
    query: JoinQuery
    levels: tuple[Levels, ...]
    keys: int
    bound: int
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _PROFILE * (4 if self.counted.cut >= MANY else 1)


Part = TablePart | CountPart | DegreePart | LinkPart | ProfilePart


def queries_of(part: Part) -> tuple[JoinQuery, ...]:
    """Return what a part reads."""
    if isinstance(part, DegreePart):
        return (part.query,)
    if isinstance(part, ProfilePart):
        return (part.counted.query, part.query)
    return (part.counted.query,)
