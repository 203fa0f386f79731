"""Smooth maximum ``max over integer s >= 0 of exp(-beta * sum(s)) * max_p P_p(s)``.

The objective has several local maxima and flat ridges, so that hill climbing is no
proof; this is an exhaustive search by bounds (docs/proofs/smooth.md).  The value is
never below the true maximum and at most ``ERROR`` (relative) above it.

A polynomial is first cut into regions where capped factors are constant, freed of
monomials that cannot matter and of variables that never occur together, then split into
factors over disjoint variables, which are maximised separately.  One variable: plain
Python, below.  Several: ``dpsql.core.branch``, which needs numpy.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core.polynomial import (
    Polynomial,
    Powers,
    cliques,
    evaluate,
    factor,
    variables,
    without_caps,
)
from dpsql.errors import InternalError

ERROR = 1e-9
"""Relative error of ``SmoothBound.exact``: mechanisms add ``2 * ERROR`` to beta."""

TOLERANCE = 5e-10
"""In logarithms: what the search may leave on the table, over all factors."""

NEGLIGIBLE = 4e-10
"""What the monomials that are left out of a search may add, relative to the maximum."""


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


def smooth_maximum(
    polynomials: Sequence[Polynomial],
    beta: float,
    n: int,
    tick: Callable[[], None] = lambda: None,
) -> SmoothBound:
    """Maximise ``exp(-beta * sum(s)) * P(s)`` over integer points and polynomials.

    Parameters
    ----------
    polynomials : sequence of Polynomial
        Polynomials in ``n`` variables with non-negative coefficients of any size.
    beta : float, >= 0
        Smoothness; 0 only if all polynomials are constant.
    n : int
        Number of variables.
    tick : callable
        Called every few milliseconds; may raise to cancel.

    Returns
    -------
    SmoothBound
        0 at the origin if all polynomials are zero.
    """
    if not beta >= 0:
        raise InternalError("beta must not be negative")
    search = _Search(beta, n, tick)
    regions = [region for polynomial in polynomials for region in without_caps(polynomial, n)]
    if beta == 0 and any(variables(part) for part, _ in regions):
        raise InternalError("a polynomial that is not constant needs beta > 0")
    hard: dict[object, list[_Region]] = {}
    for region in _significant(regions, beta):
        tick()
        pieces = factor(region.part, region.used)[0]
        few = len(pieces) > 1 or len(region.used) <= 1
        if few or _can_scan(_restrict(region.part, region.used), beta):
            search.separable(region, pieces)
        else:
            degrees = tuple(max(p[i] for p in region.part) for i in region.used)
            hard.setdefault(degrees, []).append(region)
    for group in hard.values():
        search.together(group)
    value = search.value
    if any(variables(part) for part, _ in regions):
        value *= 1 + Fraction(95, 10**11)  # TOLERANCE, NEGLIGIBLE and rounding in the search
    return SmoothBound(value, search.at, sum(search.at))


@dataclass(frozen=True, slots=True)
class _Region:
    """Maximise ``part`` from ``low`` on over ``used`` (by falling degree); the rest stays."""

    part: Polynomial
    low: tuple[int, ...]
    used: tuple[int, ...]


def _significant(
    regions: Sequence[tuple[Polynomial, tuple[int, ...]]], beta: float
) -> list[_Region]:
    """Leave out monomials that add nearly nothing to the maximum, then split what remains."""
    result: list[_Region] = []
    floor = max(
        (_peak(p, c, low, beta, True) for part, low in regions for p, c in part.items()),
        default=0.0,
    )
    for part, low in regions:
        kept, spare = dict(part), NEGLIGIBLE
        if beta > 0:
            peaks = sorted((_peak(p, c, low, beta, False) - floor, p) for p, c in part.items())
            for peak, powers in peaks:
                spare -= math.exp(min(peak, 1.0))
                if spare < 0:
                    break
                del kept[powers]
        for piece in cliques(kept, low) if kept else ():
            used = sorted(variables(piece), key=lambda i: -max(p[i] for p in piece))
            result.append(_Region(piece, low, tuple(used)))
    return result


def _peak(powers: Powers, coefficient: int, low: Sequence[int], beta: float, whole: bool) -> float:
    """Logarithm of a monomial's own maximum, at a real point or at a whole one near it."""
    total = math.log(coefficient)
    for a, least in zip(powers, low, strict=True):
        best = max(a / beta, least) if a else least
        s = max(round(best), 1 if a else 0) if whole else best
        total += (a * math.log(s) if a else 0.0) - beta * s
    return total


