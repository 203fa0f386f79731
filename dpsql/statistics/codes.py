"""Integer codes of keys that are not integers, so that the array kernel can count them.

Two kinds of code, both expressions that PostgreSQL evaluates while it reads the rows:

- *exact*: dates, timestamps, booleans, ``"char"`` and ``oid`` fit eight bytes; of values that a
  filter lists the place in the list is enough;
- *hashed*: PostgreSQL's own 64-bit hash of the type, which its definition makes equal for
  equal values (numeric 1.0 and 1.00, -0.0 and 0.0, ``char(n)`` whatever its blanks).  That
  different values have different codes is checked for every attribute in the snapshot of the
  count; where it does not hold, the plan runs as SQL.

Why not a dictionary of row numbers: codes must be the same in every statement that reads an
occurrence and nothing may be created in a read-only snapshot, so each would sort all values of
the class again.  Which executor runs changes time, never a count (PRIVACY.md section 2); every
expression here is total, and NULL for NULL.

Other types (``bytea``, enums, arrays, ``inet``, intervals, ranges) are left to SQL.  So are
groups by a type whose equal values have several texts (``numeric``, floating point): which
one is shown must not depend on the executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from dpsql.counted import Counts
from dpsql.model import Attribute, AttributeUse, Key, Occurrence
from dpsql.ports import Database
from dpsql.query.elimination import Base, Plan
from dpsql.query.ir import Expr, template, tree
from dpsql.query.source_sql import source_sql, typed
from dpsql.sqltree import aliased, from_, number, render, select, sql, table, union_all

Value = TypeVar("Value")

#: A dictionary of groups is read up to this many values.
MOST_GROUPS = 100_000
#: Values are coded by their place in a list that is no longer.
_LISTED = 32

_INTEGERS = frozenset({"smallint", "integer", "bigint"})
_STAMP = (
    "CASE WHEN pg_catalog.isfinite(:a)"
    " THEN ((EXTRACT(epoch FROM :a) - 946684800) * 1000000)::bigint"
    " WHEN :a = 'infinity' THEN 9223372036854775807"
    " WHEN :a = '-infinity' THEN -9223372036854775808 END"
)
_EXACT = {
    "boolean": ("integer", ":a::integer"),
    '"char"': ("integer", ":a::integer"),
    "oid": ("bigint", ":a::bigint"),
    "date": (
        "integer",
        "CASE WHEN pg_catalog.isfinite(:a) THEN :a - '2000-01-01'::date"
        " WHEN :a = 'infinity' THEN 2147483647 WHEN :a = '-infinity' THEN -2147483648 END",
    ),
    "timestamp without time zone": ("bigint", _STAMP),
    "timestamp with time zone": ("bigint", _STAMP),
}
# deterministic collations alone are answered, and all of them are equal bytewise
_HASHED = {
    "text": 'pg_catalog.hashtextextended(:a::text COLLATE "C", 0)',
    "character varying": 'pg_catalog.hashtextextended(:a::text COLLATE "C", 0)',
    "character": 'pg_catalog.hashbpcharextended(:a::bpchar COLLATE "C", 0)',
    "bpchar": 'pg_catalog.hashbpcharextended(:a COLLATE "C", 0)',
    "name": "pg_catalog.hashnameextended(:a, 0)",
    "uuid": "pg_catalog.uuid_hash_extended(:a, 0)",
    "numeric": "pg_catalog.hash_numeric_extended(:a, 0)",
    "double precision": "pg_catalog.hashfloat8extended(:a, 0)",
    "real": "pg_catalog.hashfloat4extended(:a, 0)",
    "time without time zone": "pg_catalog.time_hash_extended(:a, 0)",
}
_VALUE = Expr("output", "", data=("", "v"))
_MANY_TEXTS = frozenset({"numeric", "double precision", "real"})


def coded_plan(plan: Plan, attributes: frozenset[int]) -> Plan | None:
    """Rewrite a plan over integer codes of ``attributes``, those that it reads.

    Returns
    -------
    Plan or None
        ``None`` when a type has no codes.  Reads nothing.
    """
    query = plan.query
    changed = _changed(plan, attributes)
    for a in changed:
        family = _family(query.attributes[a])
        if family not in _EXACT and family not in _HASHED:
            return None
        if a in query.groups and family in _MANY_TEXTS:
            return None
    if not changed:
        return plan
    coded = tuple(
        replace(attribute, type_name=_type(attribute)) if attribute.id in changed else attribute
        for attribute in query.attributes
    )
    listings = {query.attributes[a].listing for a in changed if _placed(query.attributes[a])}
    occurrences = tuple(
        replace(
            occurrence,
            # a value that is not listed has no code, and a row with a NULL is not read
            filters=tuple(f for f in occurrence.filters if f not in listings),
            uses=tuple(
                _coded_use(use, query.attributes[use.attribute], occurrence)
                if use.attribute in changed
                else use
                for use in occurrence.uses
            ),
        )
        for occurrence in query.occurrences
    )
    return replace(plan, query=replace(query, attributes=coded, occurrences=occurrences))


def read_texts(
    plan: Plan, attributes: frozenset[int], database: Database
) -> dict[int, dict[str, str]] | None:
    """Check the hashes of the uncoded plan; read the texts of its coded group attributes.

    Returns
    -------
    dict or None
        For each such attribute the text of every code; ``None`` when two values share a hash
        or a group has too many values.
    """
    texts = {}
    for a in sorted(_changed(plan, attributes)):
        if a in plan.query.groups:
            table = _texts(plan, a, database)
            if table is None:
                return None
            texts[a] = table
        elif _family(plan.query.attributes[a]) in _HASHED and not _injective(plan, a, database):
            return None
    return texts


def decode(plan: Plan, texts: dict[int, dict[str, str]], counts: Counts) -> Counts:
    """Give coded groups their own texts back."""
    if not texts:
        return counts
    return replace(counts, groups=decode_keys(plan, texts, counts.groups))


def decode_keys(
    plan: Plan, texts: dict[int, dict[str, str]], groups: Mapping[Key, Value]
) -> dict[Key, Value]:
    """Give the keys of coded groups their own texts back."""
    tables = [texts.get(a) for a in plan.query.groups]
    return {
        tuple(
            key if table is None or key is None else table[key]
            for key, table in zip(keys, tables, strict=True)
        ): value
        for keys, value in groups.items()
    }


def needs_check(plan: Plan, attributes: frozenset[int]) -> bool:
    """Whether an attribute is hashed, so that its values are read once more."""
    return any(
        _family(attribute) in _HASHED and not attribute.values
        for attribute in map(plan.query.attributes.__getitem__, attributes)
    )


def _changed(plan: Plan, attributes: frozenset[int]) -> frozenset[int]:
    return frozenset(a for a in attributes if _family(plan.query.attributes[a]) not in _INTEGERS)


def _family(attribute: Attribute) -> str:
    """Return the type's name without its modifier: ``character(3)`` is ``character``."""
    name = attribute.type_name
    head, bracket, tail = name.partition("(")
    if not bracket or not head or "." in head or name.startswith('"'):
        return name
    rest = tail.partition(")")[2]
    return (head.rstrip() + rest) if not rest.startswith("[") else name


