"""Statements that are put together as trees: nothing is torn apart, lost or translated."""

from __future__ import annotations

import sys

import pytest
from sqlglot import exp
from sqlglot.generator import Generator

from dpsql.errors import InternalError
from dpsql.sqltree import (
    aliased,
    all_of,
    any_of,
    call,
    cast,
    column,
    constant,
    cte,
    dialect,
    equal,
    from_,
    infix,
    insert,
    joined,
    number,
    parameter,
    raw,
    render,
    select,
    sql,
    subquery,
    table,
    union_all,
    unnest,
    with_,
)
from dpsql.sqltree.dialect import Server

A, B = column("l", "a1"), column("r", "a1")


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (sql(":x * 2", x=exp.Add(this=A, expression=number(-2))), "(l.a1 + (-2)) * 2"),
        (sql("NOT :x", x=sql("a OR b")), "NOT (a OR b)"),
        (sql("f(:x)", x=sql("a OR b")), "f(a OR b)"),
        (sql(":x IS NULL", x=sql("a = b")), "(a = b) IS NULL"),
        (sql("pg_catalog.f(DISTINCT :x, 1)", x=A), "pg_catalog.f(DISTINCT l.a1, 1)"),
        (sql("date_part('year', a)"), "date_part('year', a)"),
        (sql("btrim(a) || now()"), "btrim(a) || now()"),
        (sql("a -> :x", x=constant("k")), "a -> 'k'"),
        (cast(A, "timestamp without time zone"), "CAST(l.a1 AS timestamp without time zone)"),
        (cast(A, '"char"'), 'CAST(l.a1 AS "char")'),
        (constant("it's \\"), "E'it''s \\\\'"),
        (constant(None), "NULL"),
        (all_of([equal(A, B), sql("a OR b")]), "l.a1 = r.a1 AND (a OR b)"),
        (any_of([equal(A, B), sql("a AND b")]), "l.a1 = r.a1 OR a AND b"),
        (sql("SELECT :k, 1 AS n FROM t GROUP BY :k", k=[]), "SELECT 1 AS n FROM t"),
        (sql("SELECT 1 FROM t ORDER BY :k", k=[A, B]), "SELECT 1 FROM t ORDER BY l.a1, r.a1"),
        (sql("SELECT 1 FROM t WHERE :w", w=None), "SELECT 1 FROM t"),
        (sql("SELECT 1 FROM :t AS x", t=raw('"S"."t"')), 'SELECT 1 FROM "S"."t" AS x'),
        (
            sql("SELECT 1 FROM :t AS x JOIN :u AS y ON :c", t=sql("SELECT 1"), u=table("f"), c=sql("true")),
            "SELECT 1 FROM (SELECT 1) AS x JOIN f AS y ON TRUE",
        ),
        (sql("f(:x)", x=column("r0", '"it""s"')), 'f(r0."it""s")'),
        (sql("(:x)[:y]", x=cast(constant("{1}"), "integer[]"), y=sql("1")), "(CAST('{1}' AS integer[]))[1]"),
        (infix(A, "~~", sql("a OR b")), "l.a1 ~~ (a OR b)"),
        (
            select([], from_([table("t", "x"), joined(table("u"), equal(A, B)), table("v")], A)),
            "SELECT 1 FROM t AS x JOIN u ON l.a1 = r.a1, v WHERE l.a1",
        ),
        (select([], from_([table("t"), joined(table("u"), None)])), "SELECT 1 FROM t CROSS JOIN u"),
        (
            sql("SELECT 1 FROM :q AS x", q=union_all([sql("SELECT 1 LIMIT 1")])),
            "SELECT 1 FROM (SELECT 1 LIMIT 1) AS x",
        ),
        (
            sql("SELECT :x FROM :u", x=call("dp.f", A, parameter(2)), u=unnest([parameter(1)], "u", ["v"])),
            "SELECT dp.f(l.a1, $2) FROM UNNEST($1) AS u(v)",
        ),
        (
            sql("SELECT 1 FROM c, :u", u=unnest([parameter(1)], "u", ["v", '"row"'], ordinality=True)),
            'SELECT 1 FROM c, UNNEST($1) WITH ORDINALITY AS u(v, "row")',
        ),
        (
            with_([cte("c", sql("SELECT 1"))], insert('"S"."t"', ["a", '"B"'], sql("SELECT 1, 2"))),
            'WITH c AS (SELECT 1) INSERT INTO "S"."t" (a, "B") OVERRIDING SYSTEM VALUE SELECT 1, 2',
        ),
        (insert("t", [], sql("SELECT FROM c")), "INSERT INTO t SELECT FROM c"),
        (
            with_([cte("c", sql("SELECT 1"), materialized=True)], raw("SELECT 2 FROM c")),
            "WITH c AS MATERIALIZED (SELECT 1) SELECT 2 FROM c",
        ),
        (
            sql("SELECT q.* FROM :q", q=subquery(raw("select 1, 2"), "q", ["c0", "c1"])),
            "SELECT q.* FROM (select 1, 2) AS q(c0, c1)",
        ),
        (
            sql("SELECT 1 FROM :t AS x", t=table('"T"', only=True)),
            'SELECT 1 FROM ONLY "T" AS x',
        ),
        (select([], sql("SELECT 0 FROM t")), "SELECT 1 FROM t"),
        (select([aliased(A, "x")], sql("SELECT 0 FROM t")), "SELECT l.a1 AS x FROM t"),
        (
            union_all([sql("SELECT 1 ORDER BY 1 LIMIT 1"), sql("SELECT 2"), sql("SELECT 3")]),
            "(SELECT 1 ORDER BY 1 LIMIT 1) UNION ALL SELECT 2 UNION ALL SELECT 3",
        ),
        (
            with_([cte("c", sql("SELECT 1"), materialized=True)], sql("SELECT 2 FROM c")),
            "WITH c AS MATERIALIZED (SELECT 1) SELECT 2 FROM c",
        ),
    ],
)  # fmt: skip
def test_a_tree_is_written_as_postgresql_reads_it(tree: exp.Expression, text: str) -> None:
    assert render(tree) == text


