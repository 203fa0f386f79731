"""What tells questions apart, and what is read of released tables that earlier versions wrote."""

from __future__ import annotations

from itertools import combinations

from dpsql.query.described import described
from dpsql.query.ir import Expr, column, constant
from dpsql.query.span import _expression, _tree
from dpsql.query.totality import narrow, wide

X = column(0, "x", "integer", "integer", not_null=True)
Y = column(0, 'x", r1."y', "integer", "integer", not_null=True)
ONE = constant("integer", "1")


def test_different_expressions_have_different_descriptions() -> None:
    expressions = [
        X,
        Y,
        column(1, "x", "integer", "integer", not_null=True),
        Expr("col", "integer", data=(*X.data, True)),  # type: ignore[misc]
        ONE,
        constant("bigint", "1"),
        constant("integer", None),
        constant("text", "None"),
        constant("text", "1'](const['text' 'x'"),
        Expr("in", "boolean", (X, ONE), False),
        Expr("in", "boolean", (X, ONE), True),
        Expr("and", "boolean", (X, Expr("and", "boolean", (X, Y)))),
        Expr("and", "boolean", (X, X, Y)),
        Expr("cast", "numeric", (X,), "numeric(6,2)"),
        Expr("cast", "numeric", (X,), "numeric(6,3)"),
    ]
    for one, other in combinations(expressions, 2):
        assert described(one) != described(other)


def test_a_column_is_the_same_wherever_it_may_be_null() -> None:
    outer = column(0, "x", "integer", "integer", not_null=False)
    assert described(outer) == described(X) == 'r0."x"'


def test_bounds_that_earlier_versions_kept_as_texts_are_read() -> None:
    made = narrow(wide(column(0, "n", "numeric", "numeric", not_null=True)), "smallint")
    kind, type_, args, _ = _tree(made)
    texts = ["> '-32768.5'::numeric", "< '32767.5'::numeric"]
    assert _expression([kind, type_, args, texts]) == made == _expression(_tree(made))
    single = narrow(column(0, "f", "real", "real", not_null=True), "integer")
    kind, type_, args, (_, least, low, high) = _tree(single)  # type: ignore[misc]
    texts = [f"{least} '{low}'::double precision", f"< '{high}'::double precision"]
    assert _expression([kind, type_, args, texts]) == single
