"""From nested FROM items, views and WITH queries to one select-project-join block.

Flattening is substitution: a derived table contributes its own occurrences and
conditions, and its output columns stand for expressions over them.  That is the
definition of an inner join without aggregation, so the block has exactly the rows, with
multiplicities, of the original: ``(SELECT f(a) FROM R WHERE p) x JOIN S`` has one row per
pair of a row of R with p and a row of S.  A WITH query that is used twice is read twice
(a self-join); one that is not used has no influence on a result without side effects.

Outer joins and sub-queries of WHERE are flattened where `dpsql.query.matches` shows that they are
inner joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from dpsql.errors import (
    DeclarationsChanged,
    FunctionNotAllowed,
    InternalError,
    UndeclaredRelation,
    UnsupportedConstruct,
)
from dpsql.query import matches, refusals, types
from dpsql.query.catalog import Catalog
from dpsql.query.expressions import Builder
from dpsql.query.ir import Expr, column_of, conjuncts, constant, literal
from dpsql.query.matches import Outer, Outers
from dpsql.query.parse import parse
from dpsql.query.screen import screen
from dpsql.query.syntax import Derived, FromItem, Join, Node, Select, Table, With
from dpsql.relation import Relation, base, show_name

SYSTEM_COLUMNS = frozenset(["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"])
MAX_OCCURRENCES = 12
_NEVER_DECLARED = ("pg_catalog", "information_schema", "dp", "dpv")
_MAX_VIEW_DEPTH = 32
_NUMBERS = (*types.EXACT, *types.FLOATS)
_TIMES = ("date", types.TIMESTAMP, types.TIMESTAMPTZ)


@dataclass
class Block:
    """One select-project-join block under construction."""

    relations: list[Relation] = field(default_factory=list)
    conjuncts: list[Expr] = field(default_factory=list)


Columns = list[tuple[str, Expr]]


class Scope:
    """Names that expressions of one SELECT can see; ``parent`` is that of the query around."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.aliases: dict[str, dict[str, Expr]] = {}
        self.merged: dict[str, Expr] = {}
        self.everything: list[tuple[str, Expr]] = []

    def add(self, alias: str, columns: Columns) -> None:
        """Make a FROM item visible."""
        self.aliases[alias] = dict(columns)

    def take(self, other: Scope) -> None:
        """Make all names of another scope visible."""
        self.aliases.update(other.aliases)
        self.merged.update(other.merged)

    def replace(self, change: Callable[[Columns], Columns]) -> None:
        """Change the columns behind the names."""
        self.aliases = {a: dict(change([*c.items()])) for a, c in self.aliases.items()}
        self.merged = dict(change([*self.merged.items()]))

    def lookup(self, node: Node) -> Expr:
        """Resolve a column reference."""
        return _readable(self._find(node), node.position)

    def _find(self, node: Node) -> Expr:
        parts = node.value if isinstance(node.value, tuple) else ()
        if len(parts) == 2:
            columns = self.aliases.get(parts[0])
            if columns is None and self.parent is not None:
                return self.parent.lookup(node)
            if columns is None:
                raise UnsupportedConstruct(
                    "references to an outer query are not supported",
                    hint="Join the relation instead.",
                    position=node.position,
                )
            if parts[1] in columns:
                return columns[parts[1]]
        elif len(parts) == 1:
            found = {c[parts[0]] for c in self.aliases.values() if parts[0] in c}
            if parts[0] in self.merged:
                return self.merged[parts[0]]
            if len(found) == 1:
                return found.pop()
            if parts[0] in self.aliases:
                refusals.refuse("whole_row", node.position)
        if parts and parts[-1] in SYSTEM_COLUMNS:
            refusals.refuse("system_column", node.position)
        # names are resolved as of now, and the transaction's snapshot may be older
        raise DeclarationsChanged(
            "a relation of the statement has other columns by now",
            detail="The transaction's snapshot still shows what was there before.",
            position=node.position,
        )


def _how_to_declare(schema: str, shown: str) -> str:
    if schema == "dpv":
        return (
            "It has released numbers or synthetic rows, which cost nothing: query it without"
            " dp_count, or join it to the answer of a question in a sub-query. Ask about a"
            " protected relation under its own name."
        )
    if schema in _NEVER_DECLARED:
        return "Catalogues and temporary tables cannot be joined privately: leave it out."
    name = literal(shown)
    return (
        f"Its owner can declare it: SELECT dp.protect({name}), dp.declare_public({name}),"
        f" dp.link({name}, parent, columns) if its rows belong to privacy units of another"
        f" relation, or, if it is a view, dp.declare_view({name}). A synthetic copy needs none:"
        " query it without dp_count."
    )


