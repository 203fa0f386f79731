"""How the tables of a synthesis are made: read from the originals, written for the target schema.

All statements run with the caller's rights.  Code of others would run with them too, so that an
expression or a type is copied only if the functions in it are built in, a superuser's or the
caller's own; what is left out is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.errors import NotAnswerable, PermissionDenied
from dpsql.query.ir import literal
from dpsql.relation import quote_identifier, show_name
from dpsql.synthesis.assembling import Base
from dpsql.synthesis.schema import Plan, Planned, Use

if TYPE_CHECKING:
    from dpsql.engine.services import Services

_COLUMNS = """
with recursive base(attnum, oid, modifier) as (
    select a.attnum, a.atttypid, a.atttypmod
      from pg_attribute as a where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
    union all
    select b.attnum, t.typbasetype, t.typtypmod
      from base as b join pg_type as t on t.oid = b.oid where t.typtype = 'd')
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type_name,
  t.typname::text as base, format_type(t.oid, -1) as base_type, b.modifier::int4 as modifier,
  a.attnotnull as not_null, a.attidentity::text as identity, a.attgenerated::text as generated,
  pg_get_expr(d.adbin, d.adrelid) as expression, d.oid::int8 as default_oid,
  (select format('%I.%I', n.nspname, c.collname) from pg_collation as c
     join pg_namespace as n on n.oid = c.collnamespace
    where c.oid = a.attcollation
      and a.attcollation <> (select o.typcollation from pg_type as o where o.oid = a.atttypid)) as collation,
  case when a.attstorage <> (select o.typstorage from pg_type as o where o.oid = a.atttypid) then
    case a.attstorage when 'p' then 'PLAIN' when 'e' then 'EXTERNAL' when 'm' then 'MAIN' else 'EXTENDED' end
  end as storage,
  col_description(a.attrelid, a.attnum) as comment,
  exists (select from pg_depend as p join pg_class as s on s.oid = p.refobjid and s.relkind = 'S'
           where p.classid = 'pg_attrdef'::regclass and p.objid = d.oid
             and p.refclassid = 'pg_class'::regclass) as serial
  from pg_attribute as a
  join base as b on b.attnum = a.attnum
  join pg_type as t on t.oid = b.oid and t.typtype <> 'd'
  left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum
"""
_CONSTRAINTS = """
select k.oid::int8 as oid, k.conname::text as name, k.contype::text as kind,
  pg_get_constraintdef(k.oid) as definition, pg_get_expr(k.conbin, k.conrelid) as expression,
  obj_description(k.oid, 'pg_constraint') as comment
  from pg_constraint as k
 where k.conrelid = $1::oid and k.contype in ('c', 'p', 'u', 'x')
 order by k.contype <> 'p', k.conname
"""
_INDEXES = """
select i.indexrelid::int8 as oid, c.relname::text as name, pg_get_indexdef(i.indexrelid) as definition,
  format('CREATE %sINDEX %I ON ', case when i.indisunique then 'UNIQUE ' else '' end, c.relname) as head,
  format('%I.%I USING ', n.nspname, t.relname) as place, i.indisunique as distinct_rows,
  i.indexprs is not null or i.indpred is not null as expressions
  from pg_index as i
  join pg_class as c on c.oid = i.indexrelid
  join pg_class as t on t.oid = i.indrelid
  join pg_namespace as n on n.oid = t.relnamespace
 where i.indrelid = $1::oid and i.indisvalid
   and not exists (select from pg_constraint as k
                    where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))
 order by c.relname
