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
from dataclasses import dataclass, field

from dpsql.errors import FunctionNotAllowed, UnsupportedConstruct
from dpsql.model import OutputColumn
from dpsql.query import refusals, types
from dpsql.query.aggregates import formula, is_aggregate
from dpsql.query.bounds import Bounds, domain_bounds
from dpsql.query.catalog import Catalog
from dpsql.query.constants import enum_labels
from dpsql.query.expressions import Builder
from dpsql.query.flatten import Scope
from dpsql.query.ir import Expr, literal, written_constant
from dpsql.query.measures import MEAN, Formula, Measure, fitted, mean_ends
from dpsql.query.syntax import Node, Select
from dpsql.relation import Relation, base, quote_identifier

_KEYWORDS = frozenset(("coalesce", "nullif", "greatest", "least"))
_INTERVALS = {("public", "dp_interval_low"): "l", ("public", "dp_interval_high"): "h"}
_RANKED = frozenset(("dp_min", "dp_max", "dp_median", "dp_percentile"))
#: Stand around a divisor; no text of PostgreSQL's holds the character 0.
_DIVISOR = ("\0<", "\0>")
_CLOCK = frozenset(("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "LOCALTIME"))


@dataclass
class Output:
    """What the statement asks for, apart from FROM and WHERE.

    ``measures[j]`` is the j-th distinct vector of counts or sums that its aggregates need;
    ``loose`` names those that would be surer with bounds which nobody declared; ``over_zero`` is
    ``post_sql`` in which division by 0 gives NULL, empty where nothing is divided.
    """

    keys: list[Expr] = field(default_factory=list)
    key_names: list[str] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    columns: tuple[OutputColumn, ...] = ()
    post_sql: str = ""
    wants_interval: bool = False
    loose: dict[str, None] = field(default_factory=dict)
    over_zero: str = ""


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
        self.by_node: dict[Node, str] = {}
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
        shown = [
            f"CAST({self.sql(target.expression)} AS {column.type_name}) AS c{i}"
            for i, (target, column) in enumerate(zip(query.targets, output.columns, strict=True), 1)
        ]
        parts = ["SELECT", "DISTINCT" if query.distinct else "", ", ".join(shown), "FROM noisy"]
        if query.having is not None:
            parts.append(f"WHERE {self.sql(query.having)}")
        order = self._order()
        if order:
            parts.append(f"ORDER BY {order}")
        if query.limit is not None:
            parts.append(f"LIMIT {self.sql(query.limit)}")
        if query.offset is not None:
            parts.append(f"OFFSET {self.sql(query.offset)}")
        if not output.measures:
            raise UnsupportedConstruct(
                "the statement has no private aggregate",
                hint="Use SELECT dp_count(*) FROM relation.",
            )
        text = " ".join(p for p in parts if p)
        before, after = _DIVISOR
        output.post_sql = text.replace(before, "").replace(after, "")
        if before in text:
            output.over_zero = text.replace(before, "NULLIF(").replace(after, ", 0)")
        return output

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
        self.by_node[node] = f"g{self.output.keys.index(built)}"

    def _key_name(self, node: Node) -> str:
        for target, column in zip(self.query.targets, self.output.columns, strict=True):
            if target.expression == node:
                return column.name
        return node.value[-1] if isinstance(node.value, tuple) else str(node.kind)

    def _order(self) -> str:
        items = []
        for key in self.query.order:
            if self.query.distinct:
                items.append(self._target_number(key.expression) + key.suffix)
            elif key.expression.kind != "const":
                items.append(self.sql(key.expression) + key.suffix)
        # the order of rows must not depend on the order in which groups were found
        if self.query.distinct:
            items.extend(str(i) for i in range(1, len(self.query.targets) + 1))
        else:
            items.extend(f"g{i}" for i in range(len(self.output.keys)))
        return ", ".join(dict.fromkeys(items))

    def _target_number(self, node: Node) -> str:
        for number, target in enumerate(self.query.targets, 1):
            if target.expression == node:
                return str(number)
        raise UnsupportedConstruct(
            "with DISTINCT, ORDER BY must name output columns", position=node.position
        )

    # -- expressions over released values ---------------------------------------

    def sql(self, node: Node) -> str:
        """Write an expression over ``noisy``."""
        if node in self.by_node:
            return self.by_node[node]
        if is_aggregate(node):
            return self._aggregate(node)
        if node.kind == "call" and node.value in _INTERVALS:
            return self._interval(node)
        method = getattr(self, f"_{node.kind}", None)
        if method is None:
            refusals.refuse("expression", node.position)
        written: str = method(node)
        return written

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

    def _aggregate(self, node: Node) -> str:
        found, numbers = self._formula(node)
        text = found.text.format(*(f"a{number}" for number in numbers))
        count = found.plain and found.measures[0].value is None
        return text if count and found.type == "bigint" else fitted(text, found.type)

    def _bounds(self, occurrence: int, name: str) -> Bounds | None:
        """Return the declared bounds of a column."""
        for domain in self.relations[occurrence].domains:
            if domain.column == name:
                return domain_bounds(domain)
        return None

    def _interval(self, node: Node) -> str:
        """Write an end of the interval around a count or sum, ``l<j>`` or ``h<j>``, or a mean."""
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
        if MEAN in found.text and len(numbers) == 2:
            total, count = numbers
            end = mean_ends(total, count)[_INTERVALS[node.pair()] == "h"]
            text = found.text.replace(MEAN, end)
            return f"CASE WHEN {end} IS NOT NULL THEN ({text})::{found.type} END"
        if not found.plain:
            raise UnsupportedConstruct(
                f"{name} is for dp_count, dp_sum and dp_avg",
                hint=f"Ask for its parts: {name}(dp_avg(value, 0, 100)), {name}(dp_count(*)).",
                position=node.position,
            )
        end = f"{_INTERVALS[node.pair()]}{numbers[0]}"
        if found.type.endswith("]"):
            return f"{end}::{found.type}"
        # GREATEST and LEAST would lose the NULL of an end that is not there
        return f"CASE WHEN {end} IS NOT NULL THEN {fitted(end, found.type)} END"

    def _name(self, node: Node) -> str:
        built = self.scope.lookup(node)
        for number, key in enumerate(self.output.keys):
            if key == built:
                return f"g{number}"
        shown = ".".join(node.value) if isinstance(node.value, tuple) else ""
        raise UnsupportedConstruct(
            f'column "{shown}" must appear in the GROUP BY clause',
            hint="Add it to GROUP BY, or count it: dp_count(column).",
            position=node.position,
        )

    def _type(self, full: str, position: int) -> str:
        element = full.removesuffix("[]")
        simple = base(element) in types.SIMPLE
        # an array literal of a type that is not built in is read by that type's code
        if not simple and (element != full or enum_labels(full, self.catalog) is None):
            raise _not_allowed(f"the type {full}", position)
        return full

    def _const(self, node: Node) -> str:
        full = node.type
        text = None if node.value is None else str(node.value)
        if not full:
            return "NULL" if text is None else literal(text)
        return written_constant(self._type(full, node.position), text)

    def _sqlvalue(self, node: Node) -> str:
        if str(node.value).split("(")[0] not in _CLOCK:
            raise _not_allowed(f"{node.value}", node.position)
        return str(node.value)

    def _cast(self, node: Node) -> str:
        return f"({self.sql(node.args[0])})::{self._type(str(node.value), node.position)}"

    def _op(self, node: Node) -> str:
        if node.value in ("/", "%"):
            _refuse_zero(node)
        args = [self.sql(a) for a in node.args]
        if node.value in ("/", "%"):
            return f"({args[0]} {node.value} {_divisor(args[1])})"
        return f"({args[0]} {node.value} {args[1]})" if args[1:] else f"({node.value} {args[0]})"

    def _and(self, node: Node) -> str:
        return "(" + " AND ".join(self.sql(a) for a in node.args) + ")"

    def _or(self, node: Node) -> str:
        return "(" + " OR ".join(self.sql(a) for a in node.args) + ")"

    def _not(self, node: Node) -> str:
        return f"(NOT {self.sql(node.args[0])})"

    def _is(self, node: Node) -> str:
        return f"({self.sql(node.args[0])} IS {node.value})"

    def _distinct(self, node: Node) -> str:
        return f"({self.sql(node.args[0])} IS DISTINCT FROM {self.sql(node.args[1])})"

    def _any(self, node: Node) -> str:
        operator, quantifier = node.pair()
        return f"({self.sql(node.args[0])} {operator} {quantifier} ({self.sql(node.args[1])}))"

    def _array(self, node: Node) -> str:
        return "ARRAY[" + ", ".join(self.sql(a) for a in node.args) + "]"

    def _case(self, node: Node) -> str:
        args = [self.sql(a) for a in node.args]
        operand = args.pop(0) if node.value else ""
        pairs = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
        return f"CASE {operand} {pairs} ELSE {args[-1]} END"

    def _collate(self, node: Node) -> str:
        parts = node.value if isinstance(node.value, tuple) else ()
        return f"({self.sql(node.args[0])} COLLATE {'.'.join(map(quote_identifier, parts))})"

    def _call(self, node: Node) -> str:
        schema, name = node.pair()
        if schema not in ("", "pg_catalog"):
            raise _not_allowed(f"{schema}.{name}()", node.position)
        if node.flags - {"special", "variadic"} or name in self.aggregates:
            refusals.refuse("other_aggregate", node.position)
        if name in ("div", "mod"):
            _refuse_zero(node)
        args = [self.sql(a) for a in node.args]
        if name in ("div", "mod") and len(args) == 2 and not node.flags:
            return f'pg_catalog."{name}"({args[0]}, {_divisor(args[1])})'
        if "variadic" in node.flags:
            args[-1] = "VARIADIC " + args[-1]
        if name in _KEYWORDS and "special" in node.flags:
            return f"{name}({', '.join(args)})"
        return f"pg_catalog.{quote_identifier(name)}({', '.join(args)})"


def _divisor(sql: str) -> str:
    """Mark a divisor, for the form of the statement in which 0 gives NULL."""
    before, after = _DIVISOR
    return before + sql + after


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
