"""Plans and generated rows for tests of what is written, without anything that measures."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsql.synthesis.generated import Generated
from dpsql.synthesis.schema import (
    Attribute,
    Column,
    ForeignKey,
    Plan,
    Planned,
    Reference,
    Table,
    Unique,
    Use,
)
from dpsql.synthesis.stored import plan_text

#: Stands for what generates rows from a payload: the payload has the rows.
GENERATE = """
do language plpython3u $$
import pickle, sys, types
module = types.ModuleType("dpsql.engine.synthesis_generate")
def generate(plan, payload, seed, tick):
    GD["generated"] = GD.get("generated", 0) + 1
    return pickle.loads(payload)
module.generate = generate
sys.modules["dpsql.engine.synthesis_generate"] = module
$$
"""
COLUMNS = """
select a.attname::text, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,
  pg_get_expr(d.adbin, d.adrelid), a.attgenerated <> '', a.attidentity <> '', t.typname::text
  from pg_attribute a join pg_type t on t.oid = a.atttypid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
KEYS = """
select k.conname::text, k.contype::text,
  array(select a.attname::text from unnest(k.conkey) with ordinality u(n, o)
          join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.n order by u.o),
  k.confrelid::int8,
  array(select a.attname::text from unnest(k.confkey) with ordinality u(n, o)
          join pg_attribute a on a.attrelid = k.confrelid and a.attnum = u.n order by u.o)
  from pg_constraint k where k.conrelid = %s and k.contype in ('p', 'u', 'f') order by k.conname
"""


def read_plan(
    session: Any,
    names: Sequence[str],
    attributes: Mapping[str, Sequence[Attribute | str]],
    public: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Plan:
    """Plan tables in the order given: keys and references by their constraints, attributes as told."""
    oids = {
        name: session.execute("select %s::regclass::int8", (name,)).fetchone()[0] for name in names
    }
    place = {oid: n for n, oid in enumerate(oids.values())}
    planned = []
    session.execute("set search_path = pg_catalog")  # as the library reads names of types
    for name, oid in oids.items():
        schema, bare = session.execute(
            "select n.nspname::text, c.relname::text from pg_class c join pg_namespace n"
            " on n.oid = c.relnamespace where c.oid = %s",
            (oid,),
        ).fetchone()
        columns = tuple(Column(*row) for row in session.execute(COLUMNS, (oid,)))
        uniques, keys = [], []
        for key, kind, own, parent, theirs in session.execute(KEYS, (oid,)):
            if kind == "f":
                if parent in place:
                    keys.append(ForeignKey(key, tuple(own), parent, tuple(theirs)))
            else:
                uniques.append(Unique(key, tuple(own), kind == "p"))
        learnt = tuple(
            a if isinstance(a, Attribute) else Attribute(a, f'"{a}"')
            for a in attributes.get(name, ())
        )
        is_public = name in public
        table = Table(
            oid,
            schema,
            bare,
            columns,
            tuple(uniques),
            tuple(keys),
            public=is_public,
            domains=learnt,
        )
        by_name = {c.name: c for c in columns}
        of_attributes = {a.column for a in learnt}
        of_keys = {c for k in keys for c in k.columns}
        of_uniques = {c for u in uniques for c in u.columns}
        uses = []
        for column in columns:
            use = (
                Use.GENERATED
                if column.generated
                else Use.REFERENCE
                if column.name in of_keys
                else Use.ATTRIBUTE
                if column.name in of_attributes
                else Use.MISSING
                if f"{name}.{column.name}" in missing
                else Use.KEY
                if column.name in of_uniques
                else Use.DEFAULT
            )
            uses.append((column.name, use))
        references = tuple(
            Reference(
                key,
                place[key.parent],
                nullable=any(not by_name[c].not_null for c in key.columns),
                unique=any(set(u.columns) <= set(key.columns) for u in uniques),
            )
            for key in keys
        )
        planned.append(Planned(table, tuple(uses), learnt, () if is_public else references))
    session.execute("reset search_path")
    return Plan(tuple(planned))


def store(
    database: Any,
    role: str,
    target: str,
    plan: Plan,
    generated: Sequence[Generated | None],
    seed: int = 1,
    **settings: object,
) -> int:
    """Insert a synthesis as if it had been measured; returns its number."""
    protected = [p.table for p in plan.tables if not p.table.public]
    return int(
        database.sql(
            "insert into dp.synthesis (target, role_name, role_oid, settings, plan, payload, seed,"
            " epsilon, delta, relations, protected, incarnation)"
            " select %s, r.rolname, r.oid, %s, %s, %s, %s, 1, 1e-6, %s::oid[], %s::text[], i.token"
            " from pg_roles r, dp.ledger_incarnation i where r.rolname = %s returning id",
            target,
            json.dumps(settings),
            plan_text(plan),
            pickle.dumps(list(generated)),
            seed,
            [t.oid for t in protected],
            [f'"{t.schema}"."{t.name}"' for t in protected],
            role,
        )[0][0]
    )


def writer(database: Any, role: str) -> Any:
    """Open a session of a role in which generated rows are those of the payload."""
    session = database.connect()
    session.execute(GENERATE)
    session.execute(f"set session authorization {role}")
    return session


def write(session: Any, job: int, at_most: int = 10_000) -> int:
    """Take steps until the synthesis is complete; returns how many."""
    for steps in range(1, at_most + 1):
        if not session.execute("select dp.synthesis_step(%s)", (job,)).fetchone()[0]:
            return steps
    raise AssertionError("there is no end")


def rows(
    number: int,
    levels: Sequence[Sequence[str | None]],
    parents: Sequence[int] = (),
    seed: int = 0,
    nullable: Sequence[bool] = (),
) -> Generated:
    """Draw rows: codes, and parents among so many."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack(
        [rng.integers(0, max(len(texts), 1), number) for texts in levels]
        or [np.empty((number, 0), dtype=np.int64)]
    )
    links = []
    for n, many in enumerate(parents):
        chosen = rng.integers(0, max(many, 1), number) if many else np.full(number, -1)
        if nullable and nullable[n]:
            chosen = np.where(rng.random(number) < 0.2, -1, chosen)
        links.append(chosen)
    return Generated(number, codes, tuple(tuple(t) for t in levels), tuple(links))


def listed(**keys: Sequence[str]) -> Generated:
    """Return the rows of a public table: the texts of its unique columns."""
    number = len(next(iter(keys.values())))
    return Generated(number, np.zeros((number, 0), dtype=np.int32), (), keys=keys)
