"""Finish: post-process released values in plain SQL over the noisy relation.

The statement reads nothing but its parameters, which are released values already;
an error in it is a function of released values (PRIVACY.md section 2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.payload import Payload
from dpsql.errors import AnswerOutOfRange
from dpsql.model import JoinQuery, Question
from dpsql.query.ir import decimal

if TYPE_CHECKING:
    from dpsql.ports import Database

_BIGINT = (-(2**63), 2**63 - 1)
#: A column that ends of an interval around a mean are made of.
_OF_MEANS = re.compile(r"\b[pq]\d+\b")


def finish(
    question: Question, payload: Payload, database: Database, confidence: Fraction
) -> list[tuple[object, ...]]:
    """Return the result rows ``(c1, ..., cn)``."""
    arrays: list[tuple[str, object]] = []
    selects = []
    names = []
    means = _OF_MEANS.search(question.post_sql) is not None
    for i, key in enumerate(question.group_keys):
        arrays.append(("text[]", [group[i] for group in payload.groups]))
        names.append(f"g{i}")
        selects.append(f"u.g{i}::{key.type_name} AS g{i}")
    for j, n in enumerate(question.vectors):
        query, values = question.aggregates[n], payload.values[n]
        type_ = "numeric" if query.weights else "bigint"
        columns = _columns(j, query, values, payload.scales[n], confidence)
        if means:
            # ends around a sum and a count that hold both as often as is asked
            surer = 1 - (1 - confidence) / 2
            more = _columns(j, query, values, payload.scales[n], surer)
            columns |= {f"p{j}": more[f"l{j}"], f"q{j}": more[f"h{j}"]}
        if query.cells and query.rank is None:
            type_ = "bigint[]"
            columns = {name: _arrays(column, query.cells) for name, column in columns.items()}
        for name, column in columns.items():
            arrays.append(("text[]" if type_.endswith("]") else f"{type_}[]", column))
            names.append(name)
            selects.append(f"u.{name}::{type_} AS {name}")
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
    j: int,
    query: JoinQuery,
    values: list[int | None],
    scale: str | None,
    confidence: Fraction,
) -> dict[str, list[int | str | None]]:
    low: list[int | None] = [None] * len(values)
    high: list[int | None] = [None] * len(values)
    if scale is not None:
        half = _half(query, Fraction(scale), confidence)
        low = [None if v is None else v - half for v in values]
        high = [None if v is None else v + half for v in values]
    if query.weights:
        return {
            name: [None if v is None else decimal(v, query.digits) for v in column]
            for name, column in ((f"a{j}", values), (f"l{j}", low), (f"h{j}", high))
        }
    if any(v is not None and not _BIGINT[0] <= v <= _BIGINT[1] for v in values):
        raise AnswerOutOfRange(
            "an answer does not fit bigint",
            detail="The perturbed count is beyond 2^63.",
            hint="Narrow the query; the stored answer of the same question stays free.",
        )
    return {
        f"a{j}": [*values],
        f"l{j}": [None if v is None else max(v, _BIGINT[0]) for v in low],
        f"h{j}": [None if v is None else min(v, _BIGINT[1]) for v in high],
    }


def _half(query: JoinQuery, scale: Fraction, confidence: Fraction) -> int:
    """Return half the width of the interval around a number with noise of a public scale."""
    if scale == 0:
        return 0
    from dpsql.core.mechanisms.interval import interval

    # noise was added in the steps of the grid and rounded to whole numbers after it
    grid = query.grid if query.unit is not None else 1
    width = interval(0, scale * grid, float(confidence))[1]
    return width if grid == 1 else (2 * width + grid) // (2 * grid)


def _arrays(values: Sequence[object], cells: int) -> list[int | str | None]:
    """Write the values of each group's cells as an array."""
    return [
        "{" + ",".join("NULL" if v is None else str(v) for v in values[i : i + cells]) + "}"
        for i in range(0, len(values), cells)
    ]
