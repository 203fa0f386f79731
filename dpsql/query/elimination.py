"""The plan of a counting run: factors that are counted, joined and summed out.

A *factor* ``(C, B)`` maps each value of the attributes ``B`` to the number of
results of the occurrences ``C`` that have it.  It is built from base factors
(one occurrence, grouped) by products (join two factors, sum out what nobody
needs any more), so no join result is ever enumerated.  Every predicate applies
exactly where all its occurrences come together; until then its attributes are
carried.  The maximum boundaries of residual sensitivity and the answer are
factors of one plan and share their parts (DESIGN.md, "The idea that makes it
fast"; papers/sensitivity-estimation.txt, Definition 4).

Which plan is chosen changes time, never a count: ``Sizes`` may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dpsql.model import Boundary, JoinQuery
from dpsql.query.decomposition import Decomposer, Sizes

#: Grouping that keeps more than this share of the rows is left to the next product.
_WORTH_GROUPING = 0.5


@dataclass(frozen=True, slots=True)
class Base:
    """Rows of one filtered occurrence, with ``output`` attributes.

    ``grouped`` factors have one row per value of ``output`` and its count; the others
    are bags whose every row counts 1.  ``unit`` says that all counts are known to be 1,
    ``unique`` that no two rows have the same ``output``.
    """

    occurrence: int
    output: tuple[int, ...]
    predicates: tuple[int, ...]
    grouped: bool
    unit: bool
    unique: bool

    @property
    def occurrences(self) -> frozenset[int]:
        """The occurrences inside."""
        return frozenset({self.occurrence})


@dataclass(frozen=True, slots=True)
class Product:
    """Join of the factors ``left`` and ``right`` on their common attributes.

    ``predicates`` are those that become checkable here.  Without ``grouped`` nothing is
    summed: a bag (or, when a key says so, already one row per value of ``output``).
    """

    left: int
    right: int
    occurrences: frozenset[int]
    output: tuple[int, ...]
    predicates: tuple[int, ...]
    grouped: bool
    unit: bool
    unique: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """Join of occurrences whose parts are joined one by one, where they are.

    It has one row per value of ``output`` and its count; ``predicates`` are all that span them.
    """

    occurrences: frozenset[int]
    output: tuple[int, ...]
    predicates: tuple[int, ...]
    grouped: bool = True
    unit: bool = False
    unique: bool = True


Factor = Base | Product | Placed


@dataclass(frozen=True, slots=True)
class Plan:
    """Factors in an order in which each uses earlier ones, and what is wanted of them.

    A boundary is the product of the maxima of its (independent) factors; the answer is
    the cross product of its factors, ``None`` when it is not wanted.  ``rows`` estimates the
    factors, ``base_rows`` the filtered occurrences, ``distinct`` the values of the attributes;
    empty where nothing is known.
    """

    query: JoinQuery
    factors: tuple[Factor, ...]
    boundaries: tuple[tuple[Boundary, tuple[int, ...]], ...]
    answer: tuple[int, ...] | None
    rows: tuple[float, ...] = ()
    base_rows: tuple[float, ...] = ()
    distinct: tuple[float, ...] = ()

    def references(self) -> list[int]:
        """How often each factor is read, by products, boundaries and the answer."""
        counts = [0] * len(self.factors)
        for factor in self.factors:
            if isinstance(factor, Product):
                counts[factor.left] += 1
                counts[factor.right] += 1
        for number in self.maxima():
            counts[number] += 1
        for number in self.answer or ():
            counts[number] += 1
        return counts

    def tops(self) -> frozenset[int]:
        """Products of which only the maximum is wanted and that sum nothing.

        Their maximum is ``max over common values v of max_left(v) * max_right(v)``: the join
        itself, which may be far larger than any other part, need not be formed.
        """
        references = self.references()
        return frozenset(
            n
            for n in self.maxima()
            if references[n] == 1
            and isinstance(factor := self.factors[n], Product)
            and not factor.grouped
            and not factor.predicates
        )

    def maxima(self) -> tuple[int, ...]:
        """Numbers of the factors whose maximum is wanted, each once, ascending."""
        return tuple(sorted({n for _, numbers in self.boundaries for n in numbers}))


def make_plan(
    query: JoinQuery,
    boundaries: Iterable[Boundary],
    *,
    answer: bool = True,
    sizes: Sizes | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Plan:
    """Plan the boundaries and, if wanted, the grouped answer of ``query``.

    Parameters
    ----------
    query : JoinQuery
        The counting query.
    boundaries : iterable of Boundary
        Wanted maxima; occurrence sets are not empty, attributes belong to them.
    answer : bool
        Whether the grouped count of the whole query is wanted too.
    sizes : Sizes, optional
        Cost facts; guessed from the query alone when absent.
    tick : callable
        Called every few milliseconds; may raise to cancel.

    Returns
    -------
    Plan
    """
    builder = _Builder(query, sizes or Sizes.guess(query), tick)
    wanted = sorted(
        set(boundaries),
        key=lambda b: (len(b.occurrences), sorted(b.occurrences), sorted(b.attributes)),
    )
    found = tuple(
        (b, tuple(builder.target(part, b.attributes) for part in builder.parts(b.occurrences)))
        for b in wanted
    )
    total: tuple[int, ...] | None = None
    if answer:
        everything = frozenset(range(len(query.occurrences)))
        groups = query.provided(query.groups)
        total = tuple(builder.target(part, groups) for part in builder.parts(everything))
    return builder.finish(found, total)


@dataclass(slots=True)
class _Builder:
    """Collects factors; equal factors are built once."""

    query: JoinQuery
    sizes: Sizes
    tick: Callable[[], None]
    factors: list[Factor] = field(default_factory=list)
    known: dict[tuple[frozenset[int], frozenset[int], bool], int] = field(default_factory=dict)
    rows: list[float] = field(default_factory=list)
    decomposer: Decomposer = field(init=False)

    def __post_init__(self) -> None:
        self.decomposer = Decomposer(self.query, self.sizes, self.tick)

    def parts(self, occurrences: frozenset[int]) -> tuple[frozenset[int], ...]:
        """Split into parts that neither an attribute nor a predicate links."""
        return self.decomposer.parts(occurrences)

    def target(self, occurrences: frozenset[int], attributes: frozenset[int]) -> int:
        """Return the factor with one row per value of the attributes inside."""
        return self._factor(occurrences, attributes & self.decomposer.inside(occurrences), True)

    def finish(
        self,
        boundaries: tuple[tuple[Boundary, tuple[int, ...]], ...],
        answer: tuple[int, ...] | None,
    ) -> Plan:
        """Close the plan."""
        return Plan(
            self.query,
            tuple(self.factors),
            boundaries,
            answer,
            tuple(self.rows),
            self.sizes.rows,
            tuple(self._values(a.id) for a in self.query.attributes),
        )

    def _values(self, attribute: int) -> float:
        """Estimate the values of an attribute: the least of its uses."""
        known = [n for (_, a), n in self.sizes.distinct.items() if a == attribute]
        return min(known, default=1.0)

    def _factor(self, occurrences: frozenset[int], output: frozenset[int], grouped: bool) -> int:
        """Return the number of the factor, built when it is new."""
        self.tick()
        for form in (True, False) if not grouped else (True,):
            number = self.known.get((occurrences, output, form))
            if number is not None and (grouped or self._shared(occurrences, output, form)):
                return number
        if len(occurrences) == 1:
            factor: Factor = self._base(next(iter(occurrences)), output, grouped)
        elif self.decomposer.placed(occurrences):
            factor = self._placed(occurrences, output)
        else:
            factor = self._product(occurrences, output, grouped)
        self.factors.append(factor)
        self.rows.append(self.decomposer.rows(occurrences, output, grouped=grouped))
        number = len(self.factors) - 1
        self.known[occurrences, output, grouped] = number
        if (factor.unique and not factor.grouped) or isinstance(factor, Placed):
            # a key makes bag and grouped form the same thing; what is placed is always grouped
            self.known[occurrences, output, True] = number
            self.known[occurrences, output, False] = number
        if grouped and self._worth_grouping(occurrences, output):
            self.decomposer.built.add((occurrences, output))
        return number

    def _shared(self, occurrences: frozenset[int], output: frozenset[int], form: bool) -> bool:
        """Whether a product that accepts a bag should read this existing form.

        A grouped factor that hardly shrank is cheaper made again than stored.
        """
        return not form or self._worth_grouping(occurrences, output)

    def _worth_grouping(self, occurrences: frozenset[int], output: frozenset[int]) -> bool:
        bag = self.decomposer.rows(occurrences, output, grouped=False)
        return self.decomposer.rows(occurrences, output, grouped=True) < _WORTH_GROUPING * bag

    def _child(self, occurrences: frozenset[int], output: frozenset[int]) -> int:
        """Return the cheaper form of a factor whose rows a product matches at most once.

        Only then may it be a bag: no bag is ever larger than a base relation, however wrong
        the estimates are.
        """
        grouped = not output or self._worth_grouping(occurrences, output)
        grouped = grouped or self.decomposer.cut(occurrences)  # its rows would be sent one by one
        return self._factor(occurrences, output, grouped)

    def _base(self, index: int, output: frozenset[int], grouped: bool) -> Base:
        unique = self.decomposer.identifies(index, output)
        here = tuple(n for n, p in enumerate(self.query.predicates) if p.occurrences <= {index})
        return Base(
            occurrence=index,
            output=tuple(sorted(output)),
            predicates=here,
            grouped=grouped and not unique,
            unit=unique or not grouped,
            unique=unique or grouped,
        )

    def _placed(self, occurrences: frozenset[int], output: frozenset[int]) -> Placed:
        spanning = tuple(
            n
            for n, p in enumerate(self.query.predicates)
            if p.occurrences <= occurrences and len(p.occurrences) > 1
        )
        return Placed(occurrences, tuple(sorted(output)), spanning)

    def _product(
        self, occurrences: frozenset[int], output: frozenset[int], grouped: bool
    ) -> Product:
        split = self.decomposer.split(occurrences, output)
        shared = split.left_output & split.right_output
        closure = self.decomposer.closure
        if not split.keyed and split.right_output <= closure(split.right, shared):
            right = self._factor(split.right, split.right_output, True)
            left = self._child(split.left, split.left_output)
        elif not split.keyed and split.left_output <= closure(split.left, shared):
            left = self._factor(split.left, split.left_output, True)
            right = self._child(split.right, split.right_output)
        else:
            left = self._factor(split.left, split.left_output, True)
            right = self._factor(split.right, split.right_output, True)
        a, b = self.factors[left], self.factors[right]
        kept = frozenset(a.output) | frozenset(b.output)
        unique = a.unique and b.unique and kept <= self.decomposer.closure(occurrences, output)
        return Product(
            left=left,
            right=right,
            occurrences=occurrences,
            output=tuple(sorted(output)),
            predicates=split.predicates,
            grouped=grouped and not unique,
            unit=a.unit and b.unit and (unique or not grouped),
            unique=unique or grouped,
        )
