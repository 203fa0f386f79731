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

from typing import NoReturn

from dpsql.errors import SyntaxInvalid
from dpsql.query import refusals
from dpsql.query.lexer import Token
from dpsql.query.syntax import Node

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
_TIME_PRECISION = frozenset(["CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"])
_MULTIWORD = {
    "double": ("precision",),
    "character": ("varying",),
    "bit": ("varying",),
}
_BIGINT_DIGITS = 19
_TYPED = frozenset(("typed",))  # a constant written with its type
_TRUTH = ("NULL", "TRUE", "FALSE", "UNKNOWN")


class ExpressionParser:
    """A cursor over tokens, and the expression grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.peek = tokens[0]
        #: Whether what is read is negated; whether it is output, outside of aggregates.
        self._negated = False
        self.in_output = False

    # -- cursor ---------------------------------------------------------------

    @property
    def position(self) -> int:
        """1-based offset of the next token."""
        return self.peek.start + 1

    @property
    def keyword(self) -> str:
        """The next token in upper case if it is an unquoted word, else empty."""
        return self.peek.text.upper() if self.peek.kind == "word" else ""

    def token_at(self, ahead: int) -> Token:
        """Look ahead."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def keyword_at(self, ahead: int) -> str:
        """Look ahead for a keyword or a parenthesis."""
        token = self.token_at(ahead)
        return token.text.upper() if token.kind in ("word", "punct") else ""

    def advance(self) -> Token:
        """Consume one token."""
        token = self.peek
        if token.kind != "end":
            self._at += 1
            self.peek = self._tokens[self._at]
        return token

    def accept(self, keyword: str) -> bool:
        """Consume a keyword if it is next."""
        if self.keyword == keyword:
            self.advance()
            return True
        return False

    def is_punct(self, text: str) -> bool:
        """Tell whether a punctuation mark is next."""
        return self.peek.kind == "punct" and self.peek.text == text

    def accept_punct(self, text: str) -> bool:
        """Consume a punctuation mark if it is next."""
        if self.is_punct(text):
            self.advance()
            return True
        return False

    def expect(self, keyword: str) -> None:
        """Consume a keyword or refuse."""
        if not self.accept(keyword):
            self.refuse_here()

    def expect_punct(self, text: str) -> None:
        """Consume a punctuation mark or refuse."""
        if not self.accept_punct(text):
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

    def sub_query(self) -> object:
        """Read a sub-query of a condition; without one there is none to read."""
        self.refuse_here()

    def _exists(self) -> Node:
        start = self.position
        if self.in_output or self._negated:
            self._refuse_query("exists")
        self.advance()
        self.expect_punct("(")
        query = self.sub_query()
        self.expect_punct(")")
        return Node("exists", start, query)

    def _in_query(self, left: Node) -> Node:
        start = self.position
        if self.in_output or self._negated:
            self._refuse_query("in_query")
        self.advance()
        self.expect_punct("(")
        query = self.sub_query()
        self.expect_punct(")")
        return Node("in_query", start, query, (left,))

    # -- expressions ----------------------------------------------------------

    def expression(self) -> Node:
        """Read one expression with its casts."""
        node = self._primary()
        while True:
            start = self.position
            if self.accept_punct("::"):
                name = self.type_name()
                if node.kind == "const" and not node.type:
                    node = Node("const", node.position, node.value, type=name, flags=_TYPED)
                else:
                    node = Node("cast", start, name, (node,))
            elif self.is_punct("[") or self.is_punct("."):
                self.refuse("subscript")
            else:
                return node

    def type_name(self) -> str:
        """Read a type's name as ``format_type`` writes it."""
        token = self.peek
        first = self.identifier()
        quoted = token.kind == "quoted"
        if self.is_punct("."):
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
        if self.accept_punct("("):
            numbers = [self._number()]
            while self.accept_punct(","):
                numbers.append(self._number())
            self.expect_punct(")")
            name += f"({','.join(numbers)})"
        if not quoted and first in ("timestamp", "time") and self.keyword in ("WITH", "WITHOUT"):
            name += " " + self.advance().text
            for word in ("TIME", "ZONE"):
                name += " " + self.peek.text
                self.expect(word)
        while self.accept_punct("["):
            self.expect_punct("]")
            name += "[]"
        return name

    def _number(self) -> str:
        sign = "-" if self.peek.kind == "operator" and self.peek.text == "-" else ""
        if sign:
            self.advance()
        if self.peek.kind != "number":
            self.refuse_here()
        return sign + self.advance().text

    def _primary(self) -> Node:
        token = self.peek
        start = self.position
        if token.kind == "string":
            self.advance()
            return Node("const", start, token.text, type="")
        if token.kind == "number":
            self.advance()
            return Node("const", start, token.text, type=_number_type(token.text))
        if token.kind == "punct" and token.text == "(":
            return self._parenthesised()
        if token.kind == "word":
            word = token.text.upper()
            following = self.token_at(1)
            called = following.kind == "punct" and following.text == "("
            if word in ("TRUE", "FALSE"):
                self.advance()
                return Node("const", start, word[0].lower(), type="boolean")
            if word == "NULL":
                self.advance()
                return Node("const", start, None, type="")
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
                    self.expect_punct(")")
                return Node("sqlvalue", start, value)
            if called and word in _SPECIAL:
                return self._special(word)
            if called and word == "GROUPING":
                self.refuse("grouping_sets")
            if called and word == "NORMALIZE":
                self.refuse_here()  # its forms are keywords, not arguments
        if token.kind in ("word", "quoted"):
            return self._name_or_call()
        self.refuse_here()

    def _name_or_call(self) -> Node:
        start = self.position
        parts = [self.identifier()]
        while self.accept_punct("."):
            if self.peek.kind == "operator" and self.peek.text == "*":
                self.refuse("whole_row", start)
            parts.append(self.identifier())
        if not self.is_punct("("):
            return Node("name", start, tuple(parts))
        self.advance()
        outside = self.in_output
        if parts[-1].startswith("dp_") and not parts[-1].startswith("dp_interval_"):
            self.in_output = False  # an argument is a condition on rows
        flags = set()
        args: list[Node] = []
        if self.peek.kind == "operator" and self.peek.text == "*":
            self.advance()
            flags.add("star")
        elif not self.is_punct(")"):
            if self.accept("DISTINCT"):
                flags.add("distinct")
            args = self._arguments(flags)
        if self.accept("ORDER"):
            flags.add("order")
            self._skip_to_close()
        self.expect_punct(")")
        if self.accept("FILTER"):
            flags.add("filter")  # its condition is the last argument
            self.expect_punct("(")
            self.expect("WHERE")
            args = [*args, self.expression()]
            self.expect_punct(")")
        self.in_output = outside
        if self.keyword == "WITHIN":
            self.refuse("other_aggregate")
        if self.keyword == "OVER":
            self.refuse("window")
        schema = ".".join(parts[:-1])
        return Node("call", start, (schema, parts[-1]), tuple(args), flags=frozenset(flags))

    def _arguments(self, flags: set[str]) -> list[Node]:
        args = []
        while True:
            if self.accept("VARIADIC"):
                flags.add("variadic")
            if self.token_at(1).text in ("=>", ":="):
                self.refuse_here()
            args.append(self.expression())
            if not self.accept_punct(","):
                return args

    def _skip_to_close(self) -> None:
        """Skip to the closing parenthesis of a clause that will be refused by name."""
        depth = 0
        while self.peek.kind != "end":
            if self.is_punct("("):
                depth += 1
            elif self.is_punct(")"):
                if depth == 0:
                    return
                depth -= 1
            self.advance()

    def _special(self, word: str) -> Node:
        """Functions with a syntax of their own become ordinary calls."""
        start = self.position
        self.advance()
        self.expect_punct("(")
        name = word.lower()
        if word == "EXTRACT":
            field = Node("const", self.position, self.identifier(), type="text")
            self.expect("FROM")
            args = [field, self.expression()]
        elif word == "SUBSTRING":
            args = [self.expression()]
            if self.keyword == "SIMILAR":
                self.refuse_here()
            for keyword in ("FROM", "FOR"):
                if self.accept(keyword):
                    args.append(self.expression())
            if len(args) == 1:
                while self.accept_punct(","):
                    args.append(self.expression())
        elif word == "TRIM":
            name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(self.keyword, "")
            if not name:
                self.refuse_here()
            self.advance()
            args = [] if self.keyword == "FROM" else [self.expression()]
            self.expect("FROM")
            args.insert(0, self.expression())
        elif word == "POSITION":
            args = [self.expression()]
            self.expect("IN")
            args.insert(0, self.expression())
        else:  # COALESCE, NULLIF, GREATEST, LEAST
            args = [self.expression()]
            while self.accept_punct(","):
                args.append(self.expression())
        self.expect_punct(")")
        return Node("call", start, ("", name), tuple(args), flags=frozenset({"special"}))

    def _case(self) -> Node:
        start = self.position
        self.advance()
        args: list[Node] = []
        operand = self.keyword != "WHEN"
        if operand:
            args.append(self.expression())
        while self.accept("WHEN"):
            args.append(self.expression())
            self.expect("THEN")
            args.append(self.expression())
        if self.accept("ELSE"):
            args.append(self.expression())
        else:
            args.append(Node("const", start, None))
        self.expect("END")
        return Node("case", start, operand, tuple(args))

    def _array(self) -> Node:
        start = self.position
        self.advance()
        if self.is_punct("("):
            self._refuse_query("in_query")
        self.expect_punct("[")
        args = []
        while not self.is_punct("]"):
            args.append(self.expression())
            self.accept_punct(",")
        self.expect_punct("]")
        return Node("array", start, None, tuple(args))

    # -- inside parentheses ---------------------------------------------------

    def _parenthesised(self) -> Node:
        start = self.position
        self.advance()
        if self.keyword in ("SELECT", "WITH", "VALUES"):
            self._refuse_query("scalar")
        if self.accept("NOT"):
            outside, self._negated = self._negated, not self._negated
            node = Node("not", start, None, (self.expression(),))
            self._negated = outside
        elif self.peek.kind == "operator":
            operator = self.advance().text
            node = Node("op", start, operator, (self.expression(),))
        else:
            left = self.expression()
            node = left if self.is_punct(")") else self._applied(left)
        self.expect_punct(")")
        return node

    def _applied(self, left: Node) -> Node:
        start = self.position
        word = self.keyword
        if word in ("AND", "OR"):
            args = [left]
            while self.accept(word):
                args.append(self.expression())
            return Node(word.lower(), start, None, tuple(args))
        if word == "IS":
            self.advance()
            negated = self.accept("NOT")
            if self.accept("DISTINCT"):
                self.expect("FROM")
                node = Node("distinct", start, None, (left, self.expression()))
                return Node("not", start, None, (node,)) if negated else node
            if self.keyword not in _TRUTH:
                self.refuse_here()
            test = self.advance().text.upper()
            return Node("is", start, f"NOT {test}" if negated else test, (left,))
        if word == "COLLATE":
            self.advance()
            parts = [self.identifier()]
            while self.accept_punct("."):
                parts.append(self.identifier())
            return Node("collate", start, tuple(parts), (left,))
        if word == "AT":
            for keyword in ("AT", "TIME", "ZONE"):
                self.expect(keyword)
            return Node("call", start, ("", "timezone"), (self.expression(), left))
        if word == "IN":
            return self._in_query(left)
        if word == "OPERATOR":
            refusals.refuse("expression", start, "The operator is not one of pg_catalog.")
        if self.is_punct(","):
            self.refuse("row_value", left.position)
        if self.peek.kind == "operator":
            operator = self.advance().text
            if self.keyword in ("ANY", "ALL"):
                quantifier = self.advance().text.upper()
                self.expect_punct("(")
                if self.keyword in ("SELECT", "WITH"):
                    known = {"=ANY": "in_query", "<>ALL": "not_in_query"}
                    self._refuse_query(known.get(operator + quantifier, "scalar"), start)
                argument = self.expression()
                self.expect_punct(")")
                return Node("any", start, (operator, quantifier), (left, argument))
            return Node("op", start, operator, (left, self.expression()))
        self.refuse_here()


_SPECIAL = frozenset(
    ["EXTRACT", "SUBSTRING", "TRIM", "POSITION", "COALESCE", "NULLIF", "GREATEST", "LEAST"]
)


def _number_type(text: str) -> str:
    if not text.isdigit() or len(text) > _BIGINT_DIGITS:
        return "numeric"
    value = int(text)
    return "integer" if value < 2**31 else "bigint" if value < 2**63 else "numeric"


def _quote(name: str) -> str:
    """Quote an identifier the way PostgreSQL's ``quote_identifier`` does for plain names."""
    if (
        name
        and name[0] not in "0123456789$"
        and all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name)
    ):
        return name
    return '"' + name.replace('"', '""') + '"'
