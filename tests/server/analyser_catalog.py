"""The analyser's catalogue over psycopg, for tests that need a server's own analysis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from dpsql.query.catalog import Function
from dpsql.query.constants import evaluation
from dpsql.relation import Column, Domain, ForeignKey, Relation
from dpsql.sqltree import Tree

RELATION = """
select c.oid::int, array(select attnum from pg_attribute where attrelid = c.oid and attnum > 0
                           and not attisdropped order by attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s
"""
COLUMNS = """
select attname::text, atttypid::int, format_type(atttypid, atttypmod), attnotnull, attnum
from pg_attribute where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""
CONSTRAINTS = """
select contype, conkey, confrelid::int,
       array(select attname::text from unnest(confkey) with ordinality k(n, i)
             join pg_attribute on attrelid = confrelid and attnum = n order by i)
from pg_constraint where conrelid = %s and contype in ('p', 'u', 'f')
"""
FUNCTION = """
select nspname::text, proname::text, lanname::text, prokind::text, provolatile::text, proretset
from pg_proc p join pg_namespace n on n.oid = pronamespace join pg_language l on l.oid = prolang
where p.oid = %s
"""


class LiveCatalog:
    """Declared relations are those given; everything else comes from the server."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        declared: Mapping[str, bool],
        views: Sequence[str] = (),
        domains: Mapping[str, tuple[Domain, ...]] | None = None,
        time_zone: str = "UTC",
    ) -> None:
        self.connection = connection
        self.declared = declared
        self.views = views
        self.domains = domains or {}
        self.time_zone = time_zone
        self._relations: dict[tuple[str, str], Relation] = {}
        connection.execute(f"set timezone = '{time_zone}'")
        connection.execute("set intervalstyle = postgres")
        connection.execute("set datestyle = 'ISO, MDY'")

    def _rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters or None).fetchall()  # type: ignore[arg-type]

    def analyze(self, sql: str) -> dict[str, Any]:
        """Deparse under the test's search_path, then analyse like ``dp.run``."""
        self.connection.execute("set search_path = public")
        text = self._rows("select dp.deparse(%s)", sql)[0][0]
        return self._analyze(text)

    def _analyze(self, text: str) -> dict[str, Any]:
        self.connection.execute("set search_path = pg_catalog, pg_temp")
        return dict(json.loads(self._rows("select dp.analyze(%s, null::text[])", text)[0][0]))

    def relation(self, schema: str, name: str) -> Relation | None:
        private = self.declared.get(f"{schema}.{name}")
        if private is None:
            return None
        if (schema, name) not in self._relations:
            oid = self._rows(RELATION, schema, name)[0][0]
            rows = self._rows(COLUMNS, oid)
            names = {row[4]: row[0] for row in rows}
            keys, foreign = [], []
            for kind, mine, target, theirs in self._rows(CONSTRAINTS, oid):
                columns = tuple(names[n] for n in mine)
                if kind == "f":
                    foreign.append(ForeignKey(columns, target, tuple(theirs)))
                else:
                    keys.append(columns)
            self._relations[schema, name] = Relation(
                oid,
                schema,
                name,
                private,
                oid if private else 0,
                tuple(Column(*row[:4]) for row in rows),
                tuple(keys),
                tuple(foreign),
                self.domains.get(f"{schema}.{name}", ()),
            )
        return self._relations[schema, name]

    def view(self, schema: str, name: str) -> Mapping[str, Any] | None:
        if f"{schema}.{name}" not in self.views:
            return None
        sql = "select pg_get_viewdef(format('%%I.%%I', %s::text, %s::text)::regclass)"
        return self._analyze(self._rows(sql, schema, name)[0][0])

    def enum(self, type_name: str) -> tuple[str, ...] | None:
        sql = (
            "select enumlabel::text from pg_enum where enumtypid = to_regtype(%s)"
            " order by enumsortorder"
        )
        return tuple(row[0] for row in self._rows(sql, type_name)) or None

    def function(self, oid: int) -> Function | None:
        rows = self._rows(FUNCTION, oid)
        return Function(*rows[0]) if rows else None

    def deterministic(self, collations: Sequence[int]) -> bool:
        sql = "select bool_and(collisdeterministic) from pg_collation where oid = any(%s)"
        return bool(self._rows(sql, list(collations))[0][0])

    def evaluate(self, value: Tree) -> str | None:
        found = self._rows(evaluation(value))[0][0]
        return None if found is None else str(found)
