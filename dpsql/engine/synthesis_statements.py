"""Statements of a synthesis, admitted: what is counted of a unit, and what one unit changes of it.

Public facts only: bounds are ``d_max`` and what public constraints say (PRIVACY.md section 8).
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
from dpsql.engine.synthesis_ask import Ask, Path
from dpsql.engine.synthesis_changes import Way, changed_rows, raised
from dpsql.engine.synthesis_parts import Axis, Counted
from dpsql.errors import InternalError, InvalidParameter
from dpsql.relation import UnitPath, show_name
from dpsql.synthesis.schema import Plan, Planned

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.engine.synthesis_units import Units
    from dpsql.model import JoinQuery, Question


@dataclass(frozen=True, slots=True)
class Bounds:
    """``d_max``: how many rows of each table a privacy unit may have, by OID; and the default."""

    rows: Mapping[int, int]
    default: int

    def of(self, planned: Planned) -> int:
        """Return the bound of a table, 0 if there is none."""
        return self.rows.get(planned.table.oid, self.default)


class Statements:
    """Admits statements about the tables of a plan.

    Parameters
    ----------
    plan : Plan
    bounds : Bounds
    settings, services : Settings, Services
        Of the session.
    units : Units
        Whose the rows are.
    """

    def __init__(
        self, plan: Plan, bounds: Bounds, settings: Settings, services: Services, units: Units
    ) -> None:
        self.plan, self.bounds = plan, bounds
        self.settings, self.services, self.units = settings, services, units

    def counted(self, ask: Ask, place: int, up: int | None = None) -> Counted:
        """Admit a statement about a table; ``up`` follows a reference of it to itself."""
        ways, declared = self.ways(place), self.declared(place)
        if up is not None:
            table = self.plan.tables[place].table
            ways = self.units.up[table.oid, self.plan.tables[place].references[up].key.name]
            declared = tuple(path for way in ways for path in way.declared)
        services = self.services
        bound = self.bound(place, required=False)
        bound = bound and raised(ways, bound)
        settings = replace(self.settings, max_rows_contributed=Fraction(bound))
        if not ask.columns:
            prepared = prepare(ask.text, None, services, ways=declared)
            query = count_of(prepared.question)
            rows = 1
            if cuts_off(query):
                rows = bound or self.bound(place)
            relations, fingerprint = prepared.relations, prepared.fingerprint
            roots = prepared.question.roots
            changed = changed_rows(ways, rows).beside(rows)
            return Counted(ask, query, (), (), changed, relations, fingerprint, "", roots, rows)
        try:
            admitted = admit(ask.text, Terms(), settings, services, declared)
        except InvalidParameter:
            if not bound:
                self.bound(place)  # says it in the words of a synthesis
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

    def bound(self, place: int, *, required: bool = True) -> int:
        """Return how many rows of a table are counted of a unit, 0 for none where not required."""
        planned = self.plan.tables[place]
        found = self.bounds.of(planned)
        ways = self.ways(place)
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

    def alone(self, place: int) -> bool:
        """Tell whether rows of a table belong to one unit each: there is one way to it."""
        return len(self.ways(place)) <= 1

    def ways(self, place: int) -> Sequence[Way]:
        """Return the ways from rows of a table to their units."""
        return self.units.ways.get(self.plan.tables[place].table.oid, ())

    def unit_column(self, place: int) -> str | None:
        """Return the column of a table that names the unit, where rows have one way to it."""
        ways = self.ways(place)
        return ways[0].path.column if len(ways) == 1 and not ways[0].path.hops else None

    def declared(self, place: int) -> tuple[UnitPath, ...]:
        """Return by which way results are counted, with the others; none where there is one."""
        ways = self.ways(place)
        return tuple(path for way in ways for path in way.declared) if len(ways) > 1 else ()


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


def count_of(question: Question) -> JoinQuery:
    """Return the count that a statement asks for, which is not that of a selection of groups."""
    return question.aggregates[question.vectors[0] if question.vectors else 0]
