"""Read a deparsed statement into a tree of sqlglot's; refuse everything outside the grammar.

The input is what ``pg_get_querydef`` writes with ``pretty = false`` under
``search_path = pg_catalog``: every operator application stands in parentheses of its
own, so the structure can be read without a precedence table and there is only one way
to read it.  That is the defence against parser differentials: this reader accepts an
operator only where the parentheses say what it applies to, consumes every token, and
knows no construct that it would have to guess at.  (A general SQL parser normalises:
``IS UNKNOWN`` becomes ``IS NULL``, ``"char"`` becomes ``char``, positions are lost.)

Nodes are those of sqlglot where it tells apart what PostgreSQL does, and of `dpsql.sqltree.nodes`
where it does not; `exact` compares them, and rendered they are what was read:

==================================== =======================================================
``a.b``                              Column of quoted Identifiers
``'x'``, ``5``, ``true``, ``NULL``   Literal, Boolean, Null
``'x'::t``, ``NULL::t``              Cast of one of these: a constant, see `constant_of`
``(e)::t``                           Cast to the type's text, Raw
``( ... )``                          Paren around each of the next seven, once; else nothing
``a AND b AND c``                    And(And(a, b), c), see `operands`; OR likewise
``NOT a``                            Not
``a op b``, ``op a``                 Operation, by the operator's text
``a op ANY (b)``                     Quantified, by texts of operator and quantifier
``a IS NOT TRUE``                    Is, with the words after IS as Raw
``a IS DISTINCT FROM b``             NullSafeNEQ; with NOT in a Not
``a COLLATE c``, ``a IN (SELECT)``   Collate of a name; In with its query as Subquery
``EXISTS (SELECT)``                  Exists
``s.f(a)``, ``f(DISTINCT a)``, ...   Call, with its flags; ORDER BY without what sorts, since
                                     calls that have it are refused
``COALESCE(a)``, ``TRIM(...)``,      Call of a function of no schema, with its arguments in that
``EXTRACT(...)``, ``AT TIME ZONE``   order and the syntax as ``form``
``CURRENT_TIMESTAMP(3)``             Value, by its text
``CASE``, ``ARRAY[]``                Case of Ifs, Array
``SELECT``, its clauses, WITH        Select, From, Where, Group, Having, Order of Ordered,
                                     Limit, Offset, Distinct, With of CTEs; LIMIT ALL is none
output columns                       Alias, or what stands there without AS
``t AS x (a)``, ``(SELECT) x``       Table, Subquery, with TableAlias
``FROM t, u``                        From, and Joins of the Select without a kind
``(t JOIN u ON c) x``                Subquery of the Table t with its Joins
``JOIN u USING (k) AS x``            Join with ``using_alias``
``GROUPING SETS``, ``CUBE``, ...     Group of Tuples, the sets written out: `grouping_sets`
==================================== =======================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

from dpsql.errors import InternalError, SyntaxInvalid, UnsupportedConstruct
from dpsql.query import refusals
from dpsql.query.expression_parser import ExpressionParser
from dpsql.query.lexer import tokenize
from dpsql.query.nodes import identifier, is_join
from dpsql.sqltree.nodes import at

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


def parse(sql: str) -> exp.Select:
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


def parse_expression(sql: str) -> exp.Expr:
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

    def statement(self, *, outermost: bool = False) -> exp.Select:
        """Read one SELECT, to its end or the closing parenthesis."""
        start = self.position
        found = at(exp.Select(), start)
        if self.accept("WITH"):
            found.set("with_", exp.With(expressions=self._with()))
        while self.keyword == "(" and self.keyword_at(1) in ("SELECT", "WITH", "("):
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
        found.set("expressions", self._targets())
        found.set("distinct", exp.Distinct() if distinct else None)
        self.in_output = False
        if self.accept("FROM"):
            found.set("from_", exp.From(this=self._from_item()))
            while self.accept(","):
                found.append("joins", exp.Join(this=self._from_item()))
        if self.accept("WHERE"):
            found.set("where", exp.Where(this=self.expression()))
        if self.accept("GROUP"):
            self.expect("BY")
            found.set("group", self.grouping(outermost=outermost))
        self.in_output = outermost
        if self.accept("HAVING"):
            found.set("having", exp.Having(this=self.expression()))
        if self.keyword == "WINDOW":
            self.refuse("window")
        self.before_set_operation(outermost=outermost)
        if self.accept("ORDER"):
            found.set("order", self._order())
        self._limit(found)
        self.in_output = False
        if self.keyword == "FOR":
            self.refuse("row_lock")
        return found

    def sub_query(self) -> exp.Select:
        """Read the sub-query of EXISTS or IN."""
        return self.statement()

    def before_set_operation(self, *, outermost: bool) -> None:  # noqa: ARG002
        """Refuse UNION and its like."""
        if self.keyword in ("UNION", "INTERSECT", "EXCEPT"):
            self.refuse("set_operation")

    def grouping(self, *, outermost: bool) -> exp.Group:  # noqa: ARG002
        """Read what follows GROUP BY: expressions, or grouping sets where these are allowed."""
        return exp.Group(expressions=self._group())

    def _with(self) -> list[exp.CTE]:
        if self.keyword == "RECURSIVE":
            self.refuse("recursive")
        found = []
        while True:
            alias = self._named()
            self.expect("AS")
            materialized = None
            if self.accept("NOT"):
                self.expect("MATERIALIZED")
                materialized = False
            elif self.accept("MATERIALIZED"):
                materialized = True
            self.expect("(")
            query = self.statement()
            found.append(exp.CTE(this=query, alias=alias, materialized=materialized))
            self.expect(")")
            if self.keyword in ("SEARCH", "CYCLE"):
                self.refuse("recursive")
            if not self.accept(","):
                return found

    def _column_list(self) -> list[exp.Identifier]:
        self.expect("(")
        names = [identifier(self.identifier())]
        while self.accept(","):
            names.append(identifier(self.identifier()))
        self.expect(")")
        return names

    def _targets(self) -> list[exp.Expr]:
        found: list[exp.Expr] = []
        if self.peek.kind == "end" or self.keyword in _CLAUSE_ENDS:
            return found
        while True:
            expression = self.expression()
            if self.accept("AS"):
                expression = exp.Alias(this=expression, alias=identifier(self.identifier()))
            found.append(expression)
            if not self.accept(","):
                return found

    def _group(self) -> list[exp.Expr]:
        if self.keyword in ("ROLLUP", "CUBE", "GROUPING", "DISTINCT") or (
            self.keyword == "(" and self.token_at(1).text in (")",)
        ):
            self.refuse("grouping_sets")
        found = [self.expression()]
        while self.accept(","):
            if self.keyword in ("ROLLUP", "CUBE", "GROUPING"):
                self.refuse("grouping_sets")
            found.append(self.expression())
        return found

    def _order(self) -> exp.Order:
        found: list[exp.Ordered] = []
        self.expect("BY")
        while True:
            expression = self.expression()
            if self.keyword == "USING":
                self.refuse("order_using")
            descending = self.accept("DESC")
            if not descending:
                self.accept("ASC")
            first = descending
            if self.accept("NULLS"):
                first = self.accept("FIRST")
                if not first:
                    self.expect("LAST")
            found.append(exp.Ordered(this=expression, desc=descending or None, nulls_first=first))
            if not self.accept(","):
                return exp.Order(expressions=found)

    def _limit(self, query: exp.Select) -> None:
        """Read LIMIT and OFFSET; LIMIT ALL is none."""
        while True:
            if self.accept("OFFSET"):
                query.set("offset", exp.Offset(expression=self.expression()))
            elif self.accept("LIMIT"):
                found = None if self.accept("ALL") else exp.Limit(expression=self.expression())
                query.set("limit", found)
            elif self.keyword == "FETCH":
                self.refuse("with_ties")
            else:
                return

    def _from_item(self) -> exp.Expr:
        start = self.position
        if self.keyword == "LATERAL":
            self.refuse("lateral")
        if self.keyword in ("VALUES", "XMLTABLE", "JSON_TABLE", "ROWS"):
            self.refuse("table_function")
        if self.keyword == "(":
            following = self.keyword_at(1)
            if following == "VALUES":
                self.refuse("values")
            if following in ("SELECT", "WITH"):
                self.advance()
                query = self.statement()
                self.expect(")")
                return at(exp.Subquery(this=query, alias=self._alias()), start)
            self.advance()
            if self.keyword == "(" and self.keyword_at(1) in ("SELECT", "WITH"):
                # either a set operation's arm or a derived table that starts a join
                self._refuse_set_operation()
            item = self._from_item()
            joins = self._joins()
            self.expect(")")
            if joins:
                item.set("joins", joins)
                item = exp.Subquery(this=item)
            if is_join(item) and (alias := self._alias()) is not None:
                item.set("alias", alias)
            return item
        only = self.accept("ONLY")
        parts = [self.identifier()]
        while self.accept("."):
            parts.append(self.identifier())
        if self.keyword == "(":
            self.refuse("table_function", start)
        if len(parts) > 2:
            raise InternalError("a relation's name has more than two parts", position=start)
        alias = self._alias()
        if self.keyword == "TABLESAMPLE":
            self.refuse("tablesample")
        named = zip(("this", "db"), map(identifier, reversed(parts)), strict=False)
        return at(exp.Table(**dict(named), alias=alias, only=only), start)

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

    def _alias(self) -> exp.TableAlias | None:
        token = self.peek
        self.accept("AS")
        if token.kind == "quoted" or (
            token.kind == "word" and token.text.upper() not in refusals.AFTER_FROM_ITEM
        ):
            return self._named()
        return None

    def _named(self) -> exp.TableAlias:
        """Read a name and, in parentheses, names of columns."""
        name = identifier(self.identifier())
        return exp.TableAlias(this=name, columns=self._column_list() if self.keyword == "(" else [])

    def _joins(self) -> list[exp.Join]:
        found: list[exp.Join] = []
        while True:
            start = self.position
            if self.keyword == "FULL":
                self.refuse("outer_join")
            if self.keyword == "NATURAL":
                self.refuse("natural_join")
            if self.accept("CROSS"):
                self.expect("JOIN")
                found.append(at(exp.Join(this=self._from_item(), kind="CROSS"), start))
                continue
            side = self.advance().text.upper() if self.keyword in ("LEFT", "RIGHT") else None
            self.accept("INNER")
            if not self.accept("JOIN"):
                return found
            join = at(exp.Join(this=self._from_item(), side=side), start)
            if self.accept("ON"):
                join.set("on", self.expression())
            else:
                self.expect("USING")
                join.set("using", self._column_list())
                if self.accept("AS"):
                    join.set("using_alias", identifier(self.identifier()))
            found.append(join)
