"""Separate what is counted from what is done with the noised counts.

Group keys and the arguments of private aggregates are conditions on protected rows and go
through the allow-list.  Everything else in SELECT, HAVING, ORDER BY and LIMIT is a
function of released values (PRIVACY.md section 2 (b)): any immutable built-in function
may be used there, and an error there tells nothing that was not released.  It becomes a
query over the relation ``noisy(g0, g1, ..., a0, a1, ..., l0, h0, ..., p0, q0, ...)``: group keys,
counts, ends of intervals, and those that intervals of means are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dpsql.errors import FunctionNotAllowed, UnsupportedConstruct
from dpsql.model import OutputColumn
from dpsql.query import refusals, types
from dpsql.query.aggregates import formula, is_aggregate
from dpsql.query.bounds import Bounds, domain_bounds
from dpsql.query.catalog import Catalog
from dpsql.query.constants import enum_labels
from dpsql.query.expressions import Builder
from dpsql.query.flatten import Scope
from dpsql.query.ir import Expr
from dpsql.query.measures import Formula, Measure
from dpsql.query.noisy import (
    COMPUTED,
    column,
    columns,
    divides,
    fitted,
    mean,
    mean_ends,
    write,
    written,
)
from dpsql.query.shown import shown
from dpsql.query.syntax import Node, Select
from dpsql.relation import Relation, base
from dpsql.statement import Shown, Statement

_INTERVALS = {("public", "dp_interval_low"): "l", ("public", "dp_interval_high"): "h"}
_RANKED = frozenset(("dp_min", "dp_max", "dp_median", "dp_percentile"))
#: GREATEST and LEAST would lose the NULL of an end that is not there.
_KNOWN = "CASE WHEN {0} IS NOT NULL THEN {1} END"
_CLOCK = frozenset(("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "LOCALTIME"))


@dataclass
class Output:
    """What the statement asks for, apart from FROM and WHERE.

    ``measures[j]`` is the j-th distinct vector of counts or sums that its aggregates need;
    ``loose`` names those that would be surer with bounds which nobody declared; ``over_zero`` is
    the ``statement`` in which division by 0 gives NULL, ``None`` where nothing is divided.
    """

    keys: list[Expr] = field(default_factory=list)
    key_names: list[str] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    columns: tuple[OutputColumn, ...] = ()
    statement: Statement = field(default_factory=lambda: Statement((), ""))
    shown: tuple[Shown, ...] = ()
    wants_interval: bool = False
    loose: dict[str, None] = field(default_factory=dict)
    over_zero: Statement | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """The statement's expressions; those of ``order`` with what follows them, or texts."""

    targets: list[Node]
    having: Node | None
    order: list[tuple[Node | str, str]]
    limit: Node | None
    offset: Node | None

    def expressions(self) -> list[Node]:
        """List all of them."""
        others = (self.having, *(item for item, _ in self.order), self.limit, self.offset)
        return [*self.targets, *(node for node in others if isinstance(node, Node))]


def separate(
    query: Select,
    scope: Scope,
    catalog: Catalog,
    columns: tuple[OutputColumn, ...],
    aggregates: frozenset[str] = frozenset(),
    relations: Sequence[Relation] = (),
) -> Output:
    """Read the outermost query's output clauses.

    ``aggregates`` names those it also calls, ``relations`` are its occurrences.
    """
    return _Separator(query, scope, catalog, columns, aggregates, relations).run()