class _Search:
    """The best point so far, and how to look for a better one."""

    def __init__(self, beta: float, n: int, tick: Callable[[], None]) -> None:
        self.beta, self.tick = beta, tick
        self.at = (0,) * n
        self.value = Fraction(0)
        self.log_value = -math.inf
        self.solved: dict[object, tuple[int, ...]] = {}

    def offer(self, part: Polynomial, point: tuple[int, ...]) -> None:
        """Evaluate a point exactly and keep it if it is better."""
        found = evaluate(part, point)
        if not found:  # what a search returns that found nothing above its floor
            return
        k = sum(point)
        log_value = math.log(found) - self.beta * k
        if log_value > self.log_value:
            self.log_value, self.at = log_value, point
            self.value = found * _decay(self.beta, k)

    def separable(self, region: _Region, pieces: list[dict[Powers, int]]) -> None:
        """Maximise a product of polynomials in disjoint variables factor by factor."""
        point = list(region.low)
        for piece in pieces:
            own = variables(piece)
            if own:
                gap = TOLERANCE / len(pieces)
                for i, s in zip(own, self._piece(piece, own, region.low, gap), strict=True):
                    point[i] = s
        self.offer(region.part, tuple(point))

    def _piece(
        self, piece: Polynomial, own: tuple[int, ...], low: tuple[int, ...], gap: float
    ) -> tuple[int, ...]:
        """Maximise one factor over its own variables; equal factors are solved once."""
        small = _restrict(piece, own)
        start = tuple(low[i] for i in own)
        key = (frozenset(small.items()), start, gap)
        if key not in self.solved:
            if len(own) == 1:
                terms = {p[0]: c for p, c in small.items()}
                self.solved[key] = (_one_variable(terms, start[0], self.beta, gap),)
            elif _can_scan(small, self.beta):
                self.solved[key] = _scan(small, start, self.beta)
            else:
                from dpsql.core.branch import Job, maximise

                job = Job(small, start, 0.0)
                self.solved[key] = maximise([job], self.beta, gap, tick=self.tick)[1]
        return self.solved[key]

    def together(self, group: Sequence[_Region]) -> None:
        """Maximise over several polynomials at once; only the best of them matters."""
        from dpsql.core.branch import Job, maximise

        distinct: dict[object, tuple[_Region, Job]] = {}
        for region in group:
            small = _restrict(region.part, region.used)
            start = tuple(region.low[i] for i in region.used)
            fixed = sum(region.low) - sum(start)
            key = (frozenset(small.items()), start, fixed)
            distinct.setdefault(key, (region, Job(small, start, -self.beta * fixed)))
        regions, jobs = zip(*distinct.values(), strict=True)
        winner, best = maximise(jobs, self.beta, TOLERANCE, self.log_value, self.tick)
        point = list(regions[winner].low)
        for i, s in zip(regions[winner].used, best, strict=True):
            point[i] = s
        self.offer(regions[winner].part, tuple(point))


def _restrict(piece: Polynomial, own: tuple[int, ...]) -> dict[Powers, int]:
    """Drop the variables that do not occur."""
    return {tuple(p[i] for i in own): c for p, c in piece.items()}


def _decay(beta: float, k: int) -> Fraction:
    """``exp(-beta * k)`` rounded up: math.exp errs by less than an ulp, the product by one."""
    if k == 0 or beta == 0:
        return Fraction(1)
    slack = 1 + (4 + beta * k) * 2.0**-51
    return Fraction(math.exp(-beta * k) * slack)


def _can_scan(terms: Polynomial, beta: float) -> bool:
    """Tell whether ``terms`` is bilinear in two variables with few values of the first."""
    return 1 / beta < 2000 and all(len(p) == 2 and max(p) <= 1 for p in terms)


def _scan(terms: Polynomial, low: Sequence[int], beta: float) -> tuple[int, int]:
    """Maximise ``a + b s + c t + d s t``: every ``s``, and the best ``t`` for it."""
    top = max(terms.values())
    a, b, c, d = (terms.get(p, 0) / top for p in ((0, 0), (1, 0), (0, 1), (1, 1)))
    high = math.ceil(1 / beta) + 1
    best, at = -math.inf, (low[0], low[1])
    for s in range(low[0], max(low[0], high) + 1):
        base, slope = a + b * s, c + d * s
        # where base/slope >= 2/beta, t = 0 is optimal
        floor = math.floor(1 / beta - base / slope) if slope * (2 / beta) > base else 0
        for t in (floor - 1, floor, floor + 1, floor + 2):
            t = max(t, low[1])
            value = base + slope * t
            if value > 0 and math.log(value) - beta * (s + t) > best:
                best, at = math.log(value) - beta * (s + t), (s, t)
    return at


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
