"""What other servers are not sent to compute: it is computed here, of groups of what it reads.

postgres_fdw does not send, for example, ``EXTRACT`` and ``date_trunc``, whose result could depend
on a collation for all it knows; it would fetch every row instead.  So a part tells how often the
values occur that such an expression reads.  Of equal values that can be told apart a group would
show any one: what tells them apart is grouped by as well, so that all rows of a group are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dpsql.model import Attribute, AttributeUse, JoinQuery, Occurrence, Predicate
from dpsql.query.elimination import Base, Placed
from dpsql.query.ir import Expr, map_columns, tree
from dpsql.query.source_sql import typed, weight_sql
from dpsql.query.types import SIMPLE
from dpsql.relation import base
from dpsql.sqltree import Tree

#: What postgres_fdw does not send; a wrong guess costs time only.
_HELD = frozenset(["coalesce", "greatest", "least", "nullif", "extract", "collate"])
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

    expression: Expr
    type: str
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """What parts are asked, ``sent``, by ``keys``, and what is computed of their groups.

    ``values`` are the late attributes and ``weights`` the late sums, by name, ``filters`` and
    ``predicates`` the late conditions; a late weight in ``spanning`` is of attributes.
    """

    sent: JoinQuery
    keys: tuple[int, ...]
    values: dict[int, Tree]
    weights: dict[str, Tree]
    spanning: dict[str, Tree]
    filters: tuple[Tree, ...]
    predicates: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """Attributes that some occurrences compute late: ``uses`` of each, and what is ``lost``.

    Of the others there is a use that is sent as well.
    """

    uses: dict[int, list[tuple[Occurrence, AttributeUse]]]
    lost: frozenset[int]

    def equalities(self, query: JoinQuery) -> Iterator[Expr]:
        """Yield what rows were joined by: all uses of an attribute are equal, and none is NULL."""
        for a, uses in self.uses.items():
            values = [typed(u, query.attributes[a], o) for o, u in uses]
            first = values.pop(0) if a in self.lost else _grouped(a)
            yield from (Expr("op", "boolean", (first, value), "=") for value in values)
            if a in self.lost and query.attributes[a].join:
                yield Expr("is", "boolean", (uses[0][1].expression,), "NOT NULL")


def fetched(query: JoinQuery) -> list[tuple[str, str, str]]:
    """Return relation, column and type of what no server is sent to look at: of enum types.

    Unless the type is of an extension that the servers have, every row is fetched for it.
    """
    found: dict[tuple[str, str, str], None] = {}
    for o in query.occurrences:
        if not o.relation.parts:
            continue
        types = {c.name: c.type_name for c in o.relation.columns}
        own = [w.expression for w in query.weights if w.occurrences == {o.index}]
        for e in (*(u.expression for u in o.uses), *o.filters, *own):
            for name in filter(None, map(_name, e.walk())):
                if base(types.get(name, "text")) not in SIMPLE:
                    found[o.relation.shown, name, types[name]] = None
    return list(found)


def held(e: Expr) -> bool:
    """Tell whether postgres_fdw would not send an expression."""
    return any(map(_is_held, e.walk()))


def _is_held(e: Expr) -> bool:
    if e.kind == "is":
        return not str(e.data).endswith("NULL")
    if e.kind == "fn":
        in_utc = e.data == "timezone" and e.args[0].kind == "const" and e.args[0].type == "interval"
        return e.data in ("date_trunc", "date_part", "timezone") and not in_utc
    if e.kind == "const":  # whose literal is written as a cast of a text
        return base(e.type) not in SIMPLE
    return e.kind in _HELD or (e.kind == "cast" and str(e.data).startswith("pg_catalog."))


def late(query: JoinQuery, factor: Base | Placed, number: str) -> Late | None:
    """Find what has to be computed late; ``None`` if nothing has, or it cannot be."""
    inside = [query.occurrences[i] for i in sorted(factor.occurrences)]
    late_uses = _held(query, inside)
    lost = late_uses.lost
    weights = {
        f"w{i}": w
        for i, w in enumerate(query.weights)
        if w.occurrences <= factor.occurrences
        and (held(w.expression) or (len(w.occurrences) > 1 and w.expression.attributes() & lost))
    }
    predicates = [
        p
        for p in query.predicates
        if p.occurrences <= factor.occurrences and (held(p.expression) or p.attributes & lost)
    ]
    filters = [f for o in inside for f in o.filters if held(f)]
    if not (late_uses.uses or weights or predicates or filters):
        return None
    spanning = {name: w for name, w in weights.items() if len(w.occurrences) > 1}
    single = {name: w for name, w in weights.items() if name not in spanning}
    needed = {*factor.output, *late_uses.uses}.union(*(p.attributes for p in predicates))
    needed = needed.union(*(w.expression.attributes() for w in spanning.values()))
    values = {
        a: typed(uses[0][1], query.attributes[a], uses[0][0])
        for a, uses in late_uses.uses.items()
        if a in lost
    }
    equalities = [*late_uses.equalities(query)]
    computed = [*values.values(), *filters, *equalities, *(w.expression for w in single.values())]
    carried = _carried(inside, computed)
    if carried is None:
        return None
    first = len(query.attributes)
    numbers = {c.expression: first + k for k, c in enumerate(carried) if not c.apart}

    def here(e: Expr) -> Expr:
        return _map_read(e, lambda read: _grouped(numbers[read]))

    return Late(
        sent=_sent(query, inside, late_uses, filters, carried, set(weights), predicates),
        keys=(*sorted(needed - lost), *range(first, first + len(carried))),
        values={a: tree(here(e)) for a, e in values.items()},
        weights={
            name: weight_sql(replace(w, expression=here(w.expression)), number)
            for name, w in single.items()
        },
        spanning={name: weight_sql(w, number) for name, w in spanning.items()},
        filters=tuple(tree(here(e)) for e in (*filters, *equalities)),
        predicates=tuple(predicates),
    )


def _held(query: JoinQuery, inside: Iterable[Occurrence]) -> _Held:
    """Find the attributes that are computed late."""
    uses: dict[int, list[tuple[Occurrence, AttributeUse]]] = {}
    sent = set()
    for o in inside:
        for u in o.uses:
            if not query.attributes[u.attribute].place and held(u.expression):
                uses.setdefault(u.attribute, []).append((o, u))
            else:
                sent.add(u.attribute)
    return _Held(uses, frozenset(uses.keys() - sent))


def _sent(
    query: JoinQuery,
    inside: list[Occurrence],
    late_uses: _Held,
    filters: list[Expr],
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
        o = occurrences[min(c.expression.occurrences())]
        use = AttributeUse(len(attributes), c.expression, _name(c.expression))
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


def _carried(inside: Iterable[Occurrence], computed: Iterable[Expr]) -> list[_Carrier] | None:
    """Return what expressions read, and what tells equal values of it apart.

    ``None`` if they read what no relation has.
    """
    types = {(o.index, c.name): c.type_name for o in inside for c in o.relation.columns}
    found: dict[_Carrier, None] = {}
    for e in computed:
        for read in _read(e):
            type_ = types.get(min(read.columns())) if read.kind == "col" else read.type
            if type_ is None:
                return None
            found[_Carrier(read, type_)] = None
            apart = _APART.get(base(type_))
            if apart is not None and not type_.startswith("numeric("):
                telling = Expr("fn", apart[1], (read,), apart[0])
                found[_Carrier(telling, apart[1], apart=True)] = None
    return list(found)


def _read(e: Expr) -> list[Expr]:
    """List the columns that an expression reads, as they are stored, and the days."""
    found: list[Expr] = []

    def note(read: Expr) -> Expr:
        found.append(read)
        return read

    _map_read(e, note)
    return found


def _map_read(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuild with days, and columns of which no day is taken, changed."""

    def stored(column: Expr) -> Expr:
        changed = change(replace(column, data=column.data[:4]))  # type: ignore[index]
        domain = column.data[4:]  # type: ignore[index]
        return Expr("cast", column.type, (changed,), column.type) if domain else changed

    if (e.kind, e.data) == ("fn", "date") and e.columns() and not held(e):
        return change(e)
    if e.kind == "col" or (e.kind, e.data) == ("fn", "date"):
        return map_columns(e, stored)
    return replace(e, args=tuple(_map_read(a, change) for a in e.args))


def _name(e: Expr) -> str | None:
    """Return the name of a column; ``None`` of anything else."""
    return str(e.data[1]) if e.kind == "col" else None  # type: ignore[index]


def _grouped(attribute: int) -> Expr:
    """Return an attribute of the groups that parts send."""
    return Expr("output", "", data=("u", f"a{attribute}"))
