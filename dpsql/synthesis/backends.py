"""Two ways to hold the links that the adaptive loop refines: by types, and by pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.synthesis.blocks import Sampled, sample_links
from dpsql.synthesis.marginal_map import MarginalMap
from dpsql.synthesis.pairs import mirror_descent, require_pairs, singletons
from dpsql.synthesis.polytope import polytope_of
from dpsql.synthesis.records import Answer, Cross, Records
from dpsql.synthesis.relationship import Relationship
from dpsql.synthesis.round_blocks import round_blocks
from dpsql.synthesis.type_descent import Descent, fit
from dpsql.synthesis.types import MOST_TYPES, Types, refined, types_of
from dpsql.workload.marginals import Floats, cells

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: Shares of types in cells that are kept.
_SPREAD = 20_000_000


class Backend(Protocol):
    """Relaxed links that can be fitted to answers."""

    def fits(self, workloads: Iterable[Cross]) -> bool:
        """Tell whether answers to all of these can be fitted, from public facts."""
        ...

    def fit(self, answers: Sequence[Answer]) -> float:
        """Fit to all answers so far; return ``chi^2``."""
        ...

    def estimates(self, workloads: Sequence[Cross]) -> Mapping[Cross, Floats]:
        """Return expected marginals, shape `cross_shape`."""
        ...

    def sample(self, rng: np.random.Generator) -> Sampled:
        """Round to links of rows."""
        ...


class _Relaxed:
    """What both have in common: a table of links, and the types that it is over."""

    def __init__(
        self,
        left: Records,
        right: Records,
        relationship: Relationship,
        tick: Callable[[], None],
    ) -> None:
        if (left.count, right.count) != (relationship.left.count, relationship.right.count):
            raise InvalidParameter("the relationship is between other numbers of rows")
        self.left, self.right, self.relationship = left, right, relationship
        self.tick = tick
        self.one = self.other = Types(0, *(np.zeros(0, dtype=np.int64),) * 3)
        self.table = np.zeros((0, 0))

    def _over(self, one: Types, other: Types) -> None:
        self.one, self.other = one, other
        self.polytope = polytope_of(self.relationship, one, other)
        self._spreads: dict[tuple[bool, int], Floats | csr_matrix] = {}
        self._kept = 0

    def _begin(self, one: Types, other: Types) -> None:
        self._over(one, other)
        start = np.multiply.outer(one.counts.astype(np.float64), other.counts.astype(np.float64))
        self.table = self.polytope.project(start * self._even(start))

    def _even(self, start: Floats) -> float:
        return self.relationship.total / max(float(start.sum()), 1.0)

    def estimates(self, workloads: Sequence[Cross]) -> Mapping[Cross, Floats]:
        """See `Backend.estimates`: rows of a type count by their degrees, where known."""
        result = {}
        for mask in sorted({w.left for w in workloads}):
            rows = self._spread(True, mask) @ self.table
            for w in workloads:
                if w.left == mask:
                    result[w] = np.asarray(self._spread(False, w.right) @ rows.T).T
            self.tick()
        return result

    def _spread(self, first: bool, mask: int) -> Floats | csr_matrix:
        """Return the shares of each type's rows in the cells of a marginal; kept per types."""
        known = self._spreads.get((first, mask))
        if known is None:
            self.tick()
            if first:
                records, types, side = self.left, self.one, self.relationship.left
            else:
                records, types, side = self.right, self.other, self.relationship.right
            known = types.spread(records, mask, cells(records.sizes, mask), side.degrees)
            size = known.size if isinstance(known, np.ndarray) else known.nnz
            if self._kept + size > _SPREAD:
                self._spreads.clear()
                self._kept = 0
            self._kept += size
            self._spreads[first, mask] = known
        return known


