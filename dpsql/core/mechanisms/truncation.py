"""Counts under unit neighbours: each unit is cut off at ``tau`` (docs/proofs/truncation.md).

``Q(I, tau) = sum over units u of min(tau, c_u)`` changes by at most ``tau`` when a unit with all
its rows comes or goes, whatever the data (PRIVACY.md section 5).  Two ways to find a good ``tau``:

- `Quantile`: pay a part of epsilon for a ``tau`` that few units exceed, then add noise of scale
  ``tau/epsilon_value``; also for a vector of groups, whose units are scaled down to ``tau``;
- `RaceToTheTop` (R2T; Dong, Fang, Yi, Tao, Machanavajjhala, SIGMOD 2022, Algorithm 1): noise for
  every ``tau = 2^j``, shift each down by what the noise hardly ever exceeds, take the largest.

Both are pure epsilon-DP for units that are added or removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpsql.core.mechanisms import threshold
from dpsql.core.mechanisms.base import Release, check_budget, need_delta
from dpsql.errors import InvalidParameter
from dpsql.model import Contributions, Guarantee, Key
from dpsql.ports import NoiseSource

#: Share of epsilon that pays for the choice of the bound.
_CHOICE = Fraction(1, 5)
#: R2T's answer falls short of its error bound with at most this probability.
FAILURE = Fraction(1, 20)


@lru_cache(maxsize=16)
def bounds(largest: int) -> tuple[int, ...]:
    """Return what `Quantile` chooses from: ``largest``, and powers of the root of 2 below it."""
    steps = range(2 * largest.bit_length())
    powers = {round(2 ** (j / 2)) for j in steps}
    return tuple(sorted({*(power for power in powers if power < largest), largest}))


@dataclass(frozen=True, slots=True)
class Quantile:
    """Draw ``tau``, cut every unit off at it, add discrete Laplace noise of scale ``tau/eps2``.

    ``tau`` is the j-th bound for which ``-|f(tau) - k| - d j + G`` is largest: ``f(tau)`` units
    contribute more, ``k`` (``exceeding``) and ``d`` (``penalty``) are public, ``G`` is geometric
    with ratio ``exp(-eps1/2)``, and of equal ones the least bound wins.  Without ``d`` the many
    bounds above all units would win too often by their number.

    Notes
    -----
    Guarantee: (eps1 + eps2, delta), ``delta = 0`` unless groups must be hidden.  One unit moves
    every ``f`` by at most 1, so the report of the noisy maximum is eps1-DP (proved for this
    integer law in docs/proofs/truncation.md); given ``tau``, the vector's L1 sensitivity is
    ``tau``.  ``tau`` is public then, and so is the scale.
    """

    guarantee: Guarantee
    epsilon_choice: Fraction
    epsilon_value: Fraction
    exceeding: int
    penalty: int
    largest: int
    delta_threshold: Fraction | None = None
    name: str = "quantile"
    beta: float = 0.0

    def draw(self, contributions: Contributions, noise: NoiseSource) -> int:
        """Draw the public ``tau``."""
        candidates = bounds(self.largest)
        best, chosen = None, self.largest
        above = contributions.above(candidates)
        for j, (tau, exceed) in enumerate(zip(candidates, above, strict=True)):
            quality = -abs(exceed - self.exceeding) - self.penalty * j
            score = quality + _geometric(2 / self.epsilon_choice, noise)
            if best is None or score > best:
                best, chosen = score, tau
        return chosen

    def release(
        self, contributions: Contributions, groups: list[Key], noise: NoiseSource
    ) -> Release:
        """Perturb the truncated counts of the groups.

        With ``delta_threshold``, ``groups`` are the present ones, and those that are not to be
        shown are marked.
        """
        tau = self.draw(contributions, noise)
        scale = Fraction(tau) / self.epsilon_value
        cut = contributions.truncated(tau, groups)
        values = [n + noise.discrete_laplace(scale) for n in cut]
        if self.delta_threshold is None:
            return Release(values, scale)
        least = threshold.cutoff(tau, self.epsilon_value, self.delta_threshold)
        # a unit can bring any number of groups of which nothing is left after the cut
        shown = [n > 0 and v >= least for n, v in zip(cut, values, strict=True)]
        return Release(values, scale, shown)


@dataclass(frozen=True, slots=True)
class RaceToTheTop:
    """``max(0, max over j of Q(I, 2^j) + DLap(L 2^j/eps) - (L 2^j/eps) ln(L/failure))``.

    ``L = ceil(log2 largest)``, ``largest`` a public bound of what a unit contributes (GS).

    Notes
    -----
    Guarantee: eps, pure: each of the ``L`` counts gets eps/L.  With probability at least
    ``1 - failure`` the answer is at most the true count and at least the true count minus
    ``4 L ln(L/failure) tau*/eps``, ``tau*`` the largest contribution, if that is at most ``2^L``.
    The paper's early stop saves linear programs; of sums of minima there is nothing to save.
    """

    guarantee: Guarantee
    largest: int
    name: str = "r2t"
    beta: float = 0.0

    def release(
        self, contributions: Contributions, groups: list[Key], noise: NoiseSource
    ) -> Release:
        """Perturb the one count."""
        if len(groups) > 1:
            raise InvalidParameter("r2t answers a single count")
        candidates = [2**j for j in range(1, self.rounds + 1)]
        found = [0]
        for tau in candidates:
            (total,) = contributions.truncated(tau, groups)
            scale = Fraction(tau * self.rounds) / self.guarantee.epsilon
            found.append(total + noise.discrete_laplace(scale) - self.margin(tau))
        return Release([max(found)])

    @property
    def rounds(self) -> int:
        """The number ``L`` of bounds."""
        return max(1, (self.largest - 1).bit_length())

    def margin(self, tau: int) -> int:
        """``(L tau/eps) ln(L/failure)``, rounded up: a public shift."""
        scale = Fraction(tau * self.rounds) / self.guarantee.epsilon
        return math.ceil(scale * Fraction(math.log(self.rounds / FAILURE)))


def plan(
    mechanism: str, epsilon: Fraction, delta: Fraction, groups: int | None, largest: int
) -> Quantile | RaceToTheTop:
    """Plan the release of a vector of counts from public facts.

    Parameters
    ----------
    mechanism : {"auto", "quantile", "r2t"}
        The setting ``dp.mechanism``.
    epsilon, delta : Fraction
        The budget; delta is used only where groups must be hidden.
    groups : int or None
        Number of groups; ``None`` if they are not public.
    largest : int, >= 1
        Of a unit with more results only so many are ever counted; a public number.

    Raises
    ------
    InvalidParameter
        For another mechanism, for R2T of several groups, or without the delta that hides groups.
    """
    check_budget(epsilon, delta)
    if mechanism not in ("auto", "quantile", "r2t"):
        raise InvalidParameter(
            f"the {mechanism} mechanism is for relations that are protected row by row",
            hint="Use dp.mechanism = 'auto', 'quantile' or 'r2t' where units are protected.",
        )
    if mechanism == "r2t":
        if groups != 1:
            raise InvalidParameter(
                "the r2t mechanism answers a single count",
                hint="Leave out GROUP BY, or use dp.mechanism = 'auto'.",
            )
        return RaceToTheTop(Guarantee(epsilon, Fraction(0)), largest)
    choice = epsilon * _CHOICE
    value = epsilon - choice
    # in units of the geometric noise's mean, 2/eps1: how rarely bounds above all units win
    exceeding = math.ceil(4 / choice)
    penalty = max(1, math.ceil(2 / choice))
    if groups is not None:
        return Quantile(Guarantee(epsilon, Fraction(0)), choice, value, exceeding, penalty, largest)
    need_delta(delta, "grouping by values that are not public")
    guarantee = Guarantee(epsilon, delta)
    return Quantile(guarantee, choice, value, exceeding, penalty, largest, delta)


def _geometric(scale: Fraction, noise: NoiseSource) -> int:
    """Draw ``P(x) proportional to exp(-x/scale)`` on 0, 1, ...: half a discrete Laplace law."""
    while (x := noise.discrete_laplace(scale)) < 0:
        pass
    return x
