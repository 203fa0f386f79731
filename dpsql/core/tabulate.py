"""Cumulative distributions of integer noise as integers, with proved errors.

The arithmetic of the table sampler of PRIVACY.md section 3; proof in
docs/proofs/table_sampler.md.  Everything is an interval between two integers
in units of ``2**-bits``: lower ends are rounded down and upper ends up at each
operation, so the true value is inside whatever the parameters are.  No
floating-point number occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from dpsql.errors import InternalError, InvalidParameter

MAX_ENTRIES = 1 << 20
"""Most magnitudes of one table; 24 bytes each, and about 2 microseconds to tabulate."""

TAIL = 128
"""Magnitudes are cut where the rest of the law has at most ``2**-TAIL``."""

_GUARD = 96
_EVERY = 4096


@dataclass(frozen=True)
class Cumulative:
    """The distribution function of a magnitude, rounded down to ``bits`` bits.

    Attributes
    ----------
    values : list of int
        ``values[k]`` is ``2**bits * P(|X| <= k)`` rounded down, for ``k`` below the largest
        magnitude ``len(values)``, which takes what is left; not decreasing,
        in ``0 .. 2**bits - 1``.
    bits : int
        Precision.
    distance : Fraction
        At most this is the total variation distance between the law so tabulated and the exact
        one; in [0, 1].
    """

    values: list[int]
    bits: int
    distance: Fraction


def gaussian(
    sigma_squared: Fraction, bits: int, tick: Callable[[], None] | None = None
) -> Cumulative:
    """Tabulate the discrete Gaussian, ``P(x) proportional to exp(-x**2 / (2 sigma_squared))``.

    Parameters
    ----------
    sigma_squared : Fraction, > 0
        Square of the scale, in counts squared.
    bits : int, >= 1
        Precision of the table.
    tick : callable, optional
        Called every few milliseconds; may raise to cancel.

    Raises
    ------
    InvalidParameter
        The table would have more than ``MAX_ENTRIES`` magnitudes.
    """
    if sigma_squared <= 0:
        raise InternalError("noise scale must be greater than 0")
    half = 1 / (2 * sigma_squared)
    return _cumulative(half, 2 * half, bits, MAX_ENTRIES**2 * half, tick)


def laplace(scale: Fraction, bits: int, tick: Callable[[], None] | None = None) -> Cumulative:
    """Tabulate the discrete Laplace law, ``P(x) proportional to exp(-|x| / scale)``.

    As `gaussian`; ``scale`` is in counts.
    """
    if scale <= 0:
        raise InternalError("noise scale must be greater than 0")
    return _cumulative(1 / scale, Fraction(0), bits, MAX_ENTRIES / scale, tick)


def laplace_digit(
    scale: Fraction, base: int, bits: int, tick: Callable[[], None] | None = None
) -> Cumulative:
    """Tabulate the low digit of discrete Laplace noise, ``-base < d < base``.

    ``P(d) proportional to r**|d| + r**(|d|+2) + ... + r**(2 base-2-|d|)``, ``r = exp(-1/scale)``,
    is the law of ``(G mod base) - (H mod base)`` for independent geometric G and H
    (docs/proofs/wide_noise.md).  Nothing is cut.

    Parameters
    ----------
    scale : Fraction, > 0
        Of the noise ``G - H``, in counts.
    base : int, >= 1
        One more than the largest magnitude.
    bits, tick
        As in `gaussian`.
    """
    if scale <= 0 or base < 1:
        raise InternalError("a digit needs a scale and a base greater than 0")
    work = max(bits, TAIL) + _GUARD
    one = 1 << work
    powers, squares = [(one, one)], [(one, one)]
    for rate, found in ((1 / scale, powers), (2 / scale, squares)):
        for low, high, _, _ in weights(rate, Fraction(0), work):
            if len(found) >= base:
                break
            found.append((low, high))
    inner = list(accumulate(squares, lambda a, b: (a[0] + b[0], a[1] + b[1])))
    sums: list[int] = []
    sum_low = sum_high = 0
    for d, (low, high) in enumerate(powers):
        times = 1 if d == 0 else 2
        sum_low += times * (low * inner[base - 1 - d][0] >> work)
        sum_high += times * -(-high * inner[base - 1 - d][1] >> work)
        sums.append(sum_low)
        if tick is not None and d % _EVERY == 0:
            tick()
    return _rounded(sums, sum_high, Fraction(0), bits, tick)


def exponential(x: Fraction, bits: int) -> tuple[int, int]:
    """Give integers ``low <= 2**bits * exp(-x) <= high``, for ``x >= 0``."""
    if x >= bits:  # exp(-x) < 2**-bits
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 1)
    top, bottom = x.numerator, x.denominator << halvings  # below 1: alternating, decreasing terms
    low = high = term_low = term_high = 1 << bits
    count = 0
    while term_high > 1:
        count += 1
        term_low = term_low * top // (bottom * count)
        term_high = -(-term_high * top // (bottom * count))
        if count % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    low, high = max(low - term_high, 0), high + term_high  # the remainder is below the last term
    for _ in range(halvings):
        low, high = low * low >> bits, -(-high * high >> bits)
    return low, high


def weights(first: Fraction, second: Fraction, bits: int) -> Iterator[tuple[int, int, int, int]]:
    """Give bounds of ``w(k)`` and of ``r(k)`` for ``k = 1, 2, ...``, without end.

    ``w(0) = 1, w(k+1) = w(k) r(k), r(0) = exp(-first), r(k+1) = r(k) exp(-second)``.

    Yields
    ------
    tuple of int
        ``low <= 2**bits * w(k) <= high``, then the same for ``r(k)``.
    """
    weight_low = weight_high = 1 << bits
    ratio_low, ratio_high = exponential(first, bits)
    step_low, step_high = exponential(second, bits)
    while True:
        weight_low = weight_low * ratio_low >> bits
        weight_high = -(-weight_high * ratio_high >> bits)
        ratio_low = ratio_low * step_low >> bits
        ratio_high = -(-ratio_high * step_high >> bits)
        yield weight_low, weight_high, ratio_low, ratio_high


def _cumulative(
    first: Fraction, second: Fraction, bits: int, end: Fraction, tick: Callable[[], None] | None
) -> Cumulative:
    """Tabulate the law ``P(x) proportional to w(abs(x))``, for the `weights` of ``first, second``.

    ``end`` is ``-ln w`` at the limit of the table: below 80 the cut is surely beyond it.
    """
    if end < 80:
        raise _too_long()
    work = max(bits, TAIL) + _GUARD
    one = 1 << work
    sum_low = sum_high = one
    sums = [one]
    for weight_low, weight_high, _, ratio_high in weights(first, second, work):
        # ratios do not increase: the rest is at most weight/(1 - ratio), and counts for both signs
        if weight_high << (work + 1 + TAIL) <= (one - ratio_high) * sum_low:
            break
        if len(sums) > MAX_ENTRIES:
            raise _too_long()
        sum_low += 2 * weight_low
        sum_high += 2 * weight_high
        sums.append(sum_low)
        if tick is not None and len(sums) % _EVERY == 0:
            tick()
    tail = Fraction(weight_high << (work + 1), (one - ratio_high) * sum_low)
    return _rounded(sums, sum_high, tail, bits, tick)


def _rounded(
    sums: list[int], sum_high: int, tail: Fraction, bits: int, tick: Callable[[], None] | None
) -> Cumulative:
    """Divide lower bounds of partial sums by the whole; ``tail`` is what has been cut."""
    sum_low = sums[-1]
    top = (1 << bits) - 1
    values = []
    for k, partial in enumerate(sums[:-1]):
        values.append(min((partial << bits) // sum_high, top))
        if tick is not None and k % _EVERY == 0:
            tick()
    # each entry is below its exact value by at most one unit and the width of the sums
    unit = Fraction(1, 1 << bits) + Fraction(2 * (sum_high - sum_low), sum_low)
    return Cumulative(values, bits, _rounded_up(min(tail + len(values) * unit, Fraction(1))))


def _rounded_up(value: Fraction) -> Fraction:
    """Round to a short fraction that is not smaller."""
    return Fraction(-((-value.numerator << 256) // value.denominator), 1 << 256)


def _too_long() -> InvalidParameter:
    return InvalidParameter(
        "the noise is too large for a table",
        detail=f"A table holds at most {MAX_ENTRIES} magnitudes.",
        hint="Use a larger epsilon, or draw the cells one by one.",
    )
