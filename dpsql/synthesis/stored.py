"""Plans and generated rows as bytes: nothing but numbers and texts, which cannot run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dpsql.synthesis.notes import Note
from dpsql.synthesis.schema import (
    Attribute,
    Column,
    ForeignKey,
    Plan,
    Planned,
    Reference,
    Table,
    Unique,
    Use,
)


def plan_text(plan: Plan) -> str:
    """Write a plan as JSON."""
    return json.dumps(asdict(plan), default=lambda use: use.value)


def plan_of(text: str) -> Plan:
    """Read a plan that `plan_text` wrote."""
    raw = json.loads(text)
    # 0.0.1 wrote notes as texts
    notes = tuple(Note(n) if isinstance(n, str) else Note(**n) for n in raw.get("notes", ()))
    return Plan(tuple(_planned(table) for table in raw["tables"]), notes)


def _planned(raw: dict[str, Any]) -> Planned:
    return Planned(
        table=_table(raw["table"]),
        uses=tuple((name, Use(use)) for name, use in raw["uses"]),
        attributes=tuple(_attribute(a) for a in raw["attributes"]),
        references=tuple(
            Reference(**(r | {"key": ForeignKey(**_tuples(r["key"]))})) for r in raw["references"]
        ),
        implied=tuple(ForeignKey(**_tuples(k)) for k in raw.get("implied", ())),
    )


def _table(raw: dict[str, Any]) -> Table:
    made = {
        "columns": tuple(Column(**_tuples(c)) for c in raw["columns"]),
        "uniques": tuple(Unique(**_tuples(u)) for u in raw["uniques"]),
        "foreign_keys": tuple(ForeignKey(**_tuples(k)) for k in raw["foreign_keys"]),
        "domains": tuple(_attribute(a) for a in raw["domains"]),
    }
    return Table(**(_tuples(raw) | made))


def _attribute(raw: dict[str, Any]) -> Attribute:
    return Attribute(**_tuples(raw))


def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in raw.items()}
