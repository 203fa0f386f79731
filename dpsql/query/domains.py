"""Which groups are reported: public domains of group keys (PRIVACY.md section 6).

A domain is public when it follows from the query's text, the schema, an owner's
declaration or a public relation.  In order of preference: public relations that the key
is a column of or is joined to (:mod:`dpsql.query.public_groups`); the declared domain of
the key's own columns, mapped through the key's expression; the key's type (boolean, enum)
or form (CASE over constants, width_bucket, some EXTRACT fields).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dpsql.errors import UnsupportedConstruct
from dpsql.model import GroupDomain
from dpsql.query.catalog import Catalog
from dpsql.query.emit import canonical_key, has_identity_equality
from dpsql.query.graph import Graph, as_type, bare, not_null
from dpsql.query.ir import TRUE, Expr, column, constant, map_columns, render, renumber
from dpsql.query.others import Others, domain_with_other, is_told, mapped, others_of
from dpsql.query.public_groups import PublicKey, joined_to, public_domains
from dpsql.query.types import (
    FLOATS,
    INTEGERS,
    SIMPLE,
    TEXTS,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    modifier,
)
from dpsql.relation import Domain, Relation, base, quote_identifier, show_name
from dpsql.sqltree import literal

MAX_GROUPS = 1_000_000
MAX_FILTER_VALUES = 10_000
_FIELDS = {
    "month": range(1, 13),
    "quarter": range(1, 5),
    "dow": range(7),
    "isodow": range(1, 8),
    "hour": range(24),
    "minute": range(60),
    "day": range(1, 32),
    "week": range(1, 54),
    "doy": range(1, 367),
}


@dataclass(frozen=True, slots=True)
class Domains:
    """``conditions`` drop rows whose key lies outside a declared domain.

    ``missing`` are the positions of the keys that have no public domain, ``hint`` declares these,
    of the relations ``declares``.
    """

    group_domains: tuple[GroupDomain, ...] | None
    conditions: tuple[Expr, ...]
    hint: str | None
    missing: tuple[int, ...] = ()
    declares: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Remedy:
    """What to type for a key without a domain; ``declares``: the relation that it is of."""

    text: str
    declares: str | None = None


def plan(graph: Graph, catalog: Catalog) -> Domains:
    """Find the domain of every group key of a settled graph."""
    planner = _Planner(graph, catalog)
    for position, key in enumerate(graph.keys):
        planner.key(position, key)
    return planner.finish()


def most_values(e: Expr, graph: Graph, catalog: Catalog) -> int | None:
    """Return how many values other than NULL an expression's public domain has, if it has one."""
    values = _Planner(graph, catalog).finite(e)
    found = [] if values is None else [len({v for v in values if v.data is not None})]
    sizes = []
    for occurrence, name in e.columns():
        domain = _domain(graph.relations[occurrence], name)
        if domain is None:
            break
        # an expression may give NULL a value
        sizes.append(len(domain.values) + (bare(e).kind != "col"))
    else:
        found.append(prod(sizes))
    return min(found, default=None)


