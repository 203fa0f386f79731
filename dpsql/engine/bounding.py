"""How the sensitivity of one aggregate will be bounded: chosen from public facts, then done.

A *bounding* is part of the quote.  ``boundaries`` are counted with the answer, in the same
snapshot; ``smooth`` turns them, and what else it reads, into the smooth bound.  One that may
fail says with which probability (``eta``): the guarantee of a mechanism that uses it is that
of the mechanism plus ``(ln(1/(1 - eta)), eta)`` (PRIVACY.md section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from dpsql.engine.sensitivity import choose_method
from dpsql.errors import InvalidParameter, PermissionDenied
from dpsql.model import Boundary, Counts, JoinQuery

if TYPE_CHECKING:
    from dpsql.core.smooth import SmoothBound
    from dpsql.engine.request import Settings
    from dpsql.engine.services import Services

PROVED, HEURISTIC = "proved", "heuristic"

Tick = Callable[[], None]


class Bounding(Protocol):
    """What a quote knows of the bound, and how the bound is found once it is paid for."""

    @property
    def method(self) -> str:
        """Name of the sensitivity method."""
        ...

    @property
    def label(self) -> str:
        """``proved`` or ``heuristic``."""
        ...

    @property
    def identity(self) -> str:
        """All that determines the law of the bound, for the key of stored answers."""
        ...

    @property
    def constant(self) -> bool:
        """Whether the sensitivity is a public constant."""
        ...

    @property
    def eta(self) -> Fraction:
        """Probability with which the bound may be too small or not smooth."""
        ...

    @property
    def alpha(self) -> float:
        """What a mechanism's beta loses to the two-sided error of ``ln S``."""
        ...

    @property
    def boundaries(self) -> frozenset[Boundary]:
        """What must be counted exactly together with the answer."""
        ...

    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Return the smooth bound at ``beta``: exact and secret."""
        ...


@dataclass(frozen=True, slots=True)
class Counted:
    """Residual or elastic sensitivity from exact counts of this snapshot."""

    method: str
    constant: bool
    boundaries: frozenset[Boundary]
    use_keys: bool = True
    label: str = PROVED
    eta: Fraction = Fraction(0)
    alpha: float = 0.0

    @property
    def identity(self) -> str:
        """The method says it all."""
        return self.method

    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Bound from the counts."""
        from dpsql.core.sensitivity import bound

        tick = services.database.tick
        return bound(query.shape(), counts.boundaries, beta, self.method, self.use_keys, tick)


NOTHING = Counted("public", constant=True, boundaries=frozenset())
"""Of a count that reads public relations only or reports no group: it is not perturbed."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Residual sensitivity from random walks, drawn anew for every charge.

    ``published`` is the paper's estimate as it stands, of which no proof is known; otherwise
    every boundary is bounded from both sides, or counted (docs/proofs/sampling.md).
    """

    rate: Fraction
    wanted: frozenset[Boundary]
    eta: Fraction
    alpha: float
    published: bool
    use_keys: bool = True
    constant: bool = False
    boundaries: frozenset[Boundary] = frozenset()

    @property
    def method(self) -> str:
        """Name of the method."""
        return "sampling_published" if self.published else "sampling"

    @property
    def label(self) -> str:
        """``heuristic`` as published."""
        return HEURISTIC if self.published else PROVED

    @property
    def identity(self) -> str:
        """The rate decides how the published estimate is distributed."""
        return f"{self.method} {self.rate}"

    def smooth(
        self, query: JoinQuery, counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Walk, then bound from the estimates; the counts of the answer do not matter."""
        from dpsql.core.sensitivity import bound
        from dpsql.statistics.walks import estimate

        found = estimate(
            query,
            self.wanted,
            services.database,
            key=services.noise.key(),
            rate=float(self.rate),
            eta=float(self.eta),
            alpha=self.alpha,
            published=self.published,
        )
        values = {boundary: e.value for boundary, e in found.items()} | counts.boundaries
        tick = services.database.tick
        return bound(query.shape(), values, beta, "residual", self.use_keys, tick)


def choose_bounding(
    query: JoinQuery, settings: Settings, delta: Fraction, tick: Tick, *, use_keys: bool = True
) -> Bounding:
    """Choose how to bound one aggregate, from settings and public facts.

    Parameters
    ----------
    query : JoinQuery
        The aggregate.
    settings : Settings
        ``method`` above all.
    delta : Fraction
        What this aggregate may spend; a bound that may fail takes its ``eta`` from it.
    tick : callable
        Called every few milliseconds; may raise to cancel.
    use_keys : bool
        Whether trusted keys may sharpen the bound.

    Raises
    ------
    InvalidParameter
        When the method cannot be had for this delta.
    """
    from dpsql.core.sensitivity import is_public, required

    shape = query.shape()
    method = choose_method(settings.method, shape)
    sampled = method in ("sampling", "sampling_published")
    counted = "residual" if sampled else method
    fixed = is_public(shape, counted, use_keys, tick)
    needed = required(shape, counted, use_keys, tick)
    if fixed or not sampled:
        return Counted(counted, fixed, needed, use_keys)
    return _sampled(settings, needed, delta, use_keys)


def _sampled(
    settings: Settings, needed: frozenset[Boundary], delta: Fraction, use_keys: bool
) -> Sampled:
    published = settings.method == "sampling_published"
    if not published and delta == 0:
        raise InvalidParameter(
            "the method sampling needs a delta greater than 0",
            detail="Random walks miss the largest group with a small probability.",
            hint="Set dp.delta, for example to 1e-8, or use another dp.method.",
        )
    eta = Fraction(0) if published else delta / 2
    return Sampled(settings.sampling_rate, needed, eta, 0.0, published, use_keys)


def require_permission(query: JoinQuery, bounding: Bounding) -> None:
    """Refuse a method without proof unless every owner allowed it (PRIVACY.md section 4)."""
    if bounding.label == PROVED:
        return
    closed = sorted(
        {
            o.relation.shown
            for o in query.occurrences
            if o.relation.private and not o.relation.heuristic
        }
    )
    if closed:
        raise PermissionDenied(
            f"the method {bounding.method} is not proved to be private on this question",
            detail=f"Methods without proof are not allowed on: {', '.join(closed)}.",
            hint="Use SET dp.method = auto, or let the owner of the data call "
            f"dp.allow_heuristic('{closed[0]}').",
        )


def paid_for_failure(eta: Fraction) -> Fraction:
    """Return what a failure probability costs in epsilon: at least ``ln(1/(1 - eta))``."""
    return eta / (1 - eta)
