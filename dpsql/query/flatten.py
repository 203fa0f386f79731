"""From nested FROM items, views and WITH queries to one select-project-join block.

Flattening is substitution: a derived table contributes its own occurrences and
conditions, and its output columns stand for expressions over them.  That is the
definition of an inner join without aggregation, so the block has exactly the rows, with
multiplicities, of the original: ``(SELECT f(a) FROM R WHERE p) x JOIN S`` has one row per
pair of a row of R with p and a row of S.  A WITH query that is used twice is read twice
(a self-join); one that is not used has no influence on a result without side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpsql.errors import FunctionNotAllowed, InternalError, UndeclaredRelation, UnsupportedConstruct
from dpsql.query import refusals, types
from dpsql.query.catalog import Catalog
from dpsql.query.expressions import Builder
from dpsql.query.ir import Expr, column, conjuncts, literal
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
    """Names that expressions of one SELECT can see."""

    def __init__(self) -> None:
        self.aliases: dict[str, dict[str, Expr]] = {}
        self.merged: dict[str, Expr] = {}
        self.everything: list[tuple[str, Expr]] = []

    def add(self, alias: str, columns: Columns) -> None:
        """Make a FROM item visible."""
        self.aliases[alias] = dict(columns)

    def lookup(self, node: Node) -> Expr:
        """Resolve a column reference."""
        parts = node.value if isinstance(node.value, tuple) else ()
        if len(parts) == 2:
            columns = self.aliases.get(parts[0])
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
        raise InternalError("a column of the statement is not known", position=node.position)


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
    """Collects one block from a tree of FROM items."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.block = Block()
        self._views: list[tuple[str, str]] = []

    def top(self, query: Select) -> Scope:
        """Flatten FROM and WHERE of the outermost query and return its names."""
        return self._sources(query, {})

    def _sources(self, query: Select, outer: Mapping[str, _Cte]) -> Scope:
        ctes = dict(outer)
        for cte in query.ctes:
            ctes[cte.name] = _Cte(cte, dict(ctes))
        scope = Scope()
        if not query.sources:
            raise UnsupportedConstruct(
                "a query without FROM is not supported",
                hint="Use SELECT dp_count(*) FROM relation.",
                position=query.position,
            )
        for item in query.sources:
            self._item(item, ctes, scope)
        if query.where is not None:
            self._condition(query.where, scope)
        return scope

    def _condition(self, node: Node, scope: Scope) -> None:
        built = Builder(self.catalog, scope.lookup).build(node)
        self.block.conjuncts.extend(conjuncts(built))

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
                column(
                    number,
                    c.name,
                    base(c.type_name),
                    c.type_name,
                    # a foreign table's NOT NULL is a claim that nobody enforces
                    c.not_null and relation.kind != "f",
                ),
            )
            for c in relation.columns
        ]

    def _join(self, item: Join, ctes: Mapping[str, _Cte], scope: Scope) -> Columns:
        # names below an aliased join are visible inside it only
        inner = Scope() if item.alias else scope
        left = self._item(item.left, ctes, inner)
        right = self._item(item.right, ctes, inner)
        builder = Builder(self.catalog, inner.lookup)
        if item.on is not None:
            self.block.conjuncts.extend(conjuncts(builder.build(item.on)))
        columns = [*left, *right]
        if item.using:
            merged: Columns = []
            for name in item.using:
                first = _named(left, name, item.position)
                second = _named(right, name, item.position)
                inner.merged[name] = _merged(first, second)
                merged.append((name, inner.merged[name]))
                sides = _common(first, second, builder, item.position)
                self.block.conjuncts.append(builder.operator("=", sides, item.position))
            rest = [c for c in columns if c[0] not in item.using]
            columns = [*merged, *rest]
            if item.using_alias:
                inner.add(item.using_alias, merged)
        if item.alias:
            columns = _rename(columns, item.columns)
            scope.add(item.alias, columns)
        return columns


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
    return found[0]


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
