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

from sqlglot import exp

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
from dpsql.query.measures import FIRST, Formula, Measure
from dpsql.query.nodes import (
    asked,
    clause,
    constant_of,
    grouped,
    label,
    names,
    targets,
    type_of,
    uncast,
)
from dpsql.query.noisy import (
    COMPUTED,
    column,
    columns,
    constant,
    divides,
    fitted,
    mean,
    mean_ends,
    over_zero,
    statement,
    written,
)
from dpsql.query.shown import shown
from dpsql.relation import Relation, base
from dpsql.sqltree import aliased, cast, number, sql
from dpsql.sqltree.nodes import (
    Call,
    Operation,
    Place,
    Raw,
    Value,
    each_once,
    exact,
    position,
    rebuilt,
)
from dpsql.statement import Shown, Statement

_INTERVALS = {("public", "dp_interval_low"): "l", ("public", "dp_interval_high"): "h"}
_RANKED = frozenset(("dp_min", "dp_max", "dp_median", "dp_percentile"))
#: GREATEST and LEAST would lose the NULL of an end that is not there.
_KNOWN = sql("CASE WHEN :end IS NOT NULL THEN :made END", end=FIRST, made=Place(this=1))
#: What stands below nodes and is no expression.
_WORDS = (Raw, exp.Identifier, exp.Dot)
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
    statement: Statement = field(default_factory=lambda: Statement(exp.Select(), ""))
    shown: tuple[Shown, ...] = ()
    wants_interval: bool = False
    loose: dict[str, None] = field(default_factory=dict)
    over_zero: Statement | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """The statement's expressions over ``noisy``."""

    targets: list[exp.Expr]
    having: exp.Expr | None
    order: list[exp.Ordered]
    limit: exp.Expr | None
    offset: exp.Expr | None

    def expressions(self) -> list[exp.Expr]:
        """List all of them."""
        others = (self.having, *self.order, self.limit, self.offset)
        return [*self.targets, *(node for node in others if node is not None)]


