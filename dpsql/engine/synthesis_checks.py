"""What a copy cannot satisfy or does not have, told from public facts before anything is paid.

A CHECK constraint, of a table or of a column's domain, is tried on what the copy's columns can
hold: declared levels, ends of bins, made-up keys, NULL.  Only those that call nothing but
PostgreSQL's own immutable functions are tried here: the statement runs with more rights than the
caller's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.engine.synthesis_catalogue import COLUMNS
from dpsql.engine.synthesis_rows import failing
from dpsql.engine.synthesis_tables import TableDetails
from dpsql.errors import DpsqlError, NotAnswerable
from dpsql.relation import quote_identifier, show_name
from dpsql.synthesis.assembled import Base
from dpsql.synthesis.attributes import values_of
from dpsql.synthesis.keys import NoKey, constant, made_up
from dpsql.synthesis.notes import Note
from dpsql.synthesis.schema import Plan, Planned, Use
from dpsql.synthesis.values import MISSING, Kind, Numbers

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Rows that a constraint is tried on, numbers of one attribute, keys that are made up.
_TRIED = 20_000
_NUMBERS = 256
_KEYS = 100
_DATA_EXCEPTION = "22"

_CHECKS = """
select k.conname::text as name, k.contype::text = 'c' and k.conrelid <> 0 as own,
  pg_get_expr(k.conbin, k.conrelid) as expression,
  (select json_agg(a.attname) from unnest(k.conkey) as u(n)
     join pg_attribute as a on a.attrelid = k.conrelid and a.attnum = u.n)::text as columns
  from pg_constraint as k where k.conrelid = $1::oid and k.contype = 'c'
union all
select k.conname::text, false, pg_get_expr(k.conbin, 0), json_build_array(d.attname)::text
  from (with recursive over(attname, oid) as (
          select a.attname, a.atttypid from pg_attribute as a
           where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
          union all
          select o.attname, t.typbasetype from over as o join pg_type as t on t.oid = o.oid
           where t.typtype = 'd')
        select o.attname, o.oid from over as o) as d
  join pg_constraint as k on k.contypid = d.oid and k.contype = 'c'
 order by 1, 4
"""
# dpsql's own triggers count changes
_LEFT_OUT = """
select 'constraint' as what, k.conname::text as name, 'excludes rows by operators' as why
  from pg_constraint as k where k.conrelid = $1::oid and k.contype = 'x'
union all
select 'trigger', t.tgname::text, 'is code of the original'
  from pg_trigger as t join pg_proc as f on f.oid = t.tgfoid
 where t.tgrelid = $1::oid and not t.tgisinternal
   and not (f.pronamespace = 'dp'::regnamespace and f.oid >= 16384)
union all
select 'rule', r.rulename::text, 'is code of the original'
  from pg_rewrite as r where r.ev_class = $1::oid
 order by 1, 2
"""
_PLAIN = """
select coalesce(bool_and(f.provolatile = 'i' and f.oid < 16384
                         and f.pronamespace = 'pg_catalog'::regnamespace), true) as plain
  from unnest($1::oid[]) as u(oid) join pg_proc as f on f.oid = u.oid
