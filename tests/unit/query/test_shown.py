"""Which numbers output columns show, and around which of them an interval is right."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

from dpsql.query.measures import FIRST
from dpsql.query.noisy import column, extended, mean, over_zero, statement, written
from dpsql.query.parse import parse_expression
from dpsql.query.shown import shown
from dpsql.sqltree import render, sql
from dpsql.sqltree.nodes import Place, rebuilt
from dpsql.statement import Shown
from tests.server_parsed import parsed

MEAN = mean(3, 1)


def over_noisy(node: exp.Expr, given: exp.Expr = MEAN) -> exp.Expr:
    """Read names as columns of the relation, and ``mean`` as what is given."""
    if isinstance(node, exp.Column):
        return given if node.name == "mean" else column(node.name[0], int(node.name[1:]))
    return rebuilt(node, lambda below: over_noisy(below, given))


def tree(text: str, given: exp.Expr = MEAN) -> exp.Expr:
    return over_noisy(parse_expression(text), given)


def same(tree: exp.Expr | None, text: str) -> bool:
    """Tell whether PostgreSQL reads in what is written of a tree what it reads in a text."""
    assert tree is not None
    return parsed(render(tree)) == parsed(text)


@pytest.mark.parametrize(
    ("expression", "type_", "low"),
    [
        ("a0", "bigint", "l0"),
        ("(a0 + '1'::integer)", "bigint", "(l0 + '1'::integer)"),
        ("('10'::integer - a0)", "bigint", "('10'::integer - h0)"),
        ("(a12 * '-2'::integer)", "bigint", "(h12 * '-2'::integer)"),
        ("(- (- a0))", "bigint", "(- (- l0))"),
        ("((a0)::numeric / '-3.5'::numeric)", "numeric(9,2)", "((h0)::numeric / '-3.5'::numeric)"),
        ("greatest(a0, '0'::bigint)", "bigint", "greatest(l0, '0'::bigint)"),
        ('pg_catalog."round"((a0)::numeric, \'-2\'::integer)', "numeric",
         'pg_catalog."round"((l0)::numeric, \'-2\'::integer)'),
        ("(a0 + a0)", "bigint", "(l0 + l0)"),
    ],
)  # fmt: skip
def test_monotone_columns_have_the_ends_of_their_numbers(
    expression: str, type_: str, low: str
) -> None:
    assert same(tree(expression), expression)
    found = shown(tree(expression), type_)
    assert same(found.low, f"CAST({low} AS {type_})")
    high = re.sub(r"\b[lh](?=\d)", lambda end: "h" if end[0] == "l" else "l", low)
    assert same(found.high, f"CAST({high} AS {type_})")


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("(a0 - a1)", "bigint"),
        ("(a0 + a1)", "bigint"),
        ("(a0 - a0)", "bigint"),
        ("(a0 * a0)", "bigint"),
        ("('1'::integer / a0)", "bigint"),
        ("(a0 * '0'::integer)", "bigint"),
        ("(a0 * g0)", "bigint"),
        ("(a0 % '7'::integer)", "bigint"),
        ('pg_catalog."abs"(a0)', "bigint"),
        ('pg_catalog."sqrt"((a0)::double precision)', "double precision"),
        ("(a0)::text", "text"),
        ("((a0)::text)::bigint", "bigint"),
        ("a0", "text"),
        ("a0", "bigint[]"),
        ("a0", "numeric(9,2)[]"),
        ("a0", 'public."numeric"'),
        ("(a0 > '3'::integer)", "boolean"),
        ("CASE  WHEN (a0 > '3'::integer) THEN a0 ELSE '0'::bigint END", "bigint"),
        ("nullif(a0, '0'::bigint)", "bigint"),
        ("(a0 * 'NaN'::numeric)", "numeric"),
        ("greatest(a0, (- a0))", "bigint"),
    ],
)
def test_other_columns_have_none(expression: str, type_: str) -> None:
    assert same(tree(expression), expression)
    found = shown(tree(expression), type_)
    assert found.numbers in ((0,), (0, 1))
    assert (found.low, found.high) == (None, None)


def test_texts_keys_and_ends_are_no_numbers() -> None:
    keys = shown(tree("g0"), "text")
    text = shown(tree("'a1, FROM noisy'::text"), "text")
    end = shown(tree("l0"), "bigint")
    both = shown(tree("(a0 - l0)"), "bigint")
    assert keys.numbers == text.numbers == ()
    assert end.numbers == (0,)
    assert end.bare_ends
    assert not both.bare_ends
    assert both.low is None


def test_columns_are_appended_to_a_statement() -> None:
    query = sql(
        "SELECT DISTINCT CAST(g0 AS text) AS c1, 'a1, FROM noisy' AS c2 FROM noisy"
        " WHERE a2 > 3 ORDER BY a0, g0"
    )
    given = statement(query, {"a0", "a2"})
    assert given.distinct
    more = extended(given, [column("l", 0), column("h", 0)], ["l0", "h0"])
    assert more.sql == given.sql.replace("AS c2 FROM noisy", "AS c2, l0 AS c3, h0 AS c4 FROM noisy")
    assert more.distinct
    assert more.used == {"a0", "a2", "l0", "h0"}


QUOTIENT = {"n": FIRST, "rows": Place(this=1)}
ALIKE = written(
    sql("CAST(:n AS numeric) / greatest(:rows, 2)", **QUOTIENT), column("a", 3), column("a", 1)
)
OF_AN_END = written(
    sql("CAST(:n AS numeric) / greatest(:rows, 1)", **QUOTIENT), column("l", 3), column("a", 1)
)


@pytest.mark.parametrize(
    ("expression", "given", "has"),
    [
        ("(least(('-1.5'::numeric + mean), '9'::numeric))::numeric", MEAN, True),
        ("('10'::integer - ('-1.5'::numeric + mean))", MEAN, True),
        ("(('-1.5'::numeric + mean) + a1)", MEAN, False),
        ("(('-1.5'::numeric + mean) - ('-1.5'::numeric + mean))", MEAN, False),
        ("('-1.5'::numeric + mean)", ALIKE, False),
        ("('-1.5'::numeric + mean)", OF_AN_END, False),
    ],
)
def test_a_mean_has_the_ends_of_its_quotient(expression: str, given: exp.Expr, has: bool) -> None:
    found = shown(tree(expression, given), "numeric")
    assert found.numbers == (1, 3)
    assert found.is_mean == has
    if has:
        assert found.low is not None
        assert {"p1", "q1", "p3" if "10" not in expression else "q3"} <= set(
            re.findall(r"[pqa]\d", render(found.low))
        )
        assert "a1" not in render(found.low)


def test_what_rises_with_a_number_has_its_ends_and_other_formulas_have_none() -> None:
    formula = sql("least(:n, 5)", n=FIRST)
    found = shown(written(formula, column("a", 0), rising=True), "bigint")
    assert found.numbers == (0,)
    assert same(found.low, "CAST(least(l0, 5) AS bigint)")
    assert shown(written(formula, column("a", 0)), "bigint") == Shown((0,))


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("(g0 / a0)", "(g0 / NULLIF(a0, 0))"),
        ("(('1'::integer % (a0 / a1)) + a2)", "(('1'::integer % NULLIF((a0 / NULLIF(a1, 0)), 0)) + a2)"),
        ('pg_catalog."div"(a0, a1)', 'pg_catalog."div"(a0, NULLIF(a1, 0))'),
        ('pg_catalog."mod"(a0, a1)', 'pg_catalog."mod"(a0, NULLIF(a1, 0))'),
        ("(a0 * a1)", "(a0 * a1)"),
        ("('/'::text || g0)", "('/'::text || g0)"),
    ],
)  # fmt: skip
def test_divisors_that_are_0_give_null(expression: str, changed: str) -> None:
    assert same(tree(expression), expression)
    assert same(over_zero(tree(expression)), changed)
