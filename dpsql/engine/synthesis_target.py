"""Where synthetic tables are made: refusals from public facts, before anything is paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine import ddl
from dpsql.engine.standby import refuse_standby
from dpsql.engine.synthesis_catalogue import require_types
from dpsql.engine.synthesis_public import referenced
from dpsql.errors import InvalidParameter, NotAnswerable, PermissionDenied
from dpsql.relation import show_name
from dpsql.synthesis.keys import NoKey, made_up
from dpsql.synthesis.schema import Plan, Use

if TYPE_CHECKING:
    from dpsql.engine.services import Services

_SCHEMA = """
select
  has_database_privilege(dp.caller(), current_database(), 'create') as may_create,
  n.oid is not null as there, has_schema_privilege(dp.caller(), n.oid, 'create') as may_use,
  current_setting('transaction_read_only')::boolean as read_only,
  dp.caller()::regrole::text as role
  from (select 1) as one left join pg_namespace as n on n.nspname = $1
"""
_RELATIONS = """
select format('%I.%I', n.nspname, c.relname) as name, c.relkind::text as kind,
  s.relation is not null as synthetic, pg_has_role(dp.caller(), c.relowner, 'usage') as own
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
  left join (select distinct t.relation from dp.synthetic_tables($1) as t) as s
    on s.relation = c.oid
 where n.nspname = $1 and c.relkind not in ('i', 'I', 't', 'c')
   and not (c.relkind = 'S' and exists (
     select from pg_depend as d where d.classid = 'pg_class'::regclass and d.objid = c.oid
        and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i')))
 order by 1
"""
_SELECTABLE = """
select has_table_privilege(dp.caller(), $1::oid, 'select')
    or coalesce((select bool_and(has_column_privilege(dp.caller(), $1::oid, u.name, 'select'))
                   from unnest($2::text[]) as u(name)), true) as readable,
  (select has_schema_privilege(dp.caller(), c.relnamespace, 'usage')
     from pg_class as c where c.oid = $1::oid) as reachable
"""
_BASE = """
with recursive base(oid, modifier, step) as (
    select a.atttypid, a.atttypmod, 0 from pg_attribute as a
     where a.attrelid = $1::oid and a.attname = $2 and not a.attisdropped
    union all
    select t.typbasetype, t.typtypmod, b.step + 1
      from base as b join pg_type as t on t.oid = b.oid where t.typtype = 'd')
select t.typname::text as name, b.modifier::int4 as modifier
  from base as b join pg_type as t on t.oid = b.oid order by b.step desc limit 1
"""


def require_target(target: str, plan: Plan, replace: bool, services: Services) -> list[str]:
    """Refuse, from public facts, a target that the caller could not write; for before the charge.

    Parameters
    ----------
    target : str
        Name of the schema, which is made if it is not there.
    plan : Plan
    replace : bool
        Whether tables that an earlier synthesis of the caller made may be dropped.
    services : Services
        Rights are those of ``dp.caller()``, whoever the database runs as.

    Returns
    -------
    list of str
        Qualified, quoted names of the tables that are to be dropped.

    Raises
    ------
    InvalidParameter, NotAnswerable, PermissionDenied
    """
    if not target or len(target.encode()) > 63 or target.startswith("pg_"):
        raise InvalidParameter(
            'parameter "target" must be the name of a schema',
            detail="It has 1 to 63 bytes and does not begin with pg_.",
        )
    if target in ("dp", "dpv", "information_schema", "public"):
        raise InvalidParameter(
            f"synthetic tables cannot be made in the schema {target}",
            hint="Name a schema of their own, which need not exist.",
        )
    may_create, there, may_use, read_only, role = services.database.execute(
        _SCHEMA, [("name", target)]
    )[0]
    if read_only:
        refuse_standby(services)
        raise InvalidParameter(
            "a synthesis needs a transaction that can write",
            hint="Call it outside of the transaction, with default_transaction_read_only = off.",
        )
    if not there and not may_create:
        raise PermissionDenied(
            f"permission denied to create the schema {show_name(target)}",
            detail="Synthetic tables belong to the role that calls dp.synthesize.",
            hint=f"Ask the owner of the database for CREATE SCHEMA {show_name(target)};"
            f" GRANT CREATE, USAGE ON SCHEMA {show_name(target)} TO {role};",
        )
    if there and not may_use:
        raise PermissionDenied(
            f"permission denied for schema {show_name(target)}",
            hint=f"Ask its owner for GRANT CREATE, USAGE ON SCHEMA {show_name(target)}.",
        )
    old = _old_tables(target, replace, services) if there else []
    _require_names(plan)
    _require_public_parents(plan, services)
    require_types(plan, services)
    _require_keys(plan, services)
    return old


def _old_tables(target: str, replace: bool, services: Services) -> list[str]:
    found = services.database.execute(_RELATIONS, [("name", target)])
    if not found:
        return []
    others = [str(name) for name, _, synthetic, own in found if not (synthetic and own)]
    if not replace or others:
        shown = others or [str(row[0]) for row in found]
        raise InvalidParameter(
            f"the schema {show_name(target)} has relations already",
            detail=f"There are {', '.join(shown[:10])}{' and others' if len(shown) > 10 else ''}."
            + (" No synthesis of yours made them." if others else ""),
            hint="Name another schema, or move them away."
            if others
            else "Call it with replace => true, which drops what earlier syntheses made there.",
        )
    return [str(name) for name, kind, *_ in found if kind == "r"]


def _require_names(plan: Plan) -> None:
    """Refuse tables of several schemas that have one name."""
    by_name: dict[str, list[str]] = {}
    for planned in plan.tables:
        if not planned.table.public:
            by_name.setdefault(planned.table.name, []).append(planned.table.shown)
    for name, shown in by_name.items():
        if len(shown) > 1:
            raise InvalidParameter(
                f"several relations of the list have the name {show_name(name)}",
                detail=f"They are {', '.join(shown)}, and their copies come into one schema.",
                hint="Copy them into schemas of their own by several calls, or rename one.",
            )


def _require_public_parents(plan: Plan, services: Services) -> None:
    """Refuse references to public tables whose keys the caller may not read."""
    for place, planned in enumerate(plan.tables):
        columns = referenced(plan, place)
        if not planned.table.public or not columns:
            continue
        readable, reachable = services.database.execute(
            _SELECTABLE, [("int8", planned.table.oid), ("text[]", list(columns))]
        )[0]
        if not (readable and reachable):
            name = show_name(planned.table.schema, planned.table.name)
            raise PermissionDenied(
                f"permission denied for table {name}",
                detail="It is public, and the synthetic tables refer to it: its keys are read with"
                " your rights.",
                hint=f"Ask its owner for GRANT SELECT, REFERENCES ON {name} TO your role"
                f" and USAGE ON SCHEMA {show_name(planned.table.schema)}.",
            )


def _require_keys(plan: Plan, services: Services) -> None:
    """Refuse columns that must have made-up keys where their types have none."""
    for planned in plan.tables:
        for name, use in planned.uses:
            if use is not Use.KEY or planned.table.public:
                continue
            base = services.database.execute(_BASE, [("int8", planned.table.oid), ("text", name)])
            column = show_name(planned.table.schema, planned.table.name, name)
            if not base:
                raise NotAnswerable(f"there is no column {column} any more", hint="Call it again.")
            try:
                made_up(str(base[0][0]), int(str(base[0][1])), planned.table.name, 1, 0)
            except NoKey as error:
                raise NotAnswerable(
                    f"no keys can be made up for {column}",
                    detail=f"{str(error)[0].upper()}{str(error)[1:]}.",
                    hint="Declare its domain with dp.set_domain, or drop the key on a copy.",
                ) from None


def make_schema(target: str, services: Services) -> bool:
    """Make the schema if it is not there; tells whether it was made."""
    there = services.database.execute(
        "select exists (select from pg_namespace as n where n.nspname = $1) as there",
        [("name", target)],
    )[0][0]
    if not there:
        services.database.execute(ddl.create_schema(target))
    return not there