def separate(
    query: exp.Select,
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
        query: exp.Select,
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
        self.targets = targets(query)
        self.keys: dict[object, exp.Expr] = {}
        self.kinds: set[type] = set()
        calls = [n for n in asked(query) if is_aggregate(n)]
        self.summed = {_argument(n) for n in calls if n.name == "dp_sum"}

    def run(self) -> Output:
        query, output = self.query, self.output
        if len(output.columns) != len(self.targets):
            raise UnsupportedConstruct("the statement's output columns could not be told apart")
        for node in grouped(query):
            self._key(node)
        parts = _Parts(
            targets=[self.over(target) for target in self.targets],
            having=self._optional("having"),
            order=self._order(),
            limit=self._optional("limit"),
            offset=self._optional("offset"),
        )
        if not output.measures:
            raise UnsupportedConstruct(
                "the statement has no private aggregate",
                hint="Use SELECT dp_count(*) FROM relation.",
            )
        output.statement = self._statement(parts)
        if any(divides(n) for expression in parts.expressions() for n in expression.walk()):
            output.over_zero = statement(over_zero(output.statement.query), output.statement.used)
        output.shown = tuple(
            shown(node, c.type_name) for node, c in zip(parts.targets, output.columns, strict=True)
        )
        return output

    def _optional(self, name: str) -> exp.Expr | None:
        node = clause(self.query, name)
        return None if node is None else self.over(node)

    def _statement(self, parts: _Parts) -> Statement:
        query: exp.Select = sql("SELECT 1 FROM noisy WHERE :kept", kept=parts.having)
        shown_as = enumerate(zip(parts.targets, self.output.columns, strict=True), 1)
        listed = [aliased(cast(node, c.type_name), f"c{i}") for i, (node, c) in shown_as]
        query.set("expressions", listed)
        query.set("distinct", exp.Distinct() if self.query.args.get("distinct") else None)
        if parts.order:
            query.set("order", exp.Order(expressions=each_once(parts.order)))
        if parts.limit is not None:
            query.set("limit", exp.Limit(expression=parts.limit))
        if parts.offset is not None:
            query.set("offset", exp.Offset(expression=parts.offset))
        used = {place for node in parts.expressions() for place in columns(node)}
        return statement(query, (f"{letter}{n}" for letter, n in used if letter != "g"))

    def _key(self, node: exp.Expr) -> None:
        built = self.builder.build(node)
        read = built.occurrences()
        if not read:
            raise UnsupportedConstruct(
                "GROUP BY a constant is not supported",
                hint="Leave the constant out of GROUP BY.",
                position=position(node),
            )
        if len(read) > 1:
            raise UnsupportedConstruct(
                "a group key may use columns of one relation only",
                hint="Group by each relation's expression: GROUP BY a.x, b.y.",
                position=position(node),
            )
        if built.type == "interval":
            raise UnsupportedConstruct(
                "GROUP BY an interval is not supported",
                hint="Use EXTRACT(epoch FROM interval).",
                position=position(node),
            )
        if built not in self.output.keys:
            self.output.keys.append(built)
            self.output.key_names.append(self._key_name(node))
        self.kinds.add(type(node))
        self.keys[exact(node)] = column("g", self.output.keys.index(built))

    def _key_name(self, node: exp.Expr) -> str:
        for target, shown_as in zip(self.targets, self.output.columns, strict=True):
            if exact(target) == exact(node):
                return shown_as.name
        return label(node)

    def _order(self) -> list[exp.Ordered]:
        items: list[exp.Ordered] = []
        distinct = bool(self.query.args.get("distinct"))
        order = self.query.args.get("order")
        for key in order.expressions if order else ():
            if distinct:
                items.append(exp.Ordered(**{**key.args, "this": self._target_number(key.this)}))
            elif constant_of(key.this) is None:
                items.append(exp.Ordered(**{**key.args, "this": self.over(key.this)}))
        # the order of rows must not depend on the order in which groups were found
        all_keys: list[exp.Expr] = [column("g", i) for i in range(len(self.output.keys))]
        if distinct:
            all_keys = [number(i) for i in range(1, len(self.targets) + 1)]
        return [*items, *(exp.Ordered(this=key, nulls_first=False) for key in all_keys)]

    def _target_number(self, node: exp.Expr) -> exp.Expr:
        for place, target in enumerate(self.targets, 1):
            if exact(target) == exact(node):
                return number(place)
        raise UnsupportedConstruct(
            "with DISTINCT, ORDER BY must name output columns", position=position(node)
        )

    # -- expressions over released values ---------------------------------------

    def over(self, node: exp.Expr) -> exp.Expr:
        """Make an expression over ``noisy``."""
        if isinstance(node, _WORDS):
            return node
        key = self.keys.get(exact(node)) if type(node) in self.kinds else None
        if key is not None:
            return key
        if is_aggregate(node):
            return self._aggregate(node)
        if isinstance(node, Call) and (node.schema, node.name) in _INTERVALS:
            return self._interval(node)
        if isinstance(node, exp.Column):
            return self._name(node)
        if not isinstance(node, COMPUTED):
            refusals.refuse("expression", position(node))
        known = constant_of(node)
        if known is not None:
            if known.type:
                self._require_type(known.type, position(node))
            return constant(known.type, known.text)
        if isinstance(node, Value) and node.name.split("(")[0] not in _CLOCK:
            raise _not_allowed(node.name, position(node))
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Operation) and node.args["operator"] in ("/", "%"):
            _refuse_zero(node, node.expression)
        made = rebuilt(node, self.over)
        if isinstance(node, exp.Cast):
            self._require_type(type_of(node), position(node))
        return made

    def _formula(self, node: Call) -> tuple[Formula, list[int]]:
        """Take an aggregate apart and number what must be measured for it."""
        found = formula(
            node,
            self.builder.build,
            self._bounds,
            declared=self.declared,
            summed=_argument(node) in self.summed,
        )
        if found.loose:
            self.output.loose[node.name] = None
        for measure in found.measures:
            if measure not in self.output.measures:
                self.output.measures.append(measure)
        return found, [self.output.measures.index(measure) for measure in found.measures]

    def _aggregate(self, node: Call) -> exp.Expr:
        found, numbers = self._formula(node)
        made: exp.Expr
        if found.of_mean:
            made = written(found.tree, mean(*numbers), rising=True)
        elif found.plain:
            made = column("a", numbers[0])
        else:
            made = written(found.tree, *(column("a", place) for place in numbers))
        count = found.plain and found.measures[0].value is None
        return made if count and found.type == "bigint" else fitted(made, found.type)

    def _bounds(self, occurrence: int, name: str) -> Bounds | None:
        """Return the declared bounds of a column."""
        for domain in self.relations[occurrence].domains:
            if domain.column == name:
                return domain_bounds(domain)
        return None

    def _interval(self, node: Call) -> exp.Expr:
        """Make an end of the interval around a count or sum, ``l<j>`` or ``h<j>``, or a mean."""
        name = node.name
        letter = _INTERVALS[node.schema, node.name]
        args = [*node.expressions, *filter(None, [node.args.get("filter")])]
        inner = uncast(args[0]) if args else node
        if is_aggregate(inner) and inner.name in _RANKED:
            raise UnsupportedConstruct(
                f"{name} is for dp_count, dp_sum and dp_avg",
                hint="Around values by rank there are none; count how many lie below one that you"
                f" know: {name}(dp_count(*) FILTER (WHERE value <= 100)).",
                position=position(node),
            )
        if len(args) != 1 or not is_aggregate(args[0]):
            raise UnsupportedConstruct(
                f"{name} needs a dp_count, dp_sum or dp_avg as its argument",
                hint=f"Use {name}(dp_count(*)).",
                position=position(node),
            )
        found, numbers = self._formula(args[0])
        self.output.wants_interval = True
        if found.of_mean:
            of_mean = mean_ends(*numbers)[letter == "h"]
            made = cast(written(found.tree, of_mean, rising=True), found.type)
            return written(_KNOWN, of_mean, made)
        if not found.plain:
            raise UnsupportedConstruct(
                f"{name} is for dp_count, dp_sum and dp_avg",
                hint=f"Ask for its parts: {name}(dp_avg(value, 0, 100)), {name}(dp_count(*)).",
                position=position(node),
            )
        end = column(letter, numbers[0])
        if found.type.endswith("]"):
            return cast(end, found.type)
        return written(_KNOWN, end, fitted(end, found.type))

    def _name(self, node: exp.Column) -> exp.Expr:
        built = self.scope.lookup(node)
        for place, key in enumerate(self.output.keys):
            if key == built:
                return column("g", place)
        raise UnsupportedConstruct(
            f'column "{".".join(names(node))}" must appear in the GROUP BY clause',
            hint="Add it to GROUP BY, or count it: dp_count(column).",
            position=position(node),
        )

    def _require_type(self, full: str, position: int) -> None:
        element = full.removesuffix("[]")
        simple = base(element) in types.SIMPLE
        # an array literal of a type that is not built in is read by that type's code
        if not simple and (element != full or enum_labels(full, self.catalog) is None):
            raise _not_allowed(f"the type {full}", position)

    def _call(self, node: Call) -> Call:
        """Make a call by the function's name, apart from those that are keywords."""
        schema, name = node.schema, node.name
        if schema not in ("", "pg_catalog"):
            raise _not_allowed(f"{schema}.{name}()", position(node))
        if node.flags - {"form", "variadic"} or name in self.aggregates:
            refusals.refuse("other_aggregate", position(node))
        if name in ("div", "mod"):
            _refuse_zero(node, node.expressions[-1])
        args = [self.over(a) for a in node.expressions]
        if node.args.get("form") == "keyword":
            return Call(this=name, expressions=args, form="keyword")
        variadic = node.args.get("variadic")
        return Call(this=name, schema="pg_catalog", expressions=args, variadic=variadic)


def _argument(call: Call) -> object:
    """Return what an aggregate is of, whichever it is."""
    return exact(Call(**{**call.args, "this": ""}))


def _refuse_zero(node: exp.Expr, divisor: exp.Expr) -> None:
    """Refuse a division that fails whatever the answer is, before it costs anything."""
    known = constant_of(uncast(divisor))
    try:
        zero = known is not None and float(str(known.text)) == 0
    except ValueError:
        zero = False
    if zero:
        raise FunctionNotAllowed(
            "division by the constant 0 is not allowed",
            hint="Use another divisor, or NULLIF(divisor, 0) for NULL.",
            position=position(node),
        )


def _not_allowed(what: str, position: int) -> FunctionNotAllowed:
    return FunctionNotAllowed(
        f"{what} is not allowed here",
        hint="Use built-in functions of released values: group keys and counts.",
        position=position,
    )
