"""How the tables of a synthesis are made: read from the originals, written for the target schema.

All statements run with the caller's rights.  Code of others would run with them too, so that an
expression or a type is copied only if the functions in it are built in, a superuser's or the
caller's own; what is left out is noted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.engine import ddl
from dpsql.engine.synthesis_ask import not_null
from dpsql.engine.synthesis_catalogue import (
    COLUMNS,
    CONSTRAINTS,
    DOMAINS,
    FOREIGN_KEYS,
    INDEXES,
    counts_itself,
    default_needs,
    foreign_code,
)
from dpsql.errors import NotAnswerable
from dpsql.relation import quote_identifier, show_name
from dpsql.sqltree import column, constant, raw, render, sql, table
from dpsql.synthesis.assembled import Base
from dpsql.synthesis.schema import Plan, Planned, Use

if TYPE_CHECKING:
    from dpsql.engine.services import Services


@dataclass(slots=True)
class TableDetails:
    """What is made for one table; texts of SQL, in the order in which they run.

    Attributes
    ----------
    name : str
        Qualified and quoted, in the target schema.
    first : list of str
        Make the table.
    last : list of str
        Make keys, indexes and comments, once rows are there; foreign keys come after all tables.
    foreign : list of str
    checks : list of (str, str)
        Names and expressions of CHECK constraints.
        Of those of domains too, which come first.
    checked : dict
        Of each of them by name: the columns that it is about.
    of_domains : dict
        Of those of domains by name: the column.
    plain : dict
        Of columns whose types are domains: the types that these are over.
    types, bases : dict
        Of each column: its type; its base type, as `Base`.
    expressions : dict
        Of each column that has one: its default, or how it is generated.
    generated : list of str
    unsure : dict
        Of statements of ``last`` that rows may not let be: a query that has a row then, and a note.
    """

    name: str
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    checks: list[tuple[str, str]] = field(default_factory=list)
    checked: dict[str, list[str]] = field(default_factory=dict)
    of_domains: dict[str, str] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    bases: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)
    generated: list[str] = field(default_factory=list)
    unsure: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return what `details_of` reads."""
        return asdict(self)

    def base_types(self) -> dict[str, Base]:
        """Return the base types of the columns."""
        return {name: Base(*base) for name, base in self.bases.items()}


def details_of(raw: Mapping[str, Any]) -> TableDetails:
    """Read what `TableDetails.as_json` wrote."""
    details = TableDetails(**raw)
    details.checks = [(name, text) for name, text in raw["checks"]]
    details.bases = {name: (n, t, int(m)) for name, (n, t, m) in raw["bases"].items()}
    return details


def read_details(
    plan: Plan, target: str, remark: str, services: Services
) -> tuple[list[TableDetails], list[str]]:
    """Read how every table of a plan is made; returns notes of what is left out as well."""
    notes: list[str] = []
    found = []
    taken = {p.table.name for p in plan.tables if not p.table.public}
    for planned in plan.tables:
        reader = _Reader(plan, planned, target, remark, services, notes, taken)
        found.append(reader.bases_only() if planned.table.public else reader.read())
    return found, notes


