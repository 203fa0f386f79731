"""Explain a statement over tables of the schema dpv: their numbers are paid for already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import PermissionDenied
from dpsql.relation import show_name
from dpsql.sqltree import literal

if TYPE_CHECKING:
    from dpsql.engine.request import Role
    from dpsql.engine.services import Services

_RELEASES = """
select r.name::text as name, r.mechanism, r.noise,
  to_char(r.measured_at, 'YYYY-MM-DD HH24:MI:SS') as measured_at, r.terms ->> 'rows' as rows
from unnest($1::oid[]) as o(oid) join dp.stored_release as r
  on to_regclass(format('dpv.%I', r.name)) = o.oid
where has_table_privilege($2::oid, o.oid, 'select')
order by r.name
"""
_UNREADABLE = """
select c.relname::text as name from pg_class as c
where c.oid = any ($1) and c.relnamespace = 'dpv'::regnamespace
  and not has_table_privilege($2::oid, c.oid, 'select')
order by 1
"""


def released(text: str, role: Role, services: Services) -> list[tuple[str, str]] | None:
    """Explain a statement that reads nothing but releases; ``None`` for any other.

    Such a statement is PostgreSQL's own: it needs no private aggregate and costs nothing.

    Raises
    ------
    PermissionDenied
        When the role may not read a table of the schema dpv that it names.
    """
    from dpsql.query.aggregates import NAMES

    analysis = services.catalog.analyze(text)
    functions = (services.catalog.function(int(oid)) for oid in analysis["functions"])
    if any(f is not None and f.schema == "public" and f.name in NAMES for f in functions):
        return None
    oids = sorted({int(relation["oid"]) for relation in analysis["relations"]})
    parameters = [("oid[]", oids), ("oid", role.oid)]
    unreadable = [str(row[0]) for row in services.database.execute(_UNREADABLE, parameters)]
    if unreadable:
        shown = show_name("dpv", unreadable[0])
        raise PermissionDenied(
            f"permission denied for table {shown}",
            detail="Who released it can read it, and roles with which it was shared.",
            hint="Ask the owner of what it reads for"
            f" SELECT dp.share_release({literal(unreadable[0])}, {literal(role.name)});"
            " which charges your budget.",
        )
    rows = services.database.execute(_RELEASES, parameters)
    if not oids or len(rows) < len(oids):
        return None
    found = []
    for name, mechanism, noise, when, most in rows:
        told = (
            f"{show_name('dpv', str(name))} of {when}, measured by {mechanism} with {noise} noise"
        )
        if most is not None:
            told += f"; of each privacy unit at most {most} rows count"
        found.append(("release", told))
    return [
        *found,
        ("guarantee", "reads released numbers only, which were charged when they were measured"),
        ("cost epsilon", "0"),
        ("cost delta", "0"),
        ("cost rho", "0"),
        ("expected error", "the column standard_error says it of every single value"),
    ]