"""
# what an object needs, through types to their constraints: the first function of a stranger
_FOREIGN = """
with recursive used(class, object) as (
    select $1::regclass::oid, $2::oid
    union
    select next.class, next.object
      from used as u
     cross join lateral (
        select d.refclassid, d.refobjid
          from pg_depend as d
         where d.classid = u.class and d.objid = u.object and d.refobjid >= 16384
           and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass,
                                'pg_opfamily'::regclass, 'pg_type'::regclass, 'pg_cast'::regclass)
        union all
        select 'pg_constraint'::regclass, k.oid from pg_constraint as k
         where u.class = 'pg_type'::regclass and k.contypid = u.object
        union all
        select 'pg_type'::regclass, t.typelem from pg_type as t
         where u.class = 'pg_type'::regclass and t.oid = u.object and t.typelem >= 16384
        union all
        select 'pg_proc'::regclass, f.amproc from pg_amproc as f
         where u.class = 'pg_opfamily'::regclass and f.amprocfamily = u.object and f.amproc >= 16384
        union all
        select 'pg_operator'::regclass, f.amopopr from pg_amop as f
         where u.class = 'pg_opfamily'::regclass and f.amopfamily = u.object and f.amopopr >= 16384
     ) as next(class, object))
select pg_describe_object(u.class, u.object, 0) as name
  from used as u
  join pg_roles as r on r.oid = case u.class
           when 'pg_proc'::regclass then (select f.proowner from pg_proc as f where f.oid = u.object)
           when 'pg_operator'::regclass then (select o.oprowner from pg_operator as o where o.oid = u.object)
           when 'pg_opclass'::regclass then (select o.opcowner from pg_opclass as o where o.oid = u.object)
           when 'pg_opfamily'::regclass then (select o.opfowner from pg_opfamily as o where o.oid = u.object)
       end
 where u.object >= 16384 and not r.rolsuper and r.oid <> dp.caller()
 order by u.class, u.object
 limit 1
"""
_TYPES = """
select a.attname::text as name, a.atttypid::int8 as type_oid, format_type(a.atttypid, a.atttypmod) as shown,
  has_type_privilege(dp.caller(), a.atttypid, 'usage') as usable
  from pg_attribute as a
 where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped and a.atttypid >= 16384
 order by a.attnum
"""


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
    types, bases : dict
        Of each column: its type; its base type, as `Base`.
    expressions : dict
        Of each column that has one: its default, or how it is generated.
    generated : list of str
    """

    name: str
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    checks: list[tuple[str, str]] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    bases: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)
    generated: list[str] = field(default_factory=list)

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
    for planned in plan.tables:
        reader = _Reader(plan, planned, target, remark, services, notes)
        found.append(reader.bases_only() if planned.table.public else reader.read())
    return found, notes


def require_types(plan: Plan, services: Services) -> None:
    """Refuse columns whose types the caller may not use, or that run code of others.

    Raises
    ------
    PermissionDenied, NotAnswerable
    """
    for planned in plan.tables:
        if planned.table.public:
            continue
        rows = services.database.execute(_TYPES, [("int8", planned.table.oid)])
        for name, oid, shown, usable in rows:
            column = show_name(planned.table.schema, planned.table.name, str(name))
            if not usable:
                raise PermissionDenied(
                    f"permission denied for type {shown}",
                    detail=f"It is the type of {column}, which the copy has as well.",
                    hint=f"Ask the type's owner for GRANT USAGE ON TYPE {shown} TO <role>.",
                )
            if code := foreign_code("pg_type", int(str(oid)), services):
                raise NotAnswerable(
                    f"the type of {column} runs code of another role",
                    detail=f"Writing a value of type {shown} runs {code} with your rights.",
                    hint="Ask a superuser to own that function, or leave the relation out.",
                )


