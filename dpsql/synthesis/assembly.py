"""Tables of codes and the links between them, generated parents first.

`Assembly` holds what is generated so far; links are learnt on synthetic rows
(papers/relational-synthetic-data.txt, section 3), so that measuring and generating go through the
same steps in the same order, and equal measurements and seeds give equal rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InternalError
from dpsql.synthesis.backends import Backend
from dpsql.synthesis.by_slices import BySlices
from dpsql.synthesis.cycles import without_cycles
from dpsql.synthesis.degree_law import draw_degrees
from dpsql.synthesis.degrees import assign, follow, to_total
from dpsql.synthesis.profile import Profile, deal
from dpsql.synthesis.raking import raked
from dpsql.synthesis.records import Answer, Records
from dpsql.synthesis.relationship import one_to_many
from dpsql.synthesis.schema import Plan
from dpsql.synthesis.type_descent import Descent
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers

#: Answers that were fitted one by one do not agree to the last: no fit reaches what they allow.
_RAKED = Descent(still=0.01)
#: Places of references, from a row to what it refers to.
Path = tuple[int, ...]
Learn = Callable[[Backend], Sequence[Answer]]


@dataclass(frozen=True, slots=True)
class CodeAxis:
    """An attribute across a reference: columns of codes, and which level a combination is.

    Attributes
    ----------
    columns : tuple of (path, column)
        From the child's row; columns of its table or of what it refers to.
    codes : array of int64
        The combinations of codes that have a level, one in each row.
    levels : array of int64
        The level of each.
    size : int
        Levels.
    """

    columns: tuple[tuple[Path, int], ...]
    codes: Integers
    levels: Integers
    size: int

    def level_of(self, rows: Sequence[Integers]) -> Integers:
        """Return the level of each row, -1 for combinations without one.

        Combinations are looked up column by column, so memory is bounded by their number.  A table
        over the product of the columns' codes would be far larger.

        Parameters
        ----------
        rows : sequence of array
            The codes of each column.
        """
        here: Integers = np.zeros(len(self.codes), dtype=np.int64)
        found: Integers = np.zeros(rows[0].size, dtype=np.int64)
        for known, column in zip(self.codes.T, rows, strict=True):
            width = 1 + max(int(known.max(initial=0)), int(column.max(initial=0)))
            cells, here = np.unique(here * width + known, return_inverse=True)
            if not cells.size:
                return np.full(found.size, -1, dtype=np.int64)
            asked = np.where(found < 0, -1, found * width + column)
            place = np.minimum(np.searchsorted(cells, asked), cells.size - 1)
            found = np.where(cells[place] == asked, place, -1)
        level = np.full(int(here.max(initial=-1)) + 2, -1, dtype=np.int64)  # the last: of no row
        level[here] = self.levels
        return np.asarray(level[found])


@dataclass(frozen=True, slots=True)
class Degrees:
    """A noisy histogram of degrees: see `dpsql.synthesis.degree_law`."""

    histogram: Floats
    starts: tuple[int, ...]
    most: int
    sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of one reference before its links are learnt.

    Attributes
    ----------
    place, reference : int, int
        The child's table, and its reference.
    missing : int, optional
        The child's column that says whether the reference is NULL; its level ``null`` does.
    null : int
        That level.
    direct : array of int64, optional
        For each level of the child's column ``missing`` the parent's row: nothing is learnt.
    left, right : tuple of CodeAxis
        Of the parent's and of the child's end.
    degrees : Degrees, optional
    profile : Profile, optional
        Which parents have many children, by ``profiled``, attributes of theirs.
    """

    place: int
    reference: int
    missing: int | None = None
    null: int = 1
    direct: Integers | None = None
    left: tuple[CodeAxis, ...] = ()
    right: tuple[CodeAxis, ...] = ()
    degrees: Degrees | None = None
    profile: Profile | None = None
    profiled: tuple[CodeAxis, ...] = ()