class Flattener:
    """Collects one block from a tree of FROM items.

    With ``outers``, outer joins may be left pending, for `dpsql.query.matches.decide`.
    """

    def __init__(self, catalog: Catalog, outers: Outers | None = None) -> None:
        self.catalog = catalog
        self.block = Block()
        self.outers = outers
        self._views: list[tuple[str, str]] = []

    def top(self, query: Select) -> Scope:
        """Flatten FROM and WHERE of the outermost query and return its names."""
        return self._sources(query, {})

    def _sources(
        self, query: Select, outer: Mapping[str, _Cte], parent: Scope | None = None
    ) -> Scope:
        ctes = dict(outer)
        for cte in query.ctes:
            ctes[cte.name] = _Cte(cte, dict(ctes))
        scope = Scope(parent)
        if not query.sources:
            raise UnsupportedConstruct(
                "a query without FROM is not supported",
                hint="Use SELECT dp_count(*) FROM relation.",
                position=query.position,
            )
        for item in query.sources:
            self._item(item, ctes, scope)
        if query.where is not None:
            self._condition(query.where, scope, ctes)
        return scope

    def _condition(self, node: Node, scope: Scope, ctes: Mapping[str, _Cte]) -> None:
        """Add what must be true of a row."""
        if node.kind == "and":
            for part in node.args:
                self._condition(part, scope, ctes)
        elif node.kind in ("exists", "in_query"):
            self._member(node, scope, ctes)
        else:
            built = Builder(self.catalog, scope.lookup).build(node)
            self.block.conjuncts.extend(conjuncts(built))

    def _member(self, node: Node, scope: Scope, ctes: Mapping[str, _Cte]) -> None:
        """Join the sub-query of EXISTS or IN, which has at most one row for each row outside.

        That it removes duplicates or sorts means nothing to either.
        """
        query = cast("Select", node.value)
        block = self.block
        outside, known = len(block.relations), len(block.conjuncts)
        exists = node.kind == "exists"
        once = exists and query.limit is not None and query.limit.kind == "const"
        limited = query.limit is not None and not (once and query.limit.value not in (None, "0"))
        if not query.sources or query.grouped or query.having or query.offset or limited:
            refusals.refuse(node.kind, node.position)
        inner = self._sources(query, ctes, scope)
        targets = [
            Builder(self.catalog, inner.lookup).build(t.expression)
            for t in query.targets
            if not exists or t.expression.kind not in ("name", "const")
        ]
        if not exists:
            builder = Builder(self.catalog, scope.lookup)
            (found,) = targets
            sides = _common(builder.build(node.args[0]), found, builder, node.position)
            block.conjuncts.append(builder.operator("=", sides, node.position))
        inside = range(outside, len(block.relations))
        if not matches.at_most_one(block.relations, inside, block.conjuncts[known:]):
            refusals.refuse(node.kind, node.position)

    def _derived(self, query: Select, ctes: Mapping[str, _Cte]) -> Columns:
        """Flatten a sub-query; its output columns as expressions."""
        plain = not (query.grouped or query.having or query.order)
        if not plain or query.limit or query.offset:
            refusals.refuse("derived_aggregate", query.position)
        if query.distinct:
            refusals.refuse("derived_distinct", query.position)
        scope = self._sources(query, ctes)
        builder = Builder(self.catalog, scope.lookup)
        found: Columns = []
        for target in query.targets:
            if target.expression.kind == "name":
                found.append((target.name, scope.lookup(target.expression)))
            else:
                found.append((target.name, builder.build(target.expression)))
        return found

    def _item(self, item: FromItem, ctes: Mapping[str, _Cte], scope: Scope) -> Columns:
        """Add a FROM item to the block and its names to the scope; return its columns."""
        if isinstance(item, Join):
            return self._join(item, ctes, scope)
        if isinstance(item, Derived):
            columns = self._derived(item.query, ctes)
        else:
            columns = self._table(item, ctes)
        columns = _rename(columns, item.columns)
        scope.add(item.alias, columns)
        return columns

    def _table(self, item: Table, ctes: Mapping[str, _Cte]) -> Columns:
        if not item.schema and item.name in ctes:
            cte = ctes[item.name]
            return _rename(self._derived(cte.definition.query, cte.visible), cte.definition.columns)
        schema = item.schema or "pg_catalog"
        relation = self.catalog.relation(schema, item.name)
        if relation is not None:
            if item.only:
                raise UnsupportedConstruct(
                    "ONLY is not supported",
                    hint="Name the relation without ONLY; a declared relation covers its parts.",
                    position=item.position,
                )
            return self._occurrence(relation, item)
        view = self.catalog.view(schema, item.name)
        # a temporary table has no schema here, too
        shown = show_name(item.schema, item.name) if item.schema else show_name(item.name)
        if view is None:
            raise UndeclaredRelation(
                f'relation "{shown}" is neither protected nor public',
                hint=_how_to_declare(schema, shown),
                position=item.position,
            )
        if (schema, item.name) in self._views or len(self._views) > _MAX_VIEW_DEPTH:
            raise UnsupportedConstruct("views are nested too deeply", position=item.position)
        self._views.append((schema, item.name))
        try:
            screen(view, self.catalog)
            return self._derived(parse(str(view["sql"])), {})
        except (UnsupportedConstruct, FunctionNotAllowed) as error:
            raise type(error)(
                error.message,
                detail=f'It is used in the definition of view "{shown}".',
                hint=error.hint,
                position=item.position,
            ) from None
        finally:
            self._views.pop()

    def _occurrence(self, relation: Relation, item: Table) -> Columns:
        number = len(self.block.relations)
        if number >= MAX_OCCURRENCES:
            raise UnsupportedConstruct(
                f"more than {MAX_OCCURRENCES} relations are not supported",
                detail=f"This is relation number {number + 1}; each mention counts.",
                hint="Ask several smaller questions, or join fewer relations.",
                position=item.position,
            )
        self.block.relations.append(relation)
        return [
            (
                c.name,
                Expr("withheld", base(c.type_name), data=(relation.shown, c.name, c.withheld))
                if c.withheld
                # a foreign table's NOT NULL is a claim that nobody enforces
                else column_of(number, c, c.not_null and relation.kind != "f"),
            )
            for c in relation.columns
        ]

    def _join(self, item: Join, ctes: Mapping[str, _Cte], scope: Scope) -> Columns:
        # names below an aliased join are visible inside it only
        inner = Scope(scope.parent) if item.alias else scope
        if item.outer:
            columns = self._outer_join(item, ctes, inner)
        else:
            left = self._item(item.left, ctes, inner)
            right = self._item(item.right, ctes, inner)
            if item.on is not None:
                self._condition(item.on, inner, ctes)
            self.block.conjuncts.extend(self._using(item, left, right, inner))
            for name in item.using:
                both = _named(left, name, item.position), _named(right, name, item.position)
                inner.merged[name] = _merged(*both)
            columns = _shown(item, left, right, inner)
        if item.alias:
            columns = _rename(columns, item.columns)
            scope.add(item.alias, columns)
        return columns

    def _using(self, item: Join, left: Columns, right: Columns, scope: Scope) -> list[Expr]:
        """Return the equalities that USING stands for."""
        builder = Builder(self.catalog, scope.lookup)
        found = []
        for name in item.using:
            both = _named(left, name, item.position), _named(right, name, item.position)
            sides = _common(*both, builder, item.position)
            found.append(builder.operator("=", sides, item.position))
        return found

    def _outer_join(self, item: Join, ctes: Mapping[str, _Cte], scope: Scope) -> Columns:
        """Read an outer join, as an inner one where it is one by what FROM says."""
        outers = self.outers or Outers()
        number = outers.met
        outers.met += 1
        block = self.block
        mine = Scope(scope.parent), Scope(scope.parent)
        columns: list[Columns] = []
        inside: list[int] = []
        conditions: list[Expr] = []
        decided = outers.decided.get(number)
        for side, own in zip((item.left, item.right), mine, strict=True):
            optional = (side is item.right) == (item.outer == "LEFT")
            if optional and decided is False:
                # nothing of it is read: its columns are there by name only
                self.block = Block()
                columns.append(self._item(side, ctes, own))
                self.block = block
                continue
            first, known, pending = len(block.relations), len(block.conjuncts), len(outers.pending)
            columns.append(self._item(side, ctes, own))
            if optional:
                inside = [*range(first, len(block.relations))]
                conditions = block.conjuncts[known:]
                del block.conjuncts[known:]
                if len(outers.pending) > pending:
                    refusals.refuse("outer_join", item.position)
        left, right = columns
        both = Scope(scope.parent)
        for own in mine:
            both.take(own)
        if decided is not False:
            if item.on is not None:
                built = Builder(self.catalog, both.lookup).build(item.on)
                conditions.extend(conjuncts(built))
            conditions.extend(self._using(item, left, right, both))
        where = mine[item.outer == "LEFT"]
        if decided is False:
            where.replace(_nothing)
            right, left = (
                (_nothing(right), left) if item.outer == "LEFT" else (right, _nothing(left))
            )
        elif decided or matches.always_one(block.relations, inside, conditions, outers.unsure()):
            block.conjuncts.extend(conditions)
        elif self.outers is None or self._views:
            refusals.refuse("outer_join", item.position)
        else:
            outers.pending.append(
                Outer(number, frozenset(inside), tuple(conditions), item.position)
            )

            def extended(shown: Columns) -> Columns:
                found = matches.extended(shown, block.relations, inside)
                if found is None:
                    refusals.refuse("outer_join", item.position)
                return found

            where.replace(extended)
            right, left = (
                (extended(right), left) if item.outer == "LEFT" else (right, extended(left))
            )
        for own in mine:
            scope.take(own)
        kept, lost = (left, right) if item.outer == "LEFT" else (right, left)
        for name in item.using:
            first_, second = _named(kept, name, item.position), _named(lost, name, item.position)
            if first_.type != second.type:
                refusals.refuse("outer_join", item.position)
            scope.merged[name] = first_
        return _shown(item, left, right, scope)


