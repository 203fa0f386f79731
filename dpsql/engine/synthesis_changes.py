"""What one privacy unit changes of what is measured, where rows of a table belong to several units.

Such rows are counted by one *way* to a unit, of which at most a cut-off counts; of the units that
the other ways lead to, public constraints bound the rows (`dpsql.engine.synthesis_bounds`).  Let
``d`` be the cut-off and ``b`` such a bound.  What is kept of a unit by the first way is a function
of that unit's rows alone, the first ``d`` by a hash of their own keys, so (PRIVACY.md section 8):

- a unit of the first way takes its at most ``d`` kept rows;
- a unit of another way takes ``b`` rows.  One that was kept leaves its place to at most one other
  of the same unit of the first way: 2 changes for each, ``2 b``; ``b`` where no unit of the first
  way can have more than ``d`` rows, so that nothing is cut off.

A histogram of degrees counts parents by their children.  A link that goes or comes moves one parent
from one bin to another, which is 2; a parent that goes with all its children is 1.

- Children are cut off: a unit of another way that takes the parents takes ``p`` of them, and each
  of its ``b`` links leaves its place to one of another parent, ``p + 2 b``; where its parents stay,
  ``4 b``.  Nothing cut off: ``p``, or ``2 b``.
- Parents are cut off, whole: each that goes leaves its place to another, ``2 p``; where they stay,
  each link moves a parent, or takes it out as its only one and lets another in: ``2 b``.

A row that refers to a row of its own table, joined to it, belongs to the units of both: by its own
ways, and by one over the key, by which a unit has at most as many rows as refer to its rows.  Where
the key leads to no unit rows that refer to others keep these in every neighbour (section 1: rows
would dangle); noise hides their going all the same.

A unit of a root to which several ways lead changes the sum over them.  All roots are charged in
full, so noise is made for the largest change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.relation import UnitPath


@dataclass(frozen=True, slots=True)
class Way:
    """How rows of a table find a privacy unit.

    Attributes
    ----------
    path : UnitPath
        The unit is named by the column of the nearest row that has it.
    most : int, optional
        The rows that a unit can have by it, if public constraints bound them.
    through : mapping
        From names of foreign keys whose parents are of the same unit to how many of them a unit can
        have, if public constraints bound them.
    declared : tuple of UnitPath
        The same as its owner declared it: by other columns that are equal.
    """

    path: UnitPath
    most: int | None = None
    through: Mapping[str, int | None] = field(default_factory=dict)
    declared: tuple[UnitPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Others:
    """What units of other ways change: with that of the first way's unit, or without it."""

    same: int = 0
    apart: int = 0

    def beside(self, own: int) -> int:
        """Return what one unit changes, where one of the first way alone changes ``own``."""
        return max(own + self.same, self.apart)


def changed_rows(ways: Sequence[Way], cut: int) -> Others:
    """Bound what units of all ways but the first change of counted rows, in L1."""
    each = 1 if ways and _all_kept(ways, cut) else 2
    return _others(ways, [each * _most(way) for way in ways[1:]])


def raised(ways: Sequence[Way], cut: int) -> int:
    """Return how many rows of a unit of the first way may count before noise grows.

    Others change ``2 b`` anyway: as many rows of each unit of the first way are hidden, too.
    """
    others = changed_rows(ways, cut)
    return _within(ways, max(cut, others.apart - others.same))


def raised_links(ways: Sequence[Way], key: str, cut: int) -> int:
    """Return how many children of a unit of the first way may count in degrees, likewise."""
    others = changed_degrees(ways, key, cut, whole=False)
    return _within(ways, max(cut, (others.apart - others.same) // 2))


def _within(ways: Sequence[Way], cut: int) -> int:
    return cut if not ways or ways[0].most is None else min(cut, ways[0].most)


def changed_degrees(ways: Sequence[Way], key: str, cut: int, *, whole: bool) -> Others:
    """Bound what units of all ways but the first change of a histogram of degrees, in L1.

    Parameters
    ----------
    ways : sequence of Way
        Of the children.
    key : str
        The foreign key.
    cut : int
        Children that are kept of a unit; with ``whole`` not used.
    whole : bool
        Whether parents are kept with all their children.
    """
    return _others(ways, [_degrees(ways, way, key, cut, whole=whole) for way in ways[1:]])


def _degrees(ways: Sequence[Way], way: Way, key: str, cut: int, *, whole: bool) -> int:
    links = _most(way)
    if key not in way.through:
        return 2 * links if whole or _all_kept(ways, cut) else 4 * links
    known = way.through[key]
    parents = links if known is None else min(known, links)  # those without children are not seen
    if whole:
        return 2 * parents
    return parents if _all_kept(ways, cut) else parents + 2 * links


def _all_kept(ways: Sequence[Way], cut: int) -> bool:
    return ways[0].most is not None and ways[0].most <= cut


def _most(way: Way) -> int:
    if way.most is None:
        raise ValueError("rows of a unit are neither cut off nor bounded")
    return way.most


#: No other ways.
NONE = Others()


def _others(ways: Sequence[Way], changes: Sequence[int]) -> Others:
    by_root: dict[int, int] = {}
    for way, change in zip(ways[1:], changes, strict=True):
        by_root[way.path.root] = by_root.get(way.path.root, 0) + change
    same = by_root.pop(ways[0].path.root, 0) if ways else 0
    return Others(same, max(by_root.values(), default=0))
