"""What a synthetic copy is made of: tables, columns, keys and public levels, from the catalogue.

Facts of the catalogue and declarations only (PRIVACY.md section 2 (c)); of public relations also
their rows.  What of this is copied, `dpsql.synthesis.planning` says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_bins import DEFAULT_BINS, attribute, of_public
from dpsql.engine.synthesis_catalogue import counts_itself, default_needs
from dpsql.errors import InvalidParameter, NotAnswerable, UndeclaredRelation, UnreadableRelation
from dpsql.query.check import allowed
from dpsql.relation import Relation, show_name
from dpsql.synthesis.plan_keys import says_itself
from dpsql.synthesis.schema import Attribute, Column, ForeignKey, Table, Unique

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Relations of one copy, public ones included.
MAX_RELATIONS = 200
MIN_BINS, MAX_BINS = 2, 1000
#: Most declared values of a foreign key's column; longer lists are ignored.
_MOST_VALUES = 10_000
_INTEGERS = ("int2", "int4", "int8")
#: What made-up numbers can begin at, and where they end that nothing bounds.
_FIRST = range(10**17)
_LAST = 2**62

_TABLES = """
select c.oid::int8 as oid, n.nspname, c.relname, c.relkind, dp.own_problem(c.oid) as problem,
  (select json_agg(json_build_array(a.attname, a.attnum, format_type(a.atttypid, a.atttypmod),
            a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attgenerated <> '',
            a.attidentity <> '',
            (with recursive over (type, name, base, filled) as (
               select t.oid, t.typname, t.typbasetype, t.typnotnull
                 from pg_type as t where t.oid = a.atttypid
               union all
               select t.oid, t.typname, t.typbasetype, t.typnotnull
                 from over as o join pg_type as t on t.oid = o.base)
             select json_build_array((select o.name from over as o where o.base = 0),
                                     (select bool_or(o.filled) from over as o))),
            d.oid::int8,
            exists (select from pg_depend as p
                      join pg_class as s on s.oid = p.refobjid and s.relkind = 'S'
                     where p.classid = 'pg_attrdef'::regclass and p.objid = d.oid
                       and p.refclassid = 'pg_class'::regclass)) order by a.attnum)
     from pg_attribute as a
     left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
  (select json_agg(json_build_array(coalesce(k.conname, x.relname), u.columns, i.indisprimary,
            not coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false))
            order by i.indexrelid)
     from pg_index as i
     join pg_class as x on x.oid = i.indexrelid
     left join pg_constraint as k on k.conindid = i.indexrelid and k.conrelid = c.oid
                                 and k.contype in ('p', 'u')
    cross join lateral (
       select json_agg(a.attname order by s.n) as columns
         from unnest(i.indkey::int2[]) with ordinality as s(attnum, n)
         join pg_attribute as a on a.attrelid = c.oid and a.attnum = s.attnum
        where s.n <= i.indnkeyatts) as u
    where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
      and i.indexprs is null) as uniques,
  (select json_agg(json_build_array(k.conname, mine.columns, k.confrelid::int8, theirs.columns,
            pn.nspname, p.relname,
            case
              when k.conkey && dp.derived_columns(k.conrelid) then 'refers to numbers of rows'
              when not k.convalidated then 'is not valid'
              when not coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
                then 'is not enforced'
              when coalesce((to_jsonb(k) ->> 'conperiod')::boolean, false) then 'compares periods'
              when c.relkind = 'r' and c.relhassubclass
                then 'does not cover the tables that inherit'
              when exists (select from pg_trigger as t where t.tgconstraint = k.oid
                              and t.tgenabled not in ('O', 'A')) then 'has disabled triggers'
            end,
            k.confmatchtype = 'f', k.confrelid <> all ($1)
            and coalesce((select s.kind from dp.standing(k.confrelid) as s) = 'protected', false))
            order by k.conkey, k.conname)
     from pg_constraint as k
     join pg_class as p on p.oid = k.confrelid
     join pg_namespace as pn on pn.oid = p.relnamespace
    cross join lateral (
       select json_agg(a.attname order by s.n) as columns
         from unnest(k.conkey) with ordinality as s(attnum, n)
         join pg_attribute as a on a.attrelid = k.conrelid and a.attnum = s.attnum) as mine
    cross join lateral (
       select json_agg(a.attname order by s.n) as columns
         from unnest(k.confkey) with ordinality as s(attnum, n)
         join pg_attribute as a on a.attrelid = k.confrelid and a.attnum = s.attnum) as theirs
    where k.conrelid = c.oid and k.contype = 'f'
      and not exists (select from pg_constraint as above
                       where above.oid = k.conparentid and above.conrelid = c.oid)
  ) as foreign_keys,
  (select json_agg(json_build_array(pg_get_constraintdef(k.oid),
            case when not k.connoinherit
                  and coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
                 then pg_get_expr(k.conbin, k.conrelid) end, k.convalidated) order by k.conname)
     from pg_constraint as k
    where k.conrelid = c.oid and k.contype = 'c') as checks
