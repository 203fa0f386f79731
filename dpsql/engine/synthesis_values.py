"""What the columns of a copy can hold, known before anything is measured: for CHECK constraints.

Declared levels, ends of bins, made-up keys, NULL; of foreign keys what they refer to, and of public
tables the keys that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engine.synthesis_catalogue import COLUMNS
from dpsql.synthesis.assembled import Base
from dpsql.synthesis.attributes import numbered, values_of
from dpsql.synthesis.keys import NoKey, constant, made_up
from dpsql.synthesis.plan_common import origin
from dpsql.synthesis.schema import Plan, Use
from dpsql.synthesis.values import MISSING, Kind, Numbers

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_measured import MeasuredTable

#: Numbers of one attribute, keys that are made up, keys of a public table.
_NUMBERS = 256
_KEYS = 100
_LISTED = 5_000


@dataclass(frozen=True, slots=True)
class Held:
    """What a column can hold; ``whole``: nothing else.

    ``first`` is the number that a column of its own has in the first row, where that is known.
    """

    kind: Kind
    numbers: Numbers
    whole: bool = True
    first: int | None = None


class Values:
    """What the columns of all tables of a plan can hold.

    Parameters
    ----------
    plan : Plan
    levels : sequence
        Of each table, of each of its attributes: the levels.
    public : mapping
        What was read of public tables, by their places.
    services : Services
    """

    def __init__(
        self,
        plan: Plan,
        levels: Sequence[Sequence[Sequence[str | None]]],
        public: Mapping[int, MeasuredTable],
        services: Services,
    ) -> None:
        self.plan, self.levels, self.public = plan, levels, public
        self.bases: list[dict[str, Base]] = []
        #: Of each column that has one: its default, or how it is generated.
        self.expressions: list[dict[str, str]] = []
        for planned in plan.tables:
            rows = services.database.execute(COLUMNS, [("int8", planned.table.oid)])
            self.bases.append({str(r[0]): Base(str(r[2]), str(r[3]), int(str(r[4]))) for r in rows})
            self.expressions.append({str(r[0]): str(r[8]) for r in rows if r[8] is not None})

    def of(self, place: int, column: str) -> Held | None:
        """Return what a column of a table can hold; None where that is not known."""
        planned, base = self.plan.tables[place], self.bases[place][column]
        use = planned.use(column)
        if planned.table.public:
            texts = list(dict.fromkeys(self.public[place].keys.get(column, ())))[:_LISTED]
            kind = Kind("listed", levels=tuple(texts), type_name=base.type_name)
            return Held(kind, numbered(texts), len(texts) < _LISTED) if texts else None
        if use is Use.MISSING:
            return Held(Kind("integer"), np.array([MISSING], dtype=np.int64))
        if use is Use.CONSTANT:
            kind = Kind("constant", text=constant(base.name) or "", type_name=base.type_name)
            return Held(kind, np.zeros(1, dtype=np.int64))
        if use is Use.KEY:
            return self._key(place, column)
        if use is Use.REFERENCE:
            return self._reference(place, column)
        known = dict(zip((a.column for a in planned.attributes), self.levels[place], strict=False))
        if use is not Use.ATTRIBUTE or not known.get(column):
            return None
        attribute = next(a for a in planned.attributes if a.column == column)
        made = values_of(attribute, base, known[column])
        if not attribute.bins:
            return Held(made.kind, made.low)
        share = max(2, _NUMBERS // len(made.low))
        if made.low.dtype.kind == "f":
            found = np.linspace(made.low, np.nextafter(made.high, made.low), share).ravel()
            return Held(made.kind, found)
        last = np.maximum(made.high - 1, made.low)
        steps = np.linspace(0.0, 1.0, share)[:, None]
        between = made.low + np.floor((last - made.low) * steps).astype(np.int64)
        numbers = np.unique(np.where(made.low == MISSING, MISSING, between))
        return Held(made.kind, numbers)

    def _key(self, place: int, column: str) -> Held | None:
        table, base = self.plan.tables[place].table, self.bases[place][column]
        span, values = table.column(column).span, table.column(column).values
        if values:
            kind = Kind("listed", levels=values[:_LISTED], type_name=base.type_name)
            return Held(kind, numbered(values[:_LISTED]), len(values) <= _LISTED)
        first, last = (1, _KEYS) if span is None else (span[0], min(span[1], span[0] + _KEYS - 1))
        try:
            kind = made_up(base.name, base.modifier, table.name, last, 0)
        except NoKey:
            return None
        alone = any(u.columns == (column,) for u in table.uniques)
        numbers = np.arange(first, last + 1, dtype=np.int64)
        return Held(kind, numbers, first=first if alone else None)

    def _reference(self, place: int, column: str) -> Held | None:
        """Follow foreign keys to where values come from; NULL is among what optional ones hold."""
        planned = self.plan.tables[place]
        there = origin(self.plan.tables, place, column)
        if there == (place, column):  # by a key to the table itself
            key = next(r.key for r in planned.references if column in r.key.columns)
            there = place, key.parent_columns[key.columns.index(column)]
        if self.plan.tables[there[0]].use(there[1]) is Use.REFERENCE:
            return None
        found = self.of(*there)
        if found is None or found.numbers.dtype.kind == "f":
            return None
        numbers = np.append(found.numbers, MISSING)
        if not any(r.nullable for r in planned.references if column in r.key.columns):
            numbers = found.numbers
        made = self.plan.tables[there[0]].use(there[1]) is Use.KEY
        public = self.plan.tables[there[0]].table.public
        return Held(found.kind, numbers, found.whole and (public or not made))
