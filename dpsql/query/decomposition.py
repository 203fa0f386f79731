"""Where to cut a set of occurrences in two, by estimated cost.

Estimates use public shape and optional size facts of the catalogue.  They choose
between plans with identical results (PRIVACY.md section 2), so nothing here needs
to be right, only finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dpsql.model import JoinQuery
from dpsql.query.places import is_cut, shared_place

_DEFAULT_ROWS = 100_000.0
_DEFAULT_DISTINCT: float = _DEFAULT_ROWS**0.75
_PREDICATE_SELECTIVITY = 0.33
#: Above this many occurrences only single occurrences are cut off (3^n cuts otherwise).
_EXHAUSTIVE = 8
#: After so many cuts of one query (0.5 s) the rest is planned without looking at all of them.
_MANY_CUTS = 20_000
_BETWEEN_TICKS = 256
#: What a row costs that another server sends, in rows that are read.
_SENT = 20.0
#: Parts are not joined where they are if that makes so many times the rows that it reads.
_EXPLODES = 20.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Estimated rows of each filtered occurrence and distinct values of its attributes."""

    rows: tuple[float, ...]
    distinct: Mapping[tuple[int, int], float]

    @classmethod
    def guess(cls, query: JoinQuery) -> Sizes:
        """Guess from the query alone: equal sizes, keys distinct."""
        distinct: dict[tuple[int, int], float] = {}
        for occurrence in query.occurrences:
            keys = query.identifying_keys(occurrence)
            for attribute in occurrence.attributes:
                unique = frozenset({attribute}) in keys
                if query.attributes[attribute].place:
                    distinct[occurrence.index, attribute] = 1.0  # the key tells it
                    continue
                distinct[occurrence.index, attribute] = (
                    _DEFAULT_ROWS if unique else _DEFAULT_DISTINCT
                )
        return cls(rows=(_DEFAULT_ROWS,) * len(query.occurrences), distinct=distinct)


@dataclass(frozen=True, slots=True)
class Split:
    """A cut: both sides with the attributes they must keep, and the predicates applied.

    ``keyed``: with grouped sides nothing is left to sum, because keys make the output
    determine every attribute that the sides keep.
    """

    left: frozenset[int]
    left_output: frozenset[int]
    right: frozenset[int]
    right_output: frozenset[int]
    predicates: tuple[int, ...]
    keyed: bool = False


