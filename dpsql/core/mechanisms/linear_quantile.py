"""A bound that few units exceed, where a result can belong to several (docs/proofs/linear.md).

As `dpsql.core.mechanisms.truncation.Quantile`: a part of epsilon pays for ``tau``, the rest for the
noise on ``Q(I, tau)``, which moves by at most ``tau`` when a unit comes or goes
(PRIVACY.md section 5); so does that of the sets that add less that of those that take away, since
both move the same way.  How many units exceed ``tau`` has no bounded sensitivity here, since a unit
that goes takes results from others; how many must be *deleted*, in fractions, until none exceeds it
has (`dpsql.core.deletion`).

Related: Kasiviswanathan, Nissim, Raskhodnikova and Smith ("Analyzing graphs with node differential
privacy", TCC 2013) have the program ``Q(I, tau)``, for a degree that is known; Chen and Zhou
("Recursive mechanism", SIGMOD 2013) draw a bound as well, by the logarithm of a smoothed
sensitivity; Dong and others (SIGMOD 2022) try all bounds and pay for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpsql.core import deletion, programs
from dpsql.core.mechanisms.base import NoiseLaw, Release
from dpsql.core.mechanisms.drawing import handicaps
from dpsql.core.mechanisms.truncation import law_of_bounds, rounded
from dpsql.core.packing import Memberships
from dpsql.core.programs import SLACK
from dpsql.errors import InternalError
from dpsql.model import GRID, Guarantee
from dpsql.ports import NoiseSource

#: Share of epsilon that pays for the choice of the bound.
CHOICE = Fraction(2, 5)
#: Certified bounds of the number of units that must go are at most ``1/CLOSE`` apart.
CLOSE = 32


@dataclass(frozen=True, slots=True)
class LinearQuantile:
    """Draw ``tau``, cut every unit off at it, add discrete Laplace noise of scale ``s/eps2``.

    ``s = tau (1 + 1/SLACK)``.  ``tau`` is drawn as `dpsql.core.mechanisms.drawing` says, with noise
    of scale ``(1 + 2/CLOSE)/eps1`` and F at most ``1/CLOSE`` above the fractional number of units
    that must go until none has more than ``tau`` results, or results whose sizes add up to more.
    ``signs`` tells whether there can be sets that add (1) and sets that take away (-1).

    Notes
    -----
    Guarantee: eps1 + eps2, pure; proofs in docs/proofs/linear.md.  ``tau`` is public then, and so
    is the scale of the noise.  A single bound costs nothing.
    """

    guarantee: Guarantee
    epsilon_choice: Fraction
    epsilon_value: Fraction
    bounds: tuple[int, ...]
    signs: tuple[int, ...] = (1,)
    usual: int = 1
    name: str = "quantile"
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """The scale of a single bound, or per unit of the bound that is drawn."""
        return law_of_bounds(self.bounds, self.epsilon_value)

    def release(
        self, memberships: Memberships, noise: NoiseSource, tick: Callable[[], None]
    ) -> Release:
        """Perturb the one count or sum."""
        tau = self.bounds[self.draw(memberships.sizes, noise, tick)]
        scale = self.scale(tau)
        value = self.cut(memberships, tau, tick) + noise.discrete_laplace(scale * GRID)
        return Release([rounded(value, GRID)], scale)

    def cut(self, memberships: Memberships, tau: int, tick: Callable[[], None]) -> int:
        """Cut every unit off at ``tau``: exact and secret, times ``GRID``."""
        value, parts = 0, len(self.signs)
        for sign in self.signs:
            program = memberships.part(sign).program(tau)
            upper = programs.certified(program, tick, lambda _: False, parts)
            if upper is None:
                raise InternalError("a program was given up that nothing speaks against")
            value += sign * upper
        return value

    def scale(self, tau: int) -> Fraction:
        """Return the scale of the noise on the value."""
        return tau * Fraction(SLACK + 1, SLACK) / self.epsilon_value

    @property
    def spread(self) -> Fraction:
        """The scale of the noise that draws the bound."""
        return Fraction(CLOSE + 2, CLOSE) / self.epsilon_choice

    def draw(self, memberships: Memberships, noise: NoiseSource, tick: Callable[[], None]) -> int:
        """Draw the number of the public ``tau``.

        All noise is drawn first.  Then the bounds are looked at from the largest on, for which
        the number of units is easily found; it grows as they fall, so that most of the others
        cannot win any more.  Leaving these out never changes what is drawn.
        """
        if len(self.bounds) == 1:
            return 0
        drawn = handicaps(self.bounds, self.spread, self.epsilon_choice, self.usual, noise)
        gap, known = GRID // CLOSE, list[deletion.Lower]()
        best, chosen = None, len(drawn) - 1
        for j in reversed(range(len(drawn))):
            # of equal ones the smallest bound wins
            too_much = None if best is None else drawn[j] - best
            look = _Look(self.bounds[j], too_much, known)
            if too_much is not None and look.least > too_much:
                continue
            found = deletion.solve(memberships, self.bounds[j], gap, tick, look.hopeless)
            if found is None:
                continue
            value = drawn[j] - found.upper
            if best is None or value >= best:
                best, chosen = value, j
        return chosen


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at one bound: what is known from larger ones, and what is too much to win."""

    tau: int
    too_much: int | None
    known: list[deletion.Lower]

    @property
    def least(self) -> int:
        """A lower bound of the number of units, times ``GRID``."""
        return max((lower.at(self.tau) for lower in self.known), default=0)

    def hopeless(self, lower: deletion.Lower) -> bool:
        """Take in a lower bound; tell whether there is one that is more than what can win."""
        self.known.append(lower)
        return self.too_much is not None and self.least > self.too_much


def plan(
    epsilon: Fraction, bounds: tuple[int, ...], signs: tuple[int, ...] = (1,), usual: int = 1
) -> LinearQuantile:
    """Plan the release of one count or sum; one bound is not drawn.

    Parameters
    ----------
    epsilon : Fraction
        The budget.
    bounds : tuple of int
        What is drawn from, ascending.
    signs : tuple of int
        Whether results can add (1) and take away (-1).
    usual : int
        A size that units may well have; see `dpsql.core.mechanisms.drawing`.
    """
    choice = epsilon * CHOICE if len(bounds) > 1 else Fraction(0)
    guarantee = Guarantee(epsilon, Fraction(0))
    return LinearQuantile(guarantee, choice, epsilon - choice, bounds, signs, usual)
