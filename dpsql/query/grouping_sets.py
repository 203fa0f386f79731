"""Read the statement of a release: grouping sets, and queries united by UNION ALL.

The same reader as for one SELECT (`dpsql.query.parse`), with the two constructs that only a
workload has.  As ``ruleutils.c`` writes them (``get_rule_groupingset``), a grouping set of several
expressions stands in parentheses, one of a single expression below CUBE and ROLLUP does not, and
an operator always has parentheses of its own: a comma tells both apart.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import UnsupportedConstruct
from dpsql.query.lexer import Token, tokenize
from dpsql.query.parse import Parser
from dpsql.sqltree.nodes import each_once, exact

#: Grouping sets that one query may have: all sets of twelve keys.
MAX_SETS = 4096
#: Queries that one workload may unite.
MAX_QUERIES = 1000

_Sets = list[tuple[exp.Expr, ...]]


def sets(query: exp.Select) -> list[list[exp.Expr]]:
    """List the grouping sets of a query that `parse_workload` read; none without GROUP BY."""
    group = query.args.get("group")
    return [found.expressions for found in group.args["grouping_sets"]] if group else []


def keys(query: exp.Select) -> list[exp.Expr]:
    """List the keys of all grouping sets, each once."""
    return each_once(key for found in sets(query) for key in found)


def parse_workload(sql: str) -> tuple[exp.Select, ...]:
    """Parse the deparsed statement of a release into its queries.

    Raises
    ------
    UnsupportedConstruct
        Names the first construct that cannot be released, and its position.
    SyntaxInvalid
        If the text is not one SELECT statement as PostgreSQL writes it.
    """
    parser = _WorkloadParser(tokenize(sql.rstrip().removesuffix(";")))
    try:
        queries = [parser.statement(outermost=True)]
        while parser.accept("UNION"):
            if not parser.accept("ALL"):
                raise UnsupportedConstruct(
                    "UNION without ALL is not supported",
                    hint="Write UNION ALL between the queries of a workload.",
                    position=parser.position,
                )
            queries.append(parser.statement(outermost=True))
            if len(queries) > MAX_QUERIES:
                raise UnsupportedConstruct(
                    f"more than {MAX_QUERIES} queries in one workload are not supported",
                    hint="Use GROUPING SETS, or release them apart.",
                )
    except RecursionError:
        raise UnsupportedConstruct("the statement is nested too deeply") from None
    if parser.peek.kind != "end":
        parser.refuse_here()
    return tuple(queries)


class _WorkloadParser(Parser):
    def refuse(self, construct: str, position: int | None = None) -> NoReturn:
        if construct == "grouping_sets" and self.in_output:
            raise UnsupportedConstruct(
                "GROUPING() is not supported in the statement of a release",
                hint='The released table has a column "grouping" that says it of all keys.',
                position=self.position if position is None else position,
            )
        super().refuse(construct, position)

    def before_set_operation(self, *, outermost: bool) -> None:
        if not (outermost and self.keyword == "UNION"):
            super().before_set_operation(outermost=outermost)

    def grouping(self, *, outermost: bool) -> exp.Group:
        if not outermost:
            return super().grouping(outermost=outermost)
        once = self.accept("DISTINCT")
        found: _Sets = [()]
        while True:
            found = [(*a, *b) for a, b in product(found, self._item())]
            self._require_few(found)
            if not self.accept(","):
                break
        each = [each_once(keys) for keys in found]
        if once:
            known = {frozenset(map(exact, keys)): keys for keys in reversed(each)}
            each = list(known.values())[::-1]
        return exp.Group(grouping_sets=[exp.Tuple(expressions=keys) for keys in each])

    def _item(self) -> _Sets:
        """Read one item of GROUP BY as a list of sets; a plain expression is one set."""
        if self.accept("ROLLUP"):
            parts = self._parts()
            return [_flat(parts[:k]) for k in range(len(parts), -1, -1)]
        if self.accept("CUBE"):
            parts = self._parts()
            if 2 ** len(parts) > MAX_SETS:
                self._require_few([()] * (MAX_SETS + 1))
            return [
                _flat(chosen)
                for k in range(len(parts), -1, -1)
                for chosen in combinations(parts, k)
            ]
        if self.accept("GROUPING"):
            self.expect("SETS")
            self.expect("(")
            found = self._item()
            while self.accept(","):
                found += self._item()
                self._require_few(found)
            self.expect(")")
            return found
        return [self._together()]

    def _parts(self) -> list[tuple[exp.Expr, ...]]:
        self.expect("(")
        parts = [self._together()]
        while self.accept(","):
            parts.append(self._together())
        self.expect(")")
        return parts

    def _together(self) -> tuple[exp.Expr, ...]:
        """Read ``()``, ``(a, b)``, ``(a)`` or an expression."""
        if not self._is_list():
            return (self.expression(),)
        self.expect("(")
        found: list[exp.Expr] = []
        if self.keyword != ")":
            found.append(self.expression())
            while self.accept(","):
                found.append(self.expression())
        self.expect(")")
        return tuple(found)

    def _is_list(self) -> bool:
        """Tell a list from the parentheses of an operator: it is empty, has a comma or a name."""
        if self.keyword != "(":
            return False
        depth = ahead = 0
        while (token := self.token_at(ahead)).kind != "end":
            if token.kind == "punct" and token.text in "()[]":
                depth += 1 if token.text in "([" else -1
                if depth == 0:
                    break
            elif token.kind == "punct" and token.text == "," and depth == 1:
                return True
            ahead += 1
        inner = [self.token_at(i) for i in range(1, ahead)]
        if not inner:
            return True
        # GROUPING SETS ((a)), ((a.b)), ((f(a))), (((a / 2))): one expression that needs no more
        names = all(t.kind in ("word", "quoted") or t.text == "." for t in inner)
        return names or self._wrapped(inner)

    def _wrapped(self, inner: list[Token]) -> bool:
        """Tell whether what stands inside is a call or a parenthesis that ends where it ends."""
        texts = [t.text for t in inner]
        kinds = [t.kind for t in inner]
        if texts[-1] != ")" or kinds[-1] != "punct":
            return False
        start = 0
        while start < len(texts) and (kinds[start] in ("word", "quoted") or texts[start] == "."):
            start += 1
        if start == len(texts) or texts[start] != "(":
            return False
        depth = 0
        for at in range(start, len(texts)):
            if kinds[at] == "punct" and texts[at] in "()":
                depth += 1 if texts[at] == "(" else -1
                if depth == 0:
                    return at == len(texts) - 1
        return False

    def _require_few(self, found: _Sets) -> None:
        if len(found) > MAX_SETS:
            raise UnsupportedConstruct(
                f"more than {MAX_SETS} grouping sets are not supported",
                hint="Name the sets that are needed: GROUPING SETS ((a, b), (c)).",
                position=self.position,
            )


def _flat(parts: object) -> tuple[exp.Expr, ...]:
    return tuple(node for part in parts for node in part)  # type: ignore[attr-defined]
