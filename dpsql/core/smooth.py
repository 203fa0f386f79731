"""Smooth maximum ``max over integer s >= 0 of exp(-beta * sum(s)) * max_p P_p(s)``.

The objective has several local maxima and flat ridges, so that hill climbing is no
proof; this is an exhaustive search by bounds (docs/proofs/smooth.md).  The value is
never below the true maximum and at most ``ERROR`` (relative) above it.

A polynomial is first cut into regions where capped factors are constant, then into
factors over disjoint variables, which are maximised separately.  One variable: plain
Python, below.  Several: ``dpsql.core.branch``, which needs numpy.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core.polynomial import Polynomial, Powers, evaluate, factor, variables, without_caps
from dpsql.errors import InternalError

ERROR = 1e-9
"""Relative error of ``SmoothBound.exact``: mechanisms add ``2 * ERROR`` to beta."""

TOLERANCE = 9e-10
"""In logarithms: what the search may leave on the table, over all factors."""


@dataclass(frozen=True, slots=True)
class SmoothBound:
    """An upper bound of a smooth maximum.

    ``exact`` lies between the maximum and ``1 + 1e-9`` times it; ``at`` is a point that
    attains the maximum up to the same factor and ``k`` its sum.
    """

    exact: Fraction
    at: tuple[int, ...]
    k: int

    @property
    def value(self) -> float:
        """``exact`` as a float, rounded up; infinite beyond the range of floats."""
        return round_up(self.exact)


def round_up(number: Fraction) -> float:
    """Return the least float that is at least ``number`` (or infinity)."""
    try:
        value = float(number)
    except OverflowError:
        return math.inf
    return value if Fraction(value) >= number else math.nextafter(value, math.inf)


def smooth_maximum(polynomials: Sequence[Polynomial], beta: float, n: int) -> SmoothBound:
    """Maximise ``exp(-beta * sum(s)) * P(s)`` over integer points and polynomials.

    Parameters
    ----------
    polynomials : sequence of Polynomial
        Polynomials in ``n`` variables with non-negative coefficients of any size.
    beta : float, >= 0
        Smoothness; 0 only if all polynomials are constant.
    n : int
        Number of variables.

    Returns
    -------
    SmoothBound
        0 at the origin if all polynomials are zero.
    """
    if not beta >= 0:
        raise InternalError("beta must not be negative")
    best = -math.inf
    at = (0,) * n
    value = Fraction(0)
    solved: dict[object, tuple[int, ...]] = {}
    jobs = [job for polynomial in polynomials for job in without_caps(polynomial, n)]
    jobs.sort(key=lambda job: -_rough(job[0], job[1], beta))
    for part, low in jobs:
        used = variables(part)
        if used and beta == 0:
            raise InternalError("a polynomial that is not constant needs beta > 0")
        if _ceiling(part, low, used, beta) < best - 1e-6:
            continue
        point = list(low)
        pieces = factor(part, used)[0]
        for piece in pieces:
            own = variables(piece)
            if own:
                gap = TOLERANCE / len(pieces)
                rest = beta * sum(s for i, s in enumerate(low) if i not in own)
                floor = best + rest if len(pieces) == 1 else -math.inf
                best_piece = _solve(piece, own, low, beta, gap, floor, solved)
                for i, s in zip(own, best_piece, strict=True):
                    point[i] = s
        found = evaluate(part, point)
        k = sum(point)
        log_value = math.log(found) - beta * k
        if log_value > best:
            best, at = log_value, tuple(point)
            value = found * _decay(beta, k)
    if value and any(at):
        value *= 1 + Fraction(95, 10**11)  # TOLERANCE and rounding in the search
    return SmoothBound(value, at, sum(at))


def _decay(beta: float, k: int) -> Fraction:
    """``exp(-beta * k)`` rounded up: math.exp errs by less than an ulp, the product by one."""
    if k == 0 or beta == 0:
        return Fraction(1)
    slack = 1 + (4 + beta * k) * 2.0**-51
    return Fraction(math.exp(-beta * k) * slack)


def _rough(part: Polynomial, low: Sequence[int], beta: float) -> float:
    """Give a value that is attained, to visit promising regions first."""
    guess = [max(s, round(0.5 / beta)) if beta else s for s in low]
    return max(
        math.log(evaluate(part, p)) - beta * sum(p) if evaluate(part, p) else -math.inf
        for p in (guess, list(low))
    )


def _ceiling(part: Polynomial, low: Sequence[int], used: Sequence[int], beta: float) -> float:
    """Bound the logarithm of the maximum: each monomial's own maximum, summed."""
    logs = []
    for powers, coefficient in part.items():
        log = math.log(coefficient)
        for i, s in enumerate(low):
            a = powers[i]
            if a and i in used:
                best = max(float(s), a / beta)
                log += a * math.log(best) - beta * best
            else:
                log -= beta * s
        logs.append(log)
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


def _solve(
    piece: Polynomial,
    own: tuple[int, ...],
    low: Sequence[int],
    beta: float,
    gap: float,
    floor: float,
    solved: dict[object, tuple[int, ...]],
) -> tuple[int, ...]:
    """Maximise one factor over its own variables; equal factors are solved once."""
    small: dict[Powers, int] = {tuple(p[i] for i in own): c for p, c in piece.items()}
    start = tuple(low[i] for i in own)
    common = math.gcd(*small.values())
    small = {p: c // common for p, c in small.items()}
    key = (frozenset(small.items()), start, gap)
    if key not in solved:
        if len(own) == 1:
            terms = {p[0]: c for p, c in small.items()}
            solved[key] = (_one_variable(terms, start[0], beta, gap),)
        else:
            from dpsql.core.branch import maximise

            solved[key] = maximise(small, start, beta, gap, floor - math.log(common))
    return solved[key]


def _one_variable(terms: dict[int, int], low: int, beta: float, gap: float) -> int:
    """Maximise ``log P(s) - beta * s`` over integers ``s >= low``, up to ``gap``."""

    def objective(s: int) -> float:
        value = sum(c * s**a for a, c in terms.items())
        return math.log(value) - beta * s if value else -math.inf

    degree = max(terms)
    high = max(low, math.ceil(degree / beta) + 1)
    if degree == 1:
        # concave: the integers next to the real optimum 1/beta - A/B
        middle = 1 / beta - min(terms.get(0, 0) / terms[1], 2 / beta)
        near = range(math.floor(middle) - 1, math.ceil(middle) + 2)
        return max((min(max(s, low), high) for s in near), key=objective)
    best, at = max((objective(s), s) for s in (low, high))
    heap = [(-(objective(high) + beta * (high - low)), low, high)]
    while heap and -heap[0][0] > best + gap:
        _, a, b = heapq.heappop(heap)
        middle = (a + b) // 2
        for left, right in ((a, middle), (middle + 1, b)):
            top = objective(right)
            best, at = max((best, at), (top, right))
            if left < right:
                heapq.heappush(heap, (-(top + beta * (right - left)), left, right))
    return at
