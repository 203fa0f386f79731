"""What other servers are not sent to compute: it is computed here, of groups of what it reads.

postgres_fdw does not send, for example, ``EXTRACT`` and ``date_trunc``, whose result could depend
on a collation for all it knows; it would fetch every row instead.  So a part tells how often the
values occur that such an expression reads.  Of equal values that can be told apart a group would
show any one: what tells them apart is grouped by as well, so that all rows of a group are alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate
from dpsql.query.elimination import Base, Placed
from dpsql.query.ir import NAME, NO_TYPE, STRING, without_strings
from dpsql.query.shippable import DAY
from dpsql.query.source_sql import value_sql, weight_sql
from dpsql.query.types import SIMPLE
from dpsql.relation import base

_COLUMN = rf"{NO_TYPE}\br(\d+)\.({NAME}|[a-z_][a-z0-9_]*)"
_TOKEN = re.compile(rf"{STRING}|{re.escape(DAY)}|{_COLUMN}|{NAME}|[()]")
_ATTRIBUTE = re.compile(rf"{STRING}|{NAME}|{NO_TYPE}(?<!\.)\ba(\d+)\b")
#: What postgres_fdw does not send; a wrong guess costs time only.
_HELD = re.compile(
    r"\b(?:COALESCE|GREATEST|LEAST|NULLIF|EXTRACT)\(|\bIS (?:NOT )?(?:TRUE|FALSE|UNKNOWN)\b"
    r'|\bdp\.|\bCOLLATE\b|"(?:date_trunc|date_part)"\(|"timezone"\((?!\'\'::interval)'
    r"|::pg_catalog\.text\)::|\bAS pg_catalog\.\w+(?:\(\d+\))?\)"
)
#: What tells equal values apart, and its type: 1.0 and 1.00, 0 and -0, 'a' and 'a ', 1 mon and 30
#: days.  Equal values of the other types are one value.
_APART = {
    "numeric": ("scale", "integer"),
    "real": ("float4send", "bytea"),
    "double precision": ("float8send", "bytea"),
    "bpchar": ("octet_length", "integer"),
    "interval": ("interval_send", "bytea"),
}
_NOWHERE = frozenset({-1})


@dataclass(frozen=True, slots=True)
class _Carrier:
    """What parts group by for what is late: an occurrence's column, its day, or what tells apart.

    ``apart`` says that nothing reads it.
    """

    occurrence: int
    sql: str
    type: str
    column: str | None = None
    apart: bool = False


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


@dataclass(frozen=True, slots=True)
class _Held:
    """Attributes that some occurrences compute late: ``uses`` of each, and what is ``lost``.

    Of the others there is a use that is sent as well.
    """

    uses: dict[int, list[tuple[Occurrence, AttributeUse]]]
    lost: frozenset[int]

    def equalities(self, query: JoinQuery) -> Iterator[str]:
        """Write what rows were joined by: all uses of an attribute are equal, and none is NULL."""
        for a, uses in self.uses.items():
            texts = [value_sql(u, query.attributes[a], o) for o, u in uses]
            first = texts.pop(0) if a in self.lost else f"u.a{a}"
            yield from (f"({first} = {text})" for text in texts)
            if a in self.lost and query.attributes[a].join:
                yield f"({uses[0][1].sql} IS NOT NULL)"


def fetched(query: JoinQuery) -> list[tuple[str, str, str]]:
    """Return relation, column and type of what no server is sent to look at: of enum types.

    Unless the type is of an extension that the servers have, every row is fetched for it.
    """
    found: dict[tuple[str, str, str], None] = {}
    for o in query.occurrences:
        if not o.relation.parts:
            continue
        types = {c.name: c.type_name for c in o.relation.columns}
        own = [w.sql for w in query.weights if w.occurrences == {o.index}]
        for text in (*(u.sql for u in o.uses), *o.filters, *own):
            for _, _, _, name in _found(text):
                if name is not None and base(types.get(name, "text")) not in SIMPLE:
                    found[o.relation.shown, name, types[name]] = None
    return list(found)


def held(sql: str) -> bool:
    """Tell whether postgres_fdw would not send an expression."""
    return bool(_HELD.search(without_strings(sql)))


def late(query: JoinQuery, factor: Base | Placed, number: str) -> Late | None:
    """Find what has to be computed late; ``None`` if nothing has, or it cannot be."""
    inside = [query.occurrences[i] for i in sorted(factor.occurrences)]
    late_uses = _held(query, inside)
    lost = late_uses.lost
    weights = {
        f"w{i}": w
        for i, w in enumerate(query.weights)
        if w.occurrences <= factor.occurrences
        and (held(w.sql) or (len(w.occurrences) > 1 and _attributes(w.sql) & lost))
    }
    predicates = [
        p
        for p in query.predicates
        if p.occurrences <= factor.occurrences and (held(p.sql) or p.attributes & lost)
    ]
    filters = [f for o in inside for f in o.filters if held(f)]
    if not (late_uses.uses or weights or predicates or filters):
        return None
    spanning = {name: w for name, w in weights.items() if len(w.occurrences) > 1}
    single = {name: w for name, w in weights.items() if name not in spanning}
    needed = {*factor.output, *late_uses.uses}.union(*(p.attributes for p in predicates))
    needed = needed.union(*(_attributes(w.sql) for w in spanning.values()))
    values = {
        a: value_sql(uses[0][1], query.attributes[a], uses[0][0])
        for a, uses in late_uses.uses.items()
        if a in lost
    }
    tests = [*(f"({f})" for f in filters), *late_uses.equalities(query)]
    texts = [*values.values(), *tests, *(w.sql for w in single.values())]
    carried = _carried(inside, texts)
    if carried is None:
        return None
    first = len(query.attributes)
    numbers = {(c.occurrence, c.sql): first + k for k, c in enumerate(carried) if not c.apart}

    def here(sql: str) -> str:
        return _renamed(sql, numbers)

    return Late(
        sent=_sent(query, inside, late_uses, filters, carried, set(weights), predicates),
        keys=(*sorted(needed - lost), *range(first, first + len(carried))),
        values={a: here(sql) for a, sql in values.items()},
        weights={name: here(weight_sql(w, number)) for name, w in single.items()},
        spanning={name: weight_sql(w, number) for name, w in spanning.items()},
        filters=tuple(map(here, tests)),
        predicates=tuple(f"({p.sql})" for p in predicates),
    )


def _held(query: JoinQuery, inside: Iterable[Occurrence]) -> _Held:
    """Find the attributes that are computed late."""
    uses: dict[int, list[tuple[Occurrence, AttributeUse]]] = {}
    sent = set()
    for o in inside:
        for u in o.uses:
            if not query.attributes[u.attribute].place and held(u.sql):
                uses.setdefault(u.attribute, []).append((o, u))
            else:
                sent.add(u.attribute)
    return _Held(uses, frozenset(uses.keys() - sent))


def _sent(
    query: JoinQuery,
    inside: list[Occurrence],
    late_uses: _Held,
    filters: list[str],
    carried: Iterable[_Carrier],
    weights: set[str],
    predicates: list[Predicate],
) -> JoinQuery:
    """Return the query without what is late, and with what that reads."""
    attributes = list(query.attributes)
    occurrences = list(query.occurrences)
    left_out = {(o.index, u) for uses in late_uses.uses.values() for o, u in uses}
    for o in inside:
        occurrences[o.index] = replace(
            o,
            uses=tuple(u for u in o.uses if (o.index, u) not in left_out),
            filters=tuple(f for f in o.filters if f not in filters),
        )
    for c in carried:
        o = occurrences[c.occurrence]
        use = AttributeUse(len(attributes), c.sql, c.column)
        attributes.append(Attribute(len(attributes), c.type, join=False))
        occurrences[o.index] = replace(o, uses=(*o.uses, use))
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


def _carried(inside: Iterable[Occurrence], texts: Iterable[str]) -> list[_Carrier] | None:
    """Return what texts read, and what tells equal values of it apart.

    ``None`` if they read what no relation has.
    """
    types = {(o.index, c.name): c.type_name for o in inside for c in o.relation.columns}
    found: dict[_Carrier, None] = {}
    for text in texts:
        for start, end, index, name in _found(text):
            type_ = "date" if name is None else types.get((index, name))
            if type_ is None:
                return None
            carrier = _Carrier(index, text[start:end], type_, name)
            found[carrier] = None
            apart = _APART.get(base(type_))
            if apart is not None and not type_.startswith("numeric("):
                function = f'pg_catalog."{apart[0]}"({carrier.sql})'
                found[_Carrier(index, function, apart[1], apart=True)] = None
    return list(found)


def _found(sql: str) -> list[tuple[int, int, int, str | None]]:
    """Find columns and days: begin, end, occurrence and the column's name."""
    found: list[tuple[int, int, int, str | None]] = []
    depth, day = 0, None
    for match in _TOKEN.finditer(sql):
        text = match[0]
        if text == DAY and day is None:
            day = match.start(), depth, len(found)
        if text in (DAY, "("):
            depth += 1
        elif text == ")":
            depth -= 1
            if day is not None and day[1] == depth:
                whole = sql[day[0] : match.end()]
                inner = found[day[2] :]
                if inner and not held(whole):
                    found[day[2] :] = [(day[0], match.end(), inner[0][2], None)]
                day = None
        elif match[1] is not None:
            name = match[2]
            name = name[1:-1].replace('""', '"') if name.startswith('"') else name
            found.append((match.start(), match.end(), int(match[1]), name))
    return found


def _renamed(sql: str, numbers: dict[tuple[int, str], int]) -> str:
    written, at = [], 0
    for start, end, index, _ in _found(sql):
        written += [sql[at:start], f"u.a{numbers[index, sql[start:end]]}"]
        at = end
    return "".join([*written, sql[at:]])


def _attributes(sql: str) -> set[int]:
    return {int(match[1]) for match in _ATTRIBUTE.finditer(sql) if match[1] is not None}