class _Planner:
    def __init__(self, graph: Graph, catalog: Catalog) -> None:
        self.graph = graph
        self.catalog = catalog
        self.found: list[GroupDomain] = []
        self.public: list[PublicKey] = []
        self.declared: dict[int, list[int]] = {}
        self.conditions: dict[Expr, None] = {}
        self.missing: dict[int, _Remedy] = {}

    def key(self, position: int, key: Expr) -> None:
        (occurrence,) = key.occurrences()
        relation = self.graph.relations[occurrence]
        if not relation.private:
            self.public.append(PublicKey(position, occurrence, key))
            return
        if (values := self._with_other(key)) is not None:
            self.found.append(_listed(position, key, values, self._about(key)))
            return
        columns = _columns(key)
        domains = [_domain(relation, name) for name in columns]
        declared = all(d is not None for d in domains)
        if declared:
            for name in columns:
                self._restrict(columns[name], _domain(relation, name))
        filtered = not declared or all(d and len(d.values) <= MAX_FILTER_VALUES for d in domains)
        joined = joined_to(self.graph, position, key)
        if joined is not None and filtered:
            self.public.append(joined)
            return
        if declared:
            self.declared.setdefault(occurrence, []).append(position)
            return
        values = self.finite(key)
        if values is not None:
            self.found.append(_listed(position, key, values, self._about(key)))
            return
        name = next(n for n, d in zip(columns, domains, strict=True) if d is None)
        self.missing[position] = _remedy(relation, columns[name])

    def finish(self) -> Domains:
        conditions = tuple(self.conditions)
        if self.missing:
            remedies = dict.fromkeys(self.missing.values())
            hint = "; ".join(remedy.text for remedy in remedies)
            declares = tuple(remedy.declares for remedy in remedies if remedy.declares)
            return Domains(None, conditions, hint, tuple(self.missing), declares)
        self.found.extend(public_domains(self.graph, self.public, conditions))
        for occurrence, positions in self.declared.items():
            for together in self._sharing(positions):
                self.found.append(self._declared(occurrence, together))
        return Domains(tuple(sorted(self.found, key=lambda d: d.positions)), conditions, None)

    def _with_other(self, key: Expr) -> list[Expr] | None:
        """List what a column is grouped by whose other values count as one; NULL as declared."""
        others = others_of(key)
        if others is None or key != mapped(others.column, self.graph.relations):
            return None
        domain = domain_with_other(others.column, self.graph.relations)
        if domain is None:
            return None
        known = not_null(others.column)
        if known == TRUE:
            return others.values()
        if domain.includes_null:
            return [*others.values(), constant(key.type, None)]
        self.conditions[known] = None
        return others.values()

    # -- declared -----------------------------------------------------------------

    def _restrict(self, col: Expr, domain: Domain | None) -> None:
        """Drop rows outside a declared domain.

        Beyond ``MAX_FILTER_VALUES`` values the condition is left out: it only keeps rows
        out of groups that are never reported.
        """
        if domain is None or len(domain.values) > MAX_FILTER_VALUES:
            return
        values = tuple(constant(col.type, v) for v in domain.values)
        inside = Expr("in", "boolean", (col, *values), data=False)
        if not values:
            inside = constant("boolean", "f")
        if domain.includes_null:
            inside = Expr("or", "boolean", (inside, Expr("is", "boolean", (col,), "NULL")))
        self.conditions[inside] = None

    def _sharing(self, positions: list[int]) -> list[list[int]]:
        """Put keys that share columns together: their values depend on each other."""
        together: list[tuple[set[str], list[int]]] = []
        for position in positions:
            names = set(_columns(self.graph.keys[position]))
            members = [position]
            rest = []
            for other_names, other in together:
                if other_names & names:
                    names |= other_names
                    members = other + members
                else:
                    rest.append((other_names, other))
            together = [*rest, (names, members)]
        return [sorted(members) for _, members in together]

    def _declared(self, occurrence: int, positions: list[int]) -> GroupDomain:
        relation = self.graph.relations[occurrence]
        names = sorted({n for p in positions for n in _columns(self.graph.keys[p])})
        domains = [_domain(relation, n) for n in names]
        sizes = [len(d.values) + d.includes_null for d in domains if d is not None]
        if prod(sizes) > MAX_GROUPS:
            raise UnsupportedConstruct(
                "the group keys' domains have too many combinations",
                hint="Group by fewer columns.",
            )
        types = {c.name: c.type_name for c in relation.columns}
        sources = []
        for number, (name, domain) in enumerate(zip(names, domains, strict=True)):
            if domain is None:
                continue
            values = [literal(v) for v in domain.values] + ["NULL"] * domain.includes_null
            sources.append(
                f"(SELECT CAST(v AS {types[name]}) AS {quote_identifier(name)} FROM"
                f" pg_catalog.unnest(ARRAY[{', '.join(values)}]::text[]) AS u(v)) AS d{number}"
            )
        inner = f"(SELECT * FROM {' CROSS JOIN '.join(sources)}) AS r0"
        applicable = [
            f
            for f in self.graph.filters.get(occurrence, ())
            if f.occurrences() and {n for _, n in f.columns()} <= set(names)
        ]
        keys = [(p, self.graph.keys[p]) for p in positions]
        return _select(keys, occurrence, inner, applicable)

    # -- types and forms ------------------------------------------------------------

    def finite(self, e: Expr) -> list[Expr] | None:
        """List a superset of an expression's values when its form tells."""
        null = constant(e.type, None)
        values: list[Expr] | None = None
        if e.kind == "const":
            return [e]
        if e.type == "boolean":
            values = [constant("boolean", "f"), constant("boolean", "t")]
        elif (others := others_of(e)) is not None:
            return [*others.values(), null]
        elif e.kind == "case":
            return self._united([*e.args[1:-1:2], e.args[-1]], e.type)
        elif e.kind in ("coalesce", "greatest", "least"):
            return self._united(list(e.args), e.type)
        elif e.kind == "guard" and (inner := self.finite(e.args[1])) is not None:
            return list(dict.fromkeys([*inner, null]))
        elif e.kind == "fn" and e.data == "width_bucket":
            values = [constant("integer", str(i)) for i in range(int(str(e.args[3].data)) + 2)]
        elif (fields := _fields(e)) is not None:
            values = [constant(e.type, str(i)) for i in fields]
        elif _is_field(e):
            inner = self.finite(e.args[0])
            values = inner and [constant(e.type, v.data) for v in inner if v.data is not None]  # type: ignore[arg-type]
        else:
            labels = self.catalog.enum(_labelled(e).type)
            if labels is not None:
                values = [constant(e.type, label) for label in labels]
        if values is None:
            return None
        own = _labelled(e)
        nullable = not (own.kind == "col" and own.data[2])  # type: ignore[index]
        return [*values, null] if nullable else values

    def _about(self, key: Expr) -> list[Expr]:
        """Return the conditions that every row meets and that read nothing but a key.

        Of a value that does not meet them no row counts, whatever the rows are.
        """
        (occurrence,) = key.occurrences()
        own = _value(key)
        others = others_of(key)
        found = (_in_place(f, key, own, others) for f in self.graph.filters.get(occurrence, ()))
        return [f for f in found if {e for e in f.walk() if e.kind == "col"} == {own}]

    def _united(self, parts: list[Expr], type_: str) -> list[Expr] | None:
        united: dict[Expr, None] = {}
        for part in parts:
            values = self.finite(part)
            if values is None:
                return None
            united.update(dict.fromkeys(as_type(v, type_) for v in values))
        return list(united)


