"""Confidence intervals around answers whose noise scale is public."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.errors import InvalidParameter


def interval(value: int, scale: Fraction, confidence: float) -> tuple[int, int]:
    """Give ``value -+ h`` with the least ``h`` such that ``P(|DLap(scale)| <= h) >= confidence``.

    Parameters
    ----------
    value : int
        A released count.
    scale : Fraction
        The public scale of its noise.
    confidence : float
        Between 0 and 1, exclusive.

    Returns
    -------
    tuple of int
        Low and high end; they contain the true count with that probability.

    Notes
    -----
    ``P(|X| > h) = 2 exp(-(h + 1)/scale)/(1 + exp(-1/scale))``.
    """
    if not 0 < confidence < 1:
        raise InvalidParameter("dp.confidence must be greater than 0 and less than 1")
    rate = float(1 / scale)
    need = math.log(2) - math.log1p(-confidence) - math.log1p(math.exp(-rate))
    half = max(0, math.ceil(Fraction(need * (1 + 1e-12)) * scale) - 1)
    return value - half, value + half


def gaussian(deviation: float, confidence: float) -> int:
    """Return half the width of an interval around a rounded sum of discrete Gaussian noise.

    Parameters
    ----------
    deviation : float
        Standard deviation ``s`` of ``X = sum a_i X_i``, whatever the ``a_i``, of independent
        discrete Gaussians ``X_i`` of variance parameter ``v_i``: ``s^2 = sum a_i^2 v_i``.
    confidence : float
        Between 0 and 1, exclusive.

    Returns
    -------
    int
        ``h`` with ``P(|round(n + X) - n| <= h) >= confidence`` for every integer ``n``.

    Notes
    -----
    ``E exp(t X_i) <= exp(t^2 v_i / 2)`` (Canonne, Kamath and Steinke 2020), hence ``X`` is
    sub-Gaussian and ``P(|X| > x) <= 2 exp(-x^2 / (2 s^2))``.  No law of ``X`` is assumed.
    """
    if not 0 < confidence < 1:
        raise InvalidParameter("dp.confidence must be greater than 0 and less than 1")
    tail = math.sqrt(2 * (math.log(2) - math.log1p(-confidence))) * (1 + 1e-12)
    return math.floor(deviation * tail + 0.5)