def foreign_code(catalog: str, oid: int, services: Services) -> str | None:
    """Name a function that an object needs and that belongs to neither caller nor superuser."""
    found = services.database.execute(_FOREIGN, [("text", catalog), ("int8", oid)])
    return str(found[0][0]) if found else None


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
    ) -> None:
        self.plan = plan
        self.planned = planned
        self.table = planned.table
        self.target = quote_identifier(target)
        self.name = f"{self.target}.{quote_identifier(self.table.name)}"
        self.remark = remark
        self.services = services
        self.notes = notes
        self.details = TableDetails(self.name)
        self.rows = self._execute(_COLUMNS)

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        return self.services.database.execute(sql, [("int8", self.table.oid)])

    def bases_only(self) -> TableDetails:
        """Read the types of a table that is referred to."""
        original = f"{quote_identifier(self.table.schema)}.{quote_identifier(self.table.name)}"
        self.details.name = original
        for name, type_name, base, base_type, modifier, *_ in self.rows:
            self.details.types[name] = type_name
            self.details.bases[name] = (base, base_type, modifier)
        return self.details

    def read(self) -> TableDetails:
        """Read all."""
        lines = [self._column(*row) for row in self.rows]
        lines += self._constraints()
        self.details.first.insert(0, f"CREATE TABLE {self.name} ({', '.join(lines)})")
        self._indexes()
        self._foreign_keys()
        self.details.last.append(f"COMMENT ON TABLE {self.name} IS {literal(self.remark)}")
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
        details, quoted = self.details, quote_identifier(name)
        details.types[name] = type_name
        details.bases[name] = (base, base_type, modifier)
        line = f"{quoted} {type_name}"
        if collation:
            line += f" COLLATE {collation}"
        if identity:
            line += f" GENERATED {'ALWAYS' if identity == 'a' else 'BY DEFAULT'} AS IDENTITY"
            self._continue_counting(name)
        elif serial and base in ("int2", "int4", "int8"):
            self._sequence(name, base_type)
        elif expression is not None and default_oid is not None:
            code = (
                "another sequence"
                if serial
                else foreign_code("pg_attrdef", default_oid, self.services)
            )
            column = show_name(self.table.name, name)
            if code is None:
                details.expressions[name] = expression
                line += (
                    f" GENERATED ALWAYS AS ({expression}) STORED"
                    if generated
                    else f" DEFAULT {expression}"
                )
                if generated:
                    details.generated.append(name)
            else:
                what = "is not computed" if generated else "has no default"
                self.notes.append(f"{column} {what}: the original's needs {code}")
        if not_null:
            line += " NOT NULL"
        if storage:
            details.first.append(f"ALTER TABLE {self.name} ALTER {quoted} SET STORAGE {storage}")
        if comment:
            details.last.append(f"COMMENT ON COLUMN {self.name}.{quoted} IS {literal(comment)}")
        return line

    def _sequence(self, name: str, type_name: str) -> None:
        """Give a serial column a sequence of its own."""
        quoted = quote_identifier(name)
        sequence = f"{self.target}.{quote_identifier(_short(f'{self.table.name}_{name}', '_seq'))}"
        self.details.first += [
            f"CREATE SEQUENCE {sequence} AS {type_name} OWNED BY {self.name}.{quoted}",
            f"ALTER TABLE {self.name} ALTER {quoted} SET DEFAULT"
            f" nextval({literal(sequence)}::regclass)",
        ]
        self.details.expressions[name] = "NULL"
        self._continue_counting(name)

    def _continue_counting(self, name: str) -> None:
        if dict(self.planned.uses).get(name) is not Use.DEFAULT:
            owned = f"pg_get_serial_sequence({literal(self.name)}, {literal(name)})"
            self.details.last.append(
                f"SELECT setval({owned}, coalesce(max({quote_identifier(name)}), 0) + 1, false)"
                f" AS done FROM {self.name}"
            )

    def _constraints(self) -> list[str]:
        lines = []
        for oid, name, kind, definition, expression, comment in self._execute(_CONSTRAINTS):
            quoted = quote_identifier(name)
            if kind == "x" or (code := foreign_code("pg_constraint", oid, self.services)):
                why = "excludes rows by operators" if kind == "x" else f"needs {code}"
                self.notes.append(f"constraint {name} of {self.table.name} is left out: it {why}")
                continue
            if kind == "c":
                self.details.checks.append((name, expression))
                lines.append(f"CONSTRAINT {quoted} {definition.removesuffix(' NOT VALID')}")
            else:
                self.details.last.append(
                    f"ALTER TABLE {self.name} ADD CONSTRAINT {quoted} {definition}"
                )
            if comment:
                self.details.last.append(
                    f"COMMENT ON CONSTRAINT {quoted} ON {self.name} IS {literal(comment)}"
                )
        return lines

    def _indexes(self) -> None:
        made = {unique.name for unique in self.table.uniques}
        for oid, name, definition, head, place, distinct, expressions in self._execute(_INDEXES):
            tail = definition.removeprefix(head).removeprefix("ONLY ")
            code = foreign_code("pg_class", oid, self.services)
            why = f"it needs {code}" if code else None
            if distinct and (expressions or name not in made):
                why = "rows may not be different in its expressions"
            if why is None and not (definition.startswith(head) and tail.startswith(place)):
                why = "its definition cannot be read"
            if why is not None:
                self.notes.append(f"index {name} of {self.table.name} is left out: {why}")
                continue
            self.details.last.append(f"{head}{self.name} USING {tail.removeprefix(place)}")

    def _foreign_keys(self) -> None:
        database = self.services.database
        tables = {planned.table.oid: planned.table for planned in self.plan.tables}
        for key in (*(r.key for r in self.planned.references), *self.planned.implied):
            parent = tables[key.parent]
            schema = quote_identifier(parent.schema) if parent.public else self.target
            if (
                parent.public
                and not database.execute(
                    "select has_table_privilege(dp.caller(), $1::oid, 'references') as granted",
                    [("int8", parent.oid)],
                )[0][0]
            ):
                self.notes.append(
                    f"foreign key {key.name} of {self.table.name} is left out, but holds: no"
                    f" privilege REFERENCES on {show_name(parent.schema, parent.name)}"
                )
                continue
            self.details.foreign.append(
                f"ALTER TABLE {self.name} ADD CONSTRAINT {quote_identifier(key.name)}"
                f" FOREIGN KEY ({_names(key.columns)}) REFERENCES"
                f" {schema}.{quote_identifier(parent.name)} ({_names(key.parent_columns)})"
            )