def _labelled(e: Expr) -> Expr:
    """Return what a text is the label of, where it may be an enum's; else the expression."""
    written = e.kind == "cast" and e.type in TEXTS[:2] and e.data == e.type
    return e.args[0] if written and e.args[0].type not in SIMPLE else e


def _fields(e: Expr) -> range | None:
    """Return the values that extract or date_part can give for a field of a date or time."""
    if e.kind == "extract":
        name, source = str(e.data), e.args[0]
    elif e.kind == "fn" and e.data == "date_part":
        name, source = str(e.args[0].data), e.args[1]
    else:
        return None
    if name == "hour" and source.type == TIME:
        return range(25)  # 24:00 is a time
    return None if source.type == "interval" else _FIELDS.get(name)


def _is_field(e: Expr) -> bool:
    """Tell whether a number is a field of a date or time in another type."""
    if e.kind not in ("narrow", "cast") or (e.kind == "cast" and e.data != e.type):
        return False
    inner = e.args[0].args[1] if e.args[0].kind == "guard" else e.args[0]
    return _fields(inner) is not None or _is_field(inner)


def _columns(key: Expr) -> dict[str, Expr]:
    """Columns that a key reads, by name, sorted."""
    found = {str(e.data[1]): e for e in key.walk() if e.kind == "col"}  # type: ignore[index]
    return dict(sorted(found.items()))


def _domain(relation: Relation, name: str) -> Domain | None:
    """Find the domain whose members a column's values are.

    Mere bounds have none, and with a value for all others there are other values.
    """
    found = (d for d in relation.domains if d.column == name and d.listed)
    return next((d for d in found if d.other is None), None)


