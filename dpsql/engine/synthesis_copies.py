"""The tables of a finished synthesis, as what they were made as, before anybody reads them.

Whoever made them may have put something else in their place since, or code where the planner runs
it, so that they are read with the maker's own rights: what is read with those of a reader must not
run code of another (PRIVACY.md section 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engine import ddl
from dpsql.engine.synthesis_catalogue import require_types_of
from dpsql.engine.synthesis_measured import Measured
from dpsql.engine.synthesis_payload import load
from dpsql.engine.synthesis_public import require_public
from dpsql.errors import InvalidParameter, NotAnswerable, PermissionDenied
from dpsql.relation import quote_identifier, show_name
from dpsql.sqltree import table
from dpsql.synthesis.schema import Plan
from dpsql.synthesis.stored import plan_of

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.engine.services import Services

_FOUND = """
select r.id, r.state, r.plan, r.payload, r.epsilon, r.delta, r.owns, r.places, r.relations, r.made
  from dp.reported_synthesis($1) as r
"""
_COLUMNS = """
select c.relkind::text as kind, c.relrowsecurity as secured,
  (select count(*) from pg_rewrite as w where w.ev_class = c.oid) as rules,
  array(select a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod)
          from pg_attribute as a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
  (select count(*) from pg_constraint as k where k.conrelid = c.oid and k.contype = 'c') as checks,
  (select count(*) from pg_constraint as k
    where k.conrelid = c.oid and k.contype = 'c' and not k.convalidated) as invalid
  from pg_class as c where c.oid = $1 and c.oid = to_regclass($2)
"""


@dataclass(frozen=True, slots=True)
class Copies:
    """A finished synthesis.

    Attributes
    ----------
    target : str
    plan : Plan
    measured : Measured
    epsilon, delta : float
        Of the whole.
    constraints : dict
        For each place how many CHECK constraints its copy has, and how many are not validated.
    owned : int
        OID of one of the tables, which all have one owner.
    """

    target: str
    plan: Plan
    measured: Measured
    epsilon: float
    delta: float
    constraints: dict[int, tuple[int, int]]
    owned: int

    def original(self, place: int) -> exp.Table:
        """Return what was copied, for FROM."""
        own = self.plan.tables[place].table
        return table(_name(own.schema, own.name))

    def copy(self, place: int) -> exp.Table:
        """Return a copy, for FROM; a public table is its own."""
        own = self.plan.tables[place].table
        if own.public:
            return self.original(place)
        return table(_name(self.target, own.name), only=True)

    def shown(self, place: int) -> str:
        """Return the name of a copy for a person's eyes."""
        return show_name(self.target, self.plan.tables[place].table.name)

    def checks(self, place: int) -> tuple[int, int]:
        """Return how many CHECK constraints a copy has, and how many are not validated."""
        return self.constraints[place]


def read_copies(target: str, true_data: bool, services: Services) -> Copies:
    """Find a finished synthesis of the caller's, or of relations that the caller owns.

    Raises
    ------
    InvalidParameter
        If there is none.
    PermissionDenied
        If the original is asked for by anybody but the owner of all of it.
    NotAnswerable
        If it is not complete, or its tables are not those that were made.
    """
    rows = services.database.execute(_FOUND, [("name", target)])
    if not rows:
        raise InvalidParameter(
            f"there is no synthesis {show_name(target)} of yours",
            detail="Whoever called dp.synthesize, and the owner of all that it read, see it.",
            hint="SELECT id, target, state FROM dp.syntheses;",
        )
    number, state, plan_text, payload, epsilon, delta, owns, places, relations, made = rows[0]
    if true_data and not owns:
        raise PermissionDenied(
            "permission denied to compare a synthesis with the original",
            detail="Only a member of dp_owner who owns all protected relations of the synthesis"
            " may: the errors are exact, and nothing is paid for them.",
            hint=f"Leave it out: SELECT * FROM dp.synthesis_report('{target}');",
        )
    if state != "done":
        raise NotAnswerable(
            f"the synthesis {show_name(target)} is not complete",
            detail=f"Its state is {state}.",
            hint=f"CALL dp.write_synthesis({number});",
        )
    plan = plan_of(str(plan_text))
    there = dict(zip(list(places or ()), list(relations or ()), strict=True))  # type: ignore[call-overload]
    constraints = {
        place: _require_copy(target, plan, place, there.get(place), services)
        for place, planned in enumerate(plan.tables)
        if not planned.table.public
    }
    for planned in plan.tables:
        if planned.table.public:
            require_public(planned.table, services)
    if not made:
        raise NotAnswerable(
            f"tables of the synthesis {show_name(target)} belong to another role than made them",
            detail="They are read with the rights of the role that they belong to.",
            hint="ALTER TABLE ... OWNER TO the role that made them.",
        )
    measured = load(bytes(payload))  # type: ignore[call-overload]
    budget = float(str(epsilon)), float(str(delta))
    return Copies(target, plan, measured, *budget, constraints, min(there.values()))


def _require_copy(
    target: str, plan: Plan, place: int, oid: object, services: Services
) -> tuple[int, int]:
    """Hold a copy as it is, and refuse what is none any more."""
    original = plan.tables[place].table
    name = _name(target, original.name)
    if oid is not None:
        services.database.execute(ddl.hold([name], only=True))
        rows = services.database.execute(_COLUMNS, [("oid", oid), ("text", name)])
        made = {f"{column.name} {column.type_name}" for column in original.columns}
        if rows:
            kind, secured, rules, columns, checks, invalid = rows[0]
            plain = kind == "r" and not secured and not rules
            if plain and made <= set(columns):  # type: ignore[call-overload]
                require_types_of(int(str(oid)), plan.tables[place], services)
                return int(str(checks)), int(str(invalid))
    raise NotAnswerable(
        f"{show_name(target, original.name)} is not the table that the synthesis made",
        detail="It was dropped, replaced or altered.",
        hint=f"Put it back, or SELECT dp.drop_synthesis('{target}');",
    )


def _name(schema: str, name: str) -> str:
    return f"{quote_identifier(schema)}.{quote_identifier(name)}"
