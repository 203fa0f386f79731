"""From what was generated to the columns of every table: keys, links, uniqueness.

Everything follows from the arrays and a seed, so that whoever goes on after a crash writes the
same rows.  A row that no other link and no other level can make unique is left out, and so is a
row that must have a parent where there is none; its children get other parents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpsql.synthesis.bins import Binned, binned
from dpsql.synthesis.distinctness import Mover, settle
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.hashing import hashed, ranks
from dpsql.synthesis.keys import NoKey, constant, made_up, scale_of
from dpsql.synthesis.relinking import Matching, matching
from dpsql.synthesis.schema import Attribute, Plan, Planned, Unique, Use
from dpsql.synthesis.values import (
    MISSING,
    Kind,
    Numbers,
    Source,
    counted,
    followed,
    is_missing,
    stored,
)
from dpsql.workload.residual_bases import Integers


@dataclass(frozen=True, slots=True)
class Base:
    """The base type of a column: its name in ``pg_type``, as SQL writes it, and its modifier."""

    name: str
    type_name: str
    modifier: int


@dataclass(slots=True)
class Assembled:
    """One table, ready to be written.

    Attributes
    ----------
    rows : int
    columns : dict of (str, Source)
        Those that are written; the others have their default or NULL.
    free : tuple of str
        Attributes whose values may be replaced by those of another row.
    notes : list of str
        What was changed so that constraints hold.
    """

    rows: int
    columns: dict[str, Source]
    free: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    moved: Integers | None = None


def assemble(
    plan: Plan,
    generated: Sequence[Generated | None],
    listings: Mapping[int, Mapping[str, Sequence[str | None]]],
    bases: Mapping[int, Mapping[str, Base]],
    seed: int,
    tick: Callable[[], None],
) -> list[Assembled]:
    """Make up the keys of all tables, and follow and mend their links.

    Parameters
    ----------
    plan : Plan
    generated : sequence of (Generated or None)
        For each table of the plan; None for a public one.
    listings : mapping
        For each public table (its place) the texts of columns that are referenced, row by row.
    bases : mapping
        For each table and column its base type.
    seed : int
    tick : callable

    Raises
    ------
    NoKey
        When a key cannot be made up.
    """
    done: list[Assembled] = []
    for place, (planned, given) in enumerate(zip(plan.tables, generated, strict=True)):
        tick()
        if given is None:
            done.append(_public(listings.get(place, {}), bases[place]))
        else:
            table = _Table(place, planned, given, done, bases[place], seed)
            done.append(table.assembled(tick))
    return done


def _public(listing: Mapping[str, Sequence[str | None]], bases: Mapping[str, Base]) -> Assembled:
    rows = len(next(iter(listing.values()), ()))
    columns = {}
    for name, texts in listing.items():
        kind = Kind("listed", levels=tuple(texts), type_name=bases[name].type_name)
        columns[name] = stored(kind, _places(texts))
    return Assembled(rows, columns)


def values_of(attribute: Attribute, base: Base, levels: Sequence[str | None]) -> Binned:
    """Return the values that the levels of an attribute stand for."""
    if attribute.bins:
        scale = scale_of(base.modifier) if base.modifier >= 0 else None
        return binned(base.name, scale, attribute.bins, levels)
    kind = Kind("listed", levels=tuple(levels), type_name=base.type_name)
    places = _places(levels)
    return Binned(kind, places, places)


def _places(texts: Sequence[str | None]) -> Integers:
    """Return the places of texts; of a NULL none."""
    there = np.array([text is not None for text in texts], dtype=bool)
    return np.where(there, np.arange(len(texts), dtype=np.int64), MISSING)


class _Table:
    """What is known of one table while its columns are put together."""

    def __init__(
        self,
        place: int,
        planned: Planned,
        given: Generated,
        done: Sequence[Assembled],
        bases: Mapping[str, Base],
        seed: int,
    ) -> None:
        self.place = place
        self.planned = planned
        self.given = given
        self.done = done
        self.bases = bases
        self.seed = seed
        self.rng = np.random.default_rng([seed, place])
        self.uses = dict(planned.uses)
        self.notes: list[str] = []
        self.alive = np.ones(given.rows, dtype=bool)
        self.codes = np.asarray(given.codes).reshape(given.rows, len(planned.attributes))
        self.parents = [np.array(p, dtype=np.int64) for p in given.parents]
        self.attributes = [
            values_of(attribute, bases[attribute.column], levels)
            for attribute, levels in zip(planned.attributes, given.levels, strict=True)
        ]
        # values of attributes that must be different are drawn now, the others when written
        must = {c for unique in planned.table.uniques for c in unique.columns}
        referred = {a.column for a in planned.attributes} & must
        self.drawn: dict[str, Numbers] = {
            attribute.column: self.attributes[n].draw(self.codes[:, n], self._rng_of(n))
            for n, attribute in enumerate(planned.attributes)
            if attribute.column in referred
        }
        if self.drawn:
            self.codes = self.codes.copy()
        order = range(len(planned.references))
        self.order = sorted(order, key=lambda r: planned.references[r].parent == place)
        self.shared: dict[int, tuple[str, ...]] = {}
        seen: set[str] = set()
        for r in self.order:
            columns = planned.references[r].key.columns
            self.shared[r] = tuple(c for c in columns if c in seen)
            seen.update(columns)

    def assembled(self, tick: Callable[[], None]) -> Assembled:
        """Put the columns together."""
        own = [r for r in self.order if self.planned.references[r].parent == self.place]
        others = [r for r in self.order if r not in own]
        for r in others:
            self._follow_moves(r)
            self._require_parents(r)
            self._agree(r)
            tick()
        self._distinct(tick)
        moved = self._drop()
        columns = self._columns(others)
        self._keys(columns)
        for r in own:
            self._own_parents(r, moved, columns)
        columns |= self._columns(own, columns)
        self._keys(columns)
        free = tuple(a.column for a in self.planned.attributes if a.column not in self.drawn)
        for n, attribute in enumerate(self.planned.attributes):
            columns.setdefault(attribute.column, self._lazy(n))
        return Assembled(int(self.alive.sum()), columns, free, self.notes, moved)

    # -- attributes

    def _rng_of(self, attribute: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.place, attribute, 1])

    def _lazy(self, n: int) -> Source:
        """Draw the values of an attribute when rows are written: the same for the same rows."""
        made, codes = self.attributes[n], self.codes[:, n]

        def at(rows: Integers) -> Numbers:
            first = int(rows[0]) if rows.size else 0
            return made.draw(
                codes[rows], np.random.default_rng([self.seed, self.place, n, 2, first])
            )

        return Source(made.kind, at)

    # -- links

    def _parent(self, r: int) -> Assembled:
        return self.done[self.planned.references[r].parent]

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
            chosen[lost] = self.rng.integers(0, parent.rows, lost.size)

    def _require_parents(self, r: int) -> None:
        """Give a parent to rows that must have one, or leave them out."""
        reference, parent = self.planned.references[r], self._parent(r)
        able = self._with_keys(r)
        if not able.size:
            self.parents[r][:] = -1
        elif able.size < parent.rows:
            wrong = (self.parents[r] >= 0) & ~np.isin(self.parents[r], able)
            self.parents[r][wrong] = -1
        missing = np.flatnonzero(self.parents[r] < 0)
        if reference.nullable or not missing.size:
            return
        if able.size:
            self.parents[r][missing] = self.rng.choice(able, missing.size)
        else:
            self._leave_out(missing, f"{reference.key.name} has no row to refer to")

    def _with_keys(self, r: int) -> Integers:
        """Return the rows of the parent that have no NULL in what is referenced."""
        parent = self._parent(r)
        able = np.ones(parent.rows, dtype=bool)
        for name in self.planned.references[r].key.parent_columns:
            if name in parent.columns:
                able &= ~is_missing(parent.columns[name].at(np.arange(parent.rows)))
        return np.flatnonzero(able)

    def _agree(self, r: int) -> None:
        """Choose parents that have the columns which other keys of the row have said already."""
        if not self.shared[r]:
            return
        rows = np.flatnonzero(self.parents[r] >= 0)
        found = self._matching(r)
        mine = found.mine(rows)
        wrong = rows[mine != found.theirs(self.parents[r][rows])]
        self.parents[r][wrong] = found.draw(wrong, self.rng)
        self._without(r, wrong[self.parents[r][wrong] < 0])

    def _without(self, r: int, rows: Integers) -> None:
        """Leave out rows that have no parent and must have one."""
        reference = self.planned.references[r]
        if not reference.nullable or len(self.shared[r]) == len(reference.key.columns):
            self._leave_out(rows, f"{reference.key.name} has no row that agrees with other keys")

    def _matching(self, r: int, columns: Mapping[str, Source] | None = None) -> Matching:
        reference = self.planned.references[r]
        theirs = self._parent(r).columns if columns is None else columns
        of = dict(zip(reference.key.columns, reference.key.parent_columns, strict=True))
        before = self.order[: self.order.index(r)]
        mine = self._columns([q for q in before if self.planned.references[q].parent != self.place])
        rows = self._parent(r).rows if columns is None else int(self.alive.sum())
        shared = self.shared[r]
        return matching([mine[c] for c in shared], [theirs[of[c]] for c in shared], rows)

    def _columns(
        self, references: Sequence[int], own: Mapping[str, Source] | None = None
    ) -> dict[str, Source]:
        """Return the columns of foreign keys; each follows the first key that has it."""
        found: dict[str, Source] = {}
        for r in references:
            reference = self.planned.references[r]
            theirs = own if own is not None else self._parent(r).columns
            rows = self.given.rows if own is not None else self._parent(r).rows
            chosen = self.parents[r]
            for name, parent in zip(
                reference.key.columns, reference.key.parent_columns, strict=True
            ):
                if name in self.shared[r]:
                    continue
                if parent not in theirs:
                    raise NoKey(f"{reference.key.name} says what it refers to by itself")
                links = chosen
                if reference.nullable and self._not_null(name) and rows:
                    links = np.where(chosen < 0, 0, chosen)
                found[name] = followed(theirs[parent], links)
        return found

    def _not_null(self, name: str) -> bool:
        return any(c.not_null for c in self.planned.table.columns if c.name == name)

    def _own_parents(self, r: int, moved: Integers | None, columns: Mapping[str, Source]) -> None:
        """Mend links to rows of the same table once it is known which there are."""
        reference = self.planned.references[r]
        chosen = self.parents[r]
        if moved is not None:
            chosen = np.where(chosen >= 0, moved[np.maximum(chosen, 0)], -1)
        rows = np.arange(chosen.size)
        if not reference.nullable:
            chosen = np.where(chosen < 0, rows, chosen)
        self.parents[r] = chosen
        if not self.shared[r]:
            return
        found = self._matching(r, columns)
        linked = np.flatnonzero(chosen >= 0)
        wrong = linked[found.mine(linked) != found.theirs(chosen[linked])]
        again = found.draw(wrong, self.rng)
        # a row is a parent that agrees with itself
        chosen[wrong] = again if reference.nullable else np.where(again < 0, wrong, again)

    # -- uniqueness

    def _uniques(self) -> list[Unique]:
        """Return the constraints that what is generated could break."""
        return [
            replace(unique, columns=drawn)
            for unique in self.planned.table.uniques
            if (drawn := self.planned.drawn(unique))
        ]

    def _distinct(self, tick: Callable[[], None]) -> None:
        """Link anew, or give other values to, rows that are equal where they must not be."""
        uniques = self._uniques()
        if not uniques:
            return
        movers = [self._mover_of_link(r, uniques) for r in self.order]
        movers += [self._mover_of_value(n) for n in range(len(self.attributes))]
        lost = settle(
            uniques,
            self._numbers,
            [m for m in movers if m is not None],
            self.alive,
            self.rng,
            tick,
        )
        self.alive[lost] = False
        if lost.size:
            names = ", ".join(unique.name for unique in uniques)
            self.notes.append(
                f"{lost.size} rows of {self.planned.table.name} are left out, which"
                f" {names} would not let in"
            )

    def _numbers(self, name: str, rows: Integers) -> Numbers:
        if name in self.drawn:
            return self.drawn[name][rows]
        for r in self.order:
            reference = self.planned.references[r]
            if name in reference.key.columns and name not in self.shared[r]:
                if reference.parent == self.place:
                    return self.parents[r][rows]
                return self._columns([r])[name].at(rows)
        raise KeyError(name)

    def _mover_of_link(self, r: int, uniques: Sequence[Unique]) -> Mover | None:
        reference = self.planned.references[r]
        touched = {c for u in uniques for c in u.columns if c in reference.key.columns}
        own = reference.parent == self.place
        parents = self.given.rows if own else self._parent(r).rows
        if not touched - set(self.shared[r]) or parents < 2:
            return None
        # other keys share a column with this one: they would have to follow
        if any(set(self.shared[q]) & set(reference.key.columns) for q in self.order if q != r):
            return None
        matching_of = None if own or not self.shared[r] else self._matching(r)

        def move(rows: Integers) -> None:
            linked = rows[self.parents[r][rows] >= 0]
            if matching_of is None:
                self.parents[r][linked] = self.rng.integers(0, parents, linked.size)
            else:
                drawn = matching_of.draw(linked, self.rng)
                self.parents[r][linked] = np.where(drawn < 0, self.parents[r][linked], drawn)

        def empty(rows: Integers) -> None:
            self.parents[r][rows] = -1

        return Mover(frozenset(touched), move, empty=empty if reference.nullable else None)

    def _mover_of_value(self, n: int) -> Mover | None:
        name = self.planned.attributes[n].column
        if name not in self.drawn:
            return None
        made = self.attributes[n]
        known = np.flatnonzero([level is not None for level in self.given.levels[n]])
        if not known.size:
            return None
        binned_values = bool(self.planned.attributes[n].bins)
        rounds = 0

        def move(rows: Integers) -> None:
            nonlocal rounds
            rounds += 1
            if not binned_values or rounds % 4 == 0:
                self.codes[rows, n] = self.rng.choice(known, rows.size)
            self.drawn[name][rows] = made.draw(self.codes[rows, n], self.rng)

        def alternatives() -> Numbers | None:
            return None if binned_values else known

        null = next((i for i, v in enumerate(self.given.levels[n]) if v is None), -1)

        def empty(rows: Integers) -> None:
            self.codes[rows, n] = null
            self.drawn[name][rows] = made.draw(self.codes[rows, n], self.rng)

        return Mover(
            frozenset({name}),
            move,
            alternatives,
            self._set_value(n, name),
            None if null < 0 else empty,
        )

    def _set_value(self, n: int, name: str) -> Callable[[Integers, Numbers], None]:
        def place(rows: Integers, numbers: Numbers) -> None:
            self.codes[rows, n] = numbers
            self.drawn[name][rows] = numbers

        return place

    # -- rows and keys

    def _leave_out(self, rows: Integers, why: str) -> None:
        if rows.size:
            self.alive[rows] = False
            self.notes.append(
                f"{rows.size} rows of {self.planned.table.name} are left out, because {why}"
            )

    def _drop(self) -> Integers | None:
        """Keep the rows that are left; returns for each row its new place, -1: none."""
        if not self.alive.all():
            moved = np.where(self.alive, np.cumsum(self.alive) - 1, -1)
            self.codes = self.codes[self.alive]
            self.parents = [p[self.alive] for p in self.parents]
            self.drawn = {name: numbers[self.alive] for name, numbers in self.drawn.items()}
            self.alive = self.alive[self.alive]
            self.given = Generated(self.alive.size, self.codes, self.given.levels)
            return moved
        return None

    def _keys(self, columns: dict[str, Source]) -> None:
        """Make up keys: 1, 2, ..., within the rest of a composite key where that suffices."""
        for n, attribute in enumerate(self.planned.attributes):
            if attribute.column in self.drawn:
                columns[attribute.column] = stored(
                    self.attributes[n].kind, self.drawn[attribute.column]
                )
        rows = int(self.alive.sum())
        table = self.planned.table
        for name, use in self.planned.uses:
            if use not in (Use.KEY, Use.CONSTANT) or name in columns or self._waits(name, columns):
                continue
            base = self.bases[name]
            if use is Use.CONSTANT:
                text = constant(base.name) or ""
                kind = Kind("constant", text=text, type_name=base.type_name)
                columns[name] = Source(kind, lambda places: np.zeros(places.size, np.int64))
                continue
            within = self._within(name, columns)
            if within:
                every = np.arange(rows)
                others = [columns[c].at(every) for c in within]
                numbers = ranks(hashed(others))
                if all(u.nulls_distinct for u in table.uniques if name in u.columns):
                    for other in others:
                        numbers[is_missing(other)] = 1
                most = int(numbers.max(initial=0))
                kind = made_up(base.name, base.modifier, table.name, most, self.seed)
                columns[name] = stored(kind, numbers)
            else:
                kind = made_up(base.name, base.modifier, table.name, rows, self.seed)
                columns[name] = counted(kind)

    def _waits(self, name: str, columns: Mapping[str, Source]) -> bool:
        """Tell whether a key is made up within what rows of the same table are referred to by."""
        keys = [self.planned.references[r].key for r in self.order]
        own = [key for key in keys if key.parent == self.planned.table.oid]
        if any(name in key.parent_columns for key in own):
            return False
        late = {c for key in own for c in key.columns} - set(columns)
        uniques = [u.columns for u in self.planned.table.uniques if name in u.columns]
        return len(uniques) == 1 and bool(late & set(uniques[0]))

    def _within(self, name: str, columns: Mapping[str, Source]) -> tuple[str, ...]:
        """Return the other columns of the one key that a made-up column belongs to, if any."""
        keys = [u.columns for u in self.planned.table.uniques if name in u.columns]
        if len(keys) != 1:
            return ()
        rest = tuple(c for c in keys[0] if c != name)
        return rest if all(c in columns for c in rest) else ()
