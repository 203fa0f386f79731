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
