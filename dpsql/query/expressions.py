"""From syntax to typed, total expressions (see :mod:`dpsql.query.ir`).

Deparsed text shows nearly every implicit cast, so the types of operands determine the
operator: one exact look-up in the allow-list, no resolution rules of our own.  What is
not found is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from sqlglot import exp

from dpsql.query import date_functions, functions, refusals, totality
from dpsql.query.aggregates import NAMES
from dpsql.query.catalog import Catalog
from dpsql.query.constants import array_elements, check_pattern, enum_labels, fold, integer_value
from dpsql.query.ir import FALSE, TRUE, Expr, constant
from dpsql.query.nodes import constant_of, names, operands, type_of
from dpsql.query.normalise import of_one_type
from dpsql.query.types import FLOATS, INTEGERS, SIMPLE, TIMESTAMP, TIMESTAMPTZ
from dpsql.relation import base
from dpsql.sqltree.nodes import Call, Operation, Quantified, Value, at, position

Lookup = Callable[[exp.Column], Expr]
COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_NEGATION = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Builder:
    """Builds expressions; ``lookup`` resolves column names in the current scope."""

    def __init__(self, catalog: Catalog, lookup: Lookup) -> None:
        self.catalog = catalog
        self.lookup = lookup

    def build(self, node: exp.Expr) -> Expr:
        """Build one expression.

        Raises
        ------
        FunctionNotAllowed, UnsupportedConstruct
            With the position of the offending part.
        """
        method = getattr(self, f"_{node.key}", None)
        if method is None:
            refusals.refuse("expression", position(node))
        built: Expr = method(node)
        return fold(totality.checked(built, position(node)), self.catalog)

    def type_of(self, full: str, position: int) -> str:
        """Return the base type, refusing types outside the list."""
        name = base(full)
        if name in SIMPLE or enum_labels(name, self.catalog) is not None:
            return name
        raise functions.not_allowed(f"the type {full}", position, "Use columns of simple types.")

    # -- leaves ---------------------------------------------------------------

    def _column(self, node: exp.Column) -> Expr:
        found = self.lookup(node)
        self.type_of(found.type, position(node))
        return found

    def _constant(self, node: exp.Expr) -> Expr:
        text, full = constant_of(node) or (None, "")
        full = full or "text"
        type_ = self.type_of(full, position(node))
        if full == type_:
            return constant(type_, text)
        value = constant("text", text)
        return fold(totality.cast_node(value, full, type_), self.catalog)

    _literal = _boolean = _null = _constant

    def _value(self, node: Value) -> Expr:
        types = {
            "CURRENT_DATE": "date",
            "CURRENT_TIMESTAMP": TIMESTAMPTZ,
            "LOCALTIMESTAMP": "timestamp without time zone",
            "LOCALTIME": "time without time zone",
        }
        type_ = types.get(node.name.split("(")[0])
        if type_ is None:
            raise functions.not_allowed(node.name, position(node))
        return constant(type_, self.catalog.evaluate(node))

    # -- sub-queries, which `flatten` joins where they are conditions of a whole query

    def _exists(self, node: exp.Expr) -> NoReturn:
        refusals.refuse("exists", position(node))

    def _in(self, node: exp.Expr) -> NoReturn:
        refusals.refuse("in_query", position(node))

    # -- logic ----------------------------------------------------------------

    def _paren(self, node: exp.Paren) -> Expr:
        return self.build(node.this)

    def _and(self, node: exp.And) -> Expr:
        parts = [self.build(a) for a in operands(node)]
        if any(p == FALSE for p in parts):
            return FALSE
        return self._connective("and", [p for p in parts if p != TRUE], TRUE)

    def _or(self, node: exp.Or) -> Expr:
        parts = [self.build(a) for a in operands(node)]
        if any(p == TRUE for p in parts):
            return TRUE
        return self._connective("or", [p for p in parts if p != FALSE], FALSE)

    def _connective(self, kind: str, parts: list[Expr], neutral: Expr) -> Expr:
        if len(parts) < 2:
            return parts[0] if parts else neutral
        return Expr(kind, "boolean", tuple(dict.fromkeys(parts)))

    def _not(self, node: exp.Not) -> Expr:
        inner = self.build(node.this)
        if inner.kind == "not":
            return inner.args[0]
        if inner.kind == "op" and inner.data in _NEGATION and len(inner.args) == 2:
            return Expr("op", "boolean", inner.args, _NEGATION[str(inner.data)])
        return Expr("not", "boolean", (inner,))

    def _is(self, node: exp.Is) -> Expr:
        inner = self.build(node.this)
        test = node.expression.name
        if inner.kind == "col" and inner.data[2]:  # type: ignore[index]
            if test == "NULL":
                return FALSE
            if test == "NOT NULL":
                return TRUE
        return Expr("is", "boolean", (inner,), test)

    def _nullsafeneq(self, node: exp.NullSafeNEQ) -> Expr:
        left, right = self.build(node.this), self.build(node.expression)
        left, right = self._comparable(left, right)
        self._operator_result("=", left, right, position(node))
        return Expr("distinct", "boolean", (left, right))

    def _case(self, node: exp.Case) -> Expr:
        operand = node.args.get("this")
        built: list[Expr] = []
        for branch in node.args["ifs"]:
            when = branch.this
            if operand is not None:
                equal = Operation(this=operand, operator="=", expression=when)
                when = at(equal, position(when))
            built += (self.build(when), self.build(branch.args["true"]))
        built.append(self.build(node.args.get("default") or at(exp.Null(), position(node))))
        values = [*built[1:-1:2], built[-1]]
        type_ = self._common_type(values, position(node))
        if built[-1].kind == "const" and built[-1].data is None:
            built[-1] = constant(type_, None)
        return Expr("case", type_, tuple(built))

    def _common_type(self, values: list[Expr], position: int) -> str:
        types = {v.type for v in values if not (v.kind == "const" and v.data is None)}
        if len(types) > 1:
            raise functions.not_allowed("mixing " + " and ".join(sorted(types)), position)
        return types.pop() if types else values[0].type

    def _collate(self, node: exp.Collate) -> Expr:
        inner = self.build(node.this)
        return Expr("collate", inner.type, (inner,), names(node.expression))

    # -- operators ------------------------------------------------------------

    def _operation(self, node: Operation) -> Expr:
        sides = (node.args.get("this"), node.expression)
        args = tuple(self.build(side) for side in sides if side is not None)
        return self.operator(str(node.args["operator"]), args, position(node))

    def operator(self, operator: str, args: tuple[Expr, ...], position: int) -> Expr:
        """Apply an operator totally."""
        if operator in COMPARISONS and len(args) == 2:
            left, right = (fold(a, self.catalog) for a in self._comparable(*args))
            self._operator_result(operator, left, right, position)
            return Expr("op", "boolean", (left, right), operator)
        types = tuple(a.type for a in args)
        if len(types) == 1:
            types = ("", *types)
        if (operator, *types) in functions.FOLDED:
            return date_functions.folded(operator, args, self.catalog, position)
        result = functions.operator_result(operator, types[0], types[1], position)
        if operator in ("~~", "!~~", "~~*", "!~~*"):
            check_pattern(args[1], position)
            return Expr("op", result, (totality.short(args[0]), args[1]), operator)
        if operator == "||":
            return Expr("op", result, tuple(totality.short(a) for a in args), operator)
        if result in INTEGERS and all(t in ("", *INTEGERS) for t in types):
            return _integer_arithmetic(operator, args, result, position)
        if result == "numeric":
            return _numeric_arithmetic(operator, args, position)
        if result in FLOATS:
            return _float_arithmetic(operator, args, result, position)
        return date_functions.arithmetic(operator, args, result, self.catalog, position)

    def _comparable(self, left: Expr, right: Expr) -> tuple[Expr, Expr]:
        """Fold the time zone into comparisons of timestamptz with date or timestamp."""
        kinds = {left.type, right.type}
        if TIMESTAMPTZ in kinds and kinds <= {"date", TIMESTAMP, TIMESTAMPTZ} and len(kinds) > 1:
            zone = self.catalog.time_zone
            return totality.with_zone(left, zone), totality.with_zone(right, zone)
        return left, right

    def _operator_result(self, operator: str, left: Expr, right: Expr, position: int) -> None:
        if left.type == right.type and left.type not in SIMPLE:
            self.type_of(left.type, position)  # an enum, or refused
            return
        functions.operator_result(operator, left.type, right.type, position)

    def _quantified(self, node: Quantified) -> Expr:
        operator, quantifier = str(node.args["operator"]), str(node.args["quantifier"])
        left = self.build(node.this)
        _, *elements = of_one_type((left, *self._elements(node.expression)))
        tests = [self.operator(operator, (left, e), position(node)) for e in elements]
        every = quantifier == "ALL"
        if not tests:
            return TRUE if every else FALSE
        listed = (operator, quantifier) in (("=", "ANY"), ("<>", "ALL"))
        same = {e.type for e in elements} == {left.type}
        if listed and same and all(e.kind == "const" for e in elements):
            unique = sorted(set(elements), key=lambda e: (e.data is None, str(e.data)))
            if len(unique) > 1:
                return Expr("in", "boolean", (left, *unique), every)
        return self._connective("and" if every else "or", list(dict.fromkeys(tests)), TRUE)

    def _elements(self, node: exp.Expr) -> list[Expr]:
        if isinstance(node, exp.Array):
            return [self.build(a) for a in node.expressions]
        if isinstance(node, exp.Cast) and (full := type_of(node)).endswith("[]"):
            known = constant_of(node)
            if known is None:
                elements = self._elements(node.this)
                return [self.cast_to(e, full[:-2], position(node)) for e in elements]
            if known.text is not None:
                return array_elements(full, known.text, self.catalog)
        raise functions.not_allowed("an array that is not constant", position(node))

    # -- casts and calls ------------------------------------------------------

    def _cast(self, node: exp.Cast) -> Expr:
        if constant_of(node) is not None:
            return self._constant(node)
        return self.cast_to(self.build(node.this), type_of(node), position(node))

    def cast_to(self, e: Expr, full: str, position: int) -> Expr:
        """Cast totally, refusing types and casts outside the lists."""
        type_ = self.type_of(full, position)
        if e.kind == "const":
            return fold(totality.cast_node(e, full, type_), self.catalog) if e.type != full else e
        return totality.cast(
            e, full, type_, self.catalog.time_zone,
            is_enum=e.type not in SIMPLE, position=position,
        )  # fmt: skip

    def _call(self, node: Call) -> Expr:
        schema, name = node.schema, node.name
        if schema == "public" and name in NAMES:
            refusals.refuse("nested_count", position(node))
        if schema not in ("", "pg_catalog") or node.flags - {"form"}:
            raise functions.not_allowed(f"{name}()", position(node))
        if name in ("now", "transaction_timestamp", "statement_timestamp") and not node.expressions:
            now = Value(this="CURRENT_TIMESTAMP")
            return constant(TIMESTAMPTZ, self.catalog.evaluate(now))
        if name in ("coalesce", "greatest", "least"):
            args = tuple(self.build(a) for a in node.expressions)
            type_ = self._common_type(list(args), position(node))
            args = tuple(
                constant(type_, None) if a.kind == "const" and a.data is None else a for a in args
            )
            return Expr(name, type_, args)
        if name == "nullif":
            left, right = (self.build(a) for a in node.expressions)
            left, right = self._comparable(left, right)
            self._operator_result("=", left, right, position(node))
            return Expr(name, left.type, (left, right))
        if name in date_functions.NAMES:
            built = [self.build(a) for a in node.expressions]
            return date_functions.call(name, built, self, position(node))
        args = tuple(self.build(a) for a in node.expressions)
        folded = functions.FOLDED_FUNCTIONS.get((name, *(a.type for a in args)))
        if folded is not None and all(a.kind == "const" for a in args):
            return fold(Expr("fn", folded[1], args, name), self.catalog)
        result = functions.result_of(name, args, position(node))
        return _plain_call(name, args, result, position(node))


def _constant_divisor(divisor: Expr, position: int) -> bool:
    """Tell whether a divisor is a constant, not NULL; refuse 0, a mistake on every row."""
    if divisor.kind != "const" or divisor.data is None or divisor.data == "NaN":
        return False
    if float(str(divisor.data)) == 0:
        raise functions.not_allowed(
            "division by the constant 0",
            position,
            "Use another divisor; one that is 0 in some rows gives NULL there.",
        )
    return True


def _integer_arithmetic(operator: str, args: tuple[Expr, ...], result: str, position: int) -> Expr:
    if operator in ("+", "-", "*"):
        inner = Expr("op", "numeric", tuple(totality.wide(a) for a in args), operator)
        return totality.narrow(inner, result)
    left, right = args
    zero = totality.zero(right.type)
    plain = Expr("op", result, args, operator)
    if right.kind == "const" and right.data is None:
        return constant(result, None)
    if _constant_divisor(right, position) and (integer_value(right) != -1 or operator == "%"):
        return plain
    if operator == "%":
        return functions.guard(functions.compare(right, "<>", zero), plain)
    negated = totality.narrow(Expr("op", "numeric", (totality.wide(left),), "-"), result)
    minus_one = functions.compare(right, "=", constant(right.type, "-1"))
    nonzero = functions.guard(functions.compare(right, "<>", zero), plain)
    return Expr("case", result, (minus_one, negated, nonzero))


def _numeric_arithmetic(operator: str, args: tuple[Expr, ...], position: int) -> Expr:
    args = tuple(totality.bounded(a) for a in args)
    plain = Expr("op", "numeric", args, operator)
    if operator not in ("/", "%"):
        return plain
    right = args[1]
    if _constant_divisor(right, position):
        return plain
    return functions.guard(functions.compare(right, "<>", totality.zero("numeric")), plain)


def _float_arithmetic(operator: str, args: tuple[Expr, ...], result: str, position: int) -> Expr:
    """Keep exponents so small that neither overflow nor underflow can happen.

    Sums: operands up to 1e300 (1e37 for real).  Products and quotients: both operands 0
    or within [1e-150, 1e150] ([1e-18, 1e18]), the divisor not 0.
    """
    if len(args) == 1:
        return Expr("op", result, args, operator)
    real = result == "real"
    if not real:
        args = tuple(totality.double(a) for a in args)
    if operator in ("+", "-"):
        limit = "1e37" if real else "1e300"
        args = tuple(
            a
            if a.kind == "const" and abs(float(str(a.data or 0))) <= float(limit)
            else functions.guard(functions.between(a, "-" + limit, limit), a)
            for a in args
        )
        return Expr("op", result, args, operator)
    low, high = ("1e-18", "1e18") if real else ("1e-150", "1e150")
    args = tuple(totality.sized(a, low, high) for a in args)
    plain = Expr("op", result, args, operator)
    if operator == "*":
        return plain
    if _constant_divisor(args[1], position):
        return plain
    return functions.guard(functions.compare(args[1], "<>", totality.zero(args[1].type)), plain)


_RESIZING = frozenset(("lower", "upper", "initcap", "replace", "reverse"))
_TRIMMING = frozenset(("btrim", "ltrim", "rtrim"))
_COUNTED = {"left": 1, "right": 1, "substr": 1, "substring": 1}


def _plain_call(name: str, args: tuple[Expr, ...], result: str, position: int) -> Expr:
    if name == "abs" and result in INTEGERS:
        inner = Expr("fn", "numeric", (totality.wide(args[0]),), "abs")
        return totality.narrow(inner, result)
    if name == "mod":
        if result in INTEGERS:
            return _integer_arithmetic("%", args, result, position)
        return _numeric_arithmetic("%", args, position)
    if name in ("round", "trunc") and len(args) == 2:
        _require_constant(args[1:], name, position)
        if args[1].data is not None and abs(integer_value(args[1])) > 1000:
            raise functions.not_allowed(f"{name} to that many digits", position)
    if name == "width_bucket":
        return _width_bucket(args, result, position)
    if name == "like_escape":
        _require_constant(args, name, position)
    if name in _COUNTED:
        _require_constant(args[1:], name, position)
        length = args[2] if name.startswith("sub") and len(args) == 3 else None
        if length is not None and length.data is not None and integer_value(length) < 0:
            raise functions.not_allowed("a negative substring length", position)
    if name in _RESIZING:
        _require_constant(args[1:], name, position)
        if any(len(str(a.data or "")) > 100 for a in args[1:]):
            raise functions.not_allowed(f"{name} with long constants", position)
        args = (totality.short(args[0]), *args[1:])
    if name in _TRIMMING:  # takes eight bytes for each
        args = tuple(totality.short(a) for a in args)
    if result == "numeric":
        args = tuple(totality.bounded(a) if a.type == "numeric" else a for a in args)
    return Expr("fn", result, args, name)


def _width_bucket(args: tuple[Expr, ...], result: str, position: int) -> Expr:
    """Total for constant finite different bounds, a count up to a million and no NaN."""
    operand, low, high, count = args
    _require_constant((low, high, count), "width_bucket", position)
    bounds = [str(b.data) for b in (low, high)]
    if not 1 <= integer_value(count) <= 1_000_000:
        raise functions.not_allowed("that number of buckets", position)
    if any(b.lower().lstrip("-") in ("nan", "infinity", "none") for b in bounds):
        raise functions.not_allowed("an infinite bound of width_bucket", position)
    if float(bounds[0]) == float(bounds[1]):
        raise functions.not_allowed("width_bucket with equal bounds", position)
    if operand.type == "numeric":
        operand = totality.bounded(operand)
    elif max(abs(float(b)) for b in bounds) > 1e300:
        raise functions.not_allowed("that bound of width_bucket", position)
    number = functions.compare(operand, "<>", constant(operand.type, "NaN"))
    plain = Expr("fn", result, (operand, low, high, count), "width_bucket")
    return functions.guard(number, plain)


def _require_constant(args: tuple[Expr, ...], name: str, position: int) -> None:
    if any(a.kind != "const" for a in args):
        raise functions.not_allowed(
            f"{name} with arguments that are not constant", position, "Write them as constants."
        )
