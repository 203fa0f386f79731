"""What error an answer must be expected to have, from public facts only.

The one place that knows what the noise of each mechanism amounts to: ``dp.explain`` and
``dp.estimate`` say it before anything is paid, ``dp.query`` with intervals says what they cover.
Where the scale follows protected rows what is told is the least that it can be, or that which
it has for a join whose sensitivity is 1: both are functions of the privacy parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.mechanisms.interval import interval

if TYPE_CHECKING:
    from dpsql.core.mechanisms.base import NoiseLaw
    from dpsql.engine.methods.base import Method
    from dpsql.model import JoinQuery

#: What the interval around a number covers; see `bias`.
ALL_ERROR, NOISE_ONLY = "all error", "noise only"


@dataclass(frozen=True, slots=True)
class Expected:
    """The error of one number of an answer.

    Attributes
    ----------
    known : bool
        Whether the law of the noise is public; else the figures are for the least scale.
    scale : Fraction or None
        Scale of the discrete Laplace noise, or the least one.
    mean : float or None
        Mean absolute error by noise, ``None`` where nothing can be said.
    within : Fraction or None
        The noise is at most so large with the probability that was asked for.
    note : str
        What the figures mean where they are not the whole truth, for a person.
    """

    known: bool
    scale: Fraction | None
    mean: float | None
    within: Fraction | int | None
    note: str = ""


def expected(aggregate: Method, confidence: Fraction) -> Expected:
    """Return the error of one number of an aggregate's answer, at a level between 0 and 1."""
    law = aggregate.mechanism.law
    if law is None:
        return Expected(False, None, None, None, "depends on protected rows")
    if law.scale == 0:
        return Expected(True, Fraction(0), 0.0, 0, "reads no protected row: exact")
    shown = _SHOWN if law.hides else ""
    if law.scale is None:
        return Expected(
            False, None, None, None, "; ".join(filter(None, (shown, _unknown(aggregate, law))))
        )
    known = aggregate.has_public_scale if law.known is None else law.known
    unless_known = "" if known else _DRAWN if law.drawn else _TIMES
    note = "; ".join(filter(None, (shown, unless_known)))
    step, times = _steps(aggregate)
    scale = law.scale * times
    if law.quartic:
        mean, within = quartic(scale, float(confidence))
        return Expected(known, None, mean * float(step), within * step, note)
    within = interval(0, scale, float(confidence))[1]
    mean = laplace_mean(scale) * float(step)
    return Expected(known, scale * step, mean, within * step, note)


def _unknown(aggregate: Method, law: NoiseLaw) -> str:
    """Say what decides a scale that cannot be told."""
    if law.shortfall:
        # where results can take away, the answer is the difference of two races
        off = "nearly never too high; with probability 0.95 too low by at most"
        return (
            f"{'with probability 0.9 off by at most' if law.signed else off} {law.shortfall} times"
            " the largest contribution of a unit, which depends on protected rows, and usually by"
            " far less"
        )
    note = (
        f"{float(law.times):.3g} times the bound at which units are cut off, which is drawn,"
        f" {_between(aggregate, *law.bounds)}; at most about three times that with probability 0.95"
    )
    return f"{note}; {_SETTABLE}" if aggregate.bound_is_settable else note


def _steps(aggregate: Method) -> tuple[Fraction, int]:
    """Return in which steps a number is measured, and how many one row can add per result."""
    query = aggregate.query
    if not query.weights:
        return Fraction(1), 1
    each = 1 if query.over_units else query.weights[0].bound
    return Fraction(1, 10**query.digits), each


def _between(aggregate: Method, least: int, largest: int) -> str:
    """Say between what a bound is drawn, in the units of the answer."""
    if not aggregate.query.weights:
        return f"between {least} and {largest} (dp.max_contribution)"
    low, high = (
        Decimal(bound).scaleb(-aggregate.query.digits).normalize() for bound in (least, largest)
    )
    if aggregate.query.weights[0].loose:
        return f"from {low:f} on, since nobody declared or wrote bounds of values"
    return f"between {low:f} and {high:f}, the most that a unit can add"


def bias(aggregate: Method) -> str | None:
    """Say what a number loses beside its noise, which no interval covers; ``None``: nothing."""
    query = aggregate.query
    if not query.shape().private_count:
        return None
    lost = []
    if aggregate.cuts_units:
        drawn = "the bound that is set" if aggregate.bound_is_set else "the bound that is drawn"
        lost.append(f"units above {drawn} are cut off: off by what they lose")
    if aggregate.reach:
        lost.append(f"of each unit {aggregate.reach} groups count")
    if query.weights and not (query.over_units and lost):
        lost.append("values outside their declared or written bounds count as these")
    return "; ".join(lost) or None


def covers(query: JoinQuery, *, reach: bool = False) -> str:
    """Say what an interval around a number covers: `ALL_ERROR` or `NOISE_ONLY`.

    ``reach``: of units in several groups only some may count.
    """
    from dpsql.engine.methods.units import is_whole

    if not query.shape().private_count:
        return ALL_ERROR
    if query.weights or (query.over_units and not is_whole(query)):
        return NOISE_ONLY
    return NOISE_ONLY if reach and query.over_units and query.groups else ALL_ERROR


def laplace_mean(scale: Fraction) -> float:
    """``E |DLap(scale)| = 2 p/(1 - p^2)`` with ``p = exp(-1/scale)``."""
    return 1 / math.sinh(float(1 / scale)) if scale > Fraction(1, 700) else 0.0


def shown_error(value: Fraction | float) -> str:
    """Write an error to four significant digits: it says what to expect, not what was drawn."""
    return f"{Decimal(f'{float(value):.4g}').normalize():f}"


def quartic(scale: Fraction, confidence: float) -> tuple[float, int]:
    """Return the mean magnitude and a quantile of ``P(x) proportional to 1/(1 + (x/scale)^4)``."""
    b = float(scale)
    if b > 1000:  # the continuous law, whose numbers are those of scale 1
        mean, within = quartic(Fraction(1000), confidence)
        return mean * b / 1000, math.ceil(within * b / 1000)
    masses = [1 / (1 + (x / b) ** 4) for x in range(math.ceil(200 * b) + 200)]
    total = 2 * math.fsum(masses) - masses[0]
    mean = 2 * math.fsum(x * mass for x, mass in enumerate(masses)) / total
    held = masses[0]
    for x, mass in enumerate(masses[1:], 1):
        if held >= confidence * total:
            return mean, x - 1
        held += 2 * mass
    # the tail beyond is about 2 b^4/(3 x^3): solved for x
    return mean, math.ceil((2 * b**4 / (3 * (1 - confidence) * total)) ** (1 / 3))


_TIMES = "this or more: times the sensitivity of the join, which depends on protected rows"
_DRAWN = (
    "about this or more: the scale is drawn from the sensitivity of the join, which depends on"
    " protected rows, and told with the answer"
)
_SETTABLE = "SET dp.max_rows_contributed sets the bound, and then the error is told here"
_SHOWN = "of the groups that are shown"
