"""Plans and generated rows as bytes: nothing but numbers and texts, which cannot run."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dpsql.synthesis.generated import Generated
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
from dpsql.workload.residual_bases import Integers


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


def pack(generated: Sequence[Generated | None]) -> bytes:
    """Write generated rows, None for a table that is public, as a payload of their own."""
    arrays = {}
    levels: list[object] = []
    for place, table in enumerate(generated):
        levels.append(None if table is None else [table.rows, table.levels])
        if table is not None:
            arrays[f"codes{place}"] = np.asarray(table.codes)
            for n, parents in enumerate(table.parents):
                arrays[f"parents{place}_{n}"] = np.asarray(parents)
    arrays["levels"] = np.frombuffer(json.dumps(levels).encode(), dtype=np.uint8)
    target = io.BytesIO()
    np.savez_compressed(target, allow_pickle=False, **arrays)
    return target.getvalue()


def unpack(payload: bytes) -> list[Generated | None]:
    """Read what `pack` wrote."""
    result: list[Generated | None] = []
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        for place, table in enumerate(json.loads(arrays["levels"].tobytes())):
            if table is None:
                result.append(None)
                continue
            parents: list[Integers] = []
            while f"parents{place}_{len(parents)}" in arrays:
                parents.append(arrays[f"parents{place}_{len(parents)}"])
            levels = tuple(tuple(texts) for texts in table[1])
            result.append(Generated(table[0], arrays[f"codes{place}"], levels, tuple(parents)))
    return result
