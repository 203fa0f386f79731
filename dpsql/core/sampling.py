"""Estimators of maximum boundaries from random walks, and their intervals: numbers only.

A walk's *weight* is the product of the numbers of matches along its steps, divided by the product
of the largest possible ones: a number in [0, 1] whose mean is the size of the group, on that
scale.  docs/proofs/sampling.md proves what is used here and lists what the published method
(papers/sensitivity-estimation.txt, Algorithms 2-4 and Theorem 3) leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.errors import InvalidParameter

ALPHA = 0.01
"""How far, in logarithms, a certified estimate may lie above its boundary.

The grid of the calibrated mechanism widens by it, which multiplies the published scale by
``exp(alpha * (t + 1))`` for a margin of ``t`` steps: a fifth at t = 17.  At 0.14 it would be a
factor of twelve.
"""

_ROUNDING = 1e-9
"""Relative; far more than sums of weights in double precision lose, far less than alpha."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The value to use for a boundary.

    ``exact`` says that it is the boundary itself, up to the probability that was granted for
    leaving its group out; ``walks`` were used, and ``centre`` is the estimate without its margin.
    """

    value: int
    walks: int
    exact: bool
    centre: float


@dataclass(frozen=True, slots=True)
class Sample:
    """``walks`` independent weights in [0, 1]: their sum and the sum of their squares."""

    walks: int
    total: float
    squares: float

    @property
    def mean(self) -> float:
        """The mean weight, at most 1."""
        return min(1.0, self.total / self.walks) if self.walks else 0.0

    def add(self, other: Sample) -> Sample:
        """Put two samples of the same group together."""
        return Sample(
            self.walks + other.walks, self.total + other.total, self.squares + other.squares
        )


def check_rate(rate: float) -> None:
    """Refuse a sampling rate outside (0, 1].

    Raises
    ------
    InvalidParameter
        When it is, or is not a number.
    """
    if not (isinstance(rate, int | float) and 0 < rate <= 1):
        raise InvalidParameter(
            "the sampling rate must be greater than 0 and at most 1",
            detail=f"Got {rate!r}.",
            hint="It is the number of random walks as a share of the join's results: try 1e-4.",
        )


def check_failure(eta: float) -> None:
    """Refuse a probability of failure outside (0, 1).

    Raises
    ------
    InvalidParameter
        When it is, or is not a number.
    """
    if not 0 < eta < 1:
        raise InvalidParameter(
            "the probability that a sampled sensitivity fails must be between 0 and 1",
            detail=f"Got {eta!r}.",
            hint="It is added to delta: a tenth of delta, say.",
        )


def published_width(walks: int, groups: int, eta: float) -> float:
    """Return Theorem 3's ``tau`` (``log log m`` counts as 0 where m < e leaves it undefined)."""
    if walks < 1:
        return math.inf
    iterated = math.log(max(math.log(walks), 1.0))
    spread = 2 * iterated + math.log((groups + 1) * math.pi**2 / (6 * eta))
    return math.sqrt(spread / (2 * walks))


def published_ends(
    size: float, walks: int, join: float, all_walks: int, groups: int, eta: float
) -> tuple[float, float]:
    """Return ``C - tau J_up`` and ``C + tau J_up`` as printed, with ``J_up = J + tau_J``.

    As printed the half width of ``J`` is not multiplied with anything, and weights are taken to
    lie between 0 and ``J``, which they need not: no coverage is claimed for it.
    """
    above = join + published_width(all_walks, groups, eta)
    half = published_width(walks, groups, eta) * above
    return size - half, size + half


def share(eta: float, boundaries: int, groups: int, number: int) -> float:
    """Return the failure probability of one group's interval in round ``number`` = 1, 2, ...

    Summed over the groups, all rounds and the boundaries it is at most ``eta``.
    """
    return eta / (boundaries * max(groups, 1) * number * (number + 1))


def interval(sample: Sample, eta: float) -> tuple[float, float]:
    """Enclose the expectation of independent weights in [0, 1] with probability ``1 - eta``.

    The better, at each end, of the empirical Bernstein inequality (Audibert, Munos, Szepesvari
    2007) and of Chernoff's in its relative-entropy form, with half of ``eta`` each.
    """
    if sample.walks < 1:
        return 0.0, 1.0
    mean = sample.mean
    variance = max(0.0, sample.squares / sample.walks - mean * mean) + _ROUNDING * mean * mean
    log = math.log(6 / eta)  # 3/(eta/2)
    half = math.sqrt(2 * variance * log / sample.walks) + 3 * log / sample.walks
    low = max(mean - half, chernoff_low(sample.walks, mean, eta / 4))
    high = min(mean + half, chernoff_high(sample.walks, mean, eta / 4))
    return max(0.0, low * (1 - _ROUNDING)), min(1.0, high * (1 + _ROUNDING))


def chernoff_high(walks: int, mean: float, eta: float) -> float:
    """Return the largest expectation that ``mean`` does not refute at level ``eta``, rounded up."""
    return _bound(walks, mean, 1.0, eta)


def chernoff_low(walks: int, mean: float, eta: float) -> float:
    """Return the least expectation that ``mean`` does not refute at level ``eta``, rounded down."""
    return _bound(walks, mean, 0.0, eta)


def _bound(walks: int, mean: float, end: float, eta: float) -> float:
    """Move from ``mean`` towards ``end`` until the relative entropy exceeds the limit."""
    limit = -math.log(eta) / walks
    inside, outside = mean, end
    for _ in range(200):
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        if _entropy(mean, middle) > limit:
            outside = middle
        else:
            inside = middle
    return outside


def refutes(sample: Sample, bar: float, eta: float, *, found: bool = False) -> bool:
    """Tell whether walks refute, at level ``eta``, that a group reaches the expectation ``bar``.

    ``found`` says that the sample is that of the largest of all groups that these walks came
    upon by themselves; as the groups' expectations add up to at most 1, at most ``1/bar`` of them
    reach ``bar``, whether a walk met them or not.
    """
    if bar > 1:
        return True
    mean = sample.mean * (1 + _ROUNDING)
    if sample.walks < 1 or bar <= 0 or mean >= bar:
        return False
    groups = max(1.0, math.floor(1 / bar)) if found else 1.0
    return sample.walks * _entropy(mean, bar) >= math.log(groups / eta)


def walks_to_refute(bar: float, eta: float) -> int:
    """Return about how many walks refute ``bar`` for a group of at most half of it."""
    return math.ceil(6.6 * math.log(1 / eta) / min(bar, 1.0))


def _entropy(p: float, q: float) -> float:
    """Return the relative entropy of coins with heads ``p`` and ``q``."""
    if p == q:
        return 0.0
    if q <= 0.0 or q >= 1.0:
        return math.inf
    found = 0.0
    if p > 0:
        found += p * math.log(p / q)
    if p < 1:
        found += (1 - p) * (math.log1p(-p) - math.log1p(-q))
    return max(0.0, found)