class _Reader:
    """Reads one table."""

    def __init__(
        self,
        plan: Plan,
        planned: Planned,
        target: str,
        remark: str,
        services: Services,
        notes: list[str],
        taken: set[str],
    ) -> None:
        self.plan = plan
        self.planned = planned
        self.table = planned.table
        self.target = quote_identifier(target)
        self.name = f"{self.target}.{quote_identifier(self.table.name)}"
        self.remark = remark
        self.services = services
        self.notes = notes
        self.taken = taken
        self.details = TableDetails(self.name)
        self.rows = self._execute(COLUMNS)

    def _execute(self, query: str) -> list[tuple[Any, ...]]:
        return self.services.database.execute(query, [("int8", self.table.oid)])

    def bases_only(self) -> TableDetails:
        """Read the types of a table that is referred to."""
        original = f"{quote_identifier(self.table.schema)}.{quote_identifier(self.table.name)}"
        self.details.name = original
        for name, type_name, base, base_type, modifier, *_ in self.rows:
            self.details.types[name] = type_name
            self.details.bases[name] = (base, base_type, modifier)
        return self.details

    def read(self) -> TableDetails:
        """Read all.

        Raises
        ------
        NotAnswerable
            When the table is not what was measured.
        """
        if [row[:2] for row in self.rows] != [(c.name, c.type_name) for c in self.table.columns]:
            raise NotAnswerable(
                f"relation {self.table.shown} was dropped or altered since it was measured",
                detail="The copy would have other columns than what is known of.",
                hint="Put its columns back, or call dp.synthesize again, which measures again.",
            )
        lines = [self._column(*row) for row in self.rows]
        self._domains()
        lines += self._constraints()
        self.details.first.insert(0, ddl.create_table(self.name, lines))
        self._indexes()
        self._foreign_keys()
        self.details.last.append(ddl.comment_on_table(self.name, self.remark))
        return self.details

    def _column(
        self,
        name: str,
        type_name: str,
        base: str,
        base_type: str,
        modifier: int,
        not_null: bool,
        identity: str,
        generated: str,
        expression: str | None,
        default_oid: int | None,
        collation: str | None,
        storage: str | None,
        comment: str | None,
        serial: bool,
    ) -> str:
        details, value = self.details, ""
        details.types[name] = type_name
        details.bases[name] = (base, base_type, modifier)
        if identity:
            value = ddl.identity(always=identity == "a")
            self.taken.add(_short(f"{self.table.name}_{name}", "_seq"))
            self._continue_counting(name)
        elif counts_itself(base, serial=serial):
            self._sequence(name, base_type)
        elif expression is not None and default_oid is not None:
            code = default_needs(default_oid, self.services, serial=serial)
            shown = show_name(self.table.name, name)
            if code is None:
                details.expressions[name] = expression
                value = ddl.generated(expression) if generated else ddl.default(expression)
                if generated:
                    details.generated.append(name)
            else:
                what = "is not computed" if generated else "has no default"
                self.notes.append(f"{shown} {what}: the original's needs {code}")
        if storage:
            details.first.append(ddl.set_storage(self.name, name, storage))
        if comment:
            details.last.append(ddl.comment_on_column(self.name, name, comment))
        line = ddl.column(name, type_name, collation=collation, value=value)
        return ddl.not_null(line) if not_null else line

    def _sequence(self, name: str, type_name: str) -> None:
        """Give a serial column a sequence of its own."""
        own = self._free(f"{self.table.name}_{name}", "_seq")
        sequence = f"{self.target}.{quote_identifier(own)}"
        following = sql("nextval(CAST(:sequence AS regclass))", sequence=constant(sequence))
        self.details.first += [
            ddl.create_sequence(sequence, type_name, self.name, name),
            ddl.set_default(self.name, name, following),
        ]
        self.details.expressions[name] = "NULL"
        self._continue_counting(name)

    def _continue_counting(self, name: str) -> None:
        if dict(self.planned.uses).get(name) is not Use.DEFAULT:
            statement = sql(
                "SELECT setval(pg_get_serial_sequence(:copy, :name), coalesce(max(:own), 0) + 1,"
                " false) AS done FROM :rows",
                copy=constant(self.name),
                name=constant(name),
                own=column("", quote_identifier(name)),
                rows=table(self.name),
            )
            self.details.last.append(render(statement))

    def _domains(self) -> None:
        """Have constraints of domains tried on values of the types that these are over.

        A value that one refuses cannot be cast, so that those of no table are tried before.
        """
        for own, plain, label, expression in self._execute(DOMAINS):
            self.details.plain[own] = plain
            if label is None:
                continue
            name = label if label not in self.details.of_domains else f"{label} ({own})"
            tried = sql(
                '(SELECT (:condition) FROM (SELECT :own AS value) AS "dpsql domain")',
                condition=raw(expression),
                own=column("", quote_identifier(own)),
            )
            self.details.checks.append((name, render(tried)))
            self.details.checked[name] = [own]
            self.details.of_domains[name] = own

    def _constraints(self) -> list[str]:
        lines = []
        for row in self._execute(CONSTRAINTS):
            oid, name, kind, definition, expression, comment, columns = row
            if kind == "x":  # noted before the charge
                continue
            if code := foreign_code("pg_constraint", oid, self.services):
                self.notes.append(
                    f"constraint {name} of {self.table.name} is left out: it needs {code}"
                )
                continue
            if kind == "c":
                self.details.checks.append((name, expression))
                self.details.checked[name] = json.loads(columns or "[]")
                own = name
                lines.append(ddl.constraint(name, definition.removesuffix(" NOT VALID")))
            else:
                own = self._index(name)
                self._last(ddl.add_constraint(self.name, own, definition), name)
            if comment:
                self._last(ddl.comment_on_constraint(self.name, own, comment), name)
        return lines

    def _indexes(self) -> None:
        distinguished = {unique.name for unique in self.table.uniques}
        for oid, name, definition, head, place, distinct, expressions in self._execute(INDEXES):
            tail = definition.removeprefix(head).removeprefix("ONLY ")
            code = foreign_code("pg_class", oid, self.services)
            why = f"it needs {code}" if code else None
            if distinct and (expressions or name not in distinguished):
                why = "rows may not be different in its expressions"
            if why is None and not (definition.startswith(head) and tail.startswith(place)):
                why = "its definition cannot be read"
            if why is not None:
                self.notes.append(f"index {name} of {self.table.name} is left out: {why}")
                continue
            own, method = self._index(name), tail.removeprefix(place)
            self._last(ddl.create_index(own, self.name, method, unique=distinct), name)

    def _index(self, name: str) -> str:
        """Name an index as the original's is named, if nothing of another schema has the name."""
        found = self._free(name)
        if found != name:
            self.notes.append(f"index {name} of {self.table.name} is called {found}")
        return found

    def _free(self, name: str, end: str = "") -> str:
        """Choose a name that no table, index or sequence of the copy has, as PostgreSQL does."""
        tried = (_short(name, f"{n or ''}{end}") for n in itertools.count())
        found = next(name for name in tried if name not in self.taken)
        self.taken.add(found)
        return found

    def _last(self, statement: str, name: str) -> None:
        """Have a statement run at the end, unless rows repeat that its constraint tells apart."""
        self.details.last.append(statement)
        for unique in self.table.uniques:
            if unique.name == name and self.planned.unsure(unique):
                columns = [column("", quote_identifier(c)) for c in unique.columns]
                repeated = sql(
                    "SELECT true AS repeated FROM :copy WHERE :there GROUP BY :columns"
                    " HAVING count(*) > 1 LIMIT 1",
                    copy=table(self.name),
                    there=not_null(columns) if unique.nulls_distinct else None,
                    columns=columns,
                )
                shown = ddl.names(unique.columns)
                self.details.unsure[statement] = [
                    render(repeated),
                    f"{name} of {self.table.name} is left out: rows are equal in {shown}",
                ]

    def _foreign_keys(self) -> None:
        tables = {planned.table.oid: planned.table for planned in self.plan.tables}
        keys = [r.key for r in self.planned.references]
        terms = dict(self._execute(FOREIGN_KEYS))
        for key in [*keys, *self.planned.implied]:
            parent = tables.get(key.parent)
            if parent is None:
                continue
            schema = quote_identifier(parent.schema) if parent.public else self.target
            if parent.public and not self._may_refer(parent.oid):
                self.notes.append(
                    f"foreign key {key.name} of {self.table.name} is left out, but holds: no"
                    f" privilege REFERENCES on {parent.shown}"
                )
                continue
            referred = f"{schema}.{quote_identifier(parent.name)}"
            definition = ddl.foreign_key(
                key.columns, referred, key.parent_columns, terms.get(key.name, "")
            )
            self.details.foreign.append(ddl.add_constraint(self.name, key.name, definition))

    def _may_refer(self, parent: int) -> bool:
        granted = self.services.database.execute(
            "select has_table_privilege(dp.caller(), $1::oid, 'references') as granted",
            [("int8", parent)],
        )
        return bool(granted[0][0])


def _short(name: str, end: str) -> str:
    """Cut a name so that it and its end have 63 bytes at most."""
    return name.encode()[: 63 - len(end)].decode(errors="ignore") + end
