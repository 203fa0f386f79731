"""Counts under unit neighbours: nothing is bounded before, each unit is cut off (section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.core.mechanisms import truncation
from dpsql.engine.bounding import PROVED
from dpsql.engine.request import Settings
from dpsql.errors import InternalError, InvalidParameter
from dpsql.model import Boundary

if TYPE_CHECKING:
    from dpsql.core.smooth import SmoothBound


@dataclass(frozen=True, slots=True)
class Truncated:
    """The method of questions over privacy units: no sensitivity is estimated."""

    method: str = "truncation"
    label: str = PROVED
    largest: int = 1
    constant: bool = False
    eta: Fraction = Fraction(0)
    alpha: float = 0.0
    boundaries: frozenset[Boundary] = frozenset()

    @property
    def identity(self) -> str:
        """The method, and where every unit is cut off at the latest."""
        return f"truncation {self.largest}"

    def smooth(self, *_: object) -> SmoothBound:
        """Fail: there is no bound of the sensitivity."""
        raise InternalError("a truncated count has no smooth bound")


def truncated(
    settings: Settings, epsilon: Fraction, delta: Fraction, groups: int | None
) -> tuple[Truncated, truncation.Quantile | truncation.RaceToTheTop]:
    """Choose how units are cut off, from settings and public facts.

    Raises
    ------
    InvalidParameter
        When the settings ask for what is for rows only.
    """
    require_units(settings)
    largest = int(settings.max_contribution)
    return Truncated(largest=largest), truncation.plan(
        settings.mechanism, epsilon, delta, groups, largest
    )


def require_units(settings: Settings) -> None:
    """Refuse a method that is for single rows."""
    if settings.method not in ("auto", "truncation"):
        raise InvalidParameter(
            f"the method {settings.method} is for relations that are protected row by row",
            detail="Rows of this question belong to privacy units.",
            hint="Use SET dp.method = auto.",
        )
