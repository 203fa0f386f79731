"""What a synthesis measures: tables, degrees and links, with their bounds and parts of the budget.

Public facts only: what is measured is decided before any protected row is read, and costs what
all parts together cost, under zero-concentrated differential privacy (PRIVACY.md section 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.prepare import prepare
from dpsql.engine.release import Admitted, admit, cuts_off
from dpsql.engine.release_terms import Terms
from dpsql.engine.request import Settings
from dpsql.engine.synthesis_ask import (
    MOST_ATTRIBUTES,
    Ask,
    Learned,
    Path,
    Statement,
    paths,
    reached,
)
from dpsql.engine.synthesis_changes import (
    NONE,
    Others,
    Way,
    changed_degrees,
    changed_rows,
    raised,
    raised_links,
)
from dpsql.errors import InternalError, InvalidParameter, NotAnswerable
from dpsql.relation import UnitPath, show_name
from dpsql.synthesis.degree_law import LARGEST
from dpsql.synthesis.schema import Plan, Planned

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_units import Units
    from dpsql.model import JoinQuery, Key, Question
    from dpsql.statistics.tabulation_sql import Levels

#: Attributes of parents that degrees are told by.
MOST_PROFILED = 16
#: What parts weigh against each other when the budget is split.
_TABLE, _LINK, _DEGREE, _COUNT = Fraction(4), Fraction(4), Fraction(1), Fraction(1, 4)
_PROFILE = Fraction(1)
#: Where units can have so many children, what degrees are weighs twice, and whose they are four
#: times as much: most rows are in the tail.
_MANY = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """An attribute of a statement: the columns that make it, and the texts of its levels."""

    columns: tuple[tuple[Path, int], ...]
    values: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """An admitted statement: the query, its levels, and the results of a unit that count.

    ``rows`` is what one unit changes: the ``cut`` of what it is cut off by, or more where rows
    have units by other ways (`dpsql.engine.synthesis_changes`).
    """

    ask: Ask
    query: JoinQuery
    levels: tuple[Levels, ...]
    axes: tuple[Axis, ...]
    rows: int
    relations: tuple[int, ...]
    fingerprint: str
    policies: str
    roots: tuple[int, ...]
    cut: int


@dataclass(frozen=True, slots=True)
class TablePart:
    """The rows of one table: by what is learnt of them, or only how many there are."""

    place: int
    counted: Counted
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _TABLE if self.counted.axes else _COUNT


@dataclass(frozen=True, slots=True)
class DegreePart:
    """How many children the parents of one reference have.

    ``others`` is what units of other ways change than that which is cut off, ``many`` whether
    ``d_max`` says that units can have many children.
    """

    place: int
    reference: int
    query: JoinQuery
    bound: int
    most: int
    whole: bool
    relations: tuple[int, ...]
    fingerprint: str
    roots: tuple[int, ...]
    others: Others = NONE
    many: bool = False
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _DEGREE * (2 if self.many else 1)


@dataclass(frozen=True, slots=True)
class LinkPart:
    """The marginals across one reference; ``left`` axes are the parent's.

    ``alone``: rows belong to one unit each, which changes as many as are counted of it.
    """

    place: int
    reference: int
    counted: Counted
    left: tuple[int, ...]
    right: tuple[int, ...]
    alone: bool
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _LINK


@dataclass(frozen=True, slots=True)
class ProfilePart:
    """How many children parents of each level of each of their attributes have.

    ``query`` counts by ``keys`` of the parents and then attributes, whose levels are ``levels``.
    """

    place: int
    reference: int
    counted: Counted
    query: JoinQuery
    levels: tuple[Levels, ...]
    keys: int
    bound: int
    share: Fraction = Fraction(0)

    @property
    def weight(self) -> Fraction:
        """What it weighs."""
        return _PROFILE * (4 if self.counted.cut >= _MANY else 1)


Part = TablePart | DegreePart | LinkPart | ProfilePart
#: The aggregate that statements count by.
COUNT = "public.dp_count"


@dataclass(frozen=True, slots=True)
class Bounds:
    """``d_max``: how many rows of each table a privacy unit may have, by OID; and the default."""

    rows: Mapping[int, int]
    default: int

    def of(self, planned: Planned) -> int:
        """Return the bound of a table, 0 if there is none."""
        return self.rows.get(planned.table.oid, self.default)


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
    ) -> None:
        self.plan, self.learnt, self.bounds = plan, learnt, bounds
        self.settings, self.services, self.through = settings, services, through
        self.units = units
        self.count = COUNT
        self.notes: list[str] = []

    def all(self) -> list[Part]:
        """Return the parts in the order in which they are measured."""
        found: list[Part] = []
        for place, planned in enumerate(self.plan.tables):
            if planned.table.public:
                continue
            found.append(self.table(place))
            for k in range(len(planned.references)):
                found += self.link(place, k)
        whole = sum((p.weight for p in found), Fraction(0))
        return [replace(p, share=p.weight / whole) for p in found]

    def table(self, place: int) -> TablePart:
        """Admit the statement that counts a table."""
        columns = [((), k) for k in range(len(self.learnt[place]))]
        ask = Statement(self.plan, place, self.learnt, self.count).by(columns)
        return TablePart(place, self._counted(ask, place))

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
            if problem is not None:
                self.notes.append(
                    f"{self._name(place, k)} refers to its own table: which row to is drawn at"
                    f" random{problem}"
                )
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
        ask = Statement(self.plan, place, self.learnt, self.count).by([*left, *right])
        counted = self._counted(ask, place, k if parent == place else None)
        ends = [axis.columns[0][0][:1] == (k,) for axis in counted.axes]
        one = tuple(i for i, end in enumerate(ends) if end)
        other = tuple(i for i, end in enumerate(ends) if not end)
        alone = parent != place and self._alone(place)
        return LinkPart(place, k, counted, one, other, alone)

    def _profile(self, place: int, k: int, found: Sequence[Part]) -> ProfilePart | None:
        """Admit what counts parents with all their children by their attributes."""
        reference = self.plan.tables[place].references[k]
        degrees = next((p for p in found if isinstance(p, DegreePart)), None)
        if degrees is None or not degrees.whole or not self._alone(place):
            return None
        if not self._alone(reference.parent):
            return None
        columns = [
            ((k, *path), i)
            for path, i in self._columns(reference.parent, None, near=True, room=MOST_PROFILED)
        ]
        if not columns:
            return None
        statement = Statement(self.plan, place, self.learnt, self.count)
        try:
            counted = self._counted(statement.by(columns), place)
            query, levels, keys = counted.query, counted.levels, 0
            if cuts_off(self.table(reference.parent).counted.query):
                prepared = prepare(
                    statement.by(columns, parent=k).text,
                    None,
                    self.services,
                    ways=self._declared(place),
                )
                query = _count_of(prepared.question)
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
        text = statement.children(k, self._unit_column(place) if whole else None)
        if whole:
            parents = self._unit_parents(place, k)
        if parents == 1:
            text = statement.by([]).text  # a parent is a unit: its key is no group
        prepared = prepare(text, None, self.services, ways=self._declared(place))
        query = _count_of(prepared.question)
        bound = 1
        if query.unit is not None:
            key = planned.references[k].key.name
            cut = self._unit_rows(place)
            bound = parents if whole else raised_links(self._ways(place), key, cut)
        known = self.units.degrees.get((planned.table.oid, planned.references[k].key.name))
        most = LARGEST if known is None else min(LARGEST, known)
        if planned.references[k].unique:
            most = 1
        others = changed_degrees(
            self._ways(place), planned.references[k].key.name, bound, whole=whole
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
            self._bound(place, required=False) >= _MANY,
        )

    def _unit_parents(self, place: int, k: int) -> int:
        """Bound the rows of a parent's table that a unit has, of which degrees are counted."""
        reference = self.plan.tables[place].references[k]
        ways, parent = self._ways(place), reference.parent
        if len(ways) > 1 or len(self._ways(parent)) > 1:
            known = ways[0].through.get(reference.key.name)
            if known == 1:
                return 1
            cut = self._bound(parent, required=known is None)
            return max(2, min(cut or known or 2, known or cut))
        return self._unit_rows(parent)

    def _unit_rows(self, place: int) -> int:
        """Bound the rows of a table that are counted of a unit; by the first way to it."""
        if len(self._ways(place)) > 1:
            return self._bound(place)
        part = self.table(place)
        return part.counted.cut if cuts_off(part.counted.query) else 1

    def _alone(self, place: int) -> bool:
        """Tell whether rows of a table belong to one unit each: there is one way to it."""
        return len(self._ways(place)) <= 1

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

    def _counted(self, ask: Ask, place: int, up: int | None = None) -> Counted:
        ways, declared = self._ways(place), self._declared(place)
        if up is not None:
            table = self.plan.tables[place].table
            ways = self.units.up[table.oid, self.plan.tables[place].references[up].key.name]
            declared = tuple(path for way in ways for path in way.declared)
        services = self.services
        bound = self._bound(place, required=False)
        bound = bound and raised(ways, bound)
        settings = replace(self.settings, max_rows_contributed=Fraction(bound))
        if not ask.columns:
            prepared = prepare(ask.text, None, services, ways=declared)
            query = _count_of(prepared.question)
            rows = 1
            if cuts_off(query):
                rows = bound or self._bound(place)
            relations, fingerprint = prepared.relations, prepared.fingerprint
            roots = prepared.question.roots
            changed = changed_rows(ways, rows).beside(rows)
            return Counted(ask, query, (), (), changed, relations, fingerprint, "", roots, rows)
        try:
            admitted = admit(ask.text, Terms(), settings, services, declared)
        except InvalidParameter:
            if not bound:
                self._bound(place)  # says it in the words of a synthesis
            raise
        return Counted(
            ask,
            admitted.question.counted,
            admitted.released.attributes,
            _axes(ask, admitted),
            changed_rows(ways, admitted.rows).beside(admitted.rows),
            admitted.relations,
            admitted.fingerprint,
            admitted.policies,
            admitted.question.roots,
            admitted.rows,
        )

    def _bound(self, place: int, *, required: bool = True) -> int:
        planned = self.plan.tables[place]
        found = self.bounds.of(planned)
        ways = self._ways(place)
        if ways and ways[0].most is not None and (found == 0 or found > ways[0].most):
            found = ways[0].most
        if found or not required:
            return found
        name = planned.table.name
        raise InvalidParameter(
            f"a privacy unit can have any number of rows in"
            f" {show_name(planned.table.schema, name)}",
            detail="Noise must hide all of them, so that their number has to be bounded.",
            hint=f"Give d_max => '{{\"{name}\": 10}}', for example: of each unit as many rows are"
            " learnt from.",
        )

    def _ways(self, place: int) -> Sequence[Way]:
        return self.units.ways.get(self.plan.tables[place].table.oid, ())

    def _unit_column(self, place: int) -> str | None:
        """Return the column of a table that names the unit, where rows have one way to it."""
        ways = self._ways(place)
        return ways[0].path.column if len(ways) == 1 and not ways[0].path.hops else None

    def _declared(self, place: int) -> tuple[UnitPath, ...]:
        """Return by which way results are counted, with the others; none where there is one."""
        ways = self._ways(place)
        return tuple(path for way in ways for path in way.declared) if len(ways) > 1 else ()

    def _name(self, place: int, k: int) -> str:
        planned = self.plan.tables[place]
        columns = ", ".join(planned.references[k].key.columns)
        return f"{show_name(planned.table.schema, planned.table.name)} ({columns})"

    def _random(self, place: int, k: int, what: str, error: NotAnswerable) -> None:
        self.notes.append(f"{what} by {self._name(place, k)} is not learnt: {error.message}")


def _axes(ask: Ask, admitted: Admitted) -> tuple[Axis, ...]:
    """Tell which columns each attribute of the domain is made of, in the order of its keys."""
    columns: dict[int, tuple[Path, int]] = {}
    for asked, column in zip(admitted.question.sets, ask.columns, strict=True):
        (part,) = asked.parts
        columns[part.key] = column
    found = []
    for levels in admitted.released.attributes:
        if levels.parts or any(key not in columns for key in levels.keys):
            raise InternalError("levels of a synthesis are not those of its columns")
        found.append(Axis(tuple(columns[key] for key in levels.keys), levels.values))
    return tuple(found)


def _count_of(question: Question) -> JoinQuery:
    """Return the count that a statement asks for, which is not that of a selection of groups."""
    return question.aggregates[question.vectors[0] if question.vectors else 0]
