"""Which parts a synthesis has: tables, degrees and links, as far as their statements are admitted.

Public facts only: what is measured is decided before any protected row is read (PRIVACY.md
section 8); what cannot be is left to chance, and notes say why.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.prepare import prepare
from dpsql.engine.release import cuts_off
from dpsql.engine.request import Settings
from dpsql.engine.synthesis_ask import (
    MOST_ATTRIBUTES,
    Learned,
    Path,
    Statement,
    paths,
    reached,
)
from dpsql.engine.synthesis_changes import changed_degrees, raised_links
from dpsql.engine.synthesis_parts import (
    MANY,
    CountPart,
    DegreePart,
    LinkPart,
    Part,
    ProfilePart,
    TablePart,
)
from dpsql.engine.synthesis_statements import Bounds, Statements, count_of
from dpsql.errors import NotAnswerable
from dpsql.relation import show_name
from dpsql.synthesis.degree_law import LARGEST
from dpsql.synthesis.notes import Note
from dpsql.synthesis.schema import Plan

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_units import Units

#: Attributes of parents that degrees are told by.
MOST_PROFILED = 16
#: The aggregate that statements count by.
COUNT = "public.dp_count"


class Parts:
    """Admits every statement of a synthesis.

    Parameters
    ----------
    plan : Plan
    learnt : sequence
        For each table what is learnt of it.
    bounds : Bounds
    settings, services : Settings, Services
        Of the session.
    through : mapping
        For (table, reference): whether children belong to the unit of their parent by it.
    units : Units
        Whose the rows are.
    declared : container of int
        Tables by OID whose numbers of rows are public.
    """

    def __init__(
        self,
        plan: Plan,
        learnt: Sequence[tuple[Learned, ...]],
        bounds: Bounds,
        settings: Settings,
        services: Services,
        through: Mapping[tuple[int, int], bool],
        units: Units,
        declared: Container[int] = (),
    ) -> None:
        self.plan, self.learnt, self.through = plan, learnt, through
        self.declared = declared
        self.services, self.units = services, units
        self.statements = Statements(plan, bounds, settings, services, units)
        self.count = COUNT
        self.notes: list[Note] = []

    def all(self) -> list[Part]:
        """Return the parts in the order in which they are measured."""
        found: list[Part] = []
        for place, planned in enumerate(self.plan.tables):
            if planned.table.public:
                continue
            table = self.table(place)
            found.append(table)
            if planned.table.oid not in self.declared and _several(table):
                found.append(CountPart(place, table.counted))
            for k in range(len(planned.references)):
                found += self.link(place, k)
        whole = sum((p.weight for p in found), Fraction(0))
        return [replace(p, share=p.weight / whole) for p in found]

    def table(self, place: int) -> TablePart:
        """Admit the statement that counts a table."""
        columns = [((), k) for k in range(len(self.learnt[place]))]
        ask = Statement(self.plan, place, self.learnt, self.count).by(columns)
        counted = self.statements.counted(ask, place)
        alone = counted.query.unit is not None and self.statements.alone(place)
        return TablePart(place, counted, alone)

    def link(self, place: int, k: int) -> list[Part]:
        """Admit what is asked of a reference; where nothing can be, links are random."""
        if any(i.place == k and i.what.value == "parent" for i in self.learnt[place]):
            return []
        found: list[Part] = []
        try:
            found.append(self._degrees(place, k))
        except NotAnswerable as error:
            self._random(place, k, "the number of children of each parent", error)
        reference = self.plan.tables[place].references[k]
        if reference.parent == place:
            problem = self._unbounded(place, k)
            if problem is None and self.plan.tables[place].shared(k):
                problem = ", among those that agree in the columns of other keys"
            if problem is not None:
                text = "refers to its own table: which row to is drawn at random"
                self.notes.append(Note(f"{self._name(place, k)} {text}{problem}"))
                return found
        profile = self._profile(place, k, found)
        if profile is not None:
            found.append(profile)
        for near in (False, True):
            try:
                part = self._across(place, k, near=near)
            except NotAnswerable as error:
                if near:
                    self._random(place, k, "what rows on both sides have in common", error)
            else:
                if part is not None:
                    found.append(part)
                break
        return found

    def _across(self, place: int, k: int, *, near: bool) -> LinkPart | None:
        parent = self.plan.tables[place].references[k].parent
        right = self._columns(place, k, near=near, room=MOST_ATTRIBUTES // 2)
        left = [
            ((k, *path), i)
            for path, i in self._columns(parent, None, near=near, room=MOST_ATTRIBUTES // 2)
        ]
        if not left or not right:
            return None
        while True:
            ask = Statement(self.plan, place, self.learnt, self.count).by([*left, *right])
            counted = self.statements.counted(ask, place, k if parent == place else None)
            # public tables on both sides that share a column of the row have their levels together
            both = {c for axis in counted.axes for c in _of_both_ends(axis.columns, k)}
            if not both:
                break
            right = [c for c in right if c not in both]
            if not right:
                return None
        ends = [axis.columns[0][0][:1] == (k,) for axis in counted.axes]
        one = tuple(i for i, end in enumerate(ends) if end)
        other = tuple(i for i, end in enumerate(ends) if not end)
        alone = parent != place and self.statements.alone(place)
        return LinkPart(place, k, counted, one, other, alone)

    def _profile(self, place: int, k: int, found: Sequence[Part]) -> ProfilePart | None:
        """Admit what counts parents with all their children by their attributes."""
        reference = self.plan.tables[place].references[k]
        degrees = next((p for p in found if isinstance(p, DegreePart)), None)
        if degrees is None or not degrees.whole or not self.statements.alone(place):
            return None
        if not self.statements.alone(reference.parent):
            return None
        columns = [
            ((k, *path), i)
            for path, i in self._columns(reference.parent, None, near=True, room=MOST_PROFILED)
        ]
        if not columns:
            return None
        statement = Statement(self.plan, place, self.learnt, self.count)
        try:
            counted = self.statements.counted(statement.by(columns), place)
            query, levels, keys = counted.query, counted.levels, 0
            if cuts_off(self.table(reference.parent).counted.query):
                prepared = prepare(
                    statement.by(columns, parent=k).text,
                    None,
                    self.services,
                    ways=self.statements.declared(place),
                )
                query = count_of(prepared.question)
                keys = len(reference.key.columns)
                order = [column for axis in counted.axes for column in axis.columns]
                if len(query.groups) != keys + len(columns) or any(x.parts for x in levels):
                    return None
                levels = tuple(
                    replace(x, keys=tuple(keys + columns.index(c) for c in axis.columns), sorted={})
                    for x, axis in zip(levels, counted.axes, strict=True)
                )
                if sorted(order) != sorted(columns):
                    return None
        except NotAnswerable as error:
            self._random(place, k, "which parents have many children", error)
            return None
        return ProfilePart(place, k, counted, query, levels, keys, degrees.bound)

    def _columns(
        self, place: int, before: int | None, *, near: bool, room: int
    ) -> list[tuple[Path, int]]:
        found: list[tuple[Path, int]] = []
        for path in paths(self.plan, place, before):
            table = reached(self.plan, place, path)
            if near and path:
                break
            columns = [
                (path, i)
                for i, item in enumerate(self.learnt[table])
                if not (item.what.value == "missing" and not path and item.place == before)
            ]
            found += columns[: room - len(found)]
        return found

    def _degrees(self, place: int, k: int) -> DegreePart:
        planned = self.plan.tables[place]
        statement = Statement(self.plan, place, self.learnt, self.count)
        whole, parents = self.through.get((place, k), False), 0
        text = statement.children(k, self.statements.unit_column(place) if whole else None)
        if whole:
            parents = self._unit_parents(place, k)
        if parents == 1:
            text = statement.by([]).text  # a parent is a unit: its key is no group
        prepared = prepare(text, None, self.services, ways=self.statements.declared(place))
        query = count_of(prepared.question)
        bound = 1
        if query.unit is not None:
            key = planned.references[k].key.name
            cut = self._unit_rows(place)
            bound = parents if whole else raised_links(self.statements.ways(place), key, cut)
        known = self.units.degrees.get((planned.table.oid, planned.references[k].key.name))
        most = LARGEST if known is None else min(LARGEST, known)
        if planned.references[k].unique:
            most = 1
        others = changed_degrees(
            self.statements.ways(place), planned.references[k].key.name, bound, whole=whole
        )
        return DegreePart(
            place,
            k,
            query,
            bound,
            most,
            whole,
            prepared.relations,
            prepared.fingerprint,
            prepared.question.roots,
            others,
            self.statements.bound(place, required=False) >= MANY,
        )

    def _unit_parents(self, place: int, k: int) -> int:
        """Bound the rows of a parent's table that a unit has, of which degrees are counted."""
        reference = self.plan.tables[place].references[k]
        ways, parent = self.statements.ways(place), reference.parent
        if len(ways) > 1 or len(self.statements.ways(parent)) > 1:
            known = ways[0].through.get(reference.key.name)
            if known == 1:
                return 1
            cut = self.statements.bound(parent, required=known is None)
            return max(2, min(cut or known or 2, known or cut))
        return self._unit_rows(parent)

    def _unit_rows(self, place: int) -> int:
        """Bound the rows of a table that are counted of a unit; by the first way to it."""
        if len(self.statements.ways(place)) > 1:
            return self.statements.bound(place)
        part = self.table(place)
        return part.counted.cut if cuts_off(part.counted.query) else 1

    def _unbounded(self, place: int, k: int) -> str | None:
        """Tell why rows that are joined to rows of their own table cannot be counted.

        They belong to the units of both, and leave with either (`dpsql.engine.synthesis_changes`).
        """
        table, key = self.plan.tables[place].table, self.plan.tables[place].references[k].key
        ways = self.units.up.get((table.oid, key.name), ())
        if not ways:
            return "; it is learnt where there are privacy units"
        own = len(ways) // 2
        loose = [way for way in ways[1:] if way.most is None]
        if not loose:
            return None
        if any(way.most is None for way in ways[own:]) and len(loose) == own:
            columns = ", ".join(f"'{c}'" for c in key.columns)
            return (
                ", because a unit can be referred to by any number of rows; let the owner bound it:"
                f" SELECT dp.set_degree_bound('{table.shown}', array[{columns}], 100);"
            )
        return ", because nothing bounds how many of them a unit has"

    def _name(self, place: int, k: int) -> str:
        planned = self.plan.tables[place]
        columns = ", ".join(planned.references[k].key.columns)
        return f"{show_name(planned.table.schema, planned.table.name)} ({columns})"

    def _random(self, place: int, k: int, what: str, error: NotAnswerable) -> None:
        self.notes.append(Note(f"{what} by {self._name(place, k)} is not learnt: {error.message}"))


def _of_both_ends(columns: Sequence[tuple[Path, int]], k: int) -> list[tuple[Path, int]]:
    """Return the child's columns among those of one axis where the parent has some of it, too."""
    own = [c for c in columns if c[0][:1] != (k,)]
    return own if len(own) < len(columns) else []


def _several(part: TablePart) -> bool:
    """Tell whether a table is more than its number of rows."""
    return any(len(axis.values) > 1 for axis in part.counted.axes)