"""


@dataclass(frozen=True, slots=True)
class _Check:
    """One constraint: of a table, or of the domain that one of its columns has."""

    name: str
    own: bool
    expression: str
    columns: tuple[str, ...]


def left_out(plan: Plan, services: Services) -> list[Note]:
    """Name exclusion constraints, triggers and rules of the originals, which no copy has."""
    notes = []
    for planned in plan.tables:
        if planned.table.public:
            continue
        oid = [("int8", planned.table.oid)]
        for what, name, why in services.database.execute(_LEFT_OUT, oid):
            text = f"{what} {name} of {planned.table.shown} is left out: it {why}"
            kind = f"{what}s are left out: each {why}"
            notes.append(Note(text, kind, str(name), planned.table.shown))
    return notes


def require_checks(
    plan: Plan, levels: Sequence[Sequence[Sequence[str | None]]], services: Services
) -> None:
    """Refuse CHECK constraints that nothing which the copy can hold satisfies.

    Parameters
    ----------
    plan : Plan
    levels : sequence
        Of each table, of each of its attributes: the levels.
    services : Services

    Raises
    ------
    NotAnswerable
    """
    for planned, known in zip(plan.tables, levels, strict=True):
        if not planned.table.public:
            _Table(planned, known, services).require()


class _Table:
    """Tries the constraints of one table."""

    def __init__(
        self, planned: Planned, levels: Sequence[Sequence[str | None]], services: Services
    ) -> None:
        self.planned = planned
        self.services = services
        self.table = planned.table
        self.bases: dict[str, Base] = {}
        for row in self._execute(COLUMNS):
            name, _, base, base_type, modifier = row[:5]
            self.bases[str(name)] = Base(str(base), str(base_type), int(str(modifier)))
        self.levels = dict(zip((a.column for a in planned.attributes), levels, strict=False))

    def _execute(self, text: str) -> list[tuple[Any, ...]]:
        return self.services.database.execute(text, [("int8", self.table.oid)])

    def require(self) -> None:
        """Try all."""
        for name, own, expression, columns in self._execute(_CHECKS):
            check = _Check(name, own, expression, tuple(json.loads(columns or "[]")))
            held = {column: self._values(column) for column in check.columns}
            known = {column: found for column, found in held.items() if found is not None}
            if len(known) == len(held) and known and self._is_plain(check):
                self._try(check, known)

    def _try(self, check: _Check, held: Mapping[str, tuple[Kind, Numbers]]) -> None:
        numbers, all_tried = _combined({c: found for c, (_, found) in held.items()})
        kinds = {column: kind for column, (kind, _) in held.items()}
        types = {column: self.bases[column].type_name for column in held}
        if not check.own:  # a domain's constraint calls the value by this name
            ((column, found),) = numbers.items()
            numbers, kinds = {"value": found}, {"value": kinds[column]}
            types = {"value": types[column]}
        details = TableDetails(self.table.name, checks=[(check.name, check.expression)])
        details.types = types
        rows = next(iter(numbers.values())).size
        try:
            broken = failing(self.planned, details, kinds, numbers, self.services)
        except Exception as error:
            if str(getattr(error, "sqlstate", "")).startswith(_DATA_EXCEPTION):
                return  # an expression that fails for some value: nothing is known of the others
            raise
        if not rows or len(broken) < rows:
            return
        columns = ", ".join(check.columns)
        where = show_name(self.table.schema, self.table.name)
        what = f'the constraint "{check.name}"' + ("" if check.own else " of its domain")
        detail = (
            f"It is about {columns}, of which the copy can hold what is declared or made up:"
            " none of that satisfies it."
        )
        hint = "Declare domains whose values satisfy it, or drop the constraint on a copy."
        if not all_tried:
            self.services.warn(
                f"hardly any synthetic row of {where} can satisfy {what}", detail, hint
            )
            return
        raise NotAnswerable(
            f"no synthetic row of {where} can satisfy {what}", detail=detail, hint=hint
        )

    def _is_plain(self, check: _Check) -> bool:
        """Tell whether a constraint calls nothing but PostgreSQL's own immutable functions."""
        shown = ", ".join(
            f"null::{self.bases[c].type_name} as {quote_identifier(c) if check.own else 'value'}"
            for c in check.columns
        )
        label = quote_identifier(self.table.name)
        text = f"select ({check.expression}) as t from (select {shown}) as {label}"
        try:
            analysis = self.services.catalog.analyze(text)
        except DpsqlError:
            return False
        oids = [int(oid) for oid in analysis["functions"]]
        # a cast to a domain runs its constraint, whose functions are not among these
        return not (analysis["relations"] or analysis["domains"]) and bool(
            self.services.database.execute(_PLAIN, [("oid[]", oids)])[0][0]
        )

    def _values(self, column: str) -> tuple[Kind, Numbers] | None:
        """Return what a column of the copy can hold; None where that is not known here."""
        use, base = self.planned.use(column), self.bases[column]
        if use is Use.MISSING:
            return Kind("integer"), np.array([MISSING], dtype=np.int64)
        if use is Use.CONSTANT:
            kind = Kind("constant", text=constant(base.name) or "", type_name=base.type_name)
            return kind, np.zeros(1, dtype=np.int64)
        if use is Use.KEY:
            try:
                kind = made_up(base.name, base.modifier, self.table.name, _KEYS, 0)
            except NoKey:
                return None
            return kind, np.arange(1, _KEYS + 1, dtype=np.int64)
        if use is not Use.ATTRIBUTE or not self.levels.get(column):
            return None
        attribute = next(a for a in self.planned.attributes if a.column == column)
        made = values_of(attribute, base, self.levels[column])
        if not attribute.bins:
            return made.kind, made.low
        share = max(2, _NUMBERS // len(made.low))
        if made.low.dtype.kind == "f":
            found = np.linspace(made.low, np.nextafter(made.high, made.low), share).ravel()
            return made.kind, found
        last = np.maximum(made.high - 1, made.low)
        steps = np.linspace(0.0, 1.0, share)[:, None]
        between = made.low + np.floor((last - made.low) * steps).astype(np.int64)
        return made.kind, np.unique(np.where(made.low == MISSING, MISSING, between))


def _combined(held: Mapping[str, Numbers]) -> tuple[dict[str, Numbers], bool]:
    """Combine what columns hold: everything with everything, or some; tells whether all."""
    sizes = [found.size for found in held.values()]
    number = int(np.prod(sizes, dtype=np.float64))
    if number <= _TRIED:
        places = np.array(list(itertools.product(*map(range, sizes))), dtype=np.int64)
        places = places.reshape(number, len(sizes))
    else:
        rng = np.random.default_rng(0)
        places = np.column_stack([rng.integers(0, size, _TRIED) for size in sizes])
    rows = {c: found[places[:, n]] for n, (c, found) in enumerate(held.items())}
    return rows, number <= _TRIED
