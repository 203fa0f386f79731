"""Read a deparsed statement into a syntax tree; refuse everything outside the grammar.

The input is what ``pg_get_querydef`` writes with ``pretty = false`` under
``search_path = pg_catalog``: every operator application stands in parentheses of its
own, so the structure can be read without a precedence table and there is only one way
to read it.  That is the defence against parser differentials: this reader accepts an
operator only where the parentheses say what it applies to, consumes every token, and
knows no construct that it would have to guess at.  (A general SQL parser normalises:
``IS UNKNOWN`` becomes ``IS NULL``, ``"char"`` becomes ``char``, positions are lost.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dpsql.errors import InternalError, SyntaxInvalid, UnsupportedConstruct
from dpsql.query import refusals
from dpsql.query.expression_parser import ExpressionParser
from dpsql.query.lexer import tokenize
from dpsql.query.syntax import Derived, FromItem, Join, Node, Select, SortKey, Table, Target, With

_Read = TypeVar("_Read")
_CLAUSE_ENDS = frozenset(
    [
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "FETCH",
        "WINDOW",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "FOR",
    ]
)


def parse(sql: str) -> Select:
    """Parse one deparsed SELECT.

    Raises
    ------
    UnsupportedConstruct
        Names the first construct that cannot be answered privately, and its position.
    SyntaxInvalid
        If the text is not one SELECT statement as PostgreSQL writes it.
    """
    parser = Parser(tokenize(sql.rstrip().removesuffix(";")))
    return _whole(parser, lambda: parser.statement(outermost=True))


def parse_expression(sql: str) -> Node:
    """Parse one deparsed expression, such as ``pg_get_expr`` writes.

    Raises
    ------
    UnsupportedConstruct
        Names the first construct that the reader does not know, and its position.
    SyntaxInvalid
        If the text is not one expression as PostgreSQL writes it.
    """
    parser = Parser(tokenize(sql))
    return _whole(parser, parser.expression)


def _whole(parser: Parser, read: Callable[[], _Read]) -> _Read:
    """Read to the end of the text."""
    try:
        found = read()
    except RecursionError:
        raise UnsupportedConstruct("the statement is nested too deeply") from None
    if parser.peek.kind != "end":
        parser.refuse_here()
    return found


class Parser(ExpressionParser):
    """SELECT, FROM and their clauses on top of expressions."""

    def statement(self, *, outermost: bool = False) -> Select:
        """Read one SELECT, to its end or the closing parenthesis."""
        start = self.position
        ctes: tuple[With, ...] = ()
        if self.accept("WITH"):
            ctes = self._with()
        while self.is_punct("(") and self.keyword_at(1) in ("SELECT", "WITH", "("):
            self.refuse("set_operation")
        if self.keyword != "SELECT":
            if self.keyword in ("INSERT", "UPDATE", "DELETE", "MERGE"):
                self.refuse("data_modifying")
            if self.keyword == "VALUES":
                self.refuse("values")
            raise SyntaxInvalid("the text is not one SELECT statement", position=self.position)
        self.advance()
        distinct = self.accept("DISTINCT")
        if distinct and self.keyword == "ON":
            self.refuse("distinct_on")
        self.in_output = outermost
        targets = self._targets()
        self.in_output = False
        sources: list[FromItem] = []
        if self.accept("FROM"):
            sources.append(self._from_item())
            while self.accept_punct(","):
                sources.append(self._from_item())
        where = self.expression() if self.accept("WHERE") else None
        group: list[Node] = []
        sets: tuple[tuple[Node, ...], ...] = ()
        grouped = False
        if self.keyword == "GROUP":
            self.advance()
            self.expect("BY")
            grouped = True
            group, sets = self.grouping(outermost=outermost)
        self.in_output = outermost
        having = self.expression() if self.accept("HAVING") else None
        if self.keyword == "WINDOW":
            self.refuse("window")
        self.before_set_operation(outermost=outermost)
        order = self._order()
        limit, offset = self._limit()
        self.in_output = False
        if self.keyword == "FOR":
            self.refuse("row_lock")
        return Select(
            start, targets, tuple(sources), where, tuple(group), grouped, having, order,
            distinct, limit, offset, ctes, sets,
        )  # fmt: skip

    def sub_query(self) -> Select:
        """Read the sub-query of EXISTS or IN."""
        return self.statement()

    def before_set_operation(self, *, outermost: bool) -> None:  # noqa: ARG002
        """Refuse UNION and its like."""
        if self.keyword in ("UNION", "INTERSECT", "EXCEPT"):
            self.refuse("set_operation")

    def grouping(self, *, outermost: bool) -> tuple[list[Node], tuple[tuple[Node, ...], ...]]:  # noqa: ARG002
        """Read what follows GROUP BY: expressions, and grouping sets where these are allowed."""
        return self._group(), ()

    def _with(self) -> tuple[With, ...]:
        if self.keyword == "RECURSIVE":
            self.refuse("recursive")
        found = []
        while True:
            name = self.identifier()
            columns = self._column_list() if self.is_punct("(") else ()
            self.expect("AS")
            if self.accept("NOT"):
                self.expect("MATERIALIZED")
            else:
                self.accept("MATERIALIZED")
            self.expect_punct("(")
            found.append(With(name, columns, self.statement()))
            self.expect_punct(")")
            if self.keyword in ("SEARCH", "CYCLE"):
                self.refuse("recursive")
            if not self.accept_punct(","):
                return tuple(found)

    def _column_list(self) -> tuple[str, ...]:
        self.expect_punct("(")
        names = [self.identifier()]
        while self.accept_punct(","):
            names.append(self.identifier())
        self.expect_punct(")")
        return tuple(names)

    def _targets(self) -> tuple[Target, ...]:
        found: list[Target] = []
        if self.peek.kind == "end" or self.keyword in _CLAUSE_ENDS:
            return ()
        while True:
            expression = self.expression()
            name = "?column?"
            if self.accept("AS"):
                name = self.identifier()
            elif expression.kind == "name" and isinstance(expression.value, tuple):
                name = expression.value[-1]
            found.append(Target(expression, name))
            if not self.accept_punct(","):
                return tuple(found)

    def _group(self) -> list[Node]:
        if self.keyword in ("ROLLUP", "CUBE", "GROUPING", "DISTINCT") or (
            self.is_punct("(") and self.token_at(1).text in (")",)
        ):
            self.refuse("grouping_sets")
        found = [self.expression()]
        while self.accept_punct(","):
            if self.keyword in ("ROLLUP", "CUBE", "GROUPING"):
                self.refuse("grouping_sets")
            found.append(self.expression())
        return found

    def _order(self) -> tuple[SortKey, ...]:
        found: list[SortKey] = []
        if not self.accept("ORDER"):
            return ()
        self.expect("BY")
        while True:
            expression = self.expression()
            suffix = ""
            if self.keyword == "USING":
                self.refuse("order_using")
            if self.accept("DESC"):
                suffix = " DESC"
            else:
                self.accept("ASC")
            if self.accept("NULLS"):
                first = self.accept("FIRST")
                if not first:
                    self.expect("LAST")
                suffix += " NULLS FIRST" if first else " NULLS LAST"
            found.append(SortKey(expression, suffix))
            if not self.accept_punct(","):
                return tuple(found)

    def _limit(self) -> tuple[Node | None, Node | None]:
        limit = offset = None
        while True:
            if self.accept("OFFSET"):
                offset = self.expression()
            elif self.accept("LIMIT"):
                limit = None if self.accept("ALL") else self.expression()
            elif self.keyword == "FETCH":
                self.refuse("with_ties")
            else:
                return limit, offset

    def _from_item(self) -> FromItem:
        start = self.position
        if self.keyword == "LATERAL":
            self.refuse("lateral")
        if self.keyword in ("VALUES", "XMLTABLE", "JSON_TABLE", "ROWS"):
            self.refuse("table_function")
        if self.is_punct("("):
            following = self.keyword_at(1)
            if following == "VALUES":
                self.refuse("values")
            if following in ("SELECT", "WITH"):
                self.advance()
                query = self.statement()
                self.expect_punct(")")
                alias, columns = self._alias()
                return Derived(start, query, alias, columns)
            self.advance()
            if self.is_punct("(") and self.keyword_at(1) in ("SELECT", "WITH"):
                # either a set operation's arm or a derived table that starts a join
                self._refuse_set_operation()
            item = self._joined(self._from_item())
            self.expect_punct(")")
            if isinstance(item, Join):
                alias, columns = self._alias()
                if alias:
                    item = replace(item, alias=alias, columns=columns)
            return item
        only = self.accept("ONLY")
        parts = [self.identifier()]
        while self.accept_punct("."):
            parts.append(self.identifier())
        if self.is_punct("("):
            self.refuse("table_function", start)
        if len(parts) > 2:
            raise InternalError("a relation's name has more than two parts", position=start)
        alias, columns = self._alias()
        if self.keyword == "TABLESAMPLE":
            self.refuse("tablesample")
        return Table(
            start, parts[0] if len(parts) == 2 else "", parts[-1], alias or parts[-1], columns, only
        )

    def _refuse_set_operation(self) -> None:
        """Tell ``((SELECT ...) UNION ...)`` from ``((SELECT ...) x JOIN ...)``."""
        depth = 0
        at = 0
        while True:
            token = self.token_at(at)
            if token.kind == "end":
                return
            if token.kind == "punct" and token.text in "()":
                depth += 1 if token.text == "(" else -1
                if depth == 0:
                    break
            at += 1
        if self.keyword_at(at + 1) in ("UNION", "INTERSECT", "EXCEPT"):
            self.refuse("set_operation", self.token_at(at + 1).start + 1)

    def _alias(self) -> tuple[str, tuple[str, ...]]:
        token = self.peek
        self.accept("AS")
        if token.kind == "quoted" or (
            token.kind == "word" and token.text.upper() not in refusals.AFTER_FROM_ITEM
        ):
            alias = self.identifier()
            return alias, self._column_list() if self.is_punct("(") else ()
        return "", ()

    def _joined(self, left: FromItem) -> FromItem:
        while True:
            start = self.position
            if self.keyword == "FULL":
                self.refuse("outer_join")
            if self.keyword == "NATURAL":
                self.refuse("natural_join")
            if self.accept("CROSS"):
                self.expect("JOIN")
                left = Join(start, left, self._from_item())
                continue
            outer = self.advance().text.upper() if self.keyword in ("LEFT", "RIGHT") else ""
            self.accept("INNER")
            if not self.accept("JOIN"):
                return left
            right = self._from_item()
            if self.accept("ON"):
                left = Join(start, left, right, on=self.expression(), outer=outer)
            else:
                self.expect("USING")
                using = self._column_list()
                using_alias = self.identifier() if self.accept("AS") else ""
                left = Join(start, left, right, using=using, using_alias=using_alias, outer=outer)
