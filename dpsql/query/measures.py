"""What a statement's private aggregates measure: vectors of counts and sums, one number a group."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from dpsql.query.ir import TRUE, Expr
from dpsql.query.types import INTEGERS

_BIGINT = 2**63
#: A mean, as SQL over two measures.
MEAN = "{0}::numeric / greatest({1}, 1)"


#: What a result type holds, and after how many digits its numbers are 0.  The others hold whatever
#: can be released: bounds, squared at most, are below 10^100, in steps above 10^-200.
_HELD = {
    "smallint": (-(2**15), 2**15 - 1, None),
    "integer": (-(2**31), 2**31 - 1, None),
    "bigint": (-_BIGINT, _BIGINT - 1, None),
    "real": (-(2**128 - 2**104), 2**128 - 2**104, 44),
}


def fitted(text: str, type_: str) -> str:
    """Write the cast of a released number to its result type, which never fails.

    What lies beyond the type becomes its nearest value (post-processing, PRIVACY.md section 2 (b)):
    an error after the charge could not be mended by another text.
    """
    if type_ not in _HELD:
        return f"({text})::{type_}"
    low, high, digits = _HELD[type_]
    text = f"least(greatest({text}, '{low}'::numeric), '{high}'::numeric)"
    if digits is not None:
        text = f"pg_catalog.round({text}, {digits})"
    return f"({text})::{type_}"


@dataclass(frozen=True, slots=True)
class Value:
    """A number per result: ``expression``, of an exact type, is a multiple of ``10**-digits``.

    ``loose``: nobody declared or wrote its bounds.
    """

    expression: Expr
    digits: int
    low: Fraction
    high: Fraction
    loose: bool = False

    @property
    def steps(self) -> tuple[int, int]:
        """The bounds in steps."""
        return floor(self.low * 10**self.digits), ceil(self.high * 10**self.digits)


@dataclass(frozen=True, slots=True)
class Measure:
    """One vector of numbers to be measured: a count, a sum or a count of different values.

    ``condition`` restricts the results; ``units`` counts the units of each group.  ``cell`` numbers
    the cell of a value, from 1 to ``cells``.
    """

    condition: Expr = TRUE
    value: Value | None = None
    distinct: Expr | None = None
    units: bool = False
    cell: Expr | None = None
    cells: int = 0
    rank: Fraction | None = None

    @property
    def needed(self) -> list[Expr]:
        """What is read of a result beside groups and condition."""
        value = self.value.expression if self.value else None
        return [e for e in (self.distinct, value, self.cell) if e is not None]


@dataclass(frozen=True, slots=True)
class Formula:
    """SQL over the columns of ``noisy`` that stand for measures, written ``{0}``, ``{1}``, ...

    ``loose``: of values that nobody declared or wrote bounds of.
    """

    text: str
    measures: tuple[Measure, ...]
    type: str = "bigint"
    loose: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one measure itself, so that its interval is the measure's."""
        return self.text == "{0}"


def mean_ends(total: int, count: int) -> tuple[str, str]:
    """Write the ends of an interval around a mean, of the columns ``p<j>`` and ``q<j>``.

    Those are ends around its sum and its count, each of which fails with half the probability that
    the interval may: so both hold the truth as often as is asked, and then the mean lies between
    the least and the greatest quotient.  NULL where one of the four is.
    """
    low, high = f"p{total}::numeric", f"q{total}::numeric"
    fewest, most = f"greatest(p{count}, 1)", f"greatest(q{count}, 1)"
    known = f"CASE WHEN p{total} IS NOT NULL AND p{count} IS NOT NULL THEN"
    return (
        f"({known} {low} / CASE WHEN p{total} < 0 THEN {fewest} ELSE {most} END END)",
        f"({known} {high} / CASE WHEN q{total} < 0 THEN {most} ELSE {fewest} END END)",
    )


def fits_bigint(value: Value) -> bool:
    """Whether values can be summed as integers of the server."""
    return value.expression.type in INTEGERS and max(map(abs, value.steps)) < _BIGINT
