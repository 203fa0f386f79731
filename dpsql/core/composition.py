"""What a mechanism costs under zCDP (docs/proofs/composition.md).

Every mechanism is priced twice, as (epsilon, delta)-DP and as ``delta``-approximate
``rho``-zCDP; the ledger sums both and limits the one that the account's owner chose
(PRIVACY.md section 7).  The conversion between the two is the ledger's (``dp.zcdp_epsilon``).
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.model import Guarantee

_DIGITS = 50
_GRID = 10**40


@dataclass(frozen=True, slots=True)
class Zcdp:
    """A promise of ``delta``-approximate ``rho``-zCDP, exact."""

    rho: Fraction
    delta: Fraction

    def __add__(self, other: Zcdp) -> Zcdp:
        """Compose: both add up, also when the second was chosen after seeing the first."""
        return Zcdp(self.rho + other.rho, self.delta + other.delta)


def zcdp(plan: object, guarantee: Guarantee) -> Zcdp:
    """Return the tightest proved price of a mechanism.

    Parameters
    ----------
    plan : object
        The mechanism.  One that knows better than its guarantee says so in an attribute
        ``zcdp`` of type `Zcdp`.
    guarantee : Guarantee
        What it promises anyway; implies a price for every other mechanism.
    """
    own = getattr(plan, "zcdp", None)
    return own if isinstance(own, Zcdp) else Zcdp(rho_of(guarantee.epsilon), guarantee.delta)


@lru_cache(maxsize=1024)
def rho_of(epsilon: Fraction) -> Fraction:
    """Return the least rho of epsilon-DP, ``epsilon tanh(epsilon/2)``, rounded up.

    Notes
    -----
    ``1 - 2/(e + 1)`` grows with the exponential, and so does rho with epsilon.
    """
    if epsilon <= 0:
        return Fraction(0)
    return min(_upward(epsilon * (1 - 2 / (_exponential(epsilon) + 1))), epsilon)


def delta_of_distance(epsilon: Fraction, distance: Fraction) -> Fraction:
    """Return what to add to delta where noise is off by a total variation distance.

    A mechanism that is (epsilon, delta)-DP with exact noise is (epsilon, delta + this)-DP with
    noise at ``distance`` from it on every instance: ``(1 + 3**ceil(epsilon)) * distance``, which is
    at least ``(1 + e**epsilon) * distance`` (docs/proofs/table_sampler.md).

    Parameters
    ----------
    epsilon : Fraction, >= 0
        The epsilon at which the guarantee is stated.
    distance : Fraction, >= 0
        Of all draws together.
    """
    factor: int = 1 + 3 ** math.ceil(epsilon)
    return min(factor * distance, Fraction(1))


def zcdp_with_distance(exact: Zcdp, distance: Fraction) -> Zcdp:
    """Return the zCDP price of a mechanism whose noise is off by a total variation distance.

    Rho stays.  With ``n = distance`` delta grows by ``n + e**x n + exp(-(x - rho)**2/(4 rho))``,
    whatever ``x > rho``; the best, ``2 sqrt(rho ln(1/n)) - rho``, gives about
    ``2 exp(-(sqrt(ln(1/n)) - sqrt(rho))**2)`` (docs/proofs/wide_noise.md; PRIVACY.md section 3).

    Parameters
    ----------
    exact : Zcdp
        The price with exact noise; several rounds chosen on the way may be priced as one.
    distance : Fraction, >= 0
        Sum over all draws, at most, on every path.

    Returns
    -------
    Zcdp
        Rounded up; delta 1, which no account admits, where rho is too large for the distance.
    """
    if distance <= 0:
        return exact
    if exact.rho <= 0:
        return Zcdp(exact.rho, _upward(min(exact.delta + 2 * distance, Fraction(1))))
    logarithm = math.log(distance.denominator) - math.log(distance.numerator)
    rho = float(exact.rho)
    best = Fraction(round((2 * math.sqrt(rho * max(logarithm, 0.0)) - rho) * 2**40), 2**40)
    if best <= exact.rho:
        return Zcdp(exact.rho, Fraction(1))
    shifted = (1 + _exponential(best)) * distance
    beyond = _exponential(-((best - exact.rho) ** 2) / (4 * exact.rho))
    return Zcdp(exact.rho, _upward(min(exact.delta + shifted + beyond, Fraction(1))))


def _exponential(x: Fraction) -> Fraction:
    """Return a number not below ``exp(x)``: `decimal` rounds correctly, this is the next one."""
    context = decimal.Context(prec=_DIGITS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    context.rounding = decimal.ROUND_CEILING
    above = context.divide(decimal.Decimal(x.numerator), decimal.Decimal(x.denominator))
    return Fraction(context.next_plus(context.exp(above)))


def _upward(value: Fraction) -> Fraction:
    return Fraction(math.ceil(value * _GRID), _GRID)