def _names(columns: Sequence[str]) -> str:
    return ", ".join(quote_identifier(column) for column in columns)


def _short(name: str, end: str) -> str:
    """Cut a name so that it and its end have 63 bytes at most."""
    return name.encode()[: 63 - len(end)].decode(errors="ignore") + end


def public_rows(
    planned: Planned, columns: Sequence[str], services: Services
) -> dict[str, tuple[str | None, ...]]:
    """Read the keys of a public table, as texts, in the order that links are numbered in.

    Rows are ordered by the primary key, or else by the first unique columns.
    """
    table = planned.table
    key = next((u.columns for u in table.uniques if u.primary), None)
    if key is None:
        key = table.uniques[0].columns if table.uniques else tuple(columns)
    shown = ", ".join(
        f"array_agg(t.{quote_identifier(c)}::text ORDER BY {_places(key)}) AS c{n}"
        for n, c in enumerate(columns)
    )
    name = f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"
    row = services.database.execute(f"SELECT {shown} FROM {name} AS t")[0]
    return {
        column: tuple(texts or ())
        for column, texts in zip(columns, row, strict=True)  # type: ignore[arg-type]
    }


def _places(columns: Sequence[str]) -> str:
    return ", ".join(f"t.{quote_identifier(column)}" for column in columns)


def referenced(plan: Plan, place: int) -> tuple[str, ...]:
    """Return the columns of a table that references name, in the order in which they do."""
    found: dict[str, None] = {}
    for planned in plan.tables:
        for reference in planned.references:
            if reference.parent == place:
                found |= dict.fromkeys(reference.key.parent_columns)
    return tuple(found)
