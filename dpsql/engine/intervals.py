"""Intervals beside the perturbed columns of an answer (``dp.query(..., intervals => ...)``).

They are post-processing of released values and of the noise's public scale (PRIVACY.md section 2
(b)); a scale that is secret gives none.  What matters for the price is only that they are wanted:
a mechanism with a public scale is chosen then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.engine.expected import ALL_ERROR, NOISE_ONLY, covers
from dpsql.errors import UnsupportedConstruct
from dpsql.model import OutputColumn, Question
from dpsql.query import noisy
from dpsql.query.pipeline import shallow
from dpsql.sqltree import all_of, constant, sql
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
    written: list[exp.Expr] = []
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
            tree: exp.Expr = (
                exp.Null()
                if known is None or end is None
                else sql("CASE WHEN :known THEN :end END", known=known, end=end)
            )
            type_ = "text" if suffix == "covers" else column.type_name
            more.append(OutputColumn(_free(f"{column.name}_{suffix}", taken), type_))
            written.append(tree)
            none = isinstance(tree, exp.Null)
            ends_shown.append(Shown(() if none else shown.numbers, not none))
        used |= {f"{letter}{number}" for letter in shown.ends for number in shown.numbers}
    over_zero = question.over_zero
    with shallow():
        found = replace(
            question,
            columns=(*question.columns, *more),
            statement=noisy.extended(question.statement, written, used),
            shown=(*question.shown, *ends_shown),
            over_zero=over_zero and noisy.extended(over_zero, written, used),
            wants_interval=True,
        )
    return replace(prepared, question=found)


def _known(shown: Shown) -> exp.Expr | None:
    """Make the condition under which there is an interval; ``None``: never."""
    if shown.low is None:
        return None
    letter = shown.ends[0]
    return all_of(sql(":n IS NOT NULL", n=noisy.column(letter, number)) for number in shown.numbers)


def _covers(question: Question, shown: Shown, *, reach: bool) -> exp.Expr:
    numbers = (question.vectors[number] for number in shown.numbers)
    found = {covers(question.aggregates[number], reach=reach) for number in numbers}
    return constant(NOISE_ONLY if NOISE_ONLY in found else ALL_ERROR)


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number if another column has it."""
    free, n = name, 1
    while free in taken:
        n += 1
        free = f"{name}_{n}"
    taken.add(free)
    return free