def test_a_template_takes_its_own_names_only() -> None:
    with pytest.raises(InternalError):
        sql(":x + 1")
    with pytest.raises(InternalError):
        sql("1", x=A)


def test_a_template_is_not_changed_by_what_it_is_given() -> None:
    text = "SELECT :k FROM t GROUP BY :k"
    assert render(sql(text, k=[A])) == "SELECT l.a1 FROM t GROUP BY l.a1"
    whole = sql("SELECT 1 FROM t WHERE a")
    whole.set("where", None)
    twice = sql("SELECT i FROM unnest($1) WITH ORDINALITY AS u(v, i)")
    assert (
        render(twice)
        == render(twice)
        == render(sql("SELECT i FROM unnest($1) WITH ORDINALITY AS u(v, i)"))
    )
    assert render(sql("SELECT 1 FROM t WHERE a")) == "SELECT 1 FROM t WHERE a"
    assert render(sql(text, k=[B, A])) == "SELECT r.a1, l.a1 FROM t GROUP BY r.a1, l.a1"


def test_what_is_deep_is_written_at_any_depth_of_calls() -> None:
    tree = A
    for _ in range(900):
        tree = exp.Add(this=exp.Paren(this=tree), expression=B)
    limit = sys.getrecursionlimit()
    assert render(tree).count("(") == 900
    assert sys.getrecursionlimit() == limit


def test_a_long_chain_is_written_without_recursion() -> None:
    assert render(all_of([equal(A, B)] * 5000)).count(" AND ") == 4999
    assert render(union_all([sql("SELECT 1")] * 2000)).count(" UNION ALL ") == 1999


def test_compiled_parts_of_sqlglot_are_refused_with_what_to_type() -> None:
    class Compiled(Server):
        def generator(self, **_: object) -> Generator:
            raise TypeError("interpreted classes cannot inherit from compiled")

    with pytest.raises(ImportError, match="pip uninstall sqlglotc"):
        dialect.make_generator(Compiled())
