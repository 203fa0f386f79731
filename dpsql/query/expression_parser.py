"""Expressions of deparsed statements.

Grammar (``ruleutils.c``, ``get_rule_expr`` without pretty printing)::

    expression := primary { :: type }
    primary    := constant | name | call | CASE ... END | ARRAY[...] | ( inside )
    inside     := expression
                | operator expression | NOT expression
                | expression operator expression | expression operator ANY|ALL ( expression )
                | expression { AND expression } | expression { OR expression }
                | expression IS ... | expression COLLATE name | expression AT TIME ZONE expression
"""

from __future__ import annotations

from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import SyntaxInvalid
from dpsql.query import refusals
from dpsql.query.lexer import Token
from dpsql.query.nodes import identifier, is_bare
from dpsql.sqltree import cast, raw
from dpsql.sqltree.nodes import Call, Operation, Quantified, Value, at, position

_SQL_VALUES = frozenset(
    [
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "CURRENT_ROLE",
        "CURRENT_USER",
        "USER",
        "SESSION_USER",
        "CURRENT_CATALOG",
        "CURRENT_SCHEMA",
    ]
)
_SPECIAL = frozenset(
    ["EXTRACT", "SUBSTRING", "TRIM", "POSITION", "COALESCE", "NULLIF", "GREATEST", "LEAST"]
)
#: Words that may begin something else than a name.
_KEYWORDS = frozenset(
    (
        *("TRUE", "FALSE", "NULL", "CASE", "ARRAY", "EXISTS", "SELECT", "WITH", "ROW", "GROUPING"),
        *("NORMALIZE", *_SQL_VALUES, *_SPECIAL),
    )
)
_TIME_PRECISION = frozenset(["CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"])
_MULTIWORD = {
    "double": ("precision",),
    "character": ("varying",),
    "bit": ("varying",),
}
_TRUTH = ("NULL", "TRUE", "FALSE", "UNKNOWN")
_COLUMN = ("table", "db", "catalog")


