"""Shared by all mechanisms: the interface, the release, and rounding towards more noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from dpsql.core.smooth import ERROR
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Guarantee
from dpsql.ports import NoiseSource

SLACK = 4 * ERROR
"""Added to beta in every certificate: the smooth bound is exact up to ``ERROR`` only."""


@dataclass(frozen=True, slots=True)
class Release:
    """Noisy counts, which may be shown to the analyst.

    ``scale`` is the scale of the added discrete Laplace noise where it is public, else
    ``None``.  ``shown[i]`` tells whether group ``i`` may be reported; ``None``: all.
    """

    values: list[int]
    scale: Fraction | None = None
    shown: list[bool] | None = None


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """Public facts of a mechanism's noise, before anything is drawn.

    Attributes
    ----------
    scale : Fraction or None
        Scale of the noise, or the least possible one; ``None`` if it depends on a drawn bound.
    known : bool or None
        Whether `scale` is the exact scale; ``None``: only if the sensitivity is a public constant.
    drawn : bool
        Whether the scale is drawn, given the sensitivity; else it is a multiple of the sensitivity.
    hides : bool
        Whether groups with small numbers are not shown.
    quartic : bool
        Whether the density is proportional to ``1/(1 + (x/scale)**4)``; else discrete Laplace.
    times : Fraction
        Scale of the noise divided by the bound, which is drawn from `bounds`.
    bounds : tuple of int
        The smallest and the largest bound that can be drawn.
    shortfall : int
        For a race to the top: the answer is too low by at most this many largest contributions.
    signed : bool
        For a race to the top: the answer may also be too high.
    """

    scale: Fraction | None
    known: bool | None = False
    drawn: bool = False
    hides: bool = False
    quartic: bool = False
    times: Fraction = Fraction(0)
    bounds: tuple[int, int] = (0, 0)
    shortfall: int = 0
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Visibility:
    """The least noisy number with which a group is shown, if the groups are not public.

    ``of_units``: it is a number of units, not of results.  ``grows``: the number is larger if a
    larger bound than the least is drawn.
    """

    least: int
    of_units: bool
    grows: bool


class Mechanism(Protocol):
    """A mechanism with its parameters; depends on public facts only."""

    @property
    def name(self) -> str:
        """The mechanism's name in settings and in ``dp.explain``."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """The (epsilon, delta) of one release of the whole vector."""
        ...

    @property
    def law(self) -> NoiseLaw | None:
        """Public facts of the noise; ``None`` if there are none."""
        ...

    @property
    def visibility(self) -> Visibility | None:
        """Which groups are shown; ``None``: all."""
        ...


class RowMechanism(Mechanism, Protocol):
    """A mechanism whose noise is scaled to a smooth bound of the sensitivity."""

    @property
    def beta(self) -> float:
        """The beta at which the smooth bound must be computed; 0 if the sensitivity is public."""
        ...

    def release(self, counts: Any, sensitivity: Fraction | float, noise: NoiseSource) -> Release:
        """Add noise to the counts of all groups, given the smooth bound at ``beta``.

        ``counts`` is a sequence of int, or an iterable of the counts of each group's cells.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exactly:
    """No noise: for numbers that are public."""

    guarantee: Guarantee = field(default_factory=lambda: Guarantee(Fraction(0), Fraction(0)))
    name: str = "exact"
    visibility: None = None

    @property
    def law(self) -> NoiseLaw:
        """Noise of scale 0."""
        return NoiseLaw(Fraction(0), known=True)


def at_least_one(sensitivity: Fraction | float) -> Fraction:
    """``max(S, 1)``, exactly (PRIVACY.md section 4)."""
    if isinstance(sensitivity, float) and not math.isfinite(sensitivity):
        raise InternalError("sensitivity must be finite; pass SmoothBound.exact")
    return max(Fraction(sensitivity), Fraction(1))


def down(value: float) -> Fraction:
    """Turn a float into a slightly smaller rational with a short denominator."""
    return Fraction(math.floor(value * (1 - 1e-12) * 2**40), 2**40)


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    """Refuse budgets without meaning, and those outside the range that the proofs cover."""
    if not Fraction(1, 10**6) <= epsilon <= 1000:
        raise InvalidParameter(
            "dp.epsilon must leave each number of the answer between 0.000001 and 1000",
            detail="Several dp_count of one question share it equally.",
            hint="Set dp.epsilon between 0.00001 and 100.",
        )
    if not 0 <= delta < Fraction(1, 2):
        raise InvalidParameter(
            "dp.delta must be at least 0 and less than 0.5", hint="Usual is 1e-8."
        )
    if 0 < delta < Fraction(1, 10**100):
        raise InvalidParameter("dp.delta must be 0 or at least 1e-100", hint="Usual is 1e-8.")


def need_delta(delta: Fraction, what: str) -> None:
    """Refuse ``delta = 0`` where only an approximate guarantee exists."""
    if delta == 0:
        raise InvalidParameter(
            f"{what} needs a delta greater than 0",
            hint="Set dp.delta, for example to 1e-9.",
        )
