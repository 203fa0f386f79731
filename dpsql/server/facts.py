"""Rows of the catalogue as records: domains, parts on other servers, ways to units."""

from __future__ import annotations

import json
from typing import Any

from dpsql.relation import Domain, Hop, Level, Part, UnitPath


def read_domain(
    column: str,
    members: list[str | None] | None,
    kind: str,
    lower: str | None,
    upper: str | None,
    type_name: str,
    other: str | None,
) -> Domain:
    """Read a row of ``dp.column_domain``."""
    found = members or []
    values = tuple(m for m in found if m is not None)
    return Domain(column, values, None in found, lower, upper, type_name, kind != "bounds", other)


def read_parts(found: str | None) -> dict[str, Any]:
    """Read what ``dp.parts_of`` says of a relation that has foreign parts."""
    if found is None:
        return {}
    facts = json.loads(found)
    return {
        "parts": tuple(Part(*part) for part in facts["parts"]),
        "cut_by": tuple(facts["cut_by"] or ()),
        "layout": facts["layout"] or "",
        "levels": tuple(
            Level(tuple(columns), layout, tuple(places))
            for columns, layout, places in facts.get("levels") or ()
        ),
    }


def read_path(
    root: int, hops: list[dict[str, Any]], unit: str, loose: list[str], out: bool
) -> UnitPath:
    """Read a row of ``dp.unit_paths``."""
    steps = tuple(
        Hop(tuple(h["columns"]), h["schema"], h["name"], tuple(h["parent_columns"])) for h in hops
    )
    return UnitPath(root, steps, unit, tuple(loose), bool(loose) and out)
