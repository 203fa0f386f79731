"""What tells questions apart, and what is read of released tables that earlier versions wrote."""

from __future__ import annotations

from itertools import combinations

import pytest

from dpsql.query.described import described
from dpsql.query.ir import ALWAYS, Expr, column, constant, template
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


#: What the version that wrote stored answers made of an expression of each kind.
WRITTEN = [
    (X, 'r0."x"'),
    (Expr("col", "oid", data=(0, "tableoid", True, "oid")), "r0.tableoid"),
    (Expr("col", "integer", data=(*X.data, True)), 'CAST(r0."x" AS integer)'),  # type: ignore[misc]
    (constant("text", "it's"), "'it''s'::text"),
    (constant("text", "a\\b"), "E'a\\\\b'::text"),
    (constant("integer", None), "NULL::integer"),
    (constant("s.hue", "red"), "('red'::pg_catalog.text)::s.hue"),
    (Expr("op", "integer", (X, ONE), "+"), "(r0.\"x\" + '1'::integer)"),
    (Expr("op", "integer", (X,), "-"), '(- r0."x")'),
    (Expr("fn", "integer", (X, ONE), "mod"), 'pg_catalog."mod"(r0."x", \'1\'::integer)'),
    (Expr("cast", "numeric", (X,), "numeric(6,2)"), 'CAST(r0."x" AS numeric(6,2))'),
    (
        narrow(column(0, "n", "numeric", "numeric", not_null=True), "smallint"),
        "CASE WHEN r0.\"n\" > '-32768.5'::numeric AND r0.\"n\" < '32767.5'::numeric"
        ' THEN CAST(r0."n" AS smallint) END',
    ),
    (Expr("and", "boolean", (X, Y)), """(r0."x" AND r0."x"", r1.""y")"""),
    (Expr("or", "boolean", (X, X, X)), '(r0."x" OR r0."x" OR r0."x")'),
    (Expr("not", "boolean", (X,)), '(NOT r0."x")'),
    (Expr("is", "boolean", (X,), "NOT NULL"), '(r0."x" IS NOT NULL)'),
    (Expr("distinct", "boolean", (X, ONE)), "(r0.\"x\" IS DISTINCT FROM '1'::integer)"),
    (
        Expr("in", "boolean", (X, ONE, ONE), False),
        "(r0.\"x\" = ANY (ARRAY['1'::integer, '1'::integer]))",
    ),
    (Expr("in", "boolean", (X, ONE), True), "(r0.\"x\" <> ALL (ARRAY['1'::integer]))"),
    (
        Expr("case", "integer", (X, ONE, Y, X, ONE)),
        """CASE WHEN r0."x" THEN '1'::integer WHEN r0."x"", r1.""y" THEN r0."x" ELSE '1'::integer END""",
    ),
    (Expr("guard", "integer", (X, ONE)), "CASE WHEN r0.\"x\" THEN '1'::integer END"),
    (Expr("coalesce", "integer", (X, ONE)), "COALESCE(r0.\"x\", '1'::integer)"),
    (Expr("greatest", "integer", (X, X)), 'GREATEST(r0."x", r0."x")'),
    (Expr("least", "integer", (X, X)), 'LEAST(r0."x", r0."x")'),
    (Expr("nullif", "integer", (X, X)), 'NULLIF(r0."x", r0."x")'),
    (Expr("extract", "numeric", (X,), "year"), 'EXTRACT(year FROM r0."x")'),
    (Expr("collate", "text", (X,), ("pg_catalog", "C")), '(r0."x" COLLATE "pg_catalog"."C")'),
    (Expr("array", "integer[]", (X, X)), 'ARRAY[r0."x", r0."x"]'),
    (Expr("attribute", "integer", data=3), "a3"),
    (ALWAYS, "true"),
    (
        template("integer", "(:a)[f(:b)::bigint]", constant("text", "::b:b"), X),
        "('::b:b'::text)[f(r0.\"x\")::bigint]",
    ),
]


@pytest.mark.parametrize(("expression", "text"), WRITTEN)
def test_answers_are_found_that_an_earlier_version_stored(expression: Expr, text: str) -> None:
    assert described(expression) == text


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
