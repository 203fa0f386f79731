"""What a general SQL parser does to statements that PostgreSQL writes (sqlglot 30.30).

Each case is a reason why the reader of analysed statements is not one, although it makes nodes of
sqlglot: two statements that mean different things, or are written by PostgreSQL in two ways, become
one tree; a statement that PostgreSQL would not write is read all the same; what is written again is
another statement.
"""

from __future__ import annotations

from typing import Any

import pytest
import sqlglot

from dpsql.errors import DpsqlError
from dpsql.query.parse import parse_expression
from dpsql.sqltree.nodes import exact

ONE_TREE = [
    ("(a IS UNKNOWN)", "(a IS NULL)"),
    ("(a IS NOT UNKNOWN)", "(a IS NOT NULL)"),
    ("(a IS NOT TRUE)", "(NOT a IS TRUE)"),
    ("now()", "CURRENT_TIMESTAMP"),
    ("date_part('year', a)", "EXTRACT(year FROM a)"),  # double precision and numeric
    ("EXTRACT(\"Year\" FROM a)", "EXTRACT(year FROM a)"),
    ("date_trunc('day', a)", "date_trunc('DAY', a)"),
    ("to_char(a, 'YYYY')", "to_char(a, 'yyyy')"),
    ("btrim(a)", "trim(a)"),
    ("substring(a, 1, 2)", "SUBSTRING(a FROM 1 FOR 2)"),
    ("\"position\"(a, b)", "POSITION(a IN b)"),
    ("strpos(a, b)", "POSITION(b IN a)"),
    ("length(a)", "char_length(a)"),
    ("coalesce(a, b)", "ifnull(a, b)"),
    ("upper(a)", "ucase(a)"),
    ("sqrt(a)", "|/ a"),
    ("\"coalesce\"(a)", "coalesce(a)"),  # somebody's function and a construct
    ("a OPERATOR(\"PUBLIC\".@@) b", "a OPERATOR(public.@@) b"),  # equality ignores the case of strings
    ("random()", "rand()"),
    ("('1'::float8)", "('1'::double precision)"),
    ("('1'::timestamp without time zone)", "('1'::timestamp)"),
    ("CASE WHEN a b END", "CASE WHEN a THEN b END"),
]  # fmt: skip
ACCEPTED = [
    "t.a = 1 + 2", "(a = 1 AND b = 2 OR c = 3)", "/* x */ a", "CASE WHEN a b END", "'a' 'b'",
    "$$x$$", "(a b)", "{fn now()}", "TRY_CAST(a AS int)", "x -> x + 1", "{'a': 1}", "@x", "?",
    "0x1F", "a ISNULL", "IF(a, b, c)", "INTERVAL 1 day", "a == b", "STRUCT(1)",
]  # fmt: skip
ACCEPTED_STATEMENTS = [
    "SELECT 1 AS c FROM t FINAL", "SELECT a FROM t PIVOT (sum(x) FOR y IN (1))", "FROM t",
    "SELECT 1 c FROM t QUALIFY a", "SELECT a FROM t LIMIT 1, 2", "SELECT a FROM t SORT BY a",
    "SELECT * EXCEPT (b) FROM t", "SELECT a FROM t LEFT SEMI JOIN u ON x",
    "SELECT a FROM t |> WHERE a", "SELECT a FROM t CONNECT BY x", "SELECT a FROM t; SELECT 2",
    "WITH x AS (SELECT 1), WITH y AS (SELECT 2) SELECT 1",
]  # fmt: skip
WRITTEN_OTHERWISE = [
    ("round((a::numeric / 3.0), 2)", "ROUND(CAST((CAST(a AS DECIMAL) / 3.0) AS DECIMAL), 2)"),
    ("mod(a, b)", "a % b"),
    ("(a ^ b)", "(POWER(a, b))"),
    ("CURRENT_TIMESTAMP(3)", "CURRENT_TIMESTAMP"),
    ("'a' 'b'", "CONCAT('a', 'b')"),
    ('"f"(a)', '"F"(a)'),
    ('a OPERATOR("PUBLIC".@@) b', "a OPERATOR(PUBLIC.@@) b"),
]


def read(text: str) -> Any:
    return sqlglot.parse_one(f"SELECT {text} AS c1 FROM t", read="postgres")


@pytest.mark.parametrize(("one", "other"), ONE_TREE)
def test_what_differs_becomes_one_tree(one: str, other: str) -> None:
    assert read(one) == read(other)


@pytest.mark.parametrize(("one", "other"), ONE_TREE)
def test_the_reader_makes_two_trees_of_what_differs(one: str, other: str) -> None:
    assert own(one) != own(other) or own(one) is None


def own(text: str) -> object:
    """Return what the reader makes of an expression; ``None`` of what it refuses."""
    try:
        return exact(parse_expression(text))
    except DpsqlError:
        return None


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_the_server_never_writes_is_read(text: str) -> None:
    assert read(text)


@pytest.mark.parametrize("sql", ACCEPTED_STATEMENTS)
def test_statements_that_the_server_never_writes_are_read(sql: str) -> None:
    assert sqlglot.parse(sql, read="postgres")


@pytest.mark.parametrize(("text", "written"), WRITTEN_OTHERWISE)
def test_what_is_written_again_is_another_text(text: str, written: str) -> None:
    assert read(text).expressions[0].this.sql("postgres") == written


def test_operators_have_no_place() -> None:
    node = read("(a = b)").expressions[0].this.this
    assert node.meta == {}


def test_few_parentheses_are_too_deep() -> None:
    """Twenty frames to a level: 46 levels, 495 as compiled; the reader of ours takes 329."""
    text = "(" * 600 + "a" + " + 1)" * 600
    with pytest.raises(RecursionError):
        read(text)
