"""Counts under unit neighbours: each unit is cut off at ``tau`` (docs/proofs/truncation.md).

``Q(I, tau) = sum over units u of min(tau, c_u)`` changes by at most ``tau`` when a unit with all
its rows comes or goes, whatever the data (PRIVACY.md section 5).  Two ways to find a good ``tau``:

- `Quantile`: pay a part of epsilon for a ``tau`` that few units exceed, then add noise of scale
  ``tau/epsilon_value``; also for a vector of groups, whose units are scaled down to ``tau``;
- `RaceToTheTop` (R2T; Dong, Fang, Yi, Tao, Machanavajjhala, SIGMOD 2022, Algorithm 1): noise for
  every ``tau = 4^j``, shift each down by what the noise hardly ever exceeds, take the largest.

Both are pure epsilon-DP for units that are added or removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from dpsql.core.mechanisms import drawing, threshold
from dpsql.core.mechanisms.base import NoiseLaw, Release, Visibility, check_budget, need_delta
from dpsql.counted import Contributions
from dpsql.errors import InvalidParameter
from dpsql.model import Guarantee, Key
from dpsql.ports import NoiseSource

#: Share of epsilon that pays for the choice of the bound.
_CHOICE = Fraction(1, 4)
#: Each bound of R2T is so many times the one before.
BASE = 4
#: R2T's answer falls short of its error bound with at most this probability.
FAILURE = Fraction(1, 20)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a unit can be: ``largest`` is a public number, beyond which it is always cut off.

    ``fixed`` takes it as the bound itself; ``signed`` says that some units may take away.  No bound
    below ``least`` is of use, and bounds above ``usual`` are drawn more reluctantly.
    """

    largest: int
    fixed: bool = False
    signed: bool = False
    least: int = 1
    usual: int = 1

    @property
    def identity(self) -> str:
        """A text that stored answers are found by, as the first version wrote it for counts."""
        first = (
            f"largest={self.largest}, fixed={self.fixed}, signed={self.signed}, least={self.least}"
        )
        return f"Limits({first})" if self.usual == 1 else f"Limits({first}, usual={self.usual})"


@lru_cache(maxsize=16)
def bounds(largest: int, least: int = 1) -> tuple[int, ...]:
    """Return what `Quantile` chooses from: ``largest``, and powers of the root of 2 below it."""
    steps = range(2 * largest.bit_length())
    powers = {round(2 ** (j / 2)) for j in steps}
    return tuple(sorted({*(power for power in powers if least <= power < largest), largest}))