@dataclass(slots=True)
class Decomposer:
    """Finds the cheapest cut of ``(occurrences, output)``; ``built`` factors cost nothing more."""

    query: JoinQuery
    sizes: Sizes
    tick: Callable[[], None] = lambda: None
    built: set[tuple[frozenset[int], frozenset[int]]] = field(default_factory=set)
    _attributes: tuple[frozenset[int], ...] = field(init=False)
    _keys: tuple[tuple[frozenset[int], ...], ...] = field(init=False)
    _rows: dict[tuple[frozenset[int], frozenset[int], bool], float] = field(default_factory=dict)
    _costs: dict[tuple[frozenset[int], frozenset[int]], tuple[float, Split | None]] = field(
        default_factory=dict
    )
    _costs_for: int = 0
    _looked: int = 0
    _connected: dict[frozenset[int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._attributes = tuple(o.attributes for o in self.query.occurrences)
        self._keys = tuple(self.query.identifying_keys(o) for o in self.query.occurrences)

    def inside(self, occurrences: frozenset[int]) -> frozenset[int]:
        """All attributes of the occurrences."""
        return frozenset().union(*(self._attributes[i] for i in occurrences))

    def identifies(self, index: int, attributes: frozenset[int]) -> bool:
        """Whether the attributes identify a row of the occurrence, by a trusted key."""
        return any(key <= attributes for key in self._keys[index])

    def closure(self, occurrences: frozenset[int], attributes: frozenset[int]) -> frozenset[int]:
        """Return all attributes that the given ones determine among results of the occurrences."""
        known = attributes
        grown = True
        while grown:
            grown = False
            for i in occurrences:
                if not self._attributes[i] <= known and self.identifies(i, known):
                    known |= self._attributes[i]
                    grown = True
        return known

    def parts(self, occurrences: frozenset[int]) -> tuple[frozenset[int], ...]:
        """Split into parts that neither an attribute nor a predicate inside links."""
        links = [self._attributes[i] for i in range(len(self._attributes))]
        spans = [p.occurrences for p in self.query.predicates if p.occurrences <= occurrences]
        left = set(occurrences)
        found = []
        while left:
            part = {min(left)}
            grown = True
            while grown:
                near = {i for i in left - part if any(links[i] & links[j] for j in part)}
                near |= {i for span in spans if span & part for i in span}
                grown = not near <= part
                part |= near
            found.append(frozenset(part))
            left -= part
        return tuple(found)

    def cut(self, occurrences: frozenset[int]) -> bool:
        """Whether rows of any of the occurrences are on other servers."""
        return any(is_cut(self.query.occurrences[i]) for i in occurrences)

    def placed(self, occurrences: frozenset[int]) -> bool:
        """Whether the occurrences are joined part by part, where the parts are."""
        if len(occurrences) < 2 or shared_place(self.query, occurrences) is None:
            return False
        read = sum(self.sizes.rows[i] for i in occurrences)
        whole = self.rows(occurrences, self.inside(occurrences), grouped=False)
        return whole <= _EXPLODES * max(read, 1.0)

    def split(self, occurrences: frozenset[int], output: frozenset[int]) -> Split:
        """Return the cheapest cut of at least two occurrences."""
        if self._costs_for != len(self.built):
            self._costs.clear()
            self._costs_for = len(self.built)
        split = self._keyed(occurrences, output) or self._cheapest(occurrences, output, top=True)[1]
        if split is None:
            raise ValueError("a single occurrence cannot be split")
        return split

    def rows(self, occurrences: frozenset[int], output: frozenset[int], *, grouped: bool) -> float:
        """Estimate the rows of a factor."""
        known = self._rows.get((occurrences, output, grouped))
        if known is not None:
            return known
        size = 1.0
        for i in occurrences:
            size *= max(self.sizes.rows[i], 1.0)
        for attribute in self.inside(occurrences):
            numbers = sorted(
                self._distinct(i, attribute)
                for i in occurrences
                if attribute in self._attributes[i]
            )
            for number in numbers[1:]:
                size /= number
        for predicate in self.query.predicates:
            if predicate.occurrences <= occurrences:
                size *= _PREDICATE_SELECTIVITY
        size = max(size, 1.0)
        if grouped:
            groups: float = float(math.prod([self._least(occurrences, a) for a in output]))
            # n draws from g groups hit about g (1 - exp(-n/g)) of them
            size = -groups * math.expm1(-size / groups)
        self._rows[occurrences, output, grouped] = size
        return size

    def _distinct(self, index: int, attribute: int) -> float:
        number = self.sizes.distinct.get((index, attribute), _DEFAULT_DISTINCT)
        return max(1.0, min(number, self.sizes.rows[index]))

    def _least(self, occurrences: frozenset[int], attribute: int) -> float:
        return min(
            self._distinct(i, attribute) for i in occurrences if attribute in self._attributes[i]
        )

    def _cheapest(
        self, occurrences: frozenset[int], output: frozenset[int], *, top: bool = False
    ) -> tuple[float, Split | None]:
        if not top and (occurrences, output) in self.built:
            return 0.0, None
        known = self._costs.get((occurrences, output))
        if known is not None:
            return known
        if len(occurrences) == 1:
            (index,) = occurrences
            best: tuple[float, Split | None] = (max(self.sizes.rows[index], 1.0), None)
            if self.cut(occurrences):
                best = (best[0] + _SENT * self.rows(occurrences, output, grouped=True), None)
        elif self.placed(occurrences):
            cost = sum(self.sizes.rows[i] for i in occurrences)
            best = (cost + _SENT * self.rows(occurrences, output, grouped=True), None)
        else:
            exhaustive = len(occurrences) <= self._limit()
            best = (math.inf, None)
            for left, right in self._cuts(occurrences):
                split = self._split(occurrences, output, left, right)
                cost = self._product_cost(occurrences, output, split)
                if exhaustive and cost < best[0]:
                    cost += self._cheapest(split.left, split.left_output)[0]
                    cost += self._cheapest(split.right, split.right_output)[0]
                if cost < best[0] or best[1] is None:
                    best = (cost, split)
        self._costs[occurrences, output] = best
        return best

    def _limit(self) -> int:
        """Tell how many occurrences may be cut in every way and each half in turn.

        Of more, and of all once very many cuts were looked at, single occurrences are cut off,
        the cheapest first: following every cut would visit every connected set.
        """
        return _EXHAUSTIVE if self._looked < _MANY_CUTS else 2

    def _keyed(self, occurrences: frozenset[int], output: frozenset[int]) -> Split | None:
        """Return the best cut that leaves nothing to sum, where joining would explode."""
        largest = max(self.sizes.rows[i] for i in occurrences)
        if self.rows(occurrences, output, grouped=False) < 4 * largest:
            return None
        best: tuple[float, Split | None] = (math.inf, None)
        determined = self.closure(occurrences, output)
        exhaustive = len(occurrences) <= self._limit()
        for left, right in self._cuts(occurrences):
            split = self._split(occurrences, output, left, right)
            if split.predicates or not split.left_output | split.right_output <= determined:
                continue
            sides = ((split.left, split.left_output), (split.right, split.right_output))
            cost = sum(self.rows(side, kept, grouped=True) for side, kept in sides)
            if exhaustive:
                cost += sum(self._cheapest(side, kept)[0] for side, kept in sides)
            if cost < best[0] or best[1] is None:
                best = (cost, replace(split, keyed=True))
        return best[1]

    def _split(
        self,
        occurrences: frozenset[int],
        output: frozenset[int],
        left: frozenset[int],
        right: frozenset[int],
    ) -> Split:
        """Keep on each side what the result, the other side or a later predicate needs."""
        crossing = tuple(
            n
            for n, p in enumerate(self.query.predicates)
            if p.occurrences <= occurrences
            and p.occurrences
            and not p.occurrences <= left
            and not p.occurrences <= right
        )
        needed = output.union(*(self.query.predicates[n].attributes for n in crossing))
        mine, theirs = self.inside(left), self.inside(right)
        return Split(left, mine & (needed | theirs), right, theirs & (needed | mine), crossing)

    def _product_cost(
        self, occurrences: frozenset[int], output: frozenset[int], split: Split
    ) -> float:
        """Rows read, pairs formed and rows kept, weighted alike."""
        a = self.rows(split.left, split.left_output, grouped=True)
        b = self.rows(split.right, split.right_output, grouped=True)
        pairs = a * b
        for attribute in split.left_output & split.right_output:
            pairs /= max(
                min(a, self._least(split.left, attribute)),
                min(b, self._least(split.right, attribute)),
            )
        return a + b + pairs + self.rows(occurrences, output, grouped=True)

    def _cuts(self, occurrences: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """Cuts into two linked halves; any cut of one occurrence when there is none."""
        members = sorted(occurrences)
        found = False
        for left in _subsets(members, len(members) <= self._limit()):
            self._looked += 1
            if self._looked % _BETWEEN_TICKS == 0:
                self.tick()
            right = occurrences - left
            if self._linked(left) and self._linked(right):
                found = True
                yield left, right
        if not found:
            for i in members:
                yield occurrences - {i}, frozenset({i})

    def _linked(self, occurrences: frozenset[int]) -> bool:
        known = self._connected.get(occurrences)
        if known is None:
            known = len(self.parts(occurrences)) == 1
            self._connected[occurrences] = known
        return known


def _subsets(members: list[int], exhaustive: bool) -> Iterator[frozenset[int]]:
    """Non-empty proper subsets, one of each complementary pair when exhaustive."""
    if not exhaustive:
        for i in members:
            yield frozenset(members) - {i}
        return
    first, others = members[0], members[1:]
    for bits in range(2 ** len(others) - 1):
        chosen = {others[k] for k in range(len(others)) if bits >> k & 1}
        yield frozenset({first} | chosen)
