"""R2T where a result can belong to several units (docs/proofs/linear.md).

The race of `dpsql.core.mechanisms.truncation` (Dong, Fang, Yi, Tao, Machanavajjhala, SIGMOD 2022,
Algorithm 1) with the value of a linear program for ``Q(I, tau)``.  The programs are solved to
within ``tau/SLACK``, certified, and the noise is scaled to the sensitivity that leaves:
``tau (1 + 1/SLACK)`` (PRIVACY.md section 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core import programs
from dpsql.core.mechanisms import linear_quantile, truncation
from dpsql.core.mechanisms.base import NoiseLaw, Release, check_budget
from dpsql.core.mechanisms.linear_quantile import LinearQuantile
from dpsql.core.mechanisms.truncation import FAILURE, Limits
from dpsql.core.packing import Memberships
from dpsql.core.programs import SLACK
from dpsql.errors import InvalidParameter
from dpsql.model import GRID, Guarantee
from dpsql.ports import NoiseSource


@dataclass(frozen=True, slots=True)
class LinearRace:
    """``max(0, max over j of F(I, tau) + DLap(L s/eps) - (L s/eps) ln(L/failure))``.

    ``tau = 4^j``, ``j = 1 ... L``, the last one ``largest``, ``s = tau (1 + 1/SLACK)``, and
    ``F(I, tau)`` certainly between ``Q(I, tau)`` and ``Q(I, tau) + tau/SLACK``.

    Notes
    -----
    Guarantee: eps, pure.  Where results can add and take away (``signs``), the answer is the
    difference of two races with half of eps each: a unit may take part in both.  All noise of a
    race is drawn first.  Candidates are then looked at from the one
    that can still reach most; the others cannot win once it is certain that none of them reaches
    what was found, so leaving them out never changes the answer.

    Why 4: with the paper's 2 the answer falls short by at most ``4 log2(GS) ln(log2(GS)/failure)
    tau*/eps``.  Twice the step in half the rounds has the same factor and a smaller logarithm,
    half the programs, and on graphs about two thirds of the error (docs/proofs/linear.md).
    """

    guarantee: Guarantee
    largest: int
    signs: tuple[int, ...] = (1,)
    name: str = "r2t"
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """How far the answer can fall short, and whether it can be too high."""
        return NoiseLaw(None, shortfall=8 * self.margin(1), signed=self.signed)

    def release(
        self, memberships: Memberships, noise: NoiseSource, tick: Callable[[], None]
    ) -> Release:
        """Perturb the one count or sum."""
        races = (sign * self._race(memberships.part(sign), noise, tick) for sign in self.signs)
        return Release([sum(races)])

    def _race(self, memberships: Memberships, noise: NoiseSource, tick: Callable[[], None]) -> int:
        race = [_Candidate(tau, self._handicap(tau, noise)) for tau in self.candidates]
        for candidate in race:
            candidate.upper = memberships.ceiling(candidate.tau) * GRID
        best = 0
        while True:
            tick()
            open_ = [c for c in race if not c.done and c.reach > best]
            if not open_:
                # everything below is a function of perturbed values
                return best // GRID
            first = max(open_, key=lambda c: c.reach)
            value = first.look(memberships, best, tick)
            if value is not None:
                best = max(best, value + first.handicap)

    @property
    def signed(self) -> bool:
        """Whether results can take away, so that the answer may err to either side."""
        return self.signs != (1,)

    @property
    def rounds(self) -> int:
        """The number ``L`` of bounds."""
        return len(self.candidates)

    @property
    def candidates(self) -> list[int]:
        """The bounds, ascending."""
        return list(truncation.race(self.largest))

    def scale(self, tau: int) -> Fraction:
        """Return the scale of the noise of a candidate."""
        sensitivity = tau * Fraction(SLACK + 1, SLACK)
        return sensitivity * self.rounds * len(self.signs) / self.guarantee.epsilon

    def margin(self, tau: int) -> int:
        """Return the public shift ``(L s/eps) ln(L/failure)``, rounded up."""
        return math.ceil(self.scale(tau) * Fraction(math.log(self.rounds / FAILURE)))

    def _handicap(self, tau: int, noise: NoiseSource) -> int:
        """Draw what is added to a candidate's value, times ``GRID``."""
        return noise.discrete_laplace(self.scale(tau) * GRID) - self.margin(tau) * GRID


@dataclass(slots=True)
class _Candidate:
    """One bound in the race: what it can reach, times ``GRID``."""

    tau: int
    handicap: int
    upper: int = 0
    done: bool = False

    @property
    def reach(self) -> int:
        """The most that this candidate can come to."""
        return self.upper + self.handicap

    def look(self, memberships: Memberships, best: int, tick: Callable[[], None]) -> int | None:
        """Find the value, unless it turns out that it cannot exceed ``best``."""
        self.done = True
        # of all upper bounds the least counts, so none that was used to give up is below the value
        upper = programs.certified(
            memberships.program(self.tau), tick, lambda upper: upper + self.handicap <= best
        )
        return None if upper is None else min(upper, self.upper)


def plan(
    mechanism: str, epsilon: Fraction, limits: Limits, signs: tuple[int, ...] = (1,)
) -> LinearRace | LinearQuantile:
    """Plan the release of one count or sum from public facts.

    Parameters
    ----------
    mechanism : {"auto", "quantile", "r2t"}
        The setting ``dp.mechanism``.
    epsilon : Fraction
        The budget.
    limits : Limits
        Of a unit with more than ``largest`` results only so many are ever counted, by `LinearRace`
        up to a factor of two.  With a ``fixed`` bound nothing is drawn or raced, whatever the
        mechanism.
    signs : tuple of int
        Whether results can add (1) and take away (-1).

    Raises
    ------
    InvalidParameter
        For another mechanism.
    """
    check_budget(epsilon, Fraction(0))
    if mechanism not in ("auto", "quantile", "r2t"):
        raise InvalidParameter(
            f"the {mechanism} mechanism does not count or sum results of several units",
            hint="Use dp.mechanism = 'auto', 'quantile' or 'r2t'.",
        )
    if mechanism == "r2t" and not limits.fixed:
        return LinearRace(Guarantee(epsilon, Fraction(0)), limits.largest, signs)
    bounds: tuple[int, ...] = (limits.largest,)
    if not limits.fixed:
        bounds = truncation.bounds(limits.largest, limits.least)
    return linear_quantile.plan(epsilon, bounds, signs, limits.usual)
