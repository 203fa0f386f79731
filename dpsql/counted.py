"""Frozen records of what is counted: exact and secret (PRIVACY.md section 2).

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from dpsql.model import GRID, Boundary, Key


@dataclass(frozen=True, slots=True)
class Counts:
    """What one counting run returns: exact integers, never floats.

    ``groups`` maps group key texts (type output format, ``None`` for NULL; ``()`` without
    GROUP BY) to the true count; absent groups have count 0.
    """

    boundaries: dict[Boundary, int]
    groups: dict[tuple[str | None, ...], int]


@dataclass(frozen=True, slots=True)
class Contributions:
    """What the privacy units add to a vector of groups, each cut off at a bound: exact and secret.

    The size of a unit is what it adds to all groups together, signs ignored.  ``units[j]`` units
    have a size above ``bounds[j - 1]`` and up to ``bounds[j]`` (the last: above all bounds).
    ``groups[key][j]`` holds what these add to the group, and the sum of their shares: what each
    adds over its size, in steps of ``1/grid``, rounded towards 0.  Of a single number those that
    take away are kept apart, under ``~j``.
    """

    bounds: tuple[int, ...]
    units: tuple[int, ...]
    groups: dict[Key, dict[int, tuple[int, int]]]
    grid: int = GRID

    def above(self) -> list[int]:
        """Count the units larger than each bound."""
        found = list(accumulate(reversed(self.units[1:])))
        return found[::-1]

    def truncated(self, j: int, groups: Iterable[Key]) -> list[int]:
        """Sum every group in steps of ``1/grid``, with larger units scaled down to ``bounds[j]``.

        One unit changes the vector by at most ``grid * bounds[j]`` in all.
        """
        bound = self.bounds[j]
        return [
            sum(
                self.grid * amount if (i if i >= 0 else ~i) <= j else bound * share
                for i, (amount, share) in self.groups.get(key, {}).items()
            )
            for key in groups
        ]
