"""The levels of a release's keys, and what a question says of them: public facts, read in SQL.

Conditions are evaluated by the server on values of their own types, as they would be on rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.ports import Database
    from dpsql.query.span import Span
    from dpsql.query.ways import Asked, Inside, Test

_LEVELS = """(select u.v, (u.o - 1)::int4 as o from dp.stored_release as r,
  jsonb_array_elements_text(case jsonb_typeof(r.span #> array['levels', '{key}']) when 'array'
  then r.span #> array['levels', '{key}'] else '[]' end) with ordinality as u(v, o)
  where r.name = $1)"""
_LAST_DAY = date.max.toordinal()
_WIDTHS = {"smallint": 15, "integer": 31, "bigint": 63}


@dataclass(slots=True)
class Levels:
    """The levels of one release, numbered from 0 in the order of their types."""

    name: str
    span: Span
    database: Database
    _texts: dict[int, list[str | None]] = field(default_factory=dict)

    def texts(self, key: int) -> list[str | None]:
        """Return the levels of a key, ``[]`` where they are not kept."""
        if key not in self._texts:
            sql = f"SELECT l.v FROM {self._sql(key)} AS l ORDER BY l.o"
            found = self.database.execute(sql, [("text", self.name)])
            self._texts[key] = [None if v is None else str(v) for (v,) in found]
        return self._texts[key]

    def are_kept(self, keys: Iterable[int]) -> bool:
        """Whether all levels of these keys are known."""
        return all(len(self.texts(key)) == self.span.levels[key].number for key in keys)

    def true_for(self, key: int, condition: str) -> frozenset[int]:
        """Return the levels for which a condition over ``r0."k<key>"`` is true."""
        found = self.database.execute(
            f'SELECT r0.o FROM (SELECT CAST(l.v AS {self._type(key)}) AS "k{key}", l.o'
            f" FROM {self._sql(key)} AS l) AS r0 WHERE {condition}",
            [("text", self.name)],
        )
        return frozenset(int(str(o)) for (o,) in found)

    def truth(self, tests: Sequence[Test]) -> dict[Test, frozenset[int]]:
        """Return the levels for which each test on one key is true."""
        return {t: self.true_for(min(t.keys), t.sql) for t in tests if len(t.keys) == 1}

    def places(self, key: int, values: Sequence[str | None]) -> list[int] | None:
        """Find values among the levels of a key; ``None`` if one is none of them."""
        one, other = self._same(key, "g.v"), self._same(key, "l.v")
        found = self.database.execute(
            "SELECT l.o FROM unnest($2::text[]) WITH ORDINALITY AS g(v, i)"
            f" LEFT JOIN {self._sql(key)} AS l ON {one} = {other} ORDER BY g.i",
            [("text", self.name), ("text[]", list(values))],
        )
        places = [int(str(o)) for (o,) in found if o is not None]
        return places if len(places) == len(values) == len(found) else None

    def hold(self, asked: Asked) -> bool:
        """Whether conditions keep each key with a declared domain that needs it within it."""
        return all(any(self._holds(inside) for inside in some) for some in asked.inside)

    def _holds(self, inside: Inside) -> bool:
        if not self.are_kept((inside.key,)):
            return False
        if inside.above:
            return self._lie_between(inside)
        if inside.null and not self.span.levels[inside.key].null:
            return False
        return not inside.listed or self._are_levels(inside)

    def _are_levels(self, inside: Inside) -> bool:
        missing = self.database.execute(
            f"SELECT count(*) AS n FROM unnest(ARRAY[{', '.join(inside.listed)}]) AS u(c)"
            f" WHERE NOT EXISTS (SELECT FROM {self._sql(inside.key)} AS l"
            f" WHERE CAST(l.v AS {self._type(inside.key)}) = u.c)",
            [("text", self.name)],
        )
        return not missing[0][0]

    def _lie_between(self, inside: Inside) -> bool:
        """Whether every value of a countable type that meets the bounds is a level.

        The levels that meet them are neighbours without a gap, and the values before the first
        and after the last do not: so none beyond these does.
        """
        key = inside.key
        between = self.true_for(key, " AND ".join((*inside.above, *inside.below)))
        numbers = [self._number(key, o) for o in between]
        known = [n for n in numbers if n is not None]
        if not known or max(known) - min(known) + 1 != len(numbers):
            return False
        before, after = self._value(key, min(known) - 1), self._value(key, max(known) + 1)
        return not (
            self._is_true(key, inside.above, before) or self._is_true(key, inside.below, after)
        )

    def _number(self, key: int, place: int) -> int | None:
        text = self.texts(key)[place]
        if text is None:
            return None
        if self._type(key) != "date":
            return int(text)
        try:
            return date.fromisoformat(text).toordinal()
        except ValueError:  # infinity, BC
            return None

    def _value(self, key: int, number: int) -> str | None:
        """Write the value with a number; ``None`` beyond the type's values."""
        type_ = self._type(key)
        if type_ != "date":
            return str(number) if -(2 ** _WIDTHS[type_]) <= number < 2 ** _WIDTHS[type_] else None
        return date.fromordinal(number).isoformat() if 0 < number <= _LAST_DAY else None

    def _is_true(self, key: int, conditions: Sequence[str], value: str | None) -> bool:
        if value is None:
            return False
        found = self.database.execute(
            f"SELECT coalesce({' AND '.join(conditions)}, false) AS holds FROM"
            f' (SELECT CAST($1 AS {self._type(key)}) AS "k{key}") AS r0',
            [("text", value)],
        )
        return bool(found[0][0])

    def _type(self, key: int) -> str:
        return self.span.reads.keys[key].type

    def _same(self, key: int, text: str) -> str:
        """Write what is equal for equal values, NULL included."""
        return same_text(f"CAST({text} AS {self._type(key)})", self._type(key))

    def _sql(self, key: int) -> str:
        return _LEVELS.format(key=int(key))


def same_text(value: str, type_: str) -> str:
    """Write a text that equal values share, and NULL with NULL only."""
    text = f"trim_scale({value})" if type_.split("(")[0] == "numeric" else value
    return f"coalesce('v' || CAST({text} AS text), 'n')"
