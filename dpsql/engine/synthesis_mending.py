"""What an owner can do where rows of a copy's tables have units that cannot be reckoned with.

Refusals with the statements that mend them, made from public facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.engine.synthesis_bounds import Bounds
from dpsql.engine.synthesis_changes import Way
from dpsql.errors import NotAnswerable
from dpsql.relation import Relation, UnitPath, show_name
from dpsql.synthesis.schema import Table

if TYPE_CHECKING:
    from dpsql.engine.services import Services


def undivided(
    private: Sequence[Table], declared: Mapping[int, Relation], services: Services
) -> NotAnswerable:
    """Refuse several relations of which rows of one are protected, and say how to give units."""
    names = _roots(sorted({r for t in private for r in declared[t.oid].roots}), services)
    parts = []
    for table in private:
        relation = declared[table.oid]
        if relation.units:
            of = " and ".join(names.get(r, "another relation") for r in relation.roots)
            parts.append(f"{table.shown} belongs to the privacy units of {of}")
        else:
            parts.append(f"{table.shown} is protected row by row")
    by_rows = [t for t in private if not declared[t.oid].units]
    statements = _given_units(by_rows, private)
    return NotAnswerable(
        "some of the relations are protected row by row, and not alone",
        detail=f"{'; '.join(parts)}. A row that others refer to is missing only with them: that is"
        " a privacy unit. A copy is over the units of relations, or over one relation that is"
        " protected row by row with public ones.",
        hint=(
            f"Let the owner declare units: {' '.join(statements)} Or"
            if statements
            else "Let the owner declare public what tells nothing of anybody; or"
        )
        + " copy them in several calls.",
    )


def _given_units(by_rows: Sequence[Table], private: Sequence[Table]) -> list[str]:
    """Write statements that give units to relations: of their own, or those that keys lead to.

    Those that refer to another one belong to its units then.  None where some relation has no key
    of one column, which could name a unit.
    """
    oids = {t.oid for t in private}
    tops = [t for t in by_rows if not any(k.parent in oids - {t.oid} for k in t.foreign_keys)]
    named = []
    for table in tops:
        key = next((u.columns for u in table.uniques if u.primary), ())
        if len(key) != 1:
            return []
        shown = _literal(table.shown)
        named.append(f"SELECT dp.protect({shown}, privacy_unit => {_literal(key[0])});")
    back = [f"SELECT dp.unprotect({_literal(t.shown)});" for t in by_rows]
    return back + named


def unbounded(table: Table, ways: Sequence[Way], bounds: Bounds) -> NotAnswerable:
    """Refuse rows of several units, and say how to bound the rows of all but one."""
    loose = [way for way in ways if way.most is None]
    shown = "; ".join(shown_way(way.path) for way in ways)
    statements = []
    for way in loose[1:]:
        for schema, name, columns in bounds.missing(table.schema, table.name, way.path):
            listed = ", ".join(_literal(c) for c in columns)
            relation = _literal(show_name(schema, name))
            statements.append(f"SELECT dp.set_degree_bound({relation}, array[{listed}], 100);")
    return NotAnswerable(
        f"a row of relation {table.shown} can belong to several privacy units",
        detail=f"There are {len(ways)} ways to them: {shown}. They are cut off by one; a unit of"
        " another one takes any number of rows, and what is kept in their place changes as well,"
        " so that constraints must bound it.",
        hint="Let the owner bound, for example, how many rows can have the same value:"
        f" {' '.join(statements)} Or say of all keys but one that they lead to no unit:"
        " dp.link(child, parent, columns, follow => false). Or leave the relation out of the list.",
    )


def shown_way(path: UnitPath) -> str:
    """Write a way: the columns that it goes by."""
    hops = [f"{', '.join(h.columns)} to {h.schema}.{h.name}" for h in path.hops]
    return " and ".join(hops) or path.column


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _roots(roots: Sequence[int], services: Services) -> dict[int, str]:
    """Name the relations and columns that units are of."""
    rows = services.database.execute(
        "select r.id, format('%I.%I', r.schema_name, r.relation_name)"
        " || case when r.unit_column is not null then format(' (%I)', r.unit_column) else '' end"
        " as name"
        " from dp.root as r where r.id = any ($1)",
        (("int4[]", list(roots)),),
    )
    return {int(str(root)): str(name) for root, name in rows}
