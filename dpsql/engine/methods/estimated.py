"""Bounds from random walks, sketches and stored statistics, which do not count every boundary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.methods.base import HEURISTIC, PROVED
from dpsql.engine.methods.bounds import SensitivityBound
from dpsql.errors import ChangedWhileRead, MissingDeclaration
from dpsql.model import Boundary, JoinQuery

if TYPE_CHECKING:
    from dpsql.core.sketching import Promise
    from dpsql.core.smooth import SmoothBound
    from dpsql.counted import Counts
    from dpsql.engine.services import Services
    from dpsql.ports import Database
    from dpsql.statistics import sketches, stored

#: Failure probability of intervals on which no guarantee rests.
_HEURISTIC_FAILURE = 1e-6


@dataclass(frozen=True, slots=True)
class SampledBound(SensitivityBound):
    """Residual sensitivity from random walks, drawn anew for every charge.

    ``sampling`` certifies every boundary from both sides or counts it (docs/proofs/sampling.md);
    ``sampling_published`` is the paper's estimate, of which no proof is known;
    ``sampling_estimate``, for owners, is this estimate without its confidence intervals.
    """

    rate: Fraction
    filtered: bool
    wanted: frozenset[Boundary]
    failure: Fraction

    @property
    def eta(self) -> Fraction:
        """Probability that an interval does not contain its boundary; 0 if nothing relies on it."""
        return self.failure

    @property
    def label(self) -> str:
        """``proved`` for ``sampling``; ``heuristic`` for the other methods."""
        return PROVED if self.method == "sampling" else HEURISTIC

    @property
    def identity(self) -> str:
        """The parameters that determine the distribution of the estimates."""
        return f"{self.method} {self.rate} {self.filtered}"

    def smooth(
        self, query: JoinQuery, _counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Bound from estimates by random walks; the counts of the answer are not used."""
        from dpsql.core.sensitivity import bound
        from dpsql.statistics.walks import estimate

        tick = services.database.tick
        found = estimate(
            query,
            self.wanted,
            services.database,
            key=services.noise.key(),
            rate=float(self.rate),
            eta=float(self.failure) or _HEURISTIC_FAILURE,
            alpha=0.0,  # the price is that of exact values (docs/proofs/sampling.md)
            published=self.label == HEURISTIC,
            filtered=self.filtered,
            tick=tick,
        )
        centre = self.method == "sampling_estimate"
        values = {b: round(e.centre) if centre else e.value for b, e in found.items()}
        return bound(query.shape(), values, beta, "residual", self.use_keys, tick)

    def left_out(self, query: JoinQuery, database: Database) -> Iterable[int]:
        """Return what residual sensitivity does not count."""
        from dpsql.core.sensitivity import left_out

        return left_out(query.shape(), "residual", self.use_keys, database.tick)


@dataclass(frozen=True, slots=True)
class SketchedBound(SensitivityBound):
    """Sketching sensitivity from stored sketches of the relations, and the changes since.

    Both are read in the snapshot of the answer: the number of rows that a relation gained until a
    question was priced does not bound how many there are when it is answered.
    ``sketch`` uses the exact norms, ``sketch_published`` the paper's mean over estimators.
    """

    promise: Promise
    size: tuple[int, int]
    find: Callable[[Database], tuple[sketches.Stored, tuple[int, ...]]] = field(
        repr=False, compare=False
    )

    @property
    def label(self) -> str:
        """``proved`` if the bound cannot fail.

        A bound that fails for some seeds is proved for one question to the sketch, not for many
        (docs/proofs/sketch.md, section 5).
        """
        return PROVED if self.promise.label == PROVED and not self.promise.eta else HEURISTIC

    def smooth(
        self, query: JoinQuery, _counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Bound from the sketches and from the number of rows that each relation gained since."""
        from dpsql.core.sketching import bound
        from dpsql.core.stale import share

        try:
            stored, shifts = self.find(services.database)
        except MissingDeclaration:
            raise _lapsed() from None
        if (stored.sketch.estimators, stored.sketch.rows) != self.size:
            raise _lapsed()
        return bound(
            query.shape(),
            stored.sketch,
            share(beta),
            self.promise,
            shifts=shifts,
            use_keys=self.use_keys,
            tick=services.database.tick,
        )


@dataclass(frozen=True, slots=True)
class LiveNormsBound(SensitivityBound):
    """Sketching sensitivity from exact norms that are counted with the answer.

    It is used for relations with rows on other servers, of which no sketch is kept.
    """

    @property
    def identity(self) -> str:
        """The method, marked as live: norms of a sketch give another distribution."""
        return f"{self.method} of the data itself"

    def smooth(
        self, query: JoinQuery, _counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Count the norms in the snapshot of the answer, then bound from them."""
        from dpsql.core.sketching import bound, promise
        from dpsql.statistics.norms import count_norms

        shape, tick = query.shape(), services.database.tick
        sketch = count_norms(query, services.database)
        promised = promise(shape, "exact_norm", 1, 1)
        return bound(shape, sketch, beta, promised, use_keys=self.use_keys, tick=tick)


@dataclass(frozen=True, slots=True)
class StoredBound(SensitivityBound):
    """Residual or elastic sensitivity from stored statistics and the changes since.

    Both are read in the snapshot of the answer, as those of `SketchedBound` are.
    """

    find: Callable[[Database], stored.Stored | None] = field(repr=False, compare=False)

    @property
    def from_storage(self) -> bool:
        """True."""
        return True

    @property
    def identity(self) -> str:
        """The method, marked as stored: live counts give another distribution."""
        return f"{self.method} from stored statistics"

    def smooth(
        self, query: JoinQuery, _counts: Counts, beta: float, services: Services
    ) -> SmoothBound:
        """Bound from the statistics and from the number of rows that each relation gained since."""
        from dpsql.core.stale import bound, numbering

        found = self.find(services.database)
        if found is None:
            raise _lapsed()
        return bound(
            query.shape(),
            numbering(query),
            found.values,
            found.shifts,
            beta,
            self.method,
            self.use_keys,
            services.database.tick,
        )


def _lapsed() -> ChangedWhileRead:
    """Return the error for statistics that ended between price and answer: a public fact."""
    return ChangedWhileRead(
        "stored statistics of a relation changed while it was read", hint="Ask again."
    )