def _remedy(relation: Relation, column_: Expr) -> _Remedy:
    """Write the call that would declare a column's domain, or what to do for its type instead."""
    instead = _instead(relation, column_)
    if instead is not None:
        return _Remedy(instead)
    name = literal(str(column_.data[1]))  # type: ignore[index]
    call = f"SELECT dp.set_domain({literal(relation.shown)}, {name}, {_example(column_)})"
    return _Remedy(call, relation.shown)


def _instead(relation: Relation, column_: Expr) -> str | None:
    """Write what to group by where a column's domain cannot be declared, or was."""
    name = show_name(str(column_.data[1]))  # type: ignore[index]
    if column_.type in (TIMESTAMP, TIMESTAMPTZ):
        return f"join a public table of days ON {name}::date = day and group by its column"
    declared = {d.column: d for d in relation.domains}
    bounds = declared.get(str(column_.data[1]))  # type: ignore[index]
    if bounds is not None and bounds.other is not None:
        return f"group by {name} itself: its declared domain has {bounds.other} for other values"
    if bounds is not None:
        call = f"width_bucket({name}, {bounds.lower}, {bounds.upper}, 10)"
        return f"group by {call} or a CASE: the declared range of {name} lists no values"
    if column_.type in FLOATS:
        return f"group by width_bucket({name}, 0, 100, 10) or a CASE, which need no declaration"
    if column_.type in (TIME, "bytea"):
        field = f"extract(hour FROM {name})" if column_.type == TIME else "a CASE over constants"
        return f"group by {field}, which needs no declaration: its type has no declared domains"
    return None


def _example(column_: Expr) -> str:
    """Write values that a column's domain could have."""
    if column_.type in INTEGERS:
        return "0, 100"
    if column_.type == "date":
        return "date '2000-01-01', date '2000-12-31'"
    if column_.type == "uuid":
        return "array['00000000-0000-0000-0000-000000000000']"
    size = modifier(str(column_.data[3]))  # type: ignore[index]
    if column_.type == "numeric":
        return "array[0, 0.1]" if len(size) == 2 and size[0] <= size[1] else "array[0, 1]"
    return "array['a', 'b']" if size else "array['one value', 'another']"


def _value(key: Expr) -> Expr:
    """Make the column that stands for the values of a key."""
    return column(0, "v", key.type, key.type, False)


def _in_place(e: Expr, key: Expr, value: Expr, others: Others | None) -> Expr:
    """Write an expression with the value of a key in its place."""
    if e == key:
        return value
    if others is not None and is_told(e, others):
        return map_columns(e, lambda _: value)
    return Expr(e.kind, e.type, tuple(_in_place(a, key, value, others) for a in e.args), e.data)


def _listed(position: int, key: Expr, values: list[Expr], conditions: list[Expr]) -> GroupDomain:
    shown = _value(key)
    rows = ", ".join(render(v) for v in values)
    source = f"(SELECT v FROM pg_catalog.unnest(ARRAY[{rows}]) AS u(v)) AS r0"
    return _select([(position, shown)], 0, source, conditions)


def _select(
    keys: list[tuple[int, Expr]], occurrence: int, source: str, conditions: list[Expr]
) -> GroupDomain:
    """Write the domain query; ``occurrence`` is called ``r0`` in it."""
    numbers = {occurrence: 0}
    keys = sorted(keys, key=lambda item: item[0])
    shown = []
    for index, (_, key) in enumerate(keys):
        text = render(renumber(canonical_key(key), numbers))
        shown.append(f"CAST({text} AS text) AS k{index}")
    where = " AND ".join(render(renumber(c, numbers)) for c in conditions)
    sql = f"SELECT DISTINCT {', '.join(shown)} FROM {source}"
    sql = f"{sql} WHERE {where}" if where else sql
    return GroupDomain(tuple(p for p, _ in keys), identity=sql, sql=sql)


__all__ = ["MAX_GROUPS", "Domains", "base", "has_identity_equality", "plan"]
