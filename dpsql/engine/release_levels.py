"""The levels of a release's keys, and what a question says of them: public facts, read in SQL.

Conditions are evaluated by the server on values of their own types, as they would be on rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    cast,
    constant,
    equal,
    parameter,
    raw,
    render,
    sql,
    subquery,
)

if TYPE_CHECKING:
    from dpsql.ports import Database
    from dpsql.query.span import Span
    from dpsql.query.ways import Asked, Inside, Test

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
            statement = sql("SELECT l.v FROM :levels AS l ORDER BY l.o", levels=_levels(key))
            found = self.database.execute(render(statement), [("text", self.name)])
            self._texts[key] = [None if v is None else str(v) for (v,) in found]
        return self._texts[key]

    def are_kept(self, keys: Iterable[int]) -> bool:
        """Whether all levels of these keys are known."""
        return all(len(self.texts(key)) == self.span.levels[key].number for key in keys)

    def true_for(self, key: int, condition: Tree | None) -> frozenset[int]:
        """Return the levels for which a condition over ``r0."k<key>"`` is true."""
        statement = sql(
            "SELECT r0.o FROM (SELECT :value, l.o FROM :levels AS l) AS r0 WHERE :condition",
            value=self._shown(key, sql("l.v")),
            levels=_levels(key),
            condition=condition,
        )
        found = self.database.execute(render(statement), [("text", self.name)])
        return frozenset(int(str(o)) for (o,) in found)

    def truth(self, tests: Sequence[Test]) -> dict[Test, frozenset[int]]:
        """Return the levels for which each test on one key is true."""
        return {t: self.true_for(min(t.keys), raw(t.sql)) for t in tests if len(t.keys) == 1}

    def places(self, key: int, values: Sequence[str | None]) -> list[int] | None:
        """Find values among the levels of a key; ``None`` if one is none of them."""
        statement = sql(
            "SELECT l.o FROM unnest(CAST($2 AS text[])) WITH ORDINALITY AS g(v, i)"
            " LEFT JOIN :levels AS l ON :same ORDER BY g.i",
            levels=_levels(key),
            same=equal(self._same(key, sql("g.v")), self._same(key, sql("l.v"))),
        )
        given = [("text", self.name), ("text[]", list(values))]
        found = self.database.execute(render(statement), given)
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
        statement = sql(
            "SELECT count(*) AS n FROM unnest(ARRAY[:listed]) AS u(c)"
            " WHERE NOT EXISTS (SELECT FROM :levels AS l WHERE :value = u.c)",
            listed=[raw(value) for value in inside.listed],
            levels=_levels(inside.key),
            value=cast(sql("l.v"), self._type(inside.key)),
        )
        missing = self.database.execute(render(statement), [("text", self.name)])
        return not missing[0][0]

    def _lie_between(self, inside: Inside) -> bool:
        """Whether every value of a countable type that meets the bounds is a level.

        The levels that meet them are neighbours without a gap, and the values before the first
        and after the last do not: so none beyond these does.
        """
        key = inside.key
        between = self.true_for(key, _all((*inside.above, *inside.below)))
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
        statement = sql(
            "SELECT coalesce(:holds, false) AS holds FROM (SELECT :value) AS r0",
            holds=_all(conditions),
            value=self._shown(key, parameter(1)),
        )
        found = self.database.execute(render(statement), [("text", value)])
        return bool(found[0][0])

    def _type(self, key: int) -> str:
        return self.span.reads.keys[key].type

    def _shown(self, key: int, text: Tree) -> Tree:
        """Return a text as the column of a key, which conditions name."""
        return aliased(cast(text, self._type(key)), f'"k{key}"')

    def _same(self, key: int, text: Tree) -> Tree:
        """Return what is equal for equal values, NULL included."""
        return same_text(cast(text, self._type(key)), self._type(key))


@cache
def _levels(key: int) -> Tree:
    """Return the query of a key's levels ``v`` and their places ``o``; ``$1`` is the release.

    Written once, since most statements that serve an answer have it.
    """
    query = sql(
        "SELECT u.v, CAST(u.o - 1 AS integer) AS o FROM dp.stored_release AS r,"
        " jsonb_array_elements_text(CASE jsonb_typeof(r.span #> ARRAY['levels', :key])"
        " WHEN 'array' THEN r.span #> ARRAY['levels', :key] ELSE '[]' END)"
        " WITH ORDINALITY AS u(v, o) WHERE r.name = $1",
        key=constant(str(key)),
    )
    return raw(render(subquery(query)))


def _all(conditions: Sequence[str]) -> Tree | None:
    return all_of(map(raw, conditions))


def same_text(value: Tree, type_: str) -> Tree:
    """Return a text that equal values share, and NULL with NULL only."""
    text = sql("trim_scale(:value)", value=value) if type_.split("(")[0] == "numeric" else value
    found: Tree = sql("coalesce('v' || CAST(:text AS text), 'n')", text=text)
    return found
