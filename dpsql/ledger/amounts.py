"""Exact amounts of epsilon, delta and rho as PostgreSQL's numeric."""

from __future__ import annotations

from fractions import Fraction

_PLACES = 60


def amount_text(value: Fraction) -> str:
    """Write an amount as a decimal; one that has no finite form is rounded up, never down."""
    scaled = -((-value * 10**_PLACES) // 1)
    whole, rest = divmod(int(scaled), 10**_PLACES)
    digits = f"{rest:0{_PLACES}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def generic_rho(epsilon: Fraction) -> Fraction:
    """Price a mechanism under zCDP of which only epsilon is known, as ``dp.zcdp_price`` does."""
    return min(epsilon * epsilon / 2, epsilon)