class ByTypes(_Relaxed):
    """Links between types (`types`): millions of rows.

    Parameters
    ----------
    left, right : Records
    relationship : Relationship
    descent : Descent, optional
    most_types : int
        Workloads whose attributes, with those already in use, make more pairs of types are left
        out.
    tick : callable
        Called now and then; may raise.
    """

    def __init__(
        self,
        left: Records,
        right: Records,
        relationship: Relationship,
        *,
        descent: Descent | None = None,
        most_types: int = MOST_TYPES,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(left, right, relationship, tick)
        self.descent, self.most_types = descent, most_types
        self._sizes: dict[tuple[bool, int], int] = {}
        self._begin(types_of(left, 0), types_of(right, 0))

    def fits(self, workloads: Iterable[Cross]) -> bool:
        """See `Backend.fits`."""
        return self.holds(workloads, self.most_types)

    def holds(self, workloads: Iterable[Cross], most: int) -> bool:
        """Tell whether all of these, with what is in use, make at most so many pairs of types."""
        one, other = self.one.mask, self.other.mask
        for w in workloads:
            one, other = one | w.left, other | w.right
        bound = min(cells(self.left.sizes, one), self.left.count)
        bound *= min(cells(self.right.sizes, other), self.right.count)
        return bound <= most or self._number(True, one) * self._number(False, other) <= most

    def _number(self, first: bool, mask: int) -> int:
        known = self._sizes.get((first, mask))
        if known is None:
            records = self.left if first else self.right
            known = self._sizes[first, mask] = types_of(records, mask).number
        return known

    def fit(self, answers: Sequence[Answer]) -> float:
        """See `Backend.fit`: begins where the last fit ended, spread over the finer types."""
        one, other = self.one.mask, self.other.mask
        for a in answers:
            one, other = one | a.workload.left, other | a.workload.right
        self._refine(types_of(self.left, one), types_of(self.right, other))
        mapping = MarginalMap(self.left, self.right, self.one, self.other, answers)
        found = fit(mapping, self.polytope, self.table, self.descent, self.tick)
        self.table = found.table
        return found.misfit

    def _refine(self, one: Types, other: Types) -> None:
        if (one.mask, other.mask) == (self.one.mask, self.other.mask):
            return
        before, old_one, old_other = self.table, self.one, self.other
        rows, columns = refined(old_one, one), refined(old_other, other)
        self._over(one, other)
        table = before[rows[:, None], columns]
        table *= (one.counts / old_one.counts[rows])[:, None]
        table *= (other.counts / old_other.counts[columns])[None, :]
        self.table = self.polytope.project(table)

    def sample(self, rng: np.random.Generator) -> Sampled:
        """See `Backend.sample`."""
        blocks = round_blocks(self.table, self.polytope, rng, self.tick)
        return sample_links(blocks, self.one, self.other, self.relationship, rng, self.tick)


class ByPairs(_Relaxed):
    """Links between all pairs of rows, as published: small tables, and the reference.

    Parameters
    ----------
    left, right : Records
    relationship : Relationship
    outer : int
        Steps of Algorithm 5 a fit.
    tick : callable
        Called now and then; may raise.
    """

    def __init__(
        self,
        left: Records,
        right: Records,
        relationship: Relationship,
        *,
        outer: int = 500,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        require_pairs(left, right)
        super().__init__(left, right, relationship, tick)
        self.outer = outer
        self._begin(singletons(left), singletons(right))

    def fits(self, workloads: Iterable[Cross]) -> bool:
        """See `Backend.fits`."""
        del workloads
        return True

    def fit(self, answers: Sequence[Answer]) -> float:
        """See `Backend.fit`."""
        mapping = MarginalMap(self.left, self.right, self.one, self.other, answers)
        self.table = mirror_descent(
            mapping, self.polytope, self.table, outer=self.outer, tick=self.tick
        )
        seen = mapping.forward(self.table)
        return sum(
            float(((m - a.table) ** 2).sum() / float(a.variance))
            for m, a in zip(seen, mapping.answers, strict=True)
        )

    def sample(self, rng: np.random.Generator) -> Sampled:
        """See `Backend.sample`."""
        blocks = round_blocks(self.table, self.polytope, rng, self.tick)
        return sample_links(blocks, self.one, self.other, self.relationship, rng, self.tick)