from unnest($1) with ordinality as u(oid, n)
join pg_class as c on c.oid = u.oid
join pg_namespace as n on n.oid = c.relnamespace
order by u.n
"""
_FIELDS = (
    *("oid", "nspname", "relname", "relkind", "problem"),
    *("columns", "uniques", "foreign_keys", "checks"),
)


def read_schema(
    relations: Sequence[int], services: Services, *, bins: int = DEFAULT_BINS
) -> tuple[Table, ...]:
    """Read tables to copy, and the public ones that they refer to, which come last.

    Parameters
    ----------
    relations : sequence of int
        OIDs.
    services : Services
        The ports.
    bins : int
        Into how many bins ranges are cut that have more values.

    Raises
    ------
    InvalidParameter
        When there is nothing to copy, or a relation twice.
    UndeclaredRelation
        When a relation is neither protected nor public.
    NotAnswerable
        When a relation is no table, is part of another one or may not be read.
    """
    if not MIN_BINS <= bins <= MAX_BINS:
        raise InvalidParameter(
            f'parameter "bins" must be between {MIN_BINS} and {MAX_BINS}', detail=f"Got {bins}."
        )
    if not services.catalog.may_name(relations):
        raise UndeclaredRelation(
            "the list names a relation that was not declared for private queries",
            hint="See dp.relations for what can be copied.",
        )
    if len(set(relations)) < len(relations) or not relations:
        raise InvalidParameter(
            "a relation is in the list twice" if relations else "the list of relations is empty",
            hint="Name each relation once that is to be copied.",
        )
    rows = _rows(relations, services)
    for row in rows:
        _require_table(row)
    listed = {row["oid"] for row in rows}
    parents = dict.fromkeys(
        key[2] for row in rows for key in row["foreign_keys"] if key[2] not in listed
    )
    around = [
        row
        for row in (_rows(list(parents), services) if parents else [])
        if _is_public(row, services)
    ]
    if len(rows) + len(around) > MAX_RELATIONS:
        raise InvalidParameter(
            "too many relations",
            detail=f"There are {len(rows) + len(around)}; at most {MAX_RELATIONS} are copied.",
        )
    found = tuple(_table(row, services, bins) for row in rows + around)
    if all(table.public for table in found):
        raise InvalidParameter(
            "all relations of the list are public",
            detail="Public relations are referred to, not copied.",
            hint="Name at least one protected relation: SELECT * FROM dp.relations;",
        )
    return found


def relation_of(table: Table, services: Services) -> Relation:
    """Return a table as it was declared.

    Raises
    ------
    UndeclaredRelation
        When it was not.
    """
    declared: Relation | None = services.catalog.relation(table.schema, table.name)
    if declared is None:
        raise _undeclared(table.shown)
    return declared


def _undeclared(shown: str) -> UndeclaredRelation:
    return UndeclaredRelation(
        f"relation {shown} is neither protected nor public",
        hint=f"Its owner can declare it: SELECT dp.protect('{shown}'); or, if it tells nothing of"
        f" anybody: SELECT dp.declare_public('{shown}');",
    )


def _rows(relations: Sequence[int], services: Services) -> list[dict[str, Any]]:
    found = []
    for values in services.database.execute(_TABLES, (("oid[]", list(relations)),)):
        row: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
        for field in ("columns", "uniques", "foreign_keys", "checks"):
            row[field] = json.loads(row[field] or "[]")
        found.append(row)
    return found


def _require_table(row: dict[str, Any]) -> None:
    """Refuse what is no table of its own."""
    problem = row["problem"] or ("it is a foreign table" if row["relkind"] == "f" else None)
    if problem:
        raise NotAnswerable(
            f"relation {show_name(row['nspname'], row['relname'])} cannot be copied",
            detail=f"The reason: {problem}.",
            hint="Name tables; of a partitioned one itself, which stands for all its parts.",
        )


def _is_public(row: dict[str, Any], services: Services) -> bool:
    """Tell whether a relation that a key leads to is a public table that can be read."""
    if row["problem"] or row["relkind"] == "f":
        return False
    try:
        declared = services.catalog.relation(row["nspname"], row["relname"])
    except UnreadableRelation:
        return False
    return declared is not None and not declared.private


def _table(row: dict[str, Any], services: Services, bins: int) -> Table:
    declared = services.catalog.relation(row["nspname"], row["relname"])
    if declared is None:
        raise _undeclared(show_name(row["nspname"], row["relname"]))
    columns = tuple(_column(values, row["checks"], services) for values in row["columns"])
    table = Table(
        oid=int(row["oid"]),
        schema=row["nspname"],
        name=row["relname"],
        columns=columns,
        uniques=tuple(
            Unique(name, tuple(own), primary, distinct)
            for name, own, primary, distinct in row["uniques"]
        ),
        foreign_keys=tuple(
            ForeignKey(name, tuple(mine), parent, tuple(theirs), show_name(schema, relation), *more)
            for name, mine, parent, theirs, schema, relation, *more in row["foreign_keys"]
        ),
        checks=tuple(definition for definition, *_ in row["checks"]),
        public=not declared.private,
    )
    return _with_domains(table, declared, services, bins)


def _column(values: Sequence[Any], checks: Sequence[Sequence[Any]], services: Services) -> Column:
    name, number, type_, not_null, default, generated, identity, (base, filled), *more = values
    oid, serial = more
    if default is not None and not generated and not counts_itself(base, serial=serial):
        # what the copy cannot have is none
        default = None if default_needs(oid, services, serial=serial) else default
    spans = [_span(name, *check[1:]) for check in checks] if base in _INTEGERS else []
    span = next((s for s in spans if s is not None), None)
    return Column(name, number, type_, not_null or filled, default, generated, identity, base, span)


def _span(column: str, expression: str | None, valid: bool) -> tuple[int, int] | None:
    """Read the first and last value that a CHECK lets a column have, or the first alone."""
    low, high = allowed(column, expression or "")
    if low is None or low not in _FIRST or not (valid or high is None):
        return None
    return low, _LAST if high is None else high


def _with_domains(table: Table, declared: Relation, services: Services, bins: int) -> Table:
    """Add what is learnt of columns: nothing of those that make up keys or lead to parents."""
    if table.public:
        return replace(table, domains=of_public(table, declared, services, bins))
    linked = {
        c
        for key in table.foreign_keys
        for c in key.columns
        if key.problem is None and not says_itself(table, key, c)
    }
    domains: list[Attribute] = []
    for column in declared.columns:
        if column.withheld or column.name in linked:
            continue
        if not table.column(column.name).generated:
            found = attribute(declared, column, services, bins)
            if found is not None:
                domains.append(found)
    known = {
        d.column: tuple(v for v in d.values if v is not None)
        for d in declared.domains
        if d.column in linked and d.listed and d.other is None and len(d.values) <= _MOST_VALUES
    }
    columns = tuple(replace(c, values=known.get(c.name, ())) for c in table.columns)
    return replace(table, domains=tuple(domains), columns=columns)