@dataclass
class _Cte:
    """A WITH query and the WITH queries that it can see."""

    definition: With
    visible: Mapping[str, _Cte]


def _rename(columns: Columns, names: tuple[str, ...]) -> Columns:
    """Apply a column alias list, which may be shorter than the columns."""
    return [
        (names[i] if i < len(names) else name, expression)
        for i, (name, expression) in enumerate(columns)
    ]


def _named(columns: Columns, name: str, position: int) -> Expr:
    found = [e for n, e in columns if n == name]
    if len(found) != 1:
        raise InternalError("a USING column is not known", position=position)
    return _readable(found[0], position)


def _readable(e: Expr, position: int | None) -> Expr:
    """Refuse a column that questions must not read, whatever name it is used by."""
    if e.kind == "withheld":
        relation, name, why = cast("tuple[str, str, str]", e.data)
        refusals.refuse(why, position, f"The column {name} of relation {relation}.")
    return e


def _nothing(columns: Columns) -> Columns:
    return [(name, constant(e.type, None)) for name, e in columns]


def _shown(item: Join, left: Columns, right: Columns, scope: Scope) -> Columns:
    """Return the columns of a join, those of USING first."""
    columns = [*left, *right]
    if item.using:
        merged = [(name, scope.merged[name]) for name in item.using]
        columns = [*merged, *(c for c in columns if c[0] not in item.using)]
        if item.using_alias:
            scope.add(item.using_alias, merged)
    return columns


def _merged(left: Expr, right: Expr) -> Expr:
    """Choose the side that a USING column stands for: the one of the common type."""
    for order in (_NUMBERS, _TIMES):
        if left.type in order and right.type in order:
            return max(left, right, key=lambda e: order.index(e.type))
    return left


def _common(left: Expr, right: Expr, builder: Builder, position: int) -> tuple[Expr, Expr]:
    """Check the types of USING columns and add the casts, which deparsed text does not show.

    The casts are those that PostgreSQL's operator resolution adds to ``left = right``.
    """
    for side in (left, right):
        builder.type_of(side.type, position)
    kinds = {left.type, right.type}
    if "character varying" in kinds:
        target = "bpchar" if "bpchar" in kinds else "text"
        source = {"character varying"}
    elif kinds == {"bpchar", "text"}:
        target, source = "text", {"bpchar"}
    elif kinds & set(types.FLOATS):
        target, source = "double precision", set(types.EXACT)
    elif "numeric" in kinds:
        target, source = "numeric", set(types.INTEGERS)
    else:
        return left, right
    return (
        builder.cast_to(left, target, position) if left.type in source else left,
        builder.cast_to(right, target, position) if right.type in source else right,
    )
