"""What a synthesis keeps, as bytes: numbers and texts, which cannot run.

Everything here follows from what was measured and paid for (PRIVACY.md section 2 (b)), so that
tables can be made again after a crash without reading or paying (section 8).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dpsql.engine.synthesis_ask import Learned, What
from dpsql.engine.synthesis_measured import Measured, MeasuredAxis, MeasuredLink, MeasuredTable


class _Arrays:
    """Arrays that a JSON text refers to by number."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def put(self, array: Any) -> int | None:
        if array is None:
            return None
        self.found.append(array)
        return len(self.found) - 1


def dump(measured: Measured) -> bytes:
    """Write measurements as bytes: numbers and texts, which cannot run."""
    import numpy as np

    arrays = _Arrays()
    text = {
        "learnt": [[[i.what.value, i.place] for i in items] for items in measured.learnt],
        "tables": [_table_text(table, arrays) for table in measured.tables],
        "links": [_link_text(link, arrays) for link in measured.links],
        "notes": measured.notes,
        "parts": measured.parts,
    }
    named = {f"a{n}": np.asarray(array) for n, array in enumerate(arrays.found)}
    named["text"] = np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)
    target = io.BytesIO()
    np.savez_compressed(target, allow_pickle=False, **named)
    return target.getvalue()


def _table_text(table: MeasuredTable, arrays: _Arrays) -> dict[str, Any]:
    return {
        "levels": table.levels,
        "codes": arrays.put(table.codes),
        "keys": table.keys,
        "order": table.order,
        "method": table.method,
        "rho": str(table.rho),
        "rows": table.rows,
        "measured": [arrays.put(m) for m in table.measured],
        "number": table.number,
        "drawn": table.drawn,
        "strata": table.strata,
        "weights": table.weights,
    }


def _link_text(link: MeasuredLink, arrays: _Arrays) -> dict[str, Any]:
    state = None
    if link.state is not None:
        state = {
            "answers": [
                [a.workload.left, a.workload.right, arrays.put(a.table), str(a.variance)]
                for a in link.state.answers
            ],
            "used": str(link.state.used),
            "rounds": link.state.rounds,
        }
    return {
        "place": link.place,
        "reference": link.reference,
        "direct": arrays.put(link.direct),
        "column": link.column,
        "left": _axes_text(link.left),
        "right": _axes_text(link.right),
        "histogram": arrays.put(link.histogram),
        "starts": link.starts,
        "most": link.most,
        "sigma": link.sigma,
        "state": state,
        "scale": link.scale,
        "profiled": _axes_text(link.profiled),
        "profile": [arrays.put(table) for table in link.profile],
        "groups": link.groups,
        "profile_sigma": link.profile_sigma,
    }


def load(payload: bytes) -> Measured:
    """Read what `dump` wrote."""
    import numpy as np

    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        raw = json.loads(stored["text"].tobytes())
        arrays = {n: stored[f"a{n}"] for n in range(len(stored.files) - 1)}
    return Measured(
        tuple(
            tuple(Learned(What(what), place) for what, place in items) for items in raw["learnt"]
        ),
        [_table(table, arrays) for table in raw["tables"]],
        [_link(link, arrays) for link in raw["links"]],
        raw["notes"],
        raw["parts"],
    )


def notes_of(payload: bytes) -> list[str]:
    """Read the notes alone of what `dump` wrote."""
    import numpy as np

    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        notes: list[str] = json.loads(stored["text"].tobytes())["notes"]
    return notes


def _table(raw: dict[str, Any], arrays: Mapping[int, Any]) -> MeasuredTable:
    return MeasuredTable(
        tuple(tuple(texts) for texts in raw["levels"]),
        None if raw["codes"] is None else arrays[raw["codes"]],
        {column: tuple(texts) for column, texts in raw.get("keys", {}).items()},
        tuple(raw["order"]),
        raw["method"],
        Fraction(raw["rho"]),
        raw["rows"],
        [arrays[n] for n in raw["measured"]],
        raw["number"],
        raw.get("drawn"),
        tuple(raw.get("strata", ())),
        tuple(raw.get("weights", ())),
    )


def _link(raw: dict[str, Any], arrays: Mapping[int, Any]) -> MeasuredLink:
    from dpsql.synthesis.links import LinkState
    from dpsql.synthesis.records import Answer, Cross

    state = None
    if raw["state"] is not None:
        answers = tuple(
            Answer(Cross(left, right), arrays[n], Fraction(variance))
            for left, right, n, variance in raw["state"]["answers"]
        )
        state = LinkState(answers, Fraction(raw["state"]["used"]), raw["state"]["rounds"])
    return MeasuredLink(
        raw["place"],
        raw["reference"],
        None if raw["direct"] is None else arrays[raw["direct"]],
        raw["column"],
        _axes(raw["left"]),
        _axes(raw["right"]),
        None if raw["histogram"] is None else arrays[raw["histogram"]],
        tuple(raw["starts"]),
        raw["most"],
        raw.get("sigma", 0.0),
        state,
        raw.get("scale", 1.0),
        _axes(raw.get("profiled", ())),
        [arrays[n] for n in raw.get("profile", ())],
        tuple(raw.get("groups", ())),
        raw.get("profile_sigma", 0.0),
    )


def _axes_text(axes: Sequence[MeasuredAxis]) -> list[Any]:
    return [[axis.columns, axis.values, axis.groups] for axis in axes]


def _axes(raw: Sequence[Any]) -> tuple[MeasuredAxis, ...]:
    return tuple(
        MeasuredAxis(
            tuple((tuple(path), column) for path, column in columns),
            tuple(tuple(texts) for texts in values),
            tuple(*groups),
        )
        for columns, values, *groups in raw
    )
