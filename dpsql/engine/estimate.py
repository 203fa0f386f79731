"""Estimate a statement before paying: the cost and error of each aggregate, and what is left.

Public facts only, as for `dpsql.engine.explain`: the quote, the noise that follows from it, and the
asking role's own account.  No protected row is read and nothing is charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.answer import charge
from dpsql.engine.expected import bias, expected, shown_error
from dpsql.engine.groups import confirmed_groups
from dpsql.engine.prepare import prepare
from dpsql.engine.price import Quote, price
from dpsql.engine.request import Role, Settings
from dpsql.ledger.amounts import amount_text

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.ledger.model import Account, Charge
    from dpsql.model import JoinQuery, Question

TOTAL = "total"
_LEVEL = Fraction(95, 100)
_GRID = 10**12
#: What a query has that measures something else than a number of results.
_KINDS = {"weights": "dp_sum", "distinct": "dp_count(distinct)"}


@dataclass(frozen=True, slots=True)
class Line:
    """One row of ``dp.estimate``: of an aggregate, or of the whole statement (``total``)."""

    column_name: str | None
    aggregate: str
    mechanism: str
    epsilon: Fraction
    delta: Fraction
    rho: Fraction
    expected_error: float | None = None
    error_95: float | None = None
    bias: str | None = None
    groups: int | None = None
    epsilon_remaining: Fraction | None = None
    delta_remaining: Fraction | None = None
    stored: bool | None = None
    refused_by: str | None = None
    note: str | None = None

    def row(self) -> tuple[object, ...]:
        """Return the values in the order of the columns, amounts as texts."""
        values = (getattr(self, name) for name in self.__slots__)
        # the parts are for a person, the total is what will be charged
        shown = amount_text if self.aggregate == TOTAL else _short
        return tuple(shown(v) if isinstance(v, Fraction) else v for v in values)


def _short(value: Fraction) -> str:
    """Write a part of the cost to eight significant digits."""
    return f"{Decimal(f'{float(value):.8g}'):f}"


def estimate(text: str, role: Role, settings: Settings, services: Services) -> list[Line]:
    """Return one line per aggregate of a statement and one for the whole."""
    prepared = prepare(text, None, services)
    question = prepared.question
    groups = confirmed_groups(prepared, services)
    quote = price(
        question, groups, settings, services.database, want_interval=question.wants_interval
    )
    number = None if groups is None else len(groups)
    lines = []
    for j, aggregate in enumerate(quote.aggregates):
        error = expected(aggregate, _LEVEL)
        guarantee, zcdp = aggregate.guarantee, aggregate.zcdp
        lines.append(
            Line(
                column_name=_columns(question, j),
                aggregate=kind(aggregate.query),
                mechanism=aggregate.mechanism.name,
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                rho=zcdp.rho,
                expected_error=None if error.mean is None else float(shown_error(error.mean)),
                error_95=None if error.within is None else float(shown_error(error.within)),
                bias=bias(aggregate) if quote.reads_private else None,
                groups=number,
                note="; ".join(filter(None, (error.note, _of_mean(question, j)))) or None,
            )
        )
    if not quote.reads_private:
        return [*lines, _whole(quote, number, note="reads no protected row: free")]
    return [
        *lines,
        _charged(quote, number, charge(quote, prepared, None, role, settings), services),
    ]


def kind(query: JoinQuery) -> str:
    """Name what an aggregate measures."""
    for attribute, name in _KINDS.items():
        if getattr(query, attribute):
            return name
    if query.cells:
        return "dp_histogram" if query.rank is None else "dp_percentile"
    return "dp_count"


def _columns(question: Question, j: int) -> str | None:
    """Name the output columns that show an aggregate; ``None``: HAVING or ORDER BY only."""
    names = [
        column.name
        for column, shown in zip(question.columns, question.shown, strict=True)
        if any(question.vectors[number] == j for number in shown.numbers)
    ]
    return ", ".join(names) or None


def _of_mean(question: Question, j: int) -> str:
    """Say what the error of a sum means for averages, which have no line of their own."""
    means = (shown.numbers for shown in question.shown if shown.is_mean)
    used = {question.vectors[number] for numbers in means for number in numbers}
    if question.aggregates[j].weights and j in used:
        return "the error of the average is about this over the number of results"
    return ""


def _whole(quote: Quote, groups: int | None, note: str | None) -> Line:
    return Line(
        column_name=None,
        aggregate=TOTAL,
        mechanism=quote.mechanism,
        epsilon=quote.guarantee.epsilon,
        delta=quote.guarantee.delta,
        rho=quote.zcdp.rho,
        groups=groups,
        note=note,
    )


def _charged(quote: Quote, groups: int | None, asked: Charge, services: Services) -> Line:
    """Return the line of a statement that must be paid, unless its answer is stored."""
    outlook = services.ledger.outlook(asked)
    left: tuple[Fraction | None, Fraction | None] = (None, None)
    if outlook.account is not None:
        free = outlook.stored or outlook.refused is not None
        left = _left(outlook.account, Fraction(0) if free else Fraction(1), quote)
    note = None
    if outlook.refused is not None:
        note = " ".join(filter(None, (f"{outlook.refused.message}.", outlook.refused.detail)))
    elif outlook.stored:
        note = "the answer is stored: free"
    elif len(set(quote.shares)) < len(quote.shares):
        note = "aggregates of disjoint rows share nothing: each has all of what they cost together"
    whole = _whole(quote, groups, note)
    return Line(
        **{name: getattr(whole, name) for name in whole.__slots__ if name not in _ACCOUNT},
        epsilon_remaining=left[0],
        delta_remaining=left[1],
        stored=outlook.stored,
        refused_by=outlook.by,
    )


_ACCOUNT = frozenset(("epsilon_remaining", "delta_remaining", "stored", "refused_by"))


def _left(account: Account, times: Fraction, quote: Quote) -> tuple[Fraction, Fraction]:
    """Return the most that one further question may cost, as ``dp.budgets`` tells it."""
    under_zcdp = account.composition == "zcdp"
    loss = quote.zcdp.rho if under_zcdp else quote.guarantee.epsilon
    delta = quote.zcdp.delta if under_zcdp else quote.guarantee.delta
    left = max(account.budget_loss - account.spent_loss - times * loss, Fraction(0))
    if under_zcdp:
        # epsilon tanh(epsilon/2) is at most epsilon^2/2 and at most epsilon
        square = 2 * left * _GRID**2
        left = max(Fraction(math.isqrt(math.floor(square)), _GRID), left)
    return left, max(account.budget_delta - account.spent_delta - times * delta, Fraction(0))
