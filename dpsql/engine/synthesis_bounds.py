"""How many rows of a relation one privacy unit can have, by constraints that PostgreSQL enforces.

A unique key whose other columns can hold ``n`` values bounds the rows with the same values in the
rest of its columns by ``n``.  The columns that can are integers with ``CHECK (column BETWEEN 1 AND
n)`` or another form of a range that `dpsql.query.check` reads; ``dp.set_degree_bound`` makes one.
Both constraints are valid, immediate and cannot be
switched off, so that the bound is a public fact of every instance (PRIVACY.md sections 1 and 8).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.query.check import allowed
from dpsql.relation import UnitPath

if TYPE_CHECKING:
    from dpsql.engine.services import Services

_CONSTRAINTS = """
select c.oid::int8 as oid, n.nspname, c.relname,
  (select json_agg(json_build_array(u.columns, u.filled))
     from pg_index as i
    cross join lateral (
       select json_agg(a.attname) as columns,
              json_agg(a.attname) filter (where dp.never_null(a.attrelid, a.attnum)) as filled
         from unnest(i.indkey::int2[]) with ordinality as s(attnum, n)
         join pg_attribute as a on a.attrelid = c.oid and a.attnum = s.attnum
        where s.n <= i.indnkeyatts) as u
    where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indisready and i.indislive
      and i.indimmediate and i.indpred is null and i.indexprs is null
      and c.relkind in ('r', 'p') and not (c.relkind = 'r' and c.relhassubclass)) as keys,
  (select json_agg(json_build_array(a.attname, pg_get_expr(k.conbin, k.conrelid)))
     from pg_constraint as k
     join pg_attribute as a on a.attrelid = k.conrelid and array[a.attnum] = k.conkey
    where k.conrelid = c.oid and k.contype = 'c' and k.convalidated and not k.connoinherit
      and coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
      and a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)) as checks
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where (n.nspname, c.relname) in (select s.name, r.name
         from unnest($1::text[]) with ordinality as s(name, i)
         join unnest($2::text[]) with ordinality as r(name, i) using (i))
"""

#: Schema and name.
_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Keys:
    keys: tuple[tuple[frozenset[str], frozenset[str]], ...]
    numbers: Mapping[str, int]

    def most(self, columns: Sequence[str]) -> int | None:
        """Bound the rows that have the same values in some columns, none of them NULL."""
        found = []
        for key, filled in self.keys:
            others = key - set(columns)
            if others <= set(self.numbers) and others <= filled:
                found.append(math.prod(self.numbers[c] for c in others))
        return min(found, default=None)


class Bounds:
    """Public bounds of rows, with what they hang on.

    Parameters
    ----------
    names : sequence of (str, str)
        Schemas and names of relations.
    services : Services
        Keys and checks are read after the token of the relations, so that a change of them since
        is a change of the token.
    """

    def __init__(self, names: Sequence[_Name], services: Services) -> None:
        listed = sorted(set(names))
        found = [services.catalog.relation(*name) for name in listed]
        self.read = tuple(sorted(relation.oid for relation in found if relation is not None))
        self.token = str(services.catalog.fingerprint(self.read))
        rows = services.database.execute(
            _CONSTRAINTS,
            [
                ("text[]", [schema for schema, _ in listed]),
                ("text[]", [name for _, name in listed]),
            ],
        )
        self._keys: dict[_Name, _Keys] = {}
        for oid, schema, name, keys, checks in rows:
            if int(str(oid)) in self.read:
                self._keys[str(schema), str(name)] = _Keys(_sets(keys), _numbers(checks))

    def rows(self, schema: str, name: str, columns: Sequence[str]) -> int | None:
        """Bound the rows of a relation with the same values in some columns."""
        found = self._keys.get((schema, name))
        return None if found is None else found.most(columns)

    def along(self, schema: str, name: str, path: UnitPath) -> int | None:
        """Bound the rows of a relation that one unit has by a way: the product along it."""
        product = 1
        for hop in path.hops:
            here = self.rows(schema, name, hop.columns)
            if here is None:
                return None
            product *= here
            schema, name = hop.schema, hop.name
        last = self.rows(schema, name, (path.column,))
        return None if last is None else product * last

    def missing(
        self, schema: str, name: str, path: UnitPath
    ) -> list[tuple[str, str, tuple[str, ...]]]:
        """List what keeps `along` from a bound: relations and columns that are in no such key."""
        found = []
        for hop in (*path.hops, None):
            columns = (path.column,) if hop is None else hop.columns
            if self.rows(schema, name, columns) is None:
                found.append((schema, name, columns))
            if hop is not None:
                schema, name = hop.schema, hop.name
        return found


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value or []


def _sets(keys: Any) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    return tuple((frozenset(key), frozenset(filled or ())) for key, filled in _json(keys))


def _numbers(checks: Any) -> dict[str, int]:
    """Count the values that columns can hold by their ranges."""
    found: dict[str, int] = {}
    for name, expression in _json(checks):
        low, high = allowed(name, expression or "")
        if low is not None and high is not None:
            number = max(0, high - low + 1)
            found[name] = min(number, found.get(name, number))
    return found