class ExpressionParser:
    """A cursor over tokens, and the expression grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = -1
        self.advance()
        #: Whether what is read is negated; whether it is output, outside of aggregates.
        self._negated = False
        self.in_output = False

    # -- cursor ---------------------------------------------------------------

    def token_at(self, ahead: int) -> Token:
        """Look ahead."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def keyword_at(self, ahead: int) -> str:
        """Look ahead for a keyword or a parenthesis."""
        return self.token_at(ahead).keyword

    def advance(self) -> Token:
        """Consume one token."""
        before = self._tokens[self._at]
        if self._at < len(self._tokens) - 1:
            self._at += 1
        self.peek = self._tokens[self._at]
        #: Offset of the next token, from 1.
        self.position = self.peek[2] + 1
        self.keyword = self.peek[4]
        return before

    def accept(self, keyword: str) -> bool:
        """Consume a keyword or a punctuation mark if it is next."""
        if self.keyword == keyword:
            self.advance()
            return True
        return False

    def expect(self, keyword: str) -> None:
        """Consume a keyword or a punctuation mark, or refuse."""
        if not self.accept(keyword):
            self.refuse_here()

    def identifier(self) -> str:
        """Consume a name."""
        if self.peek.kind not in ("word", "quoted"):
            self.refuse_here()
        return self.advance().text

    def refuse(self, construct: str, position: int | None = None) -> NoReturn:
        """Refuse a known construct at the next token."""
        refusals.refuse(construct, self.position if position is None else position)

    def refuse_here(self) -> NoReturn:
        """Refuse whatever comes next."""
        if self.peek.kind == "end":
            raise SyntaxInvalid("the statement ends too early", position=self.position)
        if self.peek.kind == "parameter":
            self.refuse("parameter")
        if self.keyword in ("UNION", "INTERSECT", "EXCEPT"):
            self.refuse("set_operation")
        refusals.refuse("expression", self.position)

    def _refuse_query(self, construct: str, position: int | None = None) -> NoReturn:
        """Refuse a sub-query of an expression, with what can be written instead of it."""
        if self.in_output:
            construct = "output_query"
        elif self._negated and construct in ("exists", "in_query"):
            construct = f"not_{construct}"
        self.refuse(construct, position)

    def sub_query(self) -> exp.Select:
        """Read a sub-query of a condition; without one there is none to read."""
        self.refuse_here()

    def _exists(self) -> exp.Expr:
        start = self.position
        if self.in_output or self._negated:
            self._refuse_query("exists")
        self.advance()
        self.expect("(")
        query = self.sub_query()
        self.expect(")")
        return at(exp.Exists(this=query), start)

    def _in_query(self, left: exp.Expr) -> exp.Expr:
        start = self.position
        if self.in_output or self._negated:
            self._refuse_query("in_query")
        self.advance()
        self.expect("(")
        query = self.sub_query()
        self.expect(")")
        return at(exp.In(this=left, query=exp.Subquery(this=query)), start)

    # -- expressions ----------------------------------------------------------

    def expression(self) -> exp.Expr:
        """Read one expression with its casts."""
        node = self._primary()
        while self.keyword in ("::", "[", "."):
            start = self.position
            if not self.accept("::"):
                self.refuse("subscript")
            # a constant is where its text begins, another cast where its type is named
            if is_bare(node):
                start = position(node)
            node = at(cast(node, self.type_name()), start)
        return node

    def type_name(self) -> str:
        """Read a type's name as ``format_type`` writes it."""
        token = self.peek
        first = self.identifier()
        quoted = token.kind == "quoted"
        if self.keyword == ".":
            self.advance()
            second = self.identifier()
            name = f"{_quote(first)}.{_quote(second)}"
        elif quoted:
            name = '"char"' if first == "char" else _quote(first)
        else:
            name = first
            for word in _MULTIWORD.get(first, ()):
                if self.peek.kind == "word" and self.peek.text == word:
                    name += " " + self.advance().text
        if self.accept("("):
            numbers = [self._number()]
            while self.accept(","):
                numbers.append(self._number())
            self.expect(")")
            name += f"({','.join(numbers)})"
        if not quoted and first in ("timestamp", "time") and self.keyword in ("WITH", "WITHOUT"):
            name += " " + self.advance().text
            for word in ("TIME", "ZONE"):
                name += " " + self.peek.text
                self.expect(word)
        while self.accept("["):
            self.expect("]")
            name += "[]"
        return name

    def _number(self) -> str:
        sign = "-" if self.peek.kind == "operator" and self.peek.text == "-" else ""
        if sign:
            self.advance()
        if self.peek.kind != "number":
            self.refuse_here()
        return sign + self.advance().text

    def _primary(self) -> exp.Expr:
        token = self.peek
        start = self.position
        if token.kind == "string":
            self.advance()
            return at(exp.Literal(this=token.text, is_string=True), start)
        if token.kind == "number":
            self.advance()
            return at(exp.Literal(this=token.text, is_string=False), start)
        if self.keyword == "(":
            return self._parenthesised()
        word = self.keyword
        if word in _KEYWORDS:
            following = self.token_at(1)
            called = following.keyword == "("
            if word in ("TRUE", "FALSE"):
                self.advance()
                return at(exp.Boolean(this=word == "TRUE"), start)
            if word == "NULL":
                self.advance()
                return at(exp.Null(), start)
            if word == "CASE":
                return self._case()
            if word == "ARRAY":
                return self._array()
            if word == "EXISTS":
                return self._exists()
            if word in ("SELECT", "WITH"):
                self._refuse_query("scalar")
            if word == "ROW" and called:
                self.refuse("row_value")
            if word in _SQL_VALUES:
                self.advance()
                value = word
                if called and word in _TIME_PRECISION:
                    self.advance()
                    value += f"({self._number()})"
                    self.expect(")")
                return at(Value(this=value), start)
            if called and word in _SPECIAL:
                return self._special(word)
            if called and word == "GROUPING":
                self.refuse("grouping_sets")
            if called and word == "NORMALIZE":
                self.refuse_here()  # its forms are keywords, not arguments
        if token.kind in ("word", "quoted"):
            return self._name_or_call()
        self.refuse_here()

    def _name_or_call(self) -> exp.Expr:
        start = self.position
        parts = [self.identifier()]
        while self.accept("."):
            if self.peek.kind == "operator" and self.peek.text == "*":
                self.refuse("whole_row", start)
            parts.append(self.identifier())
        if self.keyword != "(":
            if len(parts) > 1 + len(_COLUMN):
                refusals.refuse("expression", start)
            last, *before = map(identifier, reversed(parts))
            return at(exp.Column(this=last, **dict(zip(_COLUMN, before, strict=False))), start)
        self.advance()
        outside = self.in_output
        if parts[-1].startswith("dp_") and not parts[-1].startswith("dp_interval_"):
            self.in_output = False  # an argument is a condition on rows
        args: dict[str, Any] = {}
        if self.peek.kind == "operator" and self.peek.text == "*":
            self.advance()
            args["star"] = True
        elif self.keyword != ")":
            args["distinct"] = self.accept("DISTINCT")
            args["expressions"] = self._arguments(args)
        if self.accept("ORDER"):
            args["order"] = True
            self._skip_to_close()
        self.expect(")")
        if self.accept("FILTER"):
            self.expect("(")
            self.expect("WHERE")
            args["filter"] = self.expression()
            self.expect(")")
        self.in_output = outside
        if self.keyword == "WITHIN":
            self.refuse("other_aggregate")
        if self.keyword == "OVER":
            self.refuse("window")
        return at(Call(this=parts[-1], schema=".".join(parts[:-1]), **args), start)

    def _arguments(self, flags: dict[str, Any]) -> list[exp.Expr]:
        args = []
        while True:
            if self.accept("VARIADIC"):
                flags["variadic"] = True
            if self.token_at(1).text in ("=>", ":="):
                self.refuse_here()
            args.append(self.expression())
            if not self.accept(","):
                return args

    def _skip_to_close(self) -> None:
        """Skip to the closing parenthesis of a clause that will be refused by name."""
        depth = 0
        while self.peek.kind != "end":
            if self.keyword == "(":
                depth += 1
            elif self.keyword == ")":
                if depth == 0:
                    return
                depth -= 1
            self.advance()

    def _special(self, word: str) -> exp.Expr:
        """Functions with a syntax of their own become calls that keep it as their form."""
        start = self.position
        self.advance()
        self.expect("(")
        name, form = word.lower(), "keyword"
        if word == "EXTRACT":
            form, at_field = word, self.position
            field = exp.Literal(this=self.identifier(), is_string=True)
            self.expect("FROM")
            args = [at(cast(field, "text"), at_field), self.expression()]
        elif word == "SUBSTRING":
            args = [self.expression()]
            if self.keyword == "SIMILAR":
                self.refuse_here()
            form = "FROM" if self.accept("FROM") else ""
            if form:
                args.append(self.expression())
                if self.accept("FOR"):
                    args.append(self.expression())
            while not form and self.accept(","):
                args.append(self.expression())
        elif word == "TRIM":
            form = self.keyword
            name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(form, "")
            if not name:
                self.refuse_here()
            self.advance()
            args = [] if self.keyword == "FROM" else [self.expression()]
            self.expect("FROM")
            args.insert(0, self.expression())
        elif word == "POSITION":
            form, args = "IN", [self.expression()]
            self.expect("IN")
            args.insert(0, self.expression())
        else:  # COALESCE, NULLIF, GREATEST, LEAST
            args = [self.expression()]
            while self.accept(","):
                args.append(self.expression())
        self.expect(")")
        return at(Call(this=name, expressions=args, form=form), start)

    def _case(self) -> exp.Expr:
        start = self.position
        self.advance()
        operand = self.expression() if self.keyword != "WHEN" else None
        branches = []
        while self.accept("WHEN"):
            when = self.expression()
            self.expect("THEN")
            branches.append(exp.If(this=when, true=self.expression()))
        default = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return at(exp.Case(this=operand, ifs=branches, default=default), start)

    def _array(self) -> exp.Expr:
        start = self.position
        self.advance()
        if self.keyword == "(":
            self._refuse_query("in_query")
        self.expect("[")
        args = []
        while self.keyword != "]":
            args.append(self.expression())
            self.accept(",")
        self.expect("]")
        return at(exp.Array(expressions=args), start)

    # -- inside parentheses ---------------------------------------------------

    def _parenthesised(self) -> exp.Expr:
        start = self.position
        self.advance()
        if self.keyword in ("SELECT", "WITH", "VALUES"):
            self._refuse_query("scalar")
        if self.accept("NOT"):
            outside, self._negated = self._negated, not self._negated
            node: exp.Expr = at(exp.Not(this=self.expression()), start)
            self._negated = outside
        elif self.peek.kind == "operator":
            operator = self.advance().text
            node = at(Operation(operator=operator, expression=self.expression()), start)
        else:
            left = self.expression()
            if self.accept(")"):
                return left
            node = self._applied(left)
        self.expect(")")
        return at(exp.Paren(this=node), position(node))

    def _applied(self, left: exp.Expr) -> exp.Expr:
        start = self.position
        word = self.keyword
        if word in ("AND", "OR"):
            kind = exp.And if word == "AND" else exp.Or
            while self.accept(word):
                left = kind(this=left, expression=self.expression())
            return at(left, start)
        if word == "IS":
            self.advance()
            negated = self.accept("NOT")
            if self.accept("DISTINCT"):
                self.expect("FROM")
                node = at(exp.NullSafeNEQ(this=left, expression=self.expression()), start)
                return at(exp.Not(this=exp.Paren(this=node)), start) if negated else node
            if self.keyword not in _TRUTH:
                self.refuse_here()
            test = self.advance().text.upper()
            return at(exp.Is(this=left, expression=raw(f"NOT {test}" if negated else test)), start)
        if word == "COLLATE":
            self.advance()
            name: exp.Expr = identifier(self.identifier())
            while self.accept("."):
                name = exp.Dot(this=name, expression=identifier(self.identifier()))
            return at(exp.Collate(this=left, expression=name), start)
        if word == "AT":
            for keyword in ("AT", "TIME", "ZONE"):
                self.expect(keyword)
            args = [self.expression(), left]
            return at(Call(this="timezone", expressions=args, form="AT TIME ZONE"), start)
        if word == "IN":
            return self._in_query(left)
        if word == "OPERATOR":
            refusals.refuse("expression", start, "The operator is not one of pg_catalog.")
        if self.keyword == ",":
            self.refuse("row_value", position(left))
        if self.peek.kind == "operator":
            operator = self.advance().text
            if self.keyword in ("ANY", "ALL"):
                quantifier = self.advance().text.upper()
                self.expect("(")
                if self.keyword in ("SELECT", "WITH"):
                    known = {"=ANY": "in_query", "<>ALL": "not_in_query"}
                    self._refuse_query(known.get(operator + quantifier, "scalar"), start)
                argument = self.expression()
                self.expect(")")
                return at(
                    Quantified(
                        this=left, operator=operator, quantifier=quantifier, expression=argument
                    ),
                    start,
                )
            right = self.expression()
            return at(Operation(this=left, operator=operator, expression=right), start)
        self.refuse_here()


def _quote(name: str) -> str:
    """Quote an identifier the way PostgreSQL's ``quote_identifier`` does for plain names."""
    if (
        name
        and name[0] not in "0123456789$"
        and all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name)
    ):
        return name
    return '"' + name.replace('"', '""') + '"'