class _Separator:
    def __init__(
        self,
        query: Select,
        scope: Scope,
        catalog: Catalog,
        columns: tuple[OutputColumn, ...],
        aggregates: frozenset[str],
        relations: Sequence[Relation],
    ) -> None:
        self.aggregates = aggregates
        self.relations = relations
        self.declared = any(r.private and not r.units for r in relations)
        self.query = query
        self.scope = scope
        self.catalog = catalog
        self.builder = Builder(catalog, scope.lookup)
        self.output = Output(columns=columns)
        self.by_node: dict[Node, Node] = {}
        calls = [
            n
            for part in (*(t.expression for t in query.targets), query.having)
            if part is not None
            for n in part.walk()
            if is_aggregate(n)
        ]
        self.summed = {(n.args, n.flags) for n in calls if n.pair()[1] == "dp_sum"}

    def run(self) -> Output:
        query, output = self.query, self.output
        if len(output.columns) != len(query.targets):
            raise UnsupportedConstruct("the statement's output columns could not be told apart")
        for node in query.group:
            self._key(node)
        parts = _Parts(
            targets=[self.over(target.expression) for target in query.targets],
            having=self._optional(query.having),
            order=self._order(),
            limit=self._optional(query.limit),
            offset=self._optional(query.offset),
        )
        if not output.measures:
            raise UnsupportedConstruct(
                "the statement has no private aggregate",
                hint="Use SELECT dp_count(*) FROM relation.",
            )
        output.statement = self._statement(parts, over_zero=False)
        if any(divides(n) for expression in parts.expressions() for n in expression.walk()):
            output.over_zero = self._statement(parts, over_zero=True)
        output.shown = tuple(
            shown(node, c.type_name) for node, c in zip(parts.targets, output.columns, strict=True)
        )
        return output

    def _optional(self, node: Node | None) -> Node | None:
        return None if node is None else self.over(node)

    def _statement(self, parts: _Parts, *, over_zero: bool) -> Statement:
        def sql(node: Node) -> str:
            return write(node, over_zero=over_zero)

        targets = [
            f"CAST({sql(node)} AS {c.type_name}) AS c{i}"
            for i, (node, c) in enumerate(zip(parts.targets, self.output.columns, strict=True), 1)
        ]
        rest = ["FROM noisy"]
        if parts.having is not None:
            rest.append(f"WHERE {sql(parts.having)}")
        order = [
            (item if isinstance(item, str) else sql(item)) + suffix for item, suffix in parts.order
        ]
        if order:
            rest.append(f"ORDER BY {', '.join(dict.fromkeys(order))}")
        if parts.limit is not None:
            rest.append(f"LIMIT {sql(parts.limit)}")
        if parts.offset is not None:
            rest.append(f"OFFSET {sql(parts.offset)}")
        used = {place for node in parts.expressions() for place in columns(node)}
        return Statement(
            tuple(targets),
            " ".join(rest),
            frozenset(f"{letter}{number}" for letter, number in used if letter != "g"),
            distinct=self.query.distinct,
        )

    def _key(self, node: Node) -> None:
        built = self.builder.build(node)
        read = built.occurrences()
        if not read:
            raise UnsupportedConstruct(
                "GROUP BY a constant is not supported",
                hint="Leave the constant out of GROUP BY.",
                position=node.position,
            )
        if len(read) > 1:
            raise UnsupportedConstruct(
                "a group key may use columns of one relation only",
                hint="Group by each relation's expression: GROUP BY a.x, b.y.",
                position=node.position,
            )
        if built.type == "interval":
            raise UnsupportedConstruct(
                "GROUP BY an interval is not supported",
                hint="Use EXTRACT(epoch FROM interval).",
                position=node.position,
            )
        if built not in self.output.keys:
            self.output.keys.append(built)
            self.output.key_names.append(self._key_name(node))
        self.by_node[node] = column("g", self.output.keys.index(built))

    def _key_name(self, node: Node) -> str:
        for target, shown_as in zip(self.query.targets, self.output.columns, strict=True):
            if target.expression == node:
                return shown_as.name
        return node.value[-1] if isinstance(node.value, tuple) else str(node.kind)

    def _order(self) -> list[tuple[Node | str, str]]:
        items: list[tuple[Node | str, str]] = []
        for key in self.query.order:
            if self.query.distinct:
                items.append((self._target_number(key.expression), key.suffix))
            elif key.expression.kind != "const":
                items.append((self.over(key.expression), key.suffix))
        # the order of rows must not depend on the order in which groups were found
        if self.query.distinct:
            items.extend((str(i), "") for i in range(1, len(self.query.targets) + 1))
        else:
            items.extend((column("g", i), "") for i in range(len(self.output.keys)))
        return items

    def _target_number(self, node: Node) -> str:
        for number, target in enumerate(self.query.targets, 1):
            if target.expression == node:
                return str(number)
        raise UnsupportedConstruct(
            "with DISTINCT, ORDER BY must name output columns", position=node.position
        )

    # -- expressions over released values ---------------------------------------

    def over(self, node: Node) -> Node:
        """Make an expression over ``noisy``."""
        if node in self.by_node:
            return self.by_node[node]
        if is_aggregate(node):
            return self._aggregate(node)
        if node.kind == "call" and node.value in _INTERVALS:
            return self._interval(node)
        if node.kind == "name":
            return self._name(node)
        if node.kind not in COMPUTED:
            refusals.refuse("expression", node.position)
        if node.kind == "sqlvalue" and str(node.value).split("(")[0] not in _CLOCK:
            raise _not_allowed(f"{node.value}", node.position)
        if node.kind == "call":
            self._require_callable(node)
        if node.kind == "op" and node.value in ("/", "%"):
            _refuse_zero(node)
        made = replace(node, args=tuple(self.over(a) for a in node.args))
        if node.kind == "cast":
            self._require_type(str(node.value), node.position)
        if node.kind == "const" and node.type:
            self._require_type(node.type, node.position)
        return made

    def _formula(self, node: Node) -> tuple[Formula, list[int]]:
        """Take an aggregate apart and number what must be measured for it."""
        found = formula(
            node,
            self.builder.build,
            self._bounds,
            declared=self.declared,
            summed=(node.args, node.flags) in self.summed,
        )
        if found.loose:
            self.output.loose[node.pair()[1]] = None
        for measure in found.measures:
            if measure not in self.output.measures:
                self.output.measures.append(measure)
        return found, [self.output.measures.index(measure) for measure in found.measures]

    def _aggregate(self, node: Node) -> Node:
        found, numbers = self._formula(node)
        if found.of_mean:
            made = written(found.text, mean(*numbers), rising=True)
        elif found.plain:
            made = column("a", numbers[0])
        else:
            made = written(found.text, *(column("a", number) for number in numbers))
        count = found.plain and found.measures[0].value is None
        return made if count and found.type == "bigint" else fitted(made, found.type)

    def _bounds(self, occurrence: int, name: str) -> Bounds | None:
        """Return the declared bounds of a column."""
        for domain in self.relations[occurrence].domains:
            if domain.column == name:
                return domain_bounds(domain)
        return None

    def _interval(self, node: Node) -> Node:
        """Make an end of the interval around a count or sum, ``l<j>`` or ``h<j>``, or a mean."""
        name = node.pair()[1]
        inner = node.args[0] if node.args else node
        while inner.kind == "cast":
            inner = inner.args[0]
        if is_aggregate(inner) and inner.pair()[1] in _RANKED:
            raise UnsupportedConstruct(
                f"{name} is for dp_count, dp_sum and dp_avg",
                hint="Around values by rank there are none; count how many lie below one that you"
                f" know: {name}(dp_count(*) FILTER (WHERE value <= 100)).",
                position=node.position,
            )
        if len(node.args) != 1 or not is_aggregate(node.args[0]):
            raise UnsupportedConstruct(
                f"{name} needs a dp_count, dp_sum or dp_avg as its argument",
                hint=f"Use {name}(dp_count(*)).",
                position=node.position,
            )
        found, numbers = self._formula(node.args[0])
        self.output.wants_interval = True
        if found.of_mean:
            end = mean_ends(*numbers)[_INTERVALS[node.pair()] == "h"]
            made = Node("cast", 0, found.type, (written(found.text, end, rising=True),))
            return written(_KNOWN, end, made)
        if not found.plain:
            raise UnsupportedConstruct(
                f"{name} is for dp_count, dp_sum and dp_avg",
                hint=f"Ask for its parts: {name}(dp_avg(value, 0, 100)), {name}(dp_count(*)).",
                position=node.position,
            )
        end = column(_INTERVALS[node.pair()], numbers[0])
        if found.type.endswith("]"):
            return written(f"{{0}}::{found.type}", end)
        return written(_KNOWN, end, fitted(end, found.type))

    def _name(self, node: Node) -> Node:
        built = self.scope.lookup(node)
        for number, key in enumerate(self.output.keys):
            if key == built:
                return column("g", number)
        shown = ".".join(node.value) if isinstance(node.value, tuple) else ""
        raise UnsupportedConstruct(
            f'column "{shown}" must appear in the GROUP BY clause',
            hint="Add it to GROUP BY, or count it: dp_count(column).",
            position=node.position,
        )

    def _require_type(self, full: str, position: int) -> None:
        element = full.removesuffix("[]")
        simple = base(element) in types.SIMPLE
        # an array literal of a type that is not built in is read by that type's code
        if not simple and (element != full or enum_labels(full, self.catalog) is None):
            raise _not_allowed(f"the type {full}", position)

    def _require_callable(self, node: Node) -> None:
        schema, name = node.pair()
        if schema not in ("", "pg_catalog"):
            raise _not_allowed(f"{schema}.{name}()", node.position)
        if node.flags - {"special", "variadic"} or name in self.aggregates:
            refusals.refuse("other_aggregate", node.position)
        if name in ("div", "mod"):
            _refuse_zero(node)


def _refuse_zero(node: Node) -> None:
    """Refuse a division that fails whatever the answer is, before it costs anything."""
    divisor = node.args[-1]
    while divisor.kind == "cast":
        divisor = divisor.args[0]
    try:
        zero = divisor.kind == "const" and float(str(divisor.value)) == 0
    except ValueError:
        zero = False
    if zero:
        raise FunctionNotAllowed(
            "division by the constant 0 is not allowed",
            hint="Use another divisor, or NULLIF(divisor, 0) for NULL.",
            position=node.position,
        )


def _not_allowed(what: str, position: int) -> FunctionNotAllowed:
    return FunctionNotAllowed(
        f"{what} is not allowed here",
        hint="Use built-in functions of released values: group keys and counts.",
        position=position,
    )