class Assembly:
    """Generated tables.

    Parameters
    ----------
    plan : Plan
    sizes : sequence of sequence of int
        Levels of each table's columns of codes.
    seed : int
    tick : callable
        Called now and then; may raise.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: Sequence[Sequence[int]],
        seed: int,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan, self.sizes, self.seed, self.tick = plan, sizes, seed, tick
        self.codes: dict[int, Integers] = {}
        self.parents: dict[tuple[int, int], Integers] = {}
        self.missed = 0

    def rows(self, place: int) -> int:
        """How many rows a table has."""
        return int(self.codes[place].shape[0])

    def column(self, place: int, path: Path, column: int) -> Integers:
        """Return codes of what the rows of a table refer to."""
        at: Integers | None = None
        for k in path:
            step = self.parents[place, k]
            at = step if at is None else step[at]
            place = self.plan.tables[place].references[k].parent
        found = self.codes[place][:, column]
        return found if at is None else found[at]

    def link(self, given: Link, learn: Learn | None = None, *, drawn: bool = True) -> None:
        """Generate the links of one reference.

        Parameters
        ----------
        given : Link
        learn : callable, optional
            Fits the relaxed links and returns what they were fitted to; without it they are random,
            but for the degrees.
        drawn : bool
            Whether links are drawn, or only learnt: where nothing follows from which rows they are.
        """
        place, k = given.place, given.reference
        reference = self.plan.tables[place].references[k]
        if given.direct is not None:
            if given.missing is None:
                raise InternalError("a column of parents is not named")
            self.parents[place, k] = given.direct[self.codes[place][:, given.missing]]
            return
        if learn is None and not drawn:
            return
        rng = np.random.default_rng([self.seed, place, k, 7])
        linked = self._linked(given, rng)
        parents = np.full(self.rows(place), -1, dtype=np.int64)
        number = self.rows(reference.parent)
        wanted, most = self._wanted(given, number, linked.size)
        own = reference.parent == place
        if own and (learn is None or (reference.unique and linked.size == number)):
            parents[linked] = _forest(linked, wanted, self.rows(place), rng)
        elif linked.size and learn is None:
            of = np.zeros(number, dtype=np.int64)
            degrees = follow(of, np.array([linked.size]), wanted, most, rng)
            parents[linked] = rng.permutation(np.repeat(np.arange(number), degrees))
        elif linked.size and learn is not None:
            left = self._records(given.left, reference.parent, None)
            right = self._records(given.right, place, linked)
            relationship = one_to_many(number, linked.size, most=most)
            backend = BySlices(left, right, relationship, tick=self.tick)
            answers = learn(backend)
            if not drawn:
                return
            if answers:
                degrees = None
                if given.degrees is not None:
                    degrees = to_total(wanted.astype(np.float64), linked.size, most, rng)
                    if given.profile is None:
                        expected = (backend.table.sum(axis=1) / backend.one.counts)[backend.one.of]
                        degrees = assign(degrees, expected, rng)
                relationship = one_to_many(number, linked.size, degrees=degrees, most=most)
                backend = BySlices(left, right, relationship, descent=_RAKED, tick=self.tick)
                backend.fit(raked(answers, left, right, degrees))
            found = backend.sample(rng)
            parents[linked[found.links.right]] = found.links.left
            without = linked[parents[linked] < 0]
            self.missed += without.size
            parents[without] = rng.integers(0, number, without.size)
            if own:
                types = np.zeros(number, dtype=np.int64)
                types[linked] = backend.other.of
                parents = without_cycles(parents, backend.one.of, types, rng)
        if own and reference.nullable:  # a row that begins a tree refers to none, not to itself
            parents[parents == np.arange(number)] = -1
        self.parents[place, k] = parents

    def _linked(self, given: Link, rng: np.random.Generator) -> Integers:
        """Return the rows that refer to a parent; rows that can find none are dropped."""
        place, reference = given.place, self.plan.tables[given.place].references[given.reference]
        number = self.rows(reference.parent)
        linked = np.arange(self.rows(place))
        if given.missing is not None:
            linked = linked[self.codes[place][:, given.missing] != given.null]
        room = number if reference.unique or number == 0 else linked.size
        if linked.size <= room:
            return linked
        kept = np.sort(rng.permutation(linked)[:room])
        if reference.nullable:
            return kept
        self._keep(place, kept)
        return np.arange(kept.size)

    def _keep(self, place: int, rows: Integers) -> None:
        """Leave rows of a table out: a parent has one child at most, and there are too many."""
        self.codes[place] = self.codes[place][rows]
        for (table, k), parents in list(self.parents.items()):
            if table == place:
                self.parents[table, k] = parents[rows]

    def degrees(self, given: Link) -> Integers:
        """Draw how many children each parent of a reference has: the same whenever it is asked."""
        reference = self.plan.tables[given.place].references[given.reference]
        parents, law = self.rows(reference.parent), given.degrees
        if law is None:
            return np.ones(parents, dtype=np.int64)
        rng = np.random.default_rng([self.seed, given.place, given.reference, 11])
        drawn = draw_degrees(law.histogram, law.starts, law.most, parents, rng, law.sigma)
        if given.profile is None:
            return drawn
        records = self._records(given.profiled, reference.parent, None)
        return deal(drawn, records.rows, given.profile, rng, self.tick)

    def counts(self, given: Link) -> tuple[list[Floats], list[Floats]]:
        """Count the levels of both ends of a reference before it is there: links by level."""
        parent = self.plan.tables[given.place].references[given.reference].parent
        left = self._records(given.left, parent, None)
        right = self._records(given.right, given.place, np.arange(self.rows(given.place)))
        weights = self.degrees(given)

        def sums(records: Records, by: Integers | None) -> list[Floats]:
            return [
                np.bincount(records.rows[:, i], by, size).astype(np.float64)
                for i, size in enumerate(records.sizes)
            ]

        return sums(left, weights), sums(right, None)

    def _wanted(self, given: Link, parents: int, links: int) -> tuple[Integers, int]:
        reference = self.plan.tables[given.place].references[given.reference]
        least = -(-links // parents) if parents else 1
        wanted = self.degrees(given)
        if reference.unique:
            return wanted, 1
        most = links if given.degrees is None else given.degrees.most
        return wanted, max(most, least, 1)

    def _records(self, axes: Sequence[CodeAxis], place: int, rows: Integers | None) -> Records:
        """Put the codes of one end together; ``rows`` are those of the child that are linked."""
        columns = []
        for axis in axes:
            codes: list[Integers] = []
            public = True
            for path, column in axis.columns:
                own = path[1:] if rows is None else path
                found = self.column(place, own, column)
                codes.append((found if rows is None else found[rows]).astype(np.int64))
                public &= self.plan.tables[self._reached(place, own)].table.public
            if not codes:
                raise InternalError("an attribute across a reference has no columns")
            level = axis.level_of(codes)
            if level.size and level.min() < 0:
                if not public:
                    raise InternalError("a row has a level that a reference does not know")
                level = np.maximum(level, 0)  # of a row whose key is NULL: it gets no links
            columns.append(level.astype(np.int32))
        count = self.rows(place) if rows is None else rows.size
        sizes = tuple(axis.size for axis in axes)
        table_codes = np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.int32)
        return Records(np.asarray(table_codes), sizes)

    def _reached(self, place: int, path: Path) -> int:
        for k in path:
            place = self.plan.tables[place].references[k].parent
        return place


def _forest(linked: Integers, wanted: Integers, number: int, rng: np.random.Generator) -> Integers:
    """Draw parents within one table without a cycle: each row's comes before it in some order.

    Rows without a parent come first.  Where all have one, the first refers to itself.
    """
    if not linked.size:
        return np.zeros(0, dtype=np.int64)
    roots = np.setdiff1d(np.arange(number), linked)
    order = np.concatenate([rng.permutation(roots), rng.permutation(linked)])
    slots = np.repeat(np.arange(number), wanted[order])
    places = roots.size + np.arange(linked.size)
    if slots.size < linked.size:
        more = np.floor(rng.random(linked.size - slots.size) * np.maximum(places, 1)[slots.size :])
        slots = np.concatenate([slots, more.astype(np.int64)])
    chosen = np.minimum(np.sort(slots[: linked.size]), np.maximum(places - 1, 0))
    found = np.empty(number, dtype=np.int64)
    found[order[places]] = order[chosen]
    return found[linked]
