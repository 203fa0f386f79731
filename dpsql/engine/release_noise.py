"""The noise of many cells, and what it adds to delta (PRIVACY.md section 3).

Noise from tables is a little off its exact law; what that costs is docs/proofs/wide_noise.md.
Where no delta is allowed, Laplace noise is drawn one by one from the exact sampler.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.request import MAX_EPSILON
from dpsql.errors import InvalidParameter

if TYPE_CHECKING:
    from dpsql.core.composition import Zcdp
    from dpsql.core.wide import Wide
    from dpsql.engine.services import Services
    from dpsql.workload.matrix import Order
    from dpsql.workload.mechanism import Measurement, Mechanism
    from dpsql.workload.residual_bases import Integers

#: Numbers of exact noise that one release may draw: 10 to 20 microseconds each.
MOST_EXACT = 500_000
#: More numbers than any release draws, from more tables than any of them needs.
_MOST_DRAWS = 1 << 40
_MOST_TERMS = 16


def reserve(epsilon: Fraction, parts: int = 1) -> Fraction:
    """Bound what noise from tables can add to delta, before mechanisms are known.

    ``parts`` of them share the budget.
    """
    from dpsql.core.composition import delta_of_distance

    return delta_of_distance(epsilon, parts * _most_distance())


def together(rho: Fraction, parts: int) -> Zcdp:
    """Price mechanisms with Gaussian noise that together cost ``rho``, whatever they draw."""
    from dpsql.core.composition import Zcdp, zcdp_with_distance

    return zcdp_with_distance(Zcdp(rho, Fraction(0)), parts * _most_distance())


def _most_distance() -> Fraction:
    from dpsql.core.wide import SUM_DISTANCE, TABLE_DISTANCE

    return _MOST_DRAWS * _MOST_TERMS * (TABLE_DISTANCE + SUM_DISTANCE)


def most_epsilon(delta: Fraction) -> int:
    """Return the largest whole epsilon at which `reserve` leaves some of delta, or 0."""
    return next((e for e in range(int(MAX_EPSILON), 0, -1) if reserve(Fraction(e)) < delta), 0)


def distance(mechanism: Mechanism) -> Fraction:
    """Bound how far all noise of a mechanism is from its exact law, without drawing."""
    from dpsql.core.wide import SUM_DISTANCE, TABLE_DISTANCE

    order = mechanism.budget.order
    if not mechanism.measurements:  # rounds are not known before: a bound
        return mechanism.draws * _MOST_TERMS * (TABLE_DISTANCE + SUM_DISTANCE)
    each = (_law(order, m).distance * m.count for m in mechanism.measurements)
    found = sum(each, start=Fraction(0))
    if mechanism.draws > _MOST_DRAWS:
        raise InvalidParameter("the mechanism needs too many numbers of noise")
    return found


def added(mechanism: Mechanism, epsilon: Fraction) -> Fraction:
    """Return what noise from tables adds to delta of (epsilon, delta)-DP."""
    from dpsql.core.composition import delta_of_distance

    return delta_of_distance(epsilon, distance(mechanism))


def zcdp(mechanism: Mechanism) -> Zcdp:
    """Return the price of a mechanism with Gaussian noise under zCDP."""
    from dpsql.core.composition import Zcdp, zcdp_with_distance

    return zcdp_with_distance(Zcdp(mechanism.loss, Fraction(0)), distance(mechanism))


def draw(services: Services, order: Order, measurement: Measurement, *, exact: bool) -> Integers:
    """Draw the noise of one measurement: an array of shape ``(count,)``."""
    import numpy as np

    from dpsql.core.wide import gathered
    from dpsql.engine.ticking import Ticking

    tick, count = services.database.tick, measurement.count
    if exact:
        noise = Ticking(services.noise, tick)
        drawn = (noise.discrete_laplace(measurement.parameter) for _ in range(count))
        return np.fromiter(drawn, dtype=np.int64, count=count)
    source = services.noise.laplaces if order == 1 else services.noise.gaussians
    return gathered(source(measurement.parameter, count, tick), count)


def _law(order: Order, measurement: Measurement) -> Wide:
    from dpsql.core.wide import gaussian, laplace

    return (laplace if order == 1 else gaussian)(measurement.parameter)
