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

from sqlglot import exp

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
from dpsql.query.ir import Expr, column_of, conjuncts, constant
from dpsql.query.matches import Outer, Outers
from dpsql.query.nodes import (
    clause,
    constant_of,
    is_join,
    names,
    operands,
    sources,
    target_name,
    targets,
)
from dpsql.query.parse import parse
from dpsql.query.screen import screen
from dpsql.relation import Relation, base, show_name
from dpsql.sqltree import literal
from dpsql.sqltree.nodes import position

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

    def lookup(self, node: exp.Column) -> Expr:
        """Resolve a column reference."""
        return _readable(self._find(node), position(node))

    def _find(self, node: exp.Column) -> Expr:
        parts = names(node)
        if len(parts) == 2:
            columns = self.aliases.get(parts[0])
            if columns is None and self.parent is not None:
                return self.parent.lookup(node)
            if columns is None:
                raise UnsupportedConstruct(
                    "references to an outer query are not supported",
                    hint="Join the relation instead.",
                    position=position(node),
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
                refusals.refuse("whole_row", position(node))
        if parts and parts[-1] in SYSTEM_COLUMNS:
            refusals.refuse("system_column", position(node))
        # names are resolved as of now, and the transaction's snapshot may be older
        raise DeclarationsChanged(
            "a relation of the statement has other columns by now",
            detail="The transaction's snapshot still shows what was there before.",
            position=position(node),
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

    def top(self, query: exp.Select) -> Scope:
        """Flatten FROM and WHERE of the outermost query and return its names."""
        return self._sources(query, {})

    def _sources(
        self, query: exp.Select, outer: Mapping[str, _Cte], parent: Scope | None = None
    ) -> Scope:
        ctes = dict(outer)
        for cte in query.ctes:
            ctes[cte.alias] = _Cte(cte, dict(ctes))
        scope = Scope(parent)
        if not sources(query):
            raise UnsupportedConstruct(
                "a query without FROM is not supported",
                hint="Use SELECT dp_count(*) FROM relation.",
                position=position(query),
            )
        for item in sources(query):
            self._item(item, ctes, scope)
        where = clause(query, "where")
        if where is not None:
            self._condition(where, scope, ctes)
        return scope

    def _condition(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, _Cte]) -> None:
        """Add what must be true of a row."""
        node = node.unnest()
        if isinstance(node, exp.And):
            for part in operands(node):
                self._condition(part, scope, ctes)
        elif isinstance(node, (exp.Exists, exp.In)):
            self._member(node, scope, ctes)
        else:
            built = Builder(self.catalog, scope.lookup).build(node)
            self.block.conjuncts.extend(conjuncts(built))

    def _member(self, node: exp.Exists | exp.In, scope: Scope, ctes: Mapping[str, _Cte]) -> None:
        """Join the sub-query of EXISTS or IN, which has at most one row for each row outside.

        That it removes duplicates or sorts means nothing to either.
        """
        exists = isinstance(node, exp.Exists)
        query = node.this if exists else node.args["query"].this
        kind = "exists" if exists else "in_query"
        block = self.block
        outside, known = len(block.relations), len(block.conjuncts)
        limit = clause(query, "limit")
        number = constant_of(limit) if exists and limit is not None else None
        limited = limit is not None and (number is None or number.text in (None, "0"))
        if not sources(query) or limited or any(map(query.args.get, ("group", "having", "offset"))):
            refusals.refuse(kind, position(node))
        inner = self._sources(query, ctes, scope)
        asked = [
            Builder(self.catalog, inner.lookup).build(t)
            for t in targets(query)
            if not exists or not (isinstance(t, exp.Column) or constant_of(t))
        ]
        if not exists:
            builder = Builder(self.catalog, scope.lookup)
            (found,) = asked
            sides = _common(builder.build(node.this), found, builder, position(node))
            block.conjuncts.append(builder.operator("=", sides, position(node)))
        inside = range(outside, len(block.relations))
        if not matches.at_most_one(block.relations, inside, block.conjuncts[known:]):
            refusals.refuse(kind, position(node))

    def _derived(self, query: exp.Select, ctes: Mapping[str, _Cte]) -> Columns:
        """Flatten a sub-query; its output columns as expressions."""
        if any(map(query.args.get, ("group", "having", "order", "limit", "offset"))):
            refusals.refuse("derived_aggregate", position(query))
        if query.args.get("distinct"):
            refusals.refuse("derived_distinct", position(query))
        scope = self._sources(query, ctes)
        builder = Builder(self.catalog, scope.lookup)
        found: Columns = []
        for target in query.expressions:
            e, name = target.unalias(), target_name(target)
            built = scope.lookup(e) if isinstance(e, exp.Column) else builder.build(e)
            found.append((name, built))
        return found

    def _item(self, item: exp.Expr, ctes: Mapping[str, _Cte], scope: Scope) -> Columns:
        """Add a FROM item to the block and its names to the scope; return its columns."""
        alias = item.alias_or_name if isinstance(item, exp.Table) else item.alias
        if is_join(item):
            # names below an aliased join are visible inside it only
            inner = Scope(scope.parent) if alias else scope
            columns = self._joined(item.this, item.this.args["joins"], ctes, inner)
            if not alias:
                return columns
        elif isinstance(item, exp.Table):
            columns = self._table(item, ctes)
        else:
            columns = self._derived(item.this, ctes)
        columns = _rename(columns, item)
        scope.add(alias, columns)
        return columns

    def _table(self, item: exp.Table, ctes: Mapping[str, _Cte]) -> Columns:
        if not item.db and item.name in ctes:
            cte = ctes[item.name]
            return _rename(self._derived(cte.definition.this, cte.visible), cte.definition)
        schema = item.db or "pg_catalog"
        relation = self.catalog.relation(schema, item.name)
        if relation is not None:
            if item.args.get("only"):
                raise UnsupportedConstruct(
                    "ONLY is not supported",
                    hint="Name the relation without ONLY; a declared relation covers its parts.",
                    position=position(item),
                )
            return self._occurrence(relation, item)
        view = self.catalog.view(schema, item.name)
        # a temporary table has no schema here, too
        shown = show_name(item.db, item.name) if item.db else show_name(item.name)
        if view is None:
            raise UndeclaredRelation(
                f'relation "{shown}" is neither protected nor public',
                hint=_how_to_declare(schema, shown),
                position=position(item),
            )
        if (schema, item.name) in self._views or len(self._views) > _MAX_VIEW_DEPTH:
            raise UnsupportedConstruct("views are nested too deeply", position=position(item))
        self._views.append((schema, item.name))
        try:
            screen(view, self.catalog)
            return self._derived(parse(str(view["sql"])), {})
        except (UnsupportedConstruct, FunctionNotAllowed) as error:
            raise type(error)(
                error.message,
                detail=f'It is used in the definition of view "{shown}".',
                hint=error.hint,
                position=position(item),
            ) from None
        finally:
            self._views.pop()

    def _occurrence(self, relation: Relation, item: exp.Table) -> Columns:
        number = len(self.block.relations)
        if number >= MAX_OCCURRENCES:
            raise UnsupportedConstruct(
                f"more than {MAX_OCCURRENCES} relations are not supported",
                detail=f"This is relation number {number + 1}; each mention counts.",
                hint="Ask several smaller questions, or join fewer relations.",
                position=position(item),
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

    def _joined(
        self, first: exp.Expr, joins: list[exp.Join], ctes: Mapping[str, _Cte], scope: Scope
    ) -> Columns:
        """Add an item and what is joined to it, from left to right."""
        if not joins:
            return self._item(first, ctes, scope)
        *before, item = joins
        if item.side:
            return self._outer_join(first, joins, ctes, scope)
        left = self._joined(first, before, ctes, scope)
        right = self._item(item.this, ctes, scope)
        if item.args.get("on") is not None:
            self._condition(item.args["on"], scope, ctes)
        self.block.conjuncts.extend(self._using(item, left, right, scope))
        for name in _using(item):
            both = _named(left, name, position(item)), _named(right, name, position(item))
            scope.merged[name] = _merged(*both)
        return _shown(item, left, right, scope)

    def _using(self, item: exp.Join, left: Columns, right: Columns, scope: Scope) -> list[Expr]:
        """Return the equalities that USING stands for."""
        builder = Builder(self.catalog, scope.lookup)
        found = []
        for name in _using(item):
            both = _named(left, name, position(item)), _named(right, name, position(item))
            sides = _common(*both, builder, position(item))
            found.append(builder.operator("=", sides, position(item)))
        return found

    def _outer_join(
        self, first: exp.Expr, joins: list[exp.Join], ctes: Mapping[str, _Cte], scope: Scope
    ) -> Columns:
        """Read an outer join, as an inner one where it is one by what FROM says."""
        *before, item = joins
        optional_right = item.side == "LEFT"
        outers = self.outers or Outers()
        number = outers.met
        outers.met += 1
        block = self.block
        mine = Scope(scope.parent), Scope(scope.parent)
        columns: list[Columns] = []
        inside: list[int] = []
        conditions: list[Expr] = []
        decided = outers.decided.get(number)
        sides: list[tuple[exp.Expr, list[exp.Join]]] = [(first, before), (item.this, [])]
        for (begin, more), own in zip(sides, mine, strict=True):
            optional = (own is mine[1]) == optional_right
            if optional and decided is False:
                # nothing of it is read: its columns are there by name only
                self.block = Block()
                columns.append(self._joined(begin, more, ctes, own))
                self.block = block
                continue
            start, known, pending = len(block.relations), len(block.conjuncts), len(outers.pending)
            columns.append(self._joined(begin, more, ctes, own))
            if optional:
                inside = [*range(start, len(block.relations))]
                conditions = block.conjuncts[known:]
                del block.conjuncts[known:]
                if len(outers.pending) > pending:
                    refusals.refuse("outer_join", position(item))
        left, right = columns
        both = Scope(scope.parent)
        for own in mine:
            both.take(own)
        if decided is not False:
            if item.args.get("on") is not None:
                built = Builder(self.catalog, both.lookup).build(item.args["on"])
                conditions.extend(conjuncts(built))
            conditions.extend(self._using(item, left, right, both))
        where = mine[optional_right]
        if decided is False:
            where.replace(_nothing)
            right, left = (_nothing(right), left) if optional_right else (right, _nothing(left))
        elif decided or matches.always_one(block.relations, inside, conditions, outers.unsure()):
            block.conjuncts.extend(conditions)
        elif self.outers is None or self._views:
            refusals.refuse("outer_join", position(item))
        else:
            outers.pending.append(
                Outer(number, frozenset(inside), tuple(conditions), position(item))
            )

            def extended(shown: Columns) -> Columns:
                found = matches.extended(shown, block.relations, inside)
                if found is None:
                    refusals.refuse("outer_join", position(item))
                return found

            where.replace(extended)
            right, left = (extended(right), left) if optional_right else (right, extended(left))
        for own in mine:
            scope.take(own)
        kept, lost = (left, right) if optional_right else (right, left)
        for name in _using(item):
            sure, unsure = _named(kept, name, position(item)), _named(lost, name, position(item))
            if sure.type != unsure.type:
                refusals.refuse("outer_join", position(item))
            scope.merged[name] = sure
        return _shown(item, left, right, scope)


@dataclass
class _Cte:
    """A WITH query and the WITH queries that it can see."""

    definition: exp.CTE
    visible: Mapping[str, _Cte]


def _rename(columns: Columns, item: exp.Expr) -> Columns:
    """Apply a column alias list, which may be shorter than the columns."""
    given = item.alias_column_names
    return [
        (given[i] if i < len(given) else name, expression)
        for i, (name, expression) in enumerate(columns)
    ]


def _using(item: exp.Join) -> list[str]:
    return [name.name for name in item.args.get("using") or ()]


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


def _shown(item: exp.Join, left: Columns, right: Columns, scope: Scope) -> Columns:
    """Return the columns of a join, those of USING first."""
    columns = [*left, *right]
    using = _using(item)
    if using:
        merged = [(name, scope.merged[name]) for name in using]
        columns = [*merged, *(c for c in columns if c[0] not in using)]
        if item.args.get("using_alias"):
            scope.add(item.args["using_alias"].name, merged)
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
