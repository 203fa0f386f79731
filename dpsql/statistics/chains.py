"""Orders in which random walks pass the occurrences of a query, and which boundaries they serve.

A walk starts with values of some attributes (its group, or none), and each step picks one of the
rows that match everything fixed so far.  A boundary is *served* by a stretch of consecutive steps
that are its occurrences, if all that was fixed before and that they see belongs to it: then the
product of the numbers of matches along the stretch is, given what was fixed before, an unbiased
estimate of the number of its results (docs/proofs/sampling.md).  Public facts only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dpsql.model import Boundary, JoinQuery, Predicate
from dpsql.query.decomposition import Sizes


@dataclass(frozen=True, slots=True)
class Step:
    """Pick a row of ``occurrence`` that matches ``fixed``; remember its ``kept`` attributes."""

    occurrence: int
    fixed: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def degree(self) -> Boundary:
        """The boundary that is the largest number of matches of this step."""
        return Boundary(frozenset({self.occurrence}), frozenset(self.fixed))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps ``first`` to ``last`` estimate ``boundary``.

    Its group is what was ``fixed`` before them and the ``rest``, which they find.
    """

    boundary: Boundary
    first: int
    last: int
    fixed: tuple[int, ...]
    rest: tuple[int, ...]

    def applies(self, predicate: Predicate) -> bool:
        """Whether a predicate is over several occurrences, all of them here."""
        return len(predicate.occurrences) > 1 and predicate.occurrences <= self.boundary.occurrences


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps from given values of the attributes ``start``, and what they serve."""

    start: tuple[int, ...]
    steps: tuple[Step, ...]
    stretches: tuple[Stretch, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The occurrences, in order."""
        return tuple(step.occurrence for step in self.steps)


def walkable(query: JoinQuery, boundary: Boundary) -> bool:
    """Whether walks can estimate a boundary: connected, several relations, grouped by a join."""
    return (
        len(boundary.occurrences) > 1
        and bool(boundary.attributes)
        and all(query.attributes[a].join for a in boundary.attributes)
        and len(query.shape().components(boundary.occurrences)) == 1
    )


def make_chain(
    query: JoinQuery, order: tuple[int, ...], start: Iterable[int], wanted: Iterable[Boundary]
) -> Chain:
    """Write the steps of an order that serve as many of the wanted boundaries as possible."""
    given = frozenset(start)
    stretches = tuple(
        stretch
        for boundary in sorted(wanted, key=_rank)
        if (stretch := _stretch(query, order, given, boundary)) is not None
    )
    needed = set[int]()
    for stretch in stretches:
        inside = frozenset(order[stretch.first : stretch.last + 1])
        needed |= stretch.boundary.attributes
        for predicate in query.predicates:
            if predicate.occurrences <= inside:
                needed |= predicate.attributes
    steps = []
    known = given
    for position, occurrence in enumerate(order):
        own = query.occurrences[occurrence].attributes
        later = set[int]().union(*(query.occurrences[o].attributes for o in order[position + 1 :]))
        kept = (own - known) & (needed | later)
        steps.append(Step(occurrence, tuple(sorted(own & known)), tuple(sorted(kept))))
        known |= own
    return Chain(tuple(sorted(given)), tuple(steps), stretches)


def plan_chains(query: JoinQuery, wanted: Iterable[Boundary], sizes: Sizes) -> list[Chain]:
    """Choose chains, the longest first, that together serve all wanted boundaries.

    ``sizes`` break ties only: a small first relation is the cheapest to start in.
    """
    left = sorted((b for b in wanted if walkable(query, b)), key=_rank)
    chains = []
    while left:
        target = left[0]
        options = [
            make_chain(query, order, _start(query, order, target), left)
            for order in _orders(query, target)
        ]
        best = max(options, key=lambda c: (len(c.stretches), -sizes.rows[c.order[0]]))
        chains.append(best)
        served = {stretch.boundary for stretch in best.stretches}
        left = [b for b in left if b not in served]
    return chains


def from_groups(
    query: JoinQuery, chain: Chain, stretch: Stretch, wanted: Iterable[Boundary]
) -> Chain:
    """Return the steps of a stretch as walks from whole groups of its boundary."""
    order = chain.order[stretch.first : stretch.last + 1]
    return make_chain(query, order, stretch.boundary.attributes, wanted)


def from_one_side(query: JoinQuery, boundary: Boundary, sizes: Sizes) -> Chain:
    """Return walks for one boundary from that part of its group in one relation.

    The side of most groups tells them apart best, and each has the fewest results.
    """
    options = [
        make_chain(query, order, _start(query, order, boundary), [boundary])
        for order in _orders(query, boundary)
    ]
    return max(options, key=lambda c: _starts(c, sizes))


def _starts(chain: Chain, sizes: Sizes) -> float:
    """Estimate the number of groups that a chain starts from."""
    first = chain.steps[0].occurrence
    return math.prod(sizes.distinct.get((first, a), 1.0) for a in chain.start)


def _start(query: JoinQuery, order: tuple[int, ...], target: Boundary) -> frozenset[int]:
    return query.occurrences[order[0]].attributes & target.attributes


def _rank(boundary: Boundary) -> tuple[int, list[int], list[int]]:
    """Largest first."""
    return -len(boundary.occurrences), sorted(boundary.occurrences), sorted(boundary.attributes)


def _stretch(
    query: JoinQuery, order: tuple[int, ...], start: frozenset[int], boundary: Boundary
) -> Stretch | None:
    """Find the steps that serve a boundary."""
    places = [p for p, o in enumerate(order) if o in boundary.occurrences]
    if len(places) < len(boundary.occurrences) or places[-1] - places[0] >= len(places):
        return None
    before = start.union(*(query.occurrences[o].attributes for o in order[: places[0]]))
    inside = frozenset[int]().union(
        *(query.occurrences[o].attributes for o in boundary.occurrences)
    )
    fixed = inside & before
    if not fixed <= boundary.attributes or not boundary.attributes <= inside:
        return None
    rest = boundary.attributes - fixed
    return Stretch(boundary, places[0], places[-1], tuple(sorted(fixed)), tuple(sorted(rest)))


def _orders(query: JoinQuery, target: Boundary) -> list[tuple[int, ...]]:
    """List connected orders from the boundary; the tightest bound occurrence comes next."""
    found = []
    for first in sorted(target.occurrences):
        if not query.occurrences[first].attributes & target.attributes:
            continue
        for sign in (1, -1):
            order = [first]
            known = query.occurrences[first].attributes
            while len(order) < len(target.occurrences):
                following = max(
                    target.occurrences - set(order),
                    key=lambda o: (len(query.occurrences[o].attributes & known), sign * o),
                )
                order.append(following)
                known |= query.occurrences[following].attributes
            found.append(tuple(order))
    return list(dict.fromkeys(found))
