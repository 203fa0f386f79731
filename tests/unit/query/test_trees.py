"""Trees that the reader makes: what was read can be written again, and only equal trees are equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlglot import exp

from dpsql.errors import UnsupportedConstruct
from dpsql.query.nodes import clause
from dpsql.query.parse import parse, parse_expression
from dpsql.query.pipeline import shallow
from dpsql.sqltree import render
from dpsql.sqltree.nodes import Call, each_once, exact, position, rebuilt
from tests.server_parsed import parsed

#: What PostgreSQL deparsed in other tests, one statement a line.
DEPARSED = (Path(__file__).parent / "deparsed.txt").read_text().splitlines()


@pytest.mark.parametrize("text", DEPARSED)
def test_what_was_read_is_written_again(text: str) -> None:
    assert parsed(render(parse(text))) == parsed(text)


@pytest.mark.parametrize("text", DEPARSED)
def test_a_changed_place_makes_no_difference(text: str) -> None:
    moved = parse("   " + text)
    assert exact(moved) == exact(parse(text))
    assert position(moved) == position(parse(text)) + 3


def test_different_statements_have_different_trees() -> None:
    assert len({exact(parse(text)) for text in DEPARSED}) == len(DEPARSED)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'A'", "'a'"),
        ("'A'::text", "'a'::text"),
        ('"Foo"', "foo"),
        ('t."Foo"', "t.foo"),
        ("t.a", "a"),
        ("1", "'1'"),
        ("1", "'1'::integer"),
        ("'1'::integer", "'1'::bigint"),
        ("'1'::numeric(3)", "'1'::numeric(4)"),
        ("'1'::public.t", "'1'::t"),
        ("'1'::\"char\"", "'1'::char"),
        ("true", "'t'::boolean"),
        ("NULL", "'NULL'"),
        ("f(a)", '"F"(a)'),
        ("f(a)", "public.f(a)"),
        ("public.f(a)", '"PUBLIC".f(a)'),
        ("f(a)", "f(DISTINCT a)"),
        ("f(a)", "f(VARIADIC a)"),
        ("f(a)", "f(a) FILTER (WHERE b)"),
        ("f(*)", "f()"),
        ("f(a, b)", "f(b, a)"),
        ('("a" COLLATE "C")', '("a" COLLATE "c")'),
        ('(a COLLATE "C")', '(a COLLATE pg_catalog."C")'),
        ("((a AND b) AND c)", "(a AND b AND c)"),
        ("(a AND b)", "(b AND a)"),
        ("(a AND b)", "(a OR b)"),
        ("(a = b)", "(a <> b)"),
        ("(- a)", "(a - a)"),
        ("(a = ANY (b))", "(a = ALL (b))"),
        ("(a IS NULL)", "(a IS UNKNOWN)"),
        ("CASE WHEN a THEN b END", "CASE a WHEN a THEN b END"),
        ("ARRAY[a, b]", "ARRAY[a]"),
        ("(a)::text", "(a)::varchar"),
        ("EXTRACT(year FROM a)", 'EXTRACT("Year" FROM a)'),
        ("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP(3)"),
        ("LOCALTIME", '"LOCALTIME"'),
    ],
)
def test_what_differs_is_not_equal(one: str, other: str) -> None:
    assert exact(parse_expression(one)) != exact(parse_expression(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("(a = b)", "  ((a  =  b))"), ("f(a)", '"f"("a")'), ("COALESCE(a)", "coalesce(a)")],
)
def test_what_is_the_same_is_equal(one: str, other: str) -> None:
    assert exact(parse_expression(one)) == exact(parse_expression(other))


def test_what_is_absent_is_as_what_is_not_given() -> None:
    given = Call(this="f", schema="", expressions=[], distinct=False, filter=None)
    assert exact(Call(this="f", schema="")) == exact(given)
    assert exact(Call(this="f")) != exact(Call(this="f", star=True))


def test_what_stood_there_before_is_left_out() -> None:
    names = ["b", "a", "B", "b", '"B"', "1", "'1'", "a"]
    found = each_once(map(parse_expression, names))
    assert [render(tree) for tree in found] == ['"b"', '"a"', '"B"', "1", "'1'"]


def test_nodes_point_at_the_text() -> None:
    text = "SELECT 1 AS c1 FROM public.t WHERE ((t.a + f(t.b)) = '5'::integer)"
    condition = clause(parse(text), "where")
    assert condition is not None
    (call,) = condition.find_all(Call)
    assert text[position(call) - 1 :].startswith("f(")
    (constant,) = condition.find_all(exp.Cast)
    assert text[position(constant) - 1 :].startswith("'5'")
    assert text[position(condition) - 1 :].startswith("= ")
    assert exact(rebuilt(call, lambda node: node)) == exact(call)


def test_a_tree_that_is_too_deep_to_be_written_is_refused() -> None:
    deep: exp.Expr = exp.Null()
    for _ in range(20_000):
        deep = exp.Paren(this=deep)
    assert exact(deep)
    with pytest.raises(UnsupportedConstruct, match="nested too deeply"), shallow():
        render(deep)
