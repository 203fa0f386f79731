"""What a mechanism costs under zCDP (docs/proofs/composition.md).

Every mechanism is priced twice, as (epsilon, delta)-DP and as ``delta``-approximate
``rho``-zCDP; the ledger sums both and limits the one that the account's owner chose
(PRIVACY.md section 7).  The conversion between the two is the ledger's (``dp.zcdp_epsilon``).
"""

from __future__ import annotations

import decimal
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
    The exponential is rounded correctly by `decimal`, so its successor is above the true one;
    ``1 - 2/(e + 1)`` grows with it, and so does rho with epsilon.
    """
    if epsilon <= 0:
        return Fraction(0)
    context = decimal.Context(prec=_DIGITS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    context.rounding = decimal.ROUND_CEILING
    above = context.divide(decimal.Decimal(epsilon.numerator), decimal.Decimal(epsilon.denominator))
    exponential = Fraction(context.next_plus(context.exp(above)))
    rho = Fraction(above) * (1 - 2 / (exponential + 1))
    return min(Fraction(-((-rho.numerator * _GRID) // rho.denominator), _GRID), epsilon)
