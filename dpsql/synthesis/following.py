"""Links of one table to rows of others: parents that are there, agree and have keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from dpsql.synthesis.assembled import Assembled
from dpsql.synthesis.distinctness import Mover
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.hashing import Flags, Hashes, hashed
from dpsql.synthesis.keys import NoKey
from dpsql.synthesis.relinking import Matching, matching, regrouped, telling, trees
from dpsql.synthesis.satisfying import Links
from dpsql.synthesis.schema import Planned, Unique
from dpsql.synthesis.values import MISSING, Numbers, Source, followed, is_missing
from dpsql.workload.residual_bases import Integers


class Following:
    """The parents of a table's rows while its columns are put together.

    Parameters
    ----------
    place : int
        The table's in its plan.
    planned : Planned
    given : Generated
    done : sequence of Assembled
        The tables before it.
    rng : Generator
        For links that are drawn again.
    leave_out : callable
        Leaves rows out, and says why.

    Attributes
    ----------
    parents : list of array of int64
        For each reference the parents' rows, -1: none.
    own, others : list of int
        References to the table itself, and to tables before it.
    """

    def __init__(
        self,
        place: int,
        planned: Planned,
        given: Generated,
        done: Sequence[Assembled],
        rng: np.random.Generator,
        leave_out: Callable[[Integers, str], None],
    ) -> None:
        self._place, self._planned, self._done, self._rng = place, planned, done, rng
        self._leave_out = leave_out
        self._rows = given.rows
        self.parents = [np.array(p, dtype=np.int64) for p in given.parents]
        every = range(len(planned.references))
        self.own = [r for r in every if planned.references[r].parent == place]
        self.others = [r for r in every if r not in self.own]
        self._order = [*self.others, *self.own]
        self._shared = {r: planned.shared(r) for r in every}
        self._codes = np.asarray(given.codes).reshape(given.rows, len(given.levels))
        self._able: dict[int, Integers] = {}

    def settle(self, r: int) -> None:
        """Give every row a parent that is there, agrees with other keys and has a key."""
        self._follow_moves(r)
        self._require_parents(r)
        self._agree(r)

    def keep(self, rows: Flags) -> None:
        """Leave all other rows out."""
        self.parents = [p[rows] for p in self.parents]
        self._rows = int(rows.sum())

    def _parent(self, r: int) -> Assembled:
        return self._done[self._planned.references[r].parent]

    def _follow_moves(self, r: int) -> None:
        """Link children of rows that were left out to others."""
        parent = self._parent(r)
        if parent.moved is None:
            return
        chosen = self.parents[r]
        linked = chosen >= 0
        chosen[linked] = parent.moved[chosen[linked]]
        lost = np.flatnonzero(linked & (chosen < 0))
        if lost.size and parent.rows:
            chosen[lost] = self._rng.integers(0, parent.rows, lost.size)

    def _require_parents(self, r: int) -> None:
        """Give a parent to rows that must have one, or leave them out."""
        reference, parent = self._planned.references[r], self._parent(r)
        able = self._with_keys(r)
        if not able.size:
            self.parents[r][:] = -1
        elif able.size < parent.rows:
            wrong = (self.parents[r] >= 0) & ~np.isin(self.parents[r], able)
            self.parents[r][wrong] = -1
        missing = np.flatnonzero(self.parents[r] < 0)
        if not missing.size:
            return
        if not able.size and (not reference.nullable or self._filled(r)):
            self._leave_out(missing, f"{reference.key.name} has no row to refer to")
        elif not reference.nullable:
            self.parents[r][missing] = self._rng.choice(able, missing.size)

    def _filled(self, r: int) -> list[str]:
        """Return the columns that have a value without a parent, which nothing else gives."""
        key = self._planned.references[r].key
        return [c for c in key.columns if c not in self._shared[r] and self._not_null(c)]

    def _with_keys(self, r: int) -> Integers:
        """Return the rows of the parent that have no NULL in what is referenced."""
        parent = self._parent(r)
        able = np.ones(parent.rows, dtype=bool)
        for name in self._planned.references[r].key.parent_columns:
            if name in parent.columns:
                able &= ~is_missing(parent.columns[name].at(np.arange(parent.rows)))
        return np.flatnonzero(able)

    def _open(self, r: int) -> Integers:
        """Return the rows of the parent that have keys, and with which later references agree."""
        able = self._with_keys(r)
        own = {
            c: p
            for c, p in zip(
                self._planned.references[r].key.columns,
                self._planned.references[r].key.parent_columns,
                strict=True,
            )
            if c not in self._shared[r]
        }
        for q in self.others[self.others.index(r) + 1 :]:
            reference = self._planned.references[q]
            of = dict(zip(reference.key.columns, reference.key.parent_columns, strict=True))
            common = [c for c in self._shared[q] if c in own]
            if not common or reference.nullable:
                continue
            mine = [self._parent(r).columns[own[c]] for c in common]
            theirs = [self._parent(q).columns[of[c]] for c in common]
            there = matching(mine, theirs, self._parent(q).rows, self._with_keys(q))
            able = able[np.isin(there.mine(able), there.parents[there.order])]
        return able

    def _agree(self, r: int) -> None:
        """Choose parents that have the columns which other keys of the row have said already.

        And of which the keys that come later have some that agree.
        """
        able = self._able[r] = self._open(r)
        if not self._shared[r] and able.size == self._parent(r).rows:
            return
        rows = np.flatnonzero(self.parents[r] >= 0)
        wanted = self.parents[r][rows]
        if not self._shared[r]:
            if able.size:
                one = np.zeros(self._parent(r).rows, dtype=np.uint64)
                self.parents[r][rows] = self._like(r, wanted, one[wanted], one)
            return
        found = self._matching(r)
        lacking = found.lacks(rows)
        self.parents[r][rows[lacking]] = -1
        rows, wanted = rows[~lacking], wanted[~lacking]
        self.parents[r][rows] = self._like(r, wanted, found.mine(rows), found.parents)
        self._without(r, rows[self.parents[r][rows] < 0])

    def _like(self, r: int, wanted: Integers, mine: Hashes, theirs: Hashes) -> Integers:
        """Choose parents that agree, like those that were drawn."""
        codes = self._parent(r).codes
        looks = np.zeros((theirs.size, 0), dtype=np.int64)
        if codes is not None and codes.shape[1]:
            rows = np.flatnonzero(self.parents[r] >= 0)
            linked = codes[self.parents[r][rows]]
            looks = codes[:, telling(self._codes[rows], linked)].astype(np.int64)
        return regrouped(wanted, mine, theirs, self._able[r], looks, self._rng)

    def _without(self, r: int, rows: Integers) -> None:
        """Leave out rows that have no parent and must have one."""
        reference = self._planned.references[r]
        if not reference.nullable or len(self._shared[r]) == len(reference.key.columns):
            self._leave_out(rows, f"{reference.key.name} has no row that agrees with other keys")

    def _matching(self, r: int) -> Matching:
        reference = self._planned.references[r]
        theirs = self._parent(r).columns
        of = dict(zip(reference.key.columns, reference.key.parent_columns, strict=True))
        mine = self.columns(self._order[: self._order.index(r)])
        shared = self._shared[r]
        return matching(
            [mine[c] for c in shared],
            [theirs[of[c]] for c in shared],
            self._parent(r).rows,
            self._able[r],
        )

    def plant(self, r: int, numbers: Callable[[str], Numbers]) -> None:
        """Link rows within their table anew where they must agree: to rows that come before them.

        Parameters
        ----------
        r : int
            A reference of the table to itself.
        numbers : callable
            What tells the values of a column of the table apart.
        """
        if not self._shared[r] or not self._rows:
            return
        groups = hashed([numbers(name) for name in self._shared[r]])
        chosen = self.parents[r]
        linked = chosen >= 0
        if not (linked & (groups[np.maximum(chosen, 0)] != groups)).any():
            return
        unique = self._planned.references[r].unique
        self.parents[r] = trees(linked, groups, chosen, unique, self._rng)

    def columns(
        self, references: Sequence[int], own: Mapping[str, Source] | None = None
    ) -> dict[str, Source]:
        """Return the columns of foreign keys; each follows the first key that has it."""
        found: dict[str, Source] = {}
        for r in references:
            reference = self._planned.references[r]
            theirs = own if own is not None else self._parent(r).columns
            rows = self._rows if own is not None else self._parent(r).rows
            chosen = self.parents[r]
            for name, parent in zip(
                reference.key.columns, reference.key.parent_columns, strict=True
            ):
                if name in self._shared[r]:
                    continue
                if parent not in theirs:
                    raise NoKey(f"{reference.key.name} says what it refers to by itself")
                links = chosen
                if name in self._filled(r) and rows and (chosen < 0).any():
                    able = self._able.get(r, np.arange(rows))
                    able = able if able.size else np.arange(rows)
                    links = np.where(chosen < 0, able[np.arange(chosen.size) % able.size], chosen)
                found[name] = followed(theirs[parent], links)
        return found

    def _not_null(self, name: str) -> bool:
        return any(c.not_null for c in self._planned.table.columns if c.name == name)

    def settle_own(self, r: int, moved: Integers | None, columns: Mapping[str, Source]) -> None:
        """Mend links to rows of the same table once it is known which there are."""
        reference = self._planned.references[r]
        chosen = self.parents[r]
        if moved is not None:
            chosen = np.where(chosen >= 0, moved[np.maximum(chosen, 0)], -1)
        rows = np.arange(chosen.size)
        if not reference.nullable:
            chosen = np.where(chosen < 0, rows, chosen)
        self.parents[r] = chosen
        shared = self._shared[r]
        if not shared:
            return
        groups = hashed([columns[name].at(rows) for name in shared])
        wrong = (chosen >= 0) & (groups[np.maximum(chosen, 0)] != groups)
        # a row agrees with itself
        chosen[wrong] = -1 if reference.nullable else rows[wrong]

    def numbers(self, name: str, rows: Integers) -> Numbers:
        """Return what tells a column's values apart in some rows, as of now."""
        for r in self._order:
            reference = self._planned.references[r]
            if name in reference.key.columns and name not in self._shared[r]:
                if reference.parent == self._place:
                    chosen = self.parents[r][rows]
                    return np.where(chosen < 0, MISSING if reference.nullable else rows, chosen)
                return self.columns([r])[name].at(rows)
        raise KeyError(name)

    def replaceable(self, columns: Collection[str]) -> Links:
        """Return the references to other tables that have any of some columns.

        With those that share columns with them, directly or not, whose links must go together.
        """
        of = {r: set(self._planned.references[r].key.columns) for r in self.others}
        found = {r for r, own in of.items() if own & set(columns)}
        while more := {r for r in of if r not in found and any(of[r] & of[q] for q in found)}:
            found |= more
        alone = {r for r in found if not any(of[r] & of[q] for q in of if q != r)}
        nullable = {r for r in alone if self._planned.references[r].nullable}
        return Links(
            self.parents,
            tuple(sorted(found)),
            frozenset(alone),
            frozenset(nullable),
            {r: self._able[r] for r in alone},
        )

    def movers(self, uniques: Sequence[Unique]) -> list[Mover]:
        """Return what links rows anew that must be different."""
        found = [self._mover(r, uniques) for r in self._order]
        return [mover for mover in found if mover is not None]

    def _mover(self, r: int, uniques: Sequence[Unique]) -> Mover | None:
        reference = self._planned.references[r]
        touched = {c for u in uniques for c in u.columns if c in reference.key.columns}
        own = reference.parent == self._place

        def empty(rows: Integers) -> None:
            self.parents[r][rows] = -1

        if own and self._shared[r] and touched and reference.nullable:
            return Mover(frozenset(touched), _stay, empty=empty)
        parents = self._rows if own else self._parent(r).rows
        if not touched - set(self._shared[r]) or parents < 2:
            return None
        # other keys follow a column of this one
        first = set(reference.key.columns) - set(self._shared[r])
        if any(set(self._shared[q]) & first for q in self._order if q != r):
            return None
        matching_of = None if own or not self._shared[r] else self._matching(r)
        able = np.arange(parents) if own else self._able[r]

        def move(rows: Integers) -> None:
            linked = rows[self.parents[r][rows] >= 0]
            if matching_of is None:
                self.parents[r][linked] = self._rng.choice(able, linked.size) if able.size else -1
            else:
                drawn = matching_of.draw(linked, self._rng)
                self.parents[r][linked] = np.where(drawn < 0, self.parents[r][linked], drawn)

        return Mover(frozenset(touched), move, empty=empty if reference.nullable else None)


def _stay(rows: Integers) -> None:
    """Move no rows: others would have to agree."""
