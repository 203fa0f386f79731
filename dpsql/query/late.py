"""What other servers are not sent to compute: it is computed here, of groups of what it reads.

postgres_fdw does not send, for example, ``EXTRACT`` and ``date_trunc``, whose result could depend
on a collation for all it knows; it would fetch every row instead.  So a part tells how often the
values of the columns occur that such an expression reads.  Only columns take part whose equal
values cannot be told apart: of the others a group shows any one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate
from dpsql.query.elimination import Base, Placed
from dpsql.query.source_sql import value_sql, weight_sql
from dpsql.relation import base, quote_identifier

_TEXT = r"'(?:[^'\\]|''|\\.)*'"
_STRINGS = re.compile(_TEXT)
_COLUMN = re.compile(_TEXT + r'|\br(\d+)\.(?:"((?:[^"]|"")*)"|([a-z_][a-z0-9_]*))')
_ATTRIBUTE = re.compile(_TEXT + r'|"(?:[^"]|"")*"|\ba(\d+)\b')
#: What postgres_fdw does not send; a wrong guess costs time only.
_HELD = re.compile(
    r"\b(?:COALESCE|GREATEST|LEAST|NULLIF|EXTRACT)\(|\bIS (?:NOT )?(?:TRUE|FALSE|UNKNOWN)\b"
    r'|\bdp\.|\bCOLLATE\b|"(?:date_trunc|date_part|timezone)"\(|::pg_catalog\.text\)::'
)
_PLAIN = frozenset(
    [
        *("smallint", "integer", "bigint", "boolean", "date", "text", "character varying", "uuid"),
        *("timestamp without time zone", "timestamp with time zone", "time without time zone"),
    ]
)
_NOWHERE = frozenset({-1})


@dataclass(frozen=True, slots=True)
class Late:
    """What parts are asked, ``sent``, by ``keys``, and what is computed of their groups.

    ``values`` are the late attributes and ``weights`` the late sums, by name, ``filters`` and
    ``predicates`` the late conditions; a late weight in ``spanning`` is of attributes.
    """

    sent: JoinQuery
    keys: tuple[int, ...]
    values: dict[int, str]
    weights: dict[str, str]
    spanning: dict[str, str]
    filters: tuple[str, ...]
    predicates: tuple[str, ...]


def held(sql: str) -> bool:
    """Tell whether postgres_fdw would not send an expression."""
    return bool(_HELD.search(_STRINGS.sub("''", sql)))


def late(query: JoinQuery, factor: Base | Placed, number: str) -> Late | None:
    """Find what has to be computed late; ``None`` if nothing has, or it cannot be."""
    inside = [query.occurrences[i] for i in sorted(factor.occurrences)]
    providers: dict[int, int] = {}
    for o in inside:
        for a in o.attributes:
            providers[a] = providers.get(a, 0) + 1
    uses = {
        u.attribute: (o, u)
        for o in inside
        for u in o.uses
        if not query.attributes[u.attribute].place and held(u.sql)
    }
    weights = {
        f"w{i}": w
        for i, w in enumerate(query.weights)
        if w.occurrences <= factor.occurrences
        and (held(w.sql) or (len(w.occurrences) > 1 and _attributes(w.sql) & uses.keys()))
    }
    predicates = [
        p
        for p in query.predicates
        if p.occurrences <= factor.occurrences and (held(p.sql) or p.attributes & uses.keys())
    ]
    filters = [f for o in inside for f in o.filters if held(f)]
    if not (uses or weights or predicates or filters):
        return None
    if any(providers[a] > 1 for a in uses):
        return None  # rows are joined by it
    spanning = {name: w for name, w in weights.items() if len(w.occurrences) > 1}
    single = {name: w for name, w in weights.items() if name not in spanning}
    needed = {*factor.output}.union(*(p.attributes for p in predicates))
    needed = needed.union(*(_attributes(w.sql) for w in spanning.values()))
    values = {a: value_sql(u, query.attributes[a], o) for a, (o, u) in uses.items() if a in needed}
    filters += [f"{u.sql} IS NOT NULL" for a, (_, u) in uses.items() if query.attributes[a].join]
    texts = [*values.values(), *filters, *(w.sql for w in single.values())]
    columns = _columns(inside, texts)
    if columns is None:
        return None
    numbers = {column: len(query.attributes) + k for k, column in enumerate(columns)}

    def here(sql: str) -> str:
        return _renamed(sql, numbers)

    return Late(
        sent=_sent(query, inside, set(uses), filters, columns, set(weights), predicates),
        keys=(*sorted(needed - uses.keys()), *numbers.values()),
        values={a: here(sql) for a, sql in values.items()},
        weights={name: here(weight_sql(w, number)) for name, w in single.items()},
        spanning={name: weight_sql(w, number) for name, w in spanning.items()},
        filters=tuple(here(f"({f})") for f in filters),
        predicates=tuple(f"({p.sql})" for p in predicates),
    )


def _sent(
    query: JoinQuery,
    inside: list[Occurrence],
    uses: set[int],
    filters: list[str],
    columns: dict[tuple[int, str], str],
    weights: set[str],
    predicates: list[Predicate],
) -> JoinQuery:
    """Return the query without what is late, and with the columns that it reads."""
    attributes = list(query.attributes)
    occurrences = list(query.occurrences)
    for o in inside:
        occurrences[o.index] = replace(
            o,
            uses=tuple(u for u in o.uses if u.attribute not in uses),
            filters=tuple(f for f in o.filters if f not in filters),
        )
    for (index, name), type_ in columns.items():
        o = occurrences[index]
        use = AttributeUse(len(attributes), f"{o.alias}.{quote_identifier(name)}", name)
        attributes.append(Attribute(len(attributes), type_, join=False))
        occurrences[index] = replace(o, uses=(*o.uses, use))
    return replace(
        query,
        occurrences=tuple(occurrences),
        attributes=tuple(attributes),
        predicates=tuple(p for p in query.predicates if p not in predicates),
        weights=tuple(
            replace(w, occurrences=_NOWHERE) if f"w{i}" in weights else w
            for i, w in enumerate(query.weights)
        ),
    )


def _columns(
    inside: Iterable[Occurrence], texts: Iterable[str]
) -> dict[tuple[int, str], str] | None:
    """Return the columns that texts read, and their types; ``None`` if one cannot be grouped by."""
    types = {(o.index, c.name): c.type_name for o in inside for c in o.relation.columns}
    found: dict[tuple[int, str], str] = {}
    for text in texts:
        for match in _COLUMN.finditer(text):
            column = _column(match)
            if column is None:
                continue
            type_ = types.get(column)
            exact = type_ is not None and (base(type_) in _PLAIN or "numeric(" in type_)
            if type_ is None or not exact:
                return None
            found[column] = type_
    return found


def _column(match: re.Match[str]) -> tuple[int, str] | None:
    if match[1] is None:
        return None
    name = match[3] if match[2] is None else match[2].replace('""', '"')
    return int(match[1]), name


def _renamed(sql: str, numbers: dict[tuple[int, str], int]) -> str:
    def rename(match: re.Match[str]) -> str:
        column = _column(match)
        return match[0] if column is None else f"u.a{numbers[column]}"

    return _COLUMN.sub(rename, sql)


def _attributes(sql: str) -> set[int]:
    return {int(match[1]) for match in _ATTRIBUTE.finditer(sql) if match[1] is not None}
