"""Attributes of one table: levels and values within bins, those that must differ drawn at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.synthesis.assembled import Base
from dpsql.synthesis.bins import Binned, binned
from dpsql.synthesis.distinctness import Mover
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.hashing import Flags
from dpsql.synthesis.keys import scale_of
from dpsql.synthesis.schema import Attribute, Planned
from dpsql.synthesis.values import MISSING, Kind, Numbers, Source, stored
from dpsql.workload.residual_bases import Integers


class Attributes:
    """The attributes of a table while its columns are put together.

    Parameters
    ----------
    place : int
        The table's in its plan.
    planned : Planned
    given : Generated
    bases : mapping
        For each column its base type.
    seed : int
        Equal seeds give equal values.
    rng : Generator
        For what is drawn again.
    """

    def __init__(
        self,
        place: int,
        planned: Planned,
        given: Generated,
        bases: Mapping[str, Base],
        seed: int,
        rng: np.random.Generator,
    ) -> None:
        self._place, self._given, self._seed, self._rng = place, given, seed, rng
        self._attributes = planned.attributes
        self._codes = np.asarray(given.codes).reshape(given.rows, len(planned.attributes))
        self._made = [
            values_of(attribute, bases[attribute.column], levels)
            for attribute, levels in zip(planned.attributes, given.levels, strict=True)
        ]
        # values of attributes that must be different are drawn now, the others when written
        must = {c for unique in planned.table.uniques for c in unique.columns}
        self.drawn: dict[str, Numbers] = {
            attribute.column: self._made[n].draw(
                self._codes[:, n], np.random.default_rng([seed, place, n, 1])
            )
            for n, attribute in enumerate(planned.attributes)
            if attribute.column in must
        }
        if self.drawn:
            self._codes = self._codes.copy()

    @property
    def codes(self) -> Integers:
        """The codes of all rows that are there."""
        return self._codes

    @property
    def free(self) -> tuple[str, ...]:
        """Attributes whose values may be replaced by those of another row."""
        return tuple(a.column for a in self._attributes if a.column not in self.drawn)

    def keep(self, rows: Flags) -> None:
        """Leave all other rows out."""
        self._codes = self._codes[rows]
        self.drawn = {name: numbers[rows] for name, numbers in self.drawn.items()}

    def columns(self) -> dict[str, Source]:
        """Return the columns: those that are not drawn yet are when rows are written."""
        return {
            attribute.column: stored(self._made[n].kind, self.drawn[attribute.column])
            if attribute.column in self.drawn
            else self._lazy(n)
            for n, attribute in enumerate(self._attributes)
        }

    def _lazy(self, n: int) -> Source:
        """Draw the values of an attribute when rows are written: the same for the same rows."""
        made, codes = self._made[n], self._codes[:, n]

        def at(rows: Integers) -> Numbers:
            first = int(rows[0]) if rows.size else 0
            return made.draw(
                codes[rows], np.random.default_rng([self._seed, self._place, n, 2, first])
            )

        return Source(made.kind, at)

    def movers(self) -> list[Mover]:
        """Return what gives other values to rows that must be different."""
        found = [self._mover(n) for n in range(len(self._attributes))]
        return [mover for mover in found if mover is not None]

    def _mover(self, n: int) -> Mover | None:
        name = self._attributes[n].column
        if name not in self.drawn:
            return None
        made = self._made[n]
        known = np.flatnonzero([level is not None for level in self._given.levels[n]])
        if not known.size:
            return None
        binned_values = bool(self._attributes[n].bins)
        rounds = 0

        def move(rows: Integers) -> None:
            nonlocal rounds
            rounds += 1
            if not binned_values or rounds % 4 == 0:
                self._codes[rows, n] = self._rng.choice(known, rows.size)
            self.drawn[name][rows] = made.draw(self._codes[rows, n], self._rng)

        def alternatives() -> Numbers | None:
            return None if binned_values else known

        null = next((i for i, v in enumerate(self._given.levels[n]) if v is None), -1)

        def empty(rows: Integers) -> None:
            self._codes[rows, n] = null
            self.drawn[name][rows] = made.draw(self._codes[rows, n], self._rng)

        return Mover(
            frozenset({name}),
            move,
            alternatives,
            self._set_value(n, name),
            None if null < 0 else empty,
        )

    def _set_value(self, n: int, name: str) -> Callable[[Integers, Numbers], None]:
        def place(rows: Integers, numbers: Numbers) -> None:
            self._codes[rows, n] = numbers
            self.drawn[name][rows] = numbers

        return place


def values_of(attribute: Attribute, base: Base, levels: Sequence[str | None]) -> Binned:
    """Return the values that the levels of an attribute stand for."""
    if attribute.bins:
        scale = scale_of(base.modifier) if base.modifier >= 0 else None
        return binned(base.name, scale, attribute.bins, levels)
    kind = Kind("listed", levels=tuple(levels), type_name=base.type_name)
    places = numbered(levels)
    return Binned(kind, places, places)


def numbered(texts: Sequence[str | None]) -> Integers:
    """Return the places of texts; of a NULL none."""
    there = np.array([text is not None for text in texts], dtype=bool)
    return np.where(there, np.arange(len(texts), dtype=np.int64), MISSING)
