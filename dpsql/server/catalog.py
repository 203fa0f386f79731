"""The catalogue through SPI: declared relations, trusted constraints, functions, analysis.

Everything is read in the snapshot of the calling statement, so a constraint that a plan
relies on holds for the rows that the plan counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engine.facts import Facts
from dpsql.errors import (
    BY_SQLSTATE,
    DeclarationsChanged,
    FunctionNotAllowed,
    SyntaxInvalid,
    UndeclaredRelation,
    UnreadableRelation,
    UnsupportedConstruct,
)
from dpsql.ledger.refusals import restored
from dpsql.query.catalog import Circumstances, Function
from dpsql.relation import Column, ForeignKey, Relation
from dpsql.server.facts import read_domain, read_parts, read_path
from dpsql.server.spi import diagnostics, sqlstate

if TYPE_CHECKING:
    from dpsql.server.spi import SpiDatabase
    from dpsql.sqltree import Tree

# From 18 on NOT NULL can be not valid, a column generated when it is read (and so raise an error on
# some row), a foreign key temporal or not enforced.
# NOT NULL of foreign tables, foreign partitions and parents of tables is a mere claim (section 1);
# and no step that Citus reads need see what another saw.
RELATION = """
select c.oid::int8 as oid, n.nspname, c.relname, c.relkind, dp.without_snapshot(c.oid) as by_steps,
  p.kind, coalesce(p.root, 0) as root,
  coalesce((select r.heuristic from dp.root r where r.id = p.root), false) as heuristic,
  case when p.kind = 'protected' then p.units end as units,
  case when p.kind <> 'view' then coalesce(dp.own_problem(c.oid), p.problem) end as problem,
  reading.problem as unread, reading.mend,
  (select json_agg(json_build_array(a.attname, b.type::int8,
            format_type(b.type, b.modifier),
            rows.checked and a.attnotnull and not exists (select from pg_constraint v
            where v.conrelid = a.attrelid and v.contype = 'n' and not v.convalidated
              and v.conkey = array[a.attnum]),
            case when a.attnum = any (derived.attnums) then 'derived_column'
                 when a.attgenerated = 'v' then 'virtual_column' else '' end,
            b.type <> a.atttypid
              and (b.type < 16384 or has_schema_privilege('dp_executor', t.typnamespace, 'usage')))
            order by a.attnum)
     from pg_attribute a
    cross join dp.plain_type(a.atttypid, a.atttypmod) as b
     join pg_type t on t.oid = b.type
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
  dp.trusted_keys(c.oid) as keys,
  (select json_agg(json_build_array(
            (select json_agg(a.attname order by k.n)
               from unnest(f.conkey) with ordinality as k(attnum, n)
               join pg_attribute a on a.attrelid = f.conrelid and a.attnum = k.attnum),
            f.confrelid::int8,
            (select json_agg(a.attname order by k.n)
               from unnest(f.confkey) with ordinality as k(attnum, n)
               join pg_attribute a on a.attrelid = f.confrelid and a.attnum = k.attnum))
            order by f.oid)
     from pg_constraint f
    where f.conrelid = c.oid and f.contype = 'f' and f.convalidated and not f.condeferrable
      and not coalesce((to_jsonb(f) ->> 'conperiod')::boolean, false)
      and coalesce((to_jsonb(f) ->> 'conenforced')::boolean, true)
      and c.relkind = 'r' and not c.relhassubclass and not f.conkey && derived.attnums
      and not dp.kept_by_citus(c.oid) and not dp.kept_by_citus(f.confrelid)
      and not exists (select from pg_trigger t where t.tgconstraint = f.oid
                        and t.tgenabled not in ('O', 'A'))
      and not exists (select from pg_class r
            cross join lateral unnest(dp.statistics_members(r.oid)) as u(oid)
            join pg_trigger t on t.tgrelid = u.oid
            where r.oid = f.confrelid and r.relkind = 'p' and t.tgconstraint <> 0
              and t.tgenabled not in ('O', 'A'))) as foreign_keys,
  (select json_agg(json_build_array(d.column_name,
            (select json_agg(m.member order by m.ordinal)
               from dp.domain_members(d.relation, d.column_name) m),
            d.kind, d.lower, d.upper, d.type_name, d.other) order by d.column_name)
     from dp.column_domain d
     join pg_attribute a on a.attrelid = d.relation and a.attname = d.column_name
      and not a.attisdropped
    cross join dp.plain_type(a.atttypid, a.atttypmod) as b
    where d.relation = c.oid and format_type(b.type, b.modifier) = d.type_name) as domains,
  case when p.kind = 'view' then pg_get_viewdef(c.oid) end as definition,
  case when not rows.checked and p.kind <> 'view' then dp.parts_of(c.oid) end as parts
from (select k.oid from pg_class k join pg_namespace m on m.oid = k.relnamespace
       where m.nspname = $1 and k.relname = $2 offset 0) as named
join pg_class c on c.oid = named.oid
join pg_namespace n on n.oid = c.relnamespace
cross join dp.standing(named.oid) p
cross join lateral (select not (c.relkind = 'f' or dp.kept_by_citus(c.oid)
        or c.relkind = 'r' and c.relhassubclass
        or c.relkind = 'p' and exists (select from pg_class m
            where m.oid = any (dp.statistics_members(c.oid)) and m.relkind = 'f'))
        as checked offset 0) as rows
cross join lateral (select dp.derived_columns(c.oid) as attnums offset 0) as derived
left join dp.reading_problem(c.oid) reading on p.kind <> 'view'
where p.kind is not null
"""

# A cast that somebody made from or to a type or its array, which PostgreSQL would run.  Not one
# from or to a type that others made, which anybody can write: it takes part only where an
# expression has that type too.
_ENUM = """
select e.enumlabel from pg_enum e join pg_type t on t.oid = e.enumtypid
 where t.oid = to_regtype($1) and t.typnamespace <> pg_my_temp_schema()
   and not exists (
     select from pg_cast k join pg_type own on own.oid = e.enumtypid
      where k.castsource in (own.oid, nullif(own.typarray, 0))
        and (k.casttarget < 16384 or k.casttarget in (own.oid, own.typarray))
         or k.casttarget in (own.oid, nullif(own.typarray, 0))
        and (k.castsource < 16384 or k.castsource in (own.oid, own.typarray)))
 order by e.enumsortorder
"""
_PLAIN_TYPES = """
select count(*) filter (where t.typnamespace = 'pg_catalog'::regnamespace
    and t.typtype in ('b', 'p') or coalesce(e.typtype, t.typtype) = 'e' and not exists (
     select from pg_cast k join pg_type own on own.oid = coalesce(e.oid, t.oid)
      where k.castsource in (own.oid, nullif(own.typarray, 0))
        and (k.casttarget < 16384 or k.casttarget in (own.oid, own.typarray)
             or k.casttarget in (select unnest($1) union
                                 select f.typelem from pg_type f where f.oid = any ($1)))
         or k.casttarget in (own.oid, nullif(own.typarray, 0))
        and (k.castsource < 16384 or k.castsource in (own.oid, own.typarray)
             or k.castsource in (select unnest($1) union
                                 select f.typelem from pg_type f where f.oid = any ($1)))))
  as n
  from pg_type t left join pg_type e on e.oid = t.typelem and t.typcategory = 'A'
 where t.oid = any ($1)
"""
#: OIDs of what is not PostgreSQL's own begin here.
_FIRST_MADE = 16384
#: Nobody can cancel while a text is taken apart: half a second for one so long.
_LONGEST = 1_000_000
_ANALYZE = "select dp.analyze($1, $2) as analysis"
_ANALYZE_OWN = "select dp.analyze_own($1) as analysis"
_ANALYZE_VIEW = "select dp.analyze_view($1) as analysis"
_ANALYZE_KEPT = "select dp.analyze_kept($1) as analysis"
_PLAIN = """
select b.type::int8 as type, b.modifier::int4 as modifier,
  format_type(b.type, b.modifier) as type_name, format_type($1, null) as name
from dp.plain_type($1, $2) as b
"""

_CIRCUMSTANCES = """
select current_setting('timezone') as zone, dp.caller()::int8 as asker,
  dp.catalogue_version() as version
where $1 = 1
"""

_OWNS = """
select coalesce(bool_and(c.oid is not null and pg_has_role($1::oid, c.relowner, 'USAGE')), true)
  as owns
from unnest($2::oid[]) as u(oid) left join pg_class c on c.oid = u.oid
"""

_MAY_NAME = """
select coalesce(bool_and(has_schema_privilege(dp.caller(), c.relnamespace, 'USAGE')), true)
   and count(*) = cardinality($1) as may
from pg_class c where c.oid = any ($1)
"""

#: Those whom dpsql trusts with protected rows may write.


class SpiCatalog:
    """What the analyser and the engine may know of the database: public facts."""

    def __init__(self, database: SpiDatabase, facts: Facts) -> None:
        self._database = database
        self._facts = facts
        self._rows: dict[tuple[str, str], dict[str, Any] | None] = {}
        self.seen: set[int] = set()
        #: Whether all that was found about relations is declared or in the system catalogue.
        self.lasting = True
        self.of_rows = False

    def analyze(self, text: str, parameters: Sequence[str | None] | None = None) -> dict[str, Any]:
        """Let the server analyse a statement under the pinned search_path.

        With the rights of the role in effect: analysis can run code of whoever wrote the text
        (the CHECK of a domain on a literal), which must not run as ours.

        ``parameters`` are typed literals for ``$1 ...``, as ``dp.parameters`` writes them.

        Errors of parsing and of name resolution concern the caller's text only; they keep
        PostgreSQL's message except those about privileges, which could name hidden objects.
        """
        literals = None if parameters is None else list(parameters)
        _require_short(text, *(p for p in literals or () if p is not None))
        return self._analysed(_ANALYZE, (("text", text), ("text[]", literals)))

    def analyze_counting(self, text: str) -> dict[str, Any]:
        """Analyse a statement of our own writing, with our rights, without running it."""
        return self._analysed(_ANALYZE_OWN, (("text", text),))

    def analyze_kept(self, question: int) -> dict[str, Any]:
        """Analyse a question that is kept for statistics, with the rights of who keeps it."""
        return self._analysed(_ANALYZE_KEPT, (("int4", question),))

    def _analysed(self, statement: str, parameters: Sequence[tuple[str, object]]) -> dict[str, Any]:
        try:
            rows = self._database.execute(statement, parameters)
        except Exception as error:  # noqa: BLE001 - SPI errors have no common class here
            raise _analysis_error(error) from None
        analysis: dict[str, Any] = json.loads(str(rows[0][0]))
        self._undomained(analysis.get("columns") or [])
        return analysis

    def _undomained(self, columns: Sequence[dict[str, Any]]) -> None:
        """Type columns of domains as what these are over: nothing of ours is cast to a domain."""
        found = [c for c in columns if int(c["type"]) >= _FIRST_MADE]
        for column in found:
            given = (("oid", column["type"]), ("int4", column["typmod"]))
            ((type_, modifier, type_name, name),) = self._database.execute(_PLAIN, given)
            if type_ != column["type"]:
                column.update(type=type_, typmod=modifier, type_name=type_name, domain=name)

    def circumstances(self) -> Circumstances:
        """Return what a statement's meaning depends on beside its text."""
        zone, asker, version = self._database.execute(_CIRCUMSTANCES, (("int4", 1),))[0]
        shown = None if version is None else int(str(version))
        return Circumstances(str(zone), int(str(asker)), shown)

    @property
    def time_zone(self) -> str:
        """The caller's TimeZone; what depends on it is folded when a statement is analysed."""
        # with a parameter: such statements are prepared once
        sql = "select current_setting('timezone') as zone where $1 = 1"
        return str(self._database.execute(sql, (("int4", 1),))[0][0])

    def relation(self, schema: str, name: str) -> Relation | None:
        """Return a protected or public relation, ``None`` if nobody declared it.

        Raises
        ------
        UnreadableRelation
            When it is declared but something forbids reading it now (row security, say).
        LedgerRestored
            When that may be so because the database was restored.
        """
        row = self._row(schema, name)
        if row is None or row["kind"] == "view":
            return None
        if row["problem"] or row["unread"]:
            if not self._database.execute("select dp.ledger_in_place() as found")[0][0]:
                raise restored()
            mended = row["unread"] and row["mend"]
            change = f"run {row['mend']}" if mended and not row["problem"] else "change that"
            raise UnreadableRelation(
                f"relation {schema}.{name} cannot be queried privately",
                detail=f"The reason: {row['problem'] or row['unread']}.",
                hint=f"Ask its owner to {change.rstrip(';')}, or query other relations.",
            )
        if row["kind"] == "protected" and not (row["root"] or row["units"]):
            raise UndeclaredRelation(f"relation {schema}.{name} has no root that could be charged")
        return Relation(
            oid=row["oid"],
            schema=row["nspname"],
            name=row["relname"],
            private=row["kind"] == "protected",
            root=row["root"],
            columns=tuple(Column(*c) for c in row["columns"]),
            keys=tuple(tuple(k) for k in row["keys"]),
            foreign_keys=tuple(
                ForeignKey(tuple(mine), target, tuple(theirs))
                for mine, target, theirs in row["foreign_keys"]
            ),
            domains=tuple(
                read_domain(*domain)
                for domain in row["domains"]
                if domain[1] or domain[2] == "bounds"
            ),
            kind=row["relkind"],
            by_steps=row["by_steps"],
            heuristic=row["heuristic"],
            units=tuple(read_path(*unit) for unit in row["units"]),
            **read_parts(row["parts"]),
        )

    def view(self, schema: str, name: str) -> dict[str, Any] | None:
        """Return the analysis of a declared view's definition, ``None`` if it is none."""
        row = self._row(schema, name)
        if row is None or row["kind"] != "view":
            return None
        analysis = self._analysed(_ANALYZE_VIEW, (("oid", row["oid"]),))
        # what the view uses inside is part of the question, as what the text itself names
        own = (int(oid) for kind in ("types", "collations") for oid in analysis[kind])
        self.seen.update(oid for oid in own if oid >= 16384)
        return analysis

    def enum(self, type_name: str) -> tuple[str, ...] | None:
        """Return the labels of an enum type in order, or ``None`` for any other type.

        An enum with casts is like any other: its owner wrote what they run, as ours.
        """
        rows = self._find(_ENUM, "text", type_name)
        return tuple(str(row[0]) for row in rows) or None

    def function(self, oid: int) -> Function | None:
        """Return facts about a function."""
        rows = self._find(
            "select n.nspname, p.proname, l.lanname, p.prokind, p.provolatile, p.proretset"
            " from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
            " join pg_language l on l.oid = p.prolang where p.oid = $1",
            "oid",
            oid,
        )
        if not rows:
            return None
        schema, name, language, kind, volatility, returns_set = rows[0]
        return Function(
            str(schema), str(name), str(language), str(kind), str(volatility), bool(returns_set)
        )

    def deterministic(self, collations: Sequence[int]) -> bool:
        """Tell whether all collations compare equal only what is equal byte for byte.

        Only PostgreSQL's own and those of superusers: others could be replaced meanwhile.
        """
        return self._all_count(
            collations,
            "select count(*) filter (where c.collisdeterministic and (c.oid < 16384 or r.rolsuper))"
            " as n from pg_collation c left join pg_roles r on r.oid = c.collowner"
            " where c.oid = any ($1)",
        )

    def evaluate(self, value: Tree) -> str | None:
        """Return a constant expression's value as text; an error in it concerns the text only.

        It runs with our rights, so every type in it must be built in or an enum: a domain
        would run its author's code.
        """
        from dpsql.query.constants import evaluation

        statement = evaluation(value)
        if not self._plain_types(self.analyze(statement)["types"]):
            raise FunctionNotAllowed(
                "the statement uses a type that is not built in",
                hint="Use constants of PostgreSQL's own types or of enum types without casts.",
            )
        try:
            found = self._database.execute(statement)[0][0]
        except Exception as error:  # noqa: BLE001 - SPI errors have no common class here
            raise _analysis_error(error) from None
        return None if found is None else str(found)

    def immutable(self, functions: Sequence[int]) -> bool:
        """Whether none of the functions depends on settings or on the time."""
        return self._all_count(
            functions,
            "select count(*) filter (where provolatile = 'i' or prokind <> 'f') as n from pg_proc"
            " where oid = any ($1)",
        )

    def folds(self, functions: Sequence[int]) -> bool:
        """Whether analysis may compute one by the time, by settings, or by code that is not ours.

        PostgreSQL computes calls of immutable functions beforehand, of stable ones for estimates,
        of volatile ones and of aggregates never.
        """
        return not self._all_count(
            functions,
            "select count(*) filter (where prokind <> 'f' or provolatile <> 's' and oid < 16384)"
            " as n from pg_proc where oid = any ($1)",
        )

    def _plain_types(self, oids: Sequence[int]) -> bool:
        return self._all_count(oids, _PLAIN_TYPES)

    def _all_count(self, oids: Sequence[int], sql: str) -> bool:
        """Tell whether a statement counts all of these objects of the system catalogue."""
        found = sorted(set(map(int, oids)))
        return self._find(sql, "oid[]", found)[0][0] == len(found)

    def _find(self, sql: str, kind: str, value: Any) -> list[tuple[object, ...]]:
        """Run a statement that reads the system catalogue only, and keep its rows as a fact."""
        key = (sql, *value) if isinstance(value, list) else (sql, value)
        return self._facts.once(key, lambda: self._database.execute(sql, ((kind, value),)))

    def fingerprint(self, oids: Sequence[int]) -> str:
        """Return a token that changes with any declaration or change to these relations.

        ``oids`` are relations, types and collations.
        """
        parameters = (("oid[]", list(oids)),)
        return str(self._database.execute("select dp.fingerprint($1) as token", parameters)[0][0])

    def types_among(self, oids: Sequence[int]) -> list[int]:
        """Return those of the objects that a question names which are types."""
        rows = self._database.execute(
            "select t.oid::int8 as oid from pg_type t where t.oid = any ($1)",
            (("oid[]", list(oids)),),
        )
        return [int(str(row[0])) for row in rows]

    def confirm(self, oids: Sequence[int], token: str) -> None:
        """Refuse when what is declared now is not what this statement's snapshot shows.

        PostgreSQL resolves names and finds partitions as of now, whatever the snapshot: in an
        old one the policy of what a name meant then could be applied to what it means now.

        Raises
        ------
        DeclarationsChanged
            When a relation, type or collation of the question was changed meanwhile.
        """
        parameters = (("oid[]", list(oids)),)
        now = self._database.execute("select dp.fingerprint_now($1) as token", parameters)[0][0]
        if now != token:
            raise DeclarationsChanged(
                "a relation or a declaration of the question has changed meanwhile",
                detail="The transaction's snapshot still shows what was there before.",
            )

    def lock(self, oids: Sequence[int]) -> None:
        """Lock relations against changes as their analysis does."""
        self._database.lock_members(oids, before_rows=False)

    def may_name(self, oids: Sequence[int]) -> bool:
        """Tell whether the role in effect may use the schemas of these relations."""
        return bool(self._database.execute(_MAY_NAME, (("oid[]", sorted(set(oids))),))[0][0])

    def owns(self, role: int, oids: Sequence[int]) -> bool:
        """Whether the role has the rights of the owner of each relation (superusers have)."""
        rows = self._database.execute(_OWNS, (("oid", role), ("oid[]", list(oids))))
        return bool(rows[0][0])

    def _row(self, schema: str, name: str) -> dict[str, Any] | None:
        key = (schema, name)
        if key not in self._rows:
            row = self._facts.once(
                ("relation", *key),
                lambda: self._read_row(schema, name),
                keeps=lambda row: not _lists_rows(row),
            )
            if row is not None:
                self.seen.add(row["oid"])
                of_rows = _lists_rows(row)
                self.of_rows = self.of_rows or of_rows
                # a view can name the time
                self.lasting = self.lasting and not of_rows and row["kind"] != "view"
            self._rows[key] = row
        return self._rows[key]

    def _read_row(self, schema: str, name: str) -> dict[str, Any] | None:
        rows = self._database.execute(RELATION, (("text", schema), ("text", name)))
        if not rows:
            return None
        row: dict[str, Any] = dict(zip(_FIELDS, rows[0], strict=True))
        for field in ("columns", "keys", "foreign_keys", "domains", "units"):
            row[field] = json.loads(row[field] or "[]")
        return row


_FIELDS = (
    *("oid", "nspname", "relname", "relkind", "by_steps", "kind", "root", "heuristic"),
    *("units", "problem", "unread", "mend"),
    *("columns", "keys", "foreign_keys", "domains"),
    *("definition", "parts"),
)


def _lists_rows(row: dict[str, Any] | None) -> bool:
    """Whether a domain of the relation lists rows of a public one."""
    return row is not None and any(domain[2] == "reference" for domain in row["domains"])


def _require_short(*texts: str) -> None:
    """Refuse a statement, with its parameters, that keeps a backend busy for its length alone."""
    length = sum(map(len, texts))
    if length > _LONGEST:
        raise UnsupportedConstruct(
            "the statement is too long",
            detail=f"It has {length} characters, with all names and parameters written out; at"
            f" most {_LONGEST} are read.",
            hint="Keep long lists of values in a public table, and join it.",
        )


def _analysis_error(error: Exception) -> Exception:
    """Turn an error of parse analysis or constant folding into one of ours.

    Only the caller's text is involved.  Errors about privileges could name objects that the
    caller cannot see, so they lose their text.  Cancellation passes.
    """
    state = sqlstate(error)
    detail, hint = diagnostics(error)
    if state.startswith(("57", "40")) or not state:
        return error
    if state in BY_SQLSTATE:
        return BY_SQLSTATE[state](str(error), detail=detail, hint=hint)
    if state == "42501":
        return UndeclaredRelation(
            "the statement names something that was not declared for private queries",
            hint="See dp.relations for what can be queried.",
        )
    if not state.startswith(("0A", "22", "42", "54")):
        return SyntaxInvalid(
            "the statement cannot be analysed",
            hint="Use constants of PostgreSQL's own types or of enum types; nothing was spent.",
        )
    return SyntaxInvalid(
        str(error),
        detail=detail,
        hint=hint or "Correct the statement; nothing was spent.",
    )