@lru_cache(maxsize=16)
def race(largest: int) -> tuple[int, ...]:
    """Return the bounds that R2T tries: powers of 4 below ``largest``, and ``largest``."""
    rounds = max(1, -(-(largest - 1).bit_length() // 2))
    return (*(BASE**j for j in range(1, rounds)), max(largest, 2))


@dataclass(frozen=True, slots=True)
class Quantile:
    """Draw ``tau``, cut every unit off at it, add discrete Laplace noise of scale ``tau/eps2``.

    ``tau`` is drawn from ``bounds`` by `dpsql.core.mechanisms.drawing`, so that few units exceed
    it: twice as large a bound is drawn only where it saves units, about ``1.4/eps1`` of them, or
    half as many up to ``usual``.  What the draw costs does not depend on the number of bounds.  A
    single bound costs nothing.

    Notes
    -----
    Guarantee: (eps1 + eps2, delta), ``delta = 0`` unless groups must be hidden.  One unit moves
    every number of exceeding units by at most 1, all up or all down, so drawing is eps1-DP (proved
    in docs/proofs/truncation.md); given ``tau``, the vector's L1 sensitivity is
    ``tau``.  ``tau`` is public then, and so is the scale.  With ``delta_threshold`` the vector
    counts units, so that a group which only one unit has counts at most 1.
    """

    guarantee: Guarantee
    epsilon_choice: Fraction
    epsilon_value: Fraction
    bounds: tuple[int, ...]
    delta_threshold: Fraction | None = None
    least: int = 0
    usual: int = 1
    name: str = "quantile"

    @property
    def law(self) -> NoiseLaw:
        """The scale of a single bound, or per unit of the bound that is drawn."""
        return law_of_bounds(
            self.bounds, self.epsilon_value, hides=self.delta_threshold is not None
        )

    @property
    def visibility(self) -> Visibility | None:
        """The threshold for the least bound."""
        if self.delta_threshold is None:
            return None
        least = threshold.cutoff(self.bounds[0], self.epsilon_value, self.delta_threshold, each=1)
        return Visibility(max(least, self.least), of_units=True, grows=len(self.bounds) > 1)

    def draw(self, contributions: Contributions, noise: NoiseSource) -> int:
        """Draw the number of the public ``tau``."""
        if len(self.bounds) == 1:
            return 0
        above = contributions.above()
        return drawing.draw(above, self.bounds, self.epsilon_choice, self.usual, noise)

    def release(
        self, contributions: Contributions, groups: list[Key], noise: NoiseSource
    ) -> Release:
        """Perturb the truncated values of the groups.

        With ``delta_threshold``, ``groups`` are the present ones, and those that are not to be
        shown are marked.
        """
        j = self.draw(contributions, noise)
        tau, grid = self.bounds[j], contributions.grid
        scale = Fraction(tau) / self.epsilon_value
        cut = contributions.truncated(j, groups)
        # noise in the steps of the grid; rounding to whole numbers comes after it
        values = [rounded(value + noise.discrete_laplace(scale * grid), grid) for value in cut]
        if self.delta_threshold is None:
            return Release(values, scale)
        cutoff = threshold.cutoff(tau, self.epsilon_value, self.delta_threshold, each=1)
        cutoff = max(cutoff, self.least)
        shown = [n > 0 and v >= cutoff for n, v in zip(cut, values, strict=True)]
        return Release(values, scale, shown)


@dataclass(frozen=True, slots=True)
class RaceToTheTop:
    """``max(0, max over j of Q(I, tau) + DLap(L tau/eps) - (L tau/eps) ln(L/failure))``.

    ``bounds`` are ``tau = 4, 16, ...``, the last of L the public bound of what a unit contributes
    (GS).  A signed sum is the difference of two races, of the units that add and of those that take
    away: no unit takes part in both.

    Notes
    -----
    Guarantee: eps, pure: each of the ``L`` counts gets eps/L.  With probability at least
    ``1 - failure`` the answer is at most the true count, and with as much at least the true count
    minus ``8 L ln(L/failure) tau*/eps``, ``tau*`` the largest contribution, if that is at most GS.
    With the paper's powers of 2 that is ``4 log2(GS) ln(log2(GS)/failure) tau*/eps``: the same
    factor and a larger logarithm (docs/proofs/linear.md says what 4 gains).  The paper's early stop
    saves linear programs; of sums of minima there is nothing to save.
    """

    guarantee: Guarantee
    bounds: tuple[int, ...]
    signed: bool = False
    name: str = "r2t"
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """How far the answer can fall short, and whether it can be too high."""
        return NoiseLaw(None, shortfall=8 * self.margin(1), signed=self.signed)

    def release(
        self, contributions: Contributions, groups: list[Key], noise: NoiseSource
    ) -> Release:
        """Perturb the one value."""
        if len(groups) > 1:
            raise InvalidParameter("r2t answers a single value")
        (key,) = groups
        cells = contributions.groups.get(key, {})
        adding = {j: cell for j, cell in cells.items() if j >= 0}
        found = self._race(replace(contributions, groups={key: adding}), key, noise)
        if self.signed:
            taking = {~j: (-a, -share) for j, (a, share) in cells.items() if j < 0}
            found -= self._race(replace(contributions, groups={key: taking}), key, noise)
        return Release([found])

    def _race(self, contributions: Contributions, key: Key, noise: NoiseSource) -> int:
        found = [0]
        for j, tau in enumerate(self.bounds):
            (total,) = contributions.truncated(j, [key])
            scale = Fraction(tau * self.rounds) / self.guarantee.epsilon
            found.append(total + noise.discrete_laplace(scale) - self.margin(tau))
        return max(found)

    @property
    def rounds(self) -> int:
        """The number ``L`` of bounds."""
        return len(self.bounds)

    def margin(self, tau: int) -> int:
        """``(L tau/eps) ln(L/failure)``, rounded up: a public shift."""
        scale = Fraction(tau * self.rounds) / self.guarantee.epsilon
        return math.ceil(scale * Fraction(math.log(self.rounds / FAILURE)))


def plan(
    mechanism: str,
    epsilon: Fraction,
    delta: Fraction | None,
    limits: Limits,
    *,
    single: bool,
    least: int = 0,
) -> Quantile | RaceToTheTop:
    """Plan the release of a vector of counts or sums from public facts.

    Parameters
    ----------
    mechanism : {"auto", "quantile", "r2t"}
        The setting ``dp.mechanism``.
    epsilon, delta : Fraction
        The budget; delta is given where the vector, which counts units, decides what is shown.
    limits : Limits
        What a unit may contribute; with a ``fixed`` bound nothing is drawn or raced, whatever the
        mechanism.
    single : bool
        Whether the vector is a single number.
    least : int
        Groups whose noisy number of units is below are not shown either.

    Raises
    ------
    InvalidParameter
        For another mechanism, for R2T of groups, or for the delta 0 where groups must be hidden.
    """
    check_budget(epsilon, delta or Fraction(0))
    if mechanism not in ("auto", "quantile", "r2t"):
        raise InvalidParameter(
            f"the {mechanism} mechanism is for relations that are protected row by row",
            hint="Use dp.mechanism = 'auto', 'quantile' or 'r2t' where units are protected.",
        )
    if mechanism == "r2t" and not limits.fixed:
        if not single:
            raise InvalidParameter(
                "the r2t mechanism answers a single number",
                hint="Ask for one count or sum without GROUP BY, or use dp.mechanism = 'auto'.",
            )
        return RaceToTheTop(Guarantee(epsilon, Fraction(0)), race(limits.largest), limits.signed)
    candidates = (limits.largest,) if limits.fixed else bounds(limits.largest, limits.least)
    choice = epsilon * _CHOICE if len(candidates) > 1 else Fraction(0)
    value = epsilon - choice
    if delta is None:
        guarantee = Guarantee(epsilon, Fraction(0))
        return Quantile(guarantee, choice, value, candidates, usual=limits.usual)
    need_delta(delta, "grouping by values that are not public")
    guarantee = Guarantee(epsilon, delta)
    return Quantile(guarantee, choice, value, candidates, delta, least, limits.usual)


def law_of_bounds(bounds: tuple[int, ...], epsilon: Fraction, *, hides: bool = False) -> NoiseLaw:
    """Return the law of noise of scale ``bound/epsilon``."""
    if len(bounds) == 1:
        return NoiseLaw(bounds[0] / epsilon, known=True, hides=hides)
    return NoiseLaw(None, hides=hides, times=1 / epsilon, bounds=(bounds[0], bounds[-1]))


def rounded(value: int, grid: int) -> int:
    """Round to the nearest whole number, halves up."""
    return (2 * value + grid) // (2 * grid)
