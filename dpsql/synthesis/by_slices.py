"""A back end for more attributes than types can hold: types, then slices, then single links.

Types (`types`) become as many as rows when many attributes are in use, and pairs of them as many as
pairs of rows: then some answers do not fit.  As many as do are fitted over types, and rows are
linked by that.  All answers are then worked into the links themselves: a slice of rows at a time,
dense within the slice alone (`slicing`: Algorithm 9), where so few slices pass over all links; and
at last by moves of single links (`swaps`), whose time grows with their number alone.  Memory is
that of the types allowed, of a slice's pairs, of the links and of the answers, whatever the tables.

Each slice takes its part of what is off, twice what its share of the links is, not all of it: or
the first ones would go to extremes where the rest stayed as it was.  A slice that made things worse
by rounding is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dpsql.synthesis.backends import ByTypes
from dpsql.synthesis.blocks import Sampled
from dpsql.synthesis.records import Answer, Cross, Links, count_links
from dpsql.synthesis.slicing import learn_slice, rows_of_links
from dpsql.synthesis.swaps import BySwaps
from dpsql.synthesis.type_descent import Descent
from dpsql.synthesis.types import types_of
from dpsql.workload.marginals import Floats

#: Links that the rows of a slice begin with: a slice has so many rows of either table at most.
SLICE = 300
#: Slices at most; and how often every link is in one, or there are none.
MOST_SLICES, PASSES = 30, 2
#: Links that are moved one by one: a pass over them and 16 answers takes a second.
MOST_LINKS = 100_000
#: Where types do not hold all answers, they are by so much fewer: what follows is quicker.
_FEWER = 8
#: Steps of each fit.
_STEPS = 25
#: Of `swaps`: raked answers are met to far less than their noise, slowly at last.
_SWEEPS, _STILL = 100, 1e-3


class BySlices(ByTypes):
    """Links between types, and of rows where answers are over too many of them.

    Parameters
    ----------
    left, right, relationship, descent, most_types, tick
        As of `ByTypes`.
    """

    _answers: Sequence[Answer] = ()
    _held = 0

    def fits(self, workloads: Iterable[Cross]) -> bool:
        """See `backends.Backend`: always, where so few links can be moved one by one."""
        return self.relationship.total <= MOST_LINKS or super().fits(workloads)

    def fit(self, answers: Sequence[Answer]) -> float:
        """See `backends.Backend`: as many answers as types hold, the first ones first."""
        kept = list(answers)
        self._answers = answers
        if not self.holds([a.workload for a in answers], self.most_types):
            few = self.most_types // _FEWER
            if self.table.size > few:
                self._begin(types_of(self.left, 0), types_of(self.right, 0))
            kept = []
            for a in answers:
                if self.holds([*(k.workload for k in kept), a.workload], few):
                    kept.append(a)
        self._held = len(kept)
        return super().fit(kept) if kept else 0.0

    def sample(self, rng: np.random.Generator) -> Sampled:
        """See `backends.Backend`: better the links if types did not hold all answers."""
        found = super().sample(rng)
        links = found.links
        if self._held == len(self._answers) or not links.left.size:
            return found
        if PASSES * links.left.size <= MOST_SLICES * SLICE:
            links = self.sliced(links, rng)
        ends = self.left, self.right, self.relationship
        moves = BySwaps(*ends, rng, links, sweeps=_SWEEPS, still=_STILL, tick=self.tick)
        moves.fit(self._answers)
        return Sampled(moves.links, found.missed)

    def sliced(self, links: Links, rng: np.random.Generator) -> Links:
        """Better links by slices that pass over all of them (Algorithm 9)."""
        counts = self._counts(links)
        now, cells = self._misfit(counts), sum(a.table.size for a in self._answers)
        some = min(SLICE, links.left.size)
        share = min(1.0, 2 * some / links.left.size)
        for _ in range(-(-PASSES * links.left.size // some)):
            if now <= cells:
                break
            rows, columns = rows_of_links(links, some, rng)
            wanted = [
                replace(a, table=found + share * (a.table - found))
                for a, found in zip(self._answers, counts, strict=True)
            ]
            ours = learn_slice(
                self.left,
                self.right,
                links,
                wanted,
                self.relationship,
                (rows, columns),
                rng,
                Descent(steps=_STEPS),
                self.tick,
                counts,
            )
            found = self._counts(ours)
            then = self._misfit(found)
            if then < now:
                links, counts, now = ours, found, then
        return links

    def _counts(self, links: Links) -> list[Floats]:
        return [
            count_links(self.left, self.right, links, a.workload).astype(np.float64)
            for a in self._answers
        ]

    def _misfit(self, counts: Sequence[Floats]) -> float:
        return sum(
            float(((found - a.table) ** 2).sum()) / float(a.variance)
            for found, a in zip(counts, self._answers, strict=True)
        )
