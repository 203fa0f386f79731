"""From what was generated to the columns of every table: keys, links, uniqueness.

Everything follows from the arrays and a seed, so that whoever goes on after a crash writes the
same rows.  A row that no other link and no other level can make unique is left out, and so is a
row that must have a parent where there is none; its children get other parents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from dpsql.synthesis.assembled import Assembled, Base
from dpsql.synthesis.attributes import Attributes, numbered
from dpsql.synthesis.distinctness import Accepted, settle
from dpsql.synthesis.following import Following
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.hashing import Flags, hashed, ranks
from dpsql.synthesis.keys import constant, made_up, room
from dpsql.synthesis.ordering import parents_first
from dpsql.synthesis.satisfying import Checks, satisfy
from dpsql.synthesis.schema import Plan, Planned, Unique, Use
from dpsql.synthesis.values import Kind, Numbers, Source, counted, is_missing, stored
from dpsql.workload.residual_bases import Integers

#: Rows that constraints are tried on by one statement.
_PIECE = 50_000


def assemble(
    plan: Plan,
    generated: Sequence[Generated | None],
    bases: Mapping[int, Mapping[str, Base]],
    seed: int,
    tick: Callable[[], None],
    checks: Mapping[int, Checks] = MappingProxyType({}),
) -> list[Assembled]:
    """Make up the keys of all tables, and follow and mend their links.

    Parameters
    ----------
    plan : Plan
    generated : sequence of (Generated or None)
        For each table of the plan; of a public one codes and keys, or None if nothing refers to it.
    bases : mapping
        For each table and column its base type.
    seed : int
    tick : callable
    checks : mapping
        For tables that have any, their CHECK constraints.

    Raises
    ------
    NoKey
        When a key cannot be made up.
    """
    done: list[Assembled] = []
    for place, (planned, given) in enumerate(zip(plan.tables, generated, strict=True)):
        tick()
        if given is None or planned.table.public:
            done.append(_public(given, bases[place]))
        else:
            own = _ordered_by(place, planned, checks.get(place))
            rows, places = (given, None) if own is None else parents_first(given, own)
            table = _Table(place, planned, rows, done, bases[place], seed)
            found = table.assembled(tick, checks.get(place))
            if places is not None:
                found.moved = places if found.moved is None else found.moved[places]
            done.append(found)
    return done


def _ordered_by(place: int, planned: Planned, checks: Checks | None) -> int | None:
    """Return a reference of a table to itself that a CHECK is about, by which rows have an order.

    With several none: rows have no order that is right for all.
    """
    own = [r for r, reference in enumerate(planned.references) if reference.parent == place]
    columns = {c for check in checks.all for c in check.columns} if checks is not None else set()
    about = [r for r in own if columns & set(planned.references[r].key.columns)]
    return about[0] if len(own) == len(about) == 1 else None


def _public(given: Generated | None, bases: Mapping[str, Base]) -> Assembled:
    if given is None:
        return Assembled(0, {})
    columns = {}
    for name, texts in given.keys.items():
        levels = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        kind = Kind("listed", levels=tuple(levels), type_name=bases[name].type_name)
        places = numbered(tuple(levels))[[levels[text] for text in texts]]
        columns[name] = stored(kind, places)
    return Assembled(given.rows, columns, codes=given.codes)


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
        self.planned, self.bases, self.seed = planned, bases, seed
        self.rng = np.random.default_rng([seed, place])
        self.notes: list[str] = []
        self.alive = np.ones(given.rows, dtype=bool)
        self.attributes = Attributes(place, planned, given, bases, seed, self.rng)
        self.links = Following(place, planned, given, done, self.rng, self._leave_out)

    def assembled(self, tick: Callable[[], None], checks: Checks | None) -> Assembled:
        """Put the columns together."""
        for r in self.links.others:
            self.links.settle(r)
            tick()
        for r in self.links.own:
            self.links.plant(r, self._apart)
        self._distinct(tick)
        if checks is not None:
            self._satisfy(checks, tick)
        moved = self._drop()
        attributes = self.attributes.columns()
        columns = self.links.columns(self.links.others)
        columns |= {name: attributes[name] for name in self.attributes.drawn}
        self._keys(columns)
        for r in self.links.own:
            self.links.settle_own(r, moved, columns)
        columns |= self.links.columns(self.links.own, columns)
        self._keys(columns)
        return Assembled(
            int(self.alive.sum()),
            attributes | columns,
            self.attributes.free,
            self.notes,
            moved,
            self.attributes.codes,
        )

    def _uniques(self) -> list[Unique]:
        """Return the constraints that what is generated could break."""
        found = []
        for unique in self.planned.table.uniques:
            bound = self.planned.bounded(unique)
            drawn = self.planned.drawn(unique)
            if bound is not None:
                found.append(bound)
            elif drawn:
                found.append(replace(unique, columns=drawn))
        return found

    def _distinct(self, tick: Callable[[], None]) -> None:
        """Link anew, or give other values to, rows that are equal where they must not be."""
        uniques = self._uniques()
        if not uniques:
            return
        lost = settle(
            uniques,
            self._numbers,
            [*self.links.movers(uniques), *self.attributes.movers()],
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

    def _satisfy(self, checks: Checks, tick: Callable[[], None]) -> None:
        """Give other links to rows whose links a CHECK constraint refuses, or leave them out.

        A constraint on keys, which are made up later, or on rows of the same table waits until rows
        are written; so does one on attributes as well that no links satisfy.
        """
        missing = {name for name, use in self.planned.uses if use is Use.MISSING}
        linked = self.links.columns(self.links.others)
        known = self.attributes.columns() | linked
        about = [
            n
            for n, check in enumerate(checks.all)
            if check.columns & set(linked) and check.columns <= set(known) | missing
        ]
        names = {name for n in about for name in checks.all[n].columns} & set(known)

        def broken(rows: Integers, which: Sequence[int]) -> Flags:
            now = self.links.columns(self.links.others)
            found: Flags = np.zeros(rows.size, dtype=bool)
            for start in range(0, rows.size, _PIECE):
                piece = rows[start : start + _PIECE]
                values = {
                    name: (known[name].kind, now.get(name, known[name]).at(piece)) for name in names
                }
                found[start : start + _PIECE] = checks.broken(values, which)
                tick()
            return found

        every = np.flatnonzero(self.alive)
        if not about or not every.size:
            return
        refused = broken(every, about)
        rows = every[refused]
        if not rows.size:
            return
        accepted = Accepted(self._uniques(), self._numbers, every[~refused])
        mended = satisfy(
            rows,
            every[~refused],
            self.links.replaceable({c for n in about for c in checks.all[n].columns}),
            lambda some: accepted.among(some, ~broken(some, about)),
            self.rng,
            tick,
        )
        only = [n for n in about if checks.all[n].columns <= set(linked) | missing]
        never = broken(mended, only) if only and mended.size else np.zeros(mended.size, dtype=bool)
        lost = mended[~accepted.among(mended, ~never)]
        shown = ", ".join(checks.all[n].name for n in about)
        self._leave_out(lost, f"{shown} would not let them in")

    def _numbers(self, name: str, rows: Integers) -> Numbers:
        drawn = self.attributes.drawn.get(name)
        return self.links.numbers(name, rows) if drawn is None else drawn[rows]

    def _apart(self, name: str) -> Numbers:
        """Return what tells values of a column apart, of made-up ones that they are different."""
        rows = np.arange(self.alive.size)
        known = name in self.attributes.drawn or self.planned.use(name) is Use.REFERENCE
        return self._numbers(name, rows) if known else rows

    def _leave_out(self, rows: Integers, why: str) -> None:
        if rows.size:
            self.alive[rows] = False
            self.notes.append(
                f"{rows.size} rows of {self.planned.table.name} are left out, because {why}"
            )

    def _drop(self) -> Integers | None:
        """Keep the rows that are left; returns for each row its new place, -1: none."""
        if self.alive.all():
            return None
        moved = np.where(self.alive, np.cumsum(self.alive) - 1, -1)
        self.attributes.keep(self.alive)
        self.links.keep(self.alive)
        self.alive = self.alive[self.alive]
        return moved

    def _keys(self, columns: dict[str, Source]) -> None:
        """Make up keys: 1, 2, ..., within the rest of a composite key where that suffices.

        There a column with a range begins with its first value.
        """
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
                span = table.column(name).span
                numbers += span[0] - 1 if span is not None else 0
                most = int(numbers.max(initial=0))
                kind = made_up(base.name, base.modifier, table.name, most, self.seed)
                columns[name] = stored(kind, numbers)
                continue
            values = table.column(name).values
            if values and rows <= len(values):
                kind = Kind("listed", levels=values, type_name=base.type_name)
                columns[name] = counted(kind, first=0)
                continue
            first, last = table.column(name).span or (1, 2**62)
            if any(name in u.columns for u in table.uniques):
                most = rows + first - 1
                kind = made_up(base.name, base.modifier, table.name, most, self.seed)
                columns[name] = counted(kind, first=first)
            else:  # nothing keeps rows from having the same
                own = min(room(base.name, base.modifier), last) - first + 1
                most = max(1, min(rows, own))
                kind = made_up(base.name, base.modifier, table.name, most, self.seed)
                columns[name] = counted(kind, most, first)

    def _waits(self, name: str, columns: Mapping[str, Source]) -> bool:
        """Tell whether a key is made up within what rows of the same table are referred to by."""
        own = [self.planned.references[r].key for r in self.links.own]
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
