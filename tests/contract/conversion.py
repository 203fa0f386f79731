"""The conversion between zCDP and DP, computed independently of the ledger's SQL.

Not from the closed form of the conversion but from what it bounds: for a fixed order
``a`` the largest ``(z - e^eps) / z^a`` over all ``z`` is searched on a grid of logarithms with
60 digits, and the best ``a`` by trying many.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction

CONTEXT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def exact(value: Fraction) -> Decimal:
    return CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def log_excess(epsilon: Decimal, order: Decimal) -> Decimal:
    """``ln max over z of (z - e^eps)/z^order`` at its stationary point ``z = e^eps a/(a - 1)``."""
    z = CONTEXT.divide(order, order - 1)  # in units of e^eps
    ln = CONTEXT.ln
    return CONTEXT.subtract(
        CONTEXT.multiply(epsilon, 1 - order) + ln(z - 1), CONTEXT.multiply(order, ln(z))
    )


def rho_at(epsilon: Decimal, delta: Decimal, order: Decimal) -> Decimal:
    """Return the rho for which the moment of that order bounds the excess by exactly delta."""
    room = CONTEXT.ln(delta) - log_excess(epsilon, order)
    return CONTEXT.divide(room, order * (order - 1))


def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho that implies (epsilon, delta), by ternary search over the order."""
    e, d = exact(epsilon), exact(delta)
    low, high = Decimal(-40), Decimal(60)  # ln(order - 1)
    with decimal.localcontext(CONTEXT):
        for _ in range(200):
            third = (high - low) / 3
            left, right = low + third, high - third
            if rho_at(e, d, 1 + left.exp()) < rho_at(e, d, 1 + right.exp()):
                low = left
            else:
                high = right
        best = rho_at(e, d, 1 + ((low + high) / 2).exp())
    return max(Fraction(best), Fraction(0))
