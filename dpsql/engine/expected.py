"""What error an answer must be expected to have, from public facts only.

The one place that knows what the noise of each mechanism amounts to: ``dp.explain`` and
``dp.estimate`` say it before anything is paid, ``dp.query`` with intervals says what they cover.
Where the scale follows protected rows what is told is the least that it can be, or that which
it has for a join whose sensitivity is 1: both are functions of the privacy parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.core.mechanisms.interval import interval

if TYPE_CHECKING:
    from dpsql.engine.price import AggregateQuote
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


def expected(aggregate: AggregateQuote, confidence: Fraction) -> Expected:
    """Return the error of one number of an aggregate's answer, at a level between 0 and 1."""
    plan = aggregate.plan
    if plan.name == "exact":
        return Expected(True, Fraction(0), 0.0, 0, "reads no protected row: exact")
    law = _LAWS.get(type(plan).__name__)
    if law is None:
        return Expected(False, None, None, None, "depends on protected rows")
    noise = law(plan)
    bounding = aggregate.bounding
    known = noise.known
    if known is None:
        known = bounding.constant and not bounding.boundaries
    note = "; ".join(filter(None, (noise.about, "" if known else noise.unless_known)))
    if noise.scale is None:
        query = aggregate.query
        note = note.format(between=_between(aggregate, *noise.between))
        settable = law is _quantile and not query.weights and query.distinct != (query.unit,)
        return Expected(False, None, None, None, f"{note}; {_SETTABLE}" if settable else note)
    step, times = _steps(aggregate)
    if noise.quartic:
        mean, within = quartic(noise.scale * times, float(confidence))
        return Expected(known, None, mean * float(step), within * step, note)
    scale = noise.scale * times
    within = interval(0, scale, float(confidence))[1]
    mean = laplace_mean(scale) * float(step)
    return Expected(known, scale * step, mean, within * step, note)


def _steps(aggregate: AggregateQuote) -> tuple[Fraction, int]:
    """Return in which steps a number is measured, and how many one row can add per result."""
    query = aggregate.query
    if not query.weights:
        return Fraction(1), 1
    each = 1 if query.over_units else query.weights[0].bound
    return Fraction(1, 10**query.digits), each


def _between(aggregate: AggregateQuote, least: int, largest: int) -> str:
    """Say between what a bound is drawn, in the units of the answer."""
    if not aggregate.query.weights:
        return f"between {least} and {largest} (dp.max_contribution)"
    low, high = (
        Decimal(bound).scaleb(-aggregate.query.digits).normalize() for bound in (least, largest)
    )
    if aggregate.query.weights[0].loose:
        return f"from {low:f} on, since nobody declared or wrote bounds of values"
    return f"between {low:f} and {high:f}, the most that a unit can add"


def bias(aggregate: AggregateQuote) -> str | None:
    """Say what a number loses beside its noise, which no interval covers; ``None``: nothing."""
    query = aggregate.query
    if not query.shape().private_count:
        return None
    lost = []
    if query.over_units and not getattr(aggregate.bounding, "whole", False):
        drawn = "the bound that is set" if bound_is_set(aggregate) else "the bound that is drawn"
        lost.append(f"units above {drawn} are cut off: off by what they lose")
    reach = getattr(aggregate.bounding, "reach", 0)
    if reach:
        lost.append(f"of each unit {reach} groups count")
    if query.weights and not (query.over_units and lost):
        lost.append("values outside their declared or written bounds count as these")
    return "; ".join(lost) or None


def bound_is_set(aggregate: AggregateQuote) -> bool:
    """Tell whether the bound at which units are cut off is public before anything is drawn."""
    plan = aggregate.plan
    return plan.name != "r2t" and len(getattr(plan, "bounds", ())) == 1


def covers(query: JoinQuery, *, reach: bool = False) -> str:
    """Say what an interval around a number covers: `ALL_ERROR` or `NOISE_ONLY`.

    ``reach``: of units in several groups only some may count.
    """
    from dpsql.engine.truncated import is_whole

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


@dataclass(frozen=True, slots=True)
class _Noise:
    """The noise of a plan: ``known`` is ``None`` where the sensitivity decides it."""

    scale: Fraction | None
    known: bool | None
    unless_known: str = ""
    about: str = ""
    quartic: bool = False
    between: tuple[int, int] = (0, 0)


def _global(plan: Any) -> _Noise:
    return _Noise(1 / plan.guarantee.epsilon, None, _TIMES)


def _smooth(plan: Any) -> _Noise:
    return _Noise(plan.factor, False, _TIMES)


def _cauchy(plan: Any) -> _Noise:
    return _Noise(1 / plan.slope, False, _TIMES, quartic=True)


def _calibrated(plan: Any) -> _Noise:
    return _Noise(_middle(plan) / plan.epsilon_value, False, _DRAWN)


def _threshold(plan: Any) -> _Noise:
    if plan.inner is None:
        return _Noise(1 / plan.epsilon_value, None, _TIMES, _SHOWN)
    return _Noise(_middle(plan.inner) / plan.epsilon_value, False, _DRAWN, _SHOWN)


def _quantile(plan: Any) -> _Noise:
    from dpsql.core.mechanisms.truncation import bounds

    candidates = getattr(plan, "bounds", None) or bounds(plan.largest)
    about = "" if plan.delta_threshold is None else _SHOWN
    if len(candidates) == 1:
        return _Noise(candidates[0] / plan.epsilon_value, True, about=about)
    times = float(1 / plan.epsilon_value)
    note = f"{times:.3g} times the bound at which units are cut off, which is drawn, {{between}}"
    note += "; at most about three times that with probability 0.95"
    return _Noise(None, False, note, about, between=(candidates[0], candidates[-1]))


def _race(plan: Any) -> _Noise:
    # where results can take away, the answer is the difference of two races
    off = "nearly never too high; with probability 0.95 too low by at most"
    note = (
        f"{'with probability 0.9 off by at most' if plan.signed else off}"
        f" {8 * plan.margin(1)} times the largest contribution of a unit, which depends on"
        " protected rows, and usually by far less"
    )
    return _Noise(None, False, note)


def _middle(plan: Any) -> Fraction:
    """Return the bound that a calibrated plan draws in the middle if the sensitivity is 1."""
    from dpsql.core.mechanisms.calibrated import power

    return Fraction(power(plan.gamma, plan.exponent(1.0) + plan.shift))


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

#: By the class of a plan; a mechanism that is not here says nothing before it is paid.
_LAWS: dict[str, Callable[[Any], _Noise]] = {
    "GlobalLaplace": _global,
    "SmoothLaplace": _smooth,
    "Cauchy": _cauchy,
    "Calibrated": _calibrated,
    "Threshold": _threshold,
    "Quantile": _quantile,
    "LinearQuantile": _quantile,
    "LinearRace": _race,
    "RaceToTheTop": _race,
}
