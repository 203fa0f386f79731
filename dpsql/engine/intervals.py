"""Intervals beside the perturbed columns of an answer (``dp.query(..., intervals => ...)``).

They are post-processing of released values and of the noise's public scale (PRIVACY.md section 2
(b)); a scale that is secret gives none.  What matters for the price is only that they are wanted:
a mechanism with a public scale is chosen then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine.expected import ALL_ERROR, NOISE_ONLY, covers
from dpsql.errors import UnsupportedConstruct
from dpsql.model import OutputColumn, Question
from dpsql.query.ir import literal
from dpsql.statement import Shown

if TYPE_CHECKING:
    from dpsql.engine.prepare import Prepared


def with_intervals(prepared: Prepared, *, reach: bool = False) -> Prepared:
    """Return the same question with the columns ``x_low``, ``x_high``, ``x_covers`` for each ``x``.

    They follow all other columns.  Only columns that show perturbed numbers have them; NULL stands
    where there is no interval.  ``reach``: of units in several groups only some may count.

    Raises
    ------
    UnsupportedConstruct
        With DISTINCT, which ends of intervals would disturb.
    """
    question = prepared.question
    if question.statement.distinct:
        raise UnsupportedConstruct(
            "intervals are not supported with SELECT DISTINCT",
            hint="Leave DISTINCT out, or ask without intervals.",
        )
    taken = {column.name for column in question.columns}
    more: list[OutputColumn] = []
    written: list[str] = []
    ends_shown: list[Shown] = []
    used: set[str] = set()
    for column, shown in zip(question.columns, question.shown, strict=True):
        if not shown.numbers or shown.bare_ends:
            continue
        known = _known(shown)
        ends = (
            ("low", shown.low),
            ("high", shown.high),
            ("covers", _covers(question, shown, reach=reach)),
        )
        for suffix, end in ends:
            # GREATEST and LEAST would lose the NULL of an end that is not there
            sql = f"CASE WHEN {known} THEN {end} END" if known and end else "NULL"
            type_ = "text" if suffix == "covers" else column.type_name
            more.append(OutputColumn(_free(f"{column.name}_{suffix}", taken), type_))
            written.append(sql)
            ends_shown.append(Shown(() if sql == "NULL" else shown.numbers, sql != "NULL"))
        used |= {f"{letter}{number}" for letter in shown.ends for number in shown.numbers}
    over_zero = question.over_zero
    extended = replace(
        question,
        columns=(*question.columns, *more),
        statement=question.statement.with_columns(written, used),
        shown=(*question.shown, *ends_shown),
        over_zero=over_zero and over_zero.with_columns(written, used),
        wants_interval=True,
    )
    return replace(prepared, question=extended)


def _known(shown: Shown) -> str | None:
    """Write the condition under which there is an interval; ``None``: never."""
    if shown.low is None:
        return None
    return " AND ".join(f"{shown.ends[0]}{number} IS NOT NULL" for number in shown.numbers)


def _covers(question: Question, shown: Shown, *, reach: bool) -> str:
    numbers = (question.vectors[number] for number in shown.numbers)
    found = {covers(question.aggregates[number], reach=reach) for number in numbers}
    return literal(NOISE_ONLY if NOISE_ONLY in found else ALL_ERROR)


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number if another column has it."""
    free, n = name, 1
    while free in taken:
        n += 1
        free = f"{name}_{n}"
    taken.add(free)
    return free
