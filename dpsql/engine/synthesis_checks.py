"""What a copy cannot satisfy or does not have, told from public facts before anything is paid.

A CHECK constraint, of a table or of a column's domain, is tried on what the copy's columns can
hold (`dpsql.engine.synthesis_values`).  Only those that call nothing but
PostgreSQL's own immutable functions are tried here: the statement runs with more rights than the
caller's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from dpsql.engine.synthesis_rows import failing
from dpsql.engine.synthesis_tables import TableDetails
from dpsql.engine.synthesis_values import Held, Values
from dpsql.errors import DpsqlError, NotAnswerable
from dpsql.relation import quote_identifier, show_name
from dpsql.sqltree import aliased, cast, raw, render, sql, subquery
from dpsql.synthesis.hashing import Flags
from dpsql.synthesis.notes import Note
from dpsql.synthesis.schema import Plan, Use
from dpsql.synthesis.values import Kind, Numbers

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_measured import MeasuredTable

#: Rows that a constraint is tried on.
_TRIED = 20_000
#: Stands for a column where a constraint is about none that varies.
_ONE = "dpsql one"
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
    plan: Plan,
    levels: Sequence[Sequence[Sequence[str | None]]],
    public: Mapping[int, MeasuredTable],
    services: Services,
) -> None:
    """Refuse CHECK constraints that nothing which the copy can hold satisfies.

    Parameters
    ----------
    plan : Plan
    levels : sequence
        Of each table, of each of its attributes: the levels.
    public : mapping
        What was read of public tables, by their places.
    services : Services

    Raises
    ------
    NotAnswerable
    """
    values = Values(plan, levels, public, services)
    for place, planned in enumerate(plan.tables):
        if not planned.table.public:
            _Table(place, values, services).require()


class _Table:
    """Tries the constraints of one table."""

    def __init__(self, place: int, values: Values, services: Services) -> None:
        self.place, self.values, self.services = place, values, services
        self.planned = values.plan.tables[place]
        self.table = self.planned.table
        self.bases = values.bases[place]
        self.expressions = values.expressions[place]

    def require(self) -> None:
        """Try all."""
        rows = self.services.database.execute(_CHECKS, [("int8", self.table.oid)])
        for name, own, expression, columns in rows:
            about = tuple(json.loads(str(columns or "[]")))
            check = _Check(str(name), bool(own), str(expression), about)
            if check.columns and self._is_plain(check.expression, check.columns, own=check.own):
                self._require(check)

    def _require(self, check: _Check) -> None:
        """Try one on everything that its columns can hold, if that is known."""
        details = TableDetails(self.table.name, checks=[(check.name, check.expression)])
        needed = list(check.columns)
        for column in check.columns:
            use = self.planned.use(column)
            if use not in (Use.GENERATED, Use.DEFAULT) or not check.own:
                continue
            text = self.expressions.get(column, "NULL")
            read = [c for c in self.bases if quote_identifier(c) in text or c in text]
            read = [c for c in read if self.planned.use(c) is not Use.GENERATED]
            if not self._is_plain(text, read if use is Use.GENERATED else ()):
                return
            details.expressions[column] = text
            if use is Use.GENERATED:
                details.generated.append(column)
                needed += [c for c in read if c not in needed]
        held: dict[str, Held] = {}
        for column in needed:
            if column in details.expressions:
                continue
            found = self.values.of(self.place, column)
            if found is None:
                return
            held[column] = found
        details.types = {column: self.bases[column].type_name for column in needed}
        self._try(check, details, held)

    def _try(self, check: _Check, details: TableDetails, held: Mapping[str, Held]) -> None:
        numbers, all_tried = _combined({c: found.numbers for c, found in held.items()})
        kinds = {column: found.kind for column, found in held.items()}
        if not check.own:  # a domain's constraint calls the value by this name
            ((column, found),) = numbers.items()
            numbers, kinds = {"value": found}, {"value": kinds[column]}
            details.types = {"value": details.types[column]}
        if not numbers:
            numbers, kinds = {_ONE: np.zeros(1, dtype=np.int64)}, {_ONE: Kind("integer")}
        rows = next(iter(numbers.values())).size
        try:
            broken = failing(self.planned, details, kinds, numbers, self.services)
        except Exception as error:
            if str(getattr(error, "sqlstate", "")).startswith(_DATA_EXCEPTION):
                return  # an expression that fails for some value: nothing is known of the others
            raise
        if rows and broken:
            refused = np.zeros(rows, dtype=bool)
            refused[list(broken)] = True
            whole = all_tried and all(found.whole for found in held.values())
            self._tell(
                check,
                held,
                numbers if check.own else {check.columns[0]: numbers["value"]},
                refused,
                whole=whole,
            )

    def _tell(
        self,
        check: _Check,
        held: Mapping[str, Held],
        numbers: Mapping[str, Numbers],
        refused: Flags,
        *,
        whole: bool,
    ) -> None:
        """Refuse a constraint that every row breaks, or the first one; warn where that may be."""
        columns = ", ".join(check.columns)
        where = show_name(self.table.schema, self.table.name)
        what = f'the constraint "{check.name}"' + ("" if check.own else " of its domain")
        detail = (
            f"It is about {columns}, of which the copy can hold what is declared, made up or"
            " referred to: none of that satisfies it."
        )
        hint = "Declare domains whose values satisfy it, or drop the constraint on a copy."
        if refused.all():
            if not whole:
                self.services.warn(
                    f"hardly any synthetic row of {where} can satisfy {what}", detail, hint
                )
                return
            raise NotAnswerable(
                f"no synthetic row of {where} can satisfy {what}", detail=detail, hint=hint
            )
        for column, found in held.items():
            if found.first is None or not whole:
                continue
            never = [
                int(key)
                for key in np.unique(numbers[column][refused])
                if refused[numbers[column] == key].all()
            ]
            if not never:
                continue
            detail = f"Keys are made up from {found.first} on, and none with {column} ="
            detail += f" {never[0]} satisfies it, whatever else the row holds."
            hint = (
                f"Say where keys begin, CHECK ({column} >= 1000), or drop the constraint on a copy."
            )
            if found.first in never:
                raise NotAnswerable(
                    f"the first synthetic row of {where} cannot satisfy {what}",
                    detail=detail,
                    hint=hint,
                )
            self.services.warn(
                f"some synthetic rows of {where} cannot satisfy {what}", detail, hint
            )

    def _is_plain(self, expression: str, columns: Sequence[str], *, own: bool = True) -> bool:
        """Tell whether an expression calls nothing but PostgreSQL's own immutable functions."""
        shown = [
            aliased(
                cast(exp.Null(), self.bases[c].type_name), quote_identifier(c) if own else "value"
            )
            for c in columns
        ]
        row = sql("SELECT :shown", shown=shown or [sql("NULL AS one")])
        statement = sql(
            "SELECT (:condition) AS t FROM :row",
            condition=raw(expression),
            row=subquery(row, quote_identifier(self.table.name)),
        )
        try:
            analysis = self.services.catalog.analyze(render(statement))
        except DpsqlError:
            return False
        oids = [int(oid) for oid in analysis["functions"]]
        # a cast to a domain runs its constraint, whose functions are not among these
        return not (analysis["relations"] or analysis["domains"]) and bool(
            self.services.database.execute(_PLAIN, [("oid[]", oids)])[0][0]
        )


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
