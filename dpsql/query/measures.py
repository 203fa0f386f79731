"""What a statement's private aggregates measure: vectors of counts and sums, one number a group."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from sqlglot import exp

from dpsql.query.ir import TRUE, Expr, decimal
from dpsql.query.types import INTEGERS
from dpsql.sqltree import cast
from dpsql.sqltree.nodes import Place

_BIGINT = 2**63
#: The formula that is the first measure itself.
FIRST = Place(this=0)
#: What a result type holds, and after how many digits its numbers are 0.  The others hold whatever
#: can be released: bounds, squared at most, are below 10^100, in steps above 10^-200.
HELD = {
    "smallint": (-(2**15), 2**15 - 1, None),
    "integer": (-(2**31), 2**31 - 1, None),
    "bigint": (-_BIGINT, _BIGINT - 1, None),
    "real": (-(2**128 - 2**104), 2**128 - 2**104, 44),
}


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
    """A formula of the columns of ``noisy`` that stand for measures, which have places in it.

    ``of_mean``: place 0 stands for the quotient of its two measures instead, with which it rises.
    ``loose``: of values that nobody declared or wrote bounds of.
    """

    tree: exp.Expr
    measures: tuple[Measure, ...]
    type: str = "bigint"
    loose: bool = False
    of_mean: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one measure itself, so that its interval is the measure's."""
        return isinstance(self.tree, Place) and not self.of_mean


def fits_bigint(value: Value) -> bool:
    """Whether values can be summed as integers of the server."""
    return value.expression.type in INTEGERS and max(map(abs, value.steps)) < _BIGINT


def decimal_tree(number: Fraction) -> exp.Expr:
    """Write a number in formulas."""
    return cast(exp.Literal(this=decimal(number), is_string=True), "numeric")
