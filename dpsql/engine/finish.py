"""Finish: post-process released values in plain SQL over the noisy relation.

The statement reads nothing but its parameters, which are released values already;
an error in it is a function of released values (PRIVACY.md section 2).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.payload import Payload
from dpsql.errors import AnswerOutOfRange
from dpsql.model import Question

if TYPE_CHECKING:
    from dpsql.ports import Database

_BIGINT = (-(2**63), 2**63 - 1)


def finish(
    question: Question, payload: Payload, database: Database, confidence: Fraction
) -> list[tuple[object, ...]]:
    """Return the result rows ``(c1, ..., cn)``."""
    arrays: list[tuple[str, object]] = []
    selects = []
    names = []
    for i, key in enumerate(question.group_keys):
        arrays.append(("text[]", [group[i] for group in payload.groups]))
        names.append(f"g{i}")
        selects.append(f"u.g{i}::{key.type_name} AS g{i}")
    for j, values in enumerate(payload.values):
        for name, column in _columns(j, values, payload.scales[j], confidence).items():
            arrays.append(("bigint[]", column))
            names.append(name)
            selects.append(f"u.{name}")
    unnest = ", ".join(f"${n}" for n in range(1, len(arrays) + 1))
    sql = (
        f"WITH noisy AS MATERIALIZED (SELECT {', '.join(selects)} "
        f"FROM unnest({unnest}) AS u({', '.join(names)})) {question.post_sql}"
    )
    try:
        return database.execute(sql, arrays)
    except Exception as error:
        if not str(getattr(error, "sqlstate", "")).startswith("22"):
            raise
        # A function of released values and of the caller's own text: it may be told.
        raise AnswerOutOfRange(
            str(error),
            detail="Arithmetic on the perturbed counts failed; the counts themselves are stored.",
            hint="Change the select list; asking for the same counts again is free.",
        ) from None


def _columns(
    j: int, values: list[int | None], scale: str | None, confidence: Fraction
) -> dict[str, list[int | None]]:
    columns: dict[str, list[int | None]] = {f"a{j}": values}
    low: list[int | None] = [None] * len(values)
    high: list[int | None] = [None] * len(values)
    if scale is not None:
        half = 0
        if Fraction(scale) > 0:
            from dpsql.core.mechanisms.interval import interval

            half = interval(0, Fraction(scale), float(confidence))[1]
        low = [None if v is None else max(v - half, _BIGINT[0]) for v in values]
        high = [None if v is None else min(v + half, _BIGINT[1]) for v in values]
    columns[f"l{j}"], columns[f"h{j}"] = low, high
    if any(v is not None and not _BIGINT[0] <= v <= _BIGINT[1] for v in values):
        raise AnswerOutOfRange(
            "an answer does not fit bigint",
            detail="The perturbed count is beyond 2^63.",
            hint="Narrow the query; the stored answer of the same question stays free.",
        )
    return columns