def _type(attribute: Attribute) -> str:
    """Return the code's type."""
    return "integer" if _placed(attribute) else _EXACT.get(_family(attribute), ("bigint", ""))[0]


def _code(attribute: Attribute, value: Expr) -> Expr:
    """Return the code of a value."""
    family, type_ = _family(attribute), _type(attribute)
    if _placed(attribute):
        return Expr("place", type_, (value, *attribute.values))
    text = _EXACT[family][1] if family in _EXACT else _HASHED[family]
    return template(type_, text, value)


def _placed(attribute: Attribute) -> bool:
    """Whether the code is the place in a short list."""
    return 0 < len(attribute.values) <= _LISTED


def _coded_use(use: AttributeUse, attribute: Attribute, occurrence: Occurrence) -> AttributeUse:
    return replace(use, expression=_code(attribute, typed(use, attribute, occurrence)))


def _values(plan: Plan, attribute: int) -> exp.Query:
    """Write all values of an attribute, once for each column that provides it.

    Columns are read unfiltered: a check that holds for more values holds.  Where a filter lists
    the values, its list is all that the rows have.
    """
    query = plan.query
    if listed := query.attributes[attribute].values:
        found: exp.Query = sql(
            "SELECT v FROM pg_catalog.unnest(ARRAY[:listed]) AS t(v)", listed=[*map(tree, listed)]
        )
        return found
    parts: dict[tuple[object, ...], exp.Query] = {}
    for occurrence in query.occurrences:
        for use in occurrence.uses:
            if use.attribute != attribute:
                continue
            if use.column is not None:
                value = tree(typed(use, query.attributes[attribute], occurrence))
                source = from_([table(occurrence.relation.sql, occurrence.alias)])
                key: tuple[object, ...] = (occurrence.relation.oid, use.column)
            else:
                base = Base(occurrence.index, (attribute,), (), False, True, False)
                expressions, source = source_sql(query, base)
                value = expressions[attribute]
                key = (occurrence.index,)
            parts.setdefault(key, select([aliased(value, "v")], source))
    return union_all([*parts.values()])


def _injective(plan: Plan, attribute: int, database: Database) -> bool:
    """Whether different values of an attribute have different hashes, in this snapshot."""
    statement = sql(
        "SELECT count(*) FROM (SELECT 1 FROM (SELECT :code AS h FROM"
        " (SELECT v FROM :all_values AS u GROUP BY v) AS d) AS e"
        " GROUP BY h HAVING count(*) > 1) AS c",
        code=tree(_code(plan.query.attributes[attribute], _VALUE)),
        all_values=_values(plan, attribute),
    )
    return int(str(database.execute(render(statement))[0][0])) == 0


def _texts(plan: Plan, attribute: int, database: Database) -> dict[str, str] | None:
    """Read code and text of a group's values; ``None`` when they are too many, or share a code."""
    statement = sql(
        "SELECT :code::text AS code, v::text AS value FROM (SELECT v FROM :all_values AS u"
        " WHERE v IS NOT NULL GROUP BY v LIMIT :most) AS d",
        code=tree(_code(plan.query.attributes[attribute], _VALUE)),
        all_values=_values(plan, attribute),
        most=number(MOST_GROUPS + 1),
    )
    rows = database.execute(render(statement))
    found = {str(code): str(value) for code, value in rows}
    return found if len(found) == len(rows) <= MOST_GROUPS else None
