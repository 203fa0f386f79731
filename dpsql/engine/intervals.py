"""Intervals beside the perturbed columns of an answer (``dp.query(..., intervals => ...)``).

They are post-processing of released values and of the noise's public scale (PRIVACY.md section 2
(b)); a scale that is secret gives none.  What matters for the price is only that they are wanted:
a mechanism with a public scale is chosen then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine.expected import covers
from dpsql.errors import UnsupportedConstruct
from dpsql.model import OutputColumn, Question
from dpsql.query.ir import literal
from dpsql.query.shown import Shown, shown_columns, with_columns

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared


def with_intervals(prepared: Prepared) -> Prepared:
    """Return the same question with the columns ``x_low``, ``x_high``, ``x_covers`` for each ``x``.

    They follow all other columns.  Only columns that show perturbed numbers have them; NULL stands
    where there is no interval.

    Raises
    ------
    UnsupportedConstruct
        With DISTINCT, which ends of intervals would disturb.
    """
    question = prepared.question
    if question.post_sql.startswith("SELECT DISTINCT"):
        raise UnsupportedConstruct(
            "intervals are not supported with SELECT DISTINCT",
            hint="Leave DISTINCT out, or ask without intervals.",
        )
    taken = {column.name for column in question.columns}
    more: list[OutputColumn] = []
    written: list[str] = []
    for column, shown in zip(question.columns, shown_columns(question.post_sql), strict=True):
        if not shown.numbers or shown.bare_ends:
            continue
        low, high = shown.low or "NULL", shown.high or "NULL"
        for suffix, sql in (("low", low), ("high", high), ("covers", _covers(question, shown))):
            type_ = "text" if suffix == "covers" else column.type_name
            more.append(OutputColumn(_free(f"{column.name}_{suffix}", taken), type_))
            written.append(sql)
    extended = replace(
        question,
        columns=(*question.columns, *more),
        post_sql=with_columns(question.post_sql, written),
        wants_interval=True,
    )
    return replace(prepared, question=extended)


def _covers(question: Question, shown: Shown) -> str:
    if shown.low is None:
        return "NULL"
    (number,) = shown.numbers
    text = literal(covers(question.aggregates[question.vectors[number]]))
    return f"CASE WHEN l{number} IS NOT NULL THEN {text} END"


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number if another column has it."""
    free, n = name, 1
    while free in taken:
        n += 1
        free = f"{name}_{n}"
    taken.add(free)
    return free
