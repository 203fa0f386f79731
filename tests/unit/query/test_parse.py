"""The reader of deparsed statements: structure, positions, refusals."""

from __future__ import annotations

import pytest
from sqlglot import exp

from dpsql.errors import DpsqlError, SyntaxInvalid, UnsupportedConstruct
from dpsql.query.lexer import tokenize
from dpsql.query.nodes import clause, constant_of, is_join, operands, sources
from dpsql.query.parse import parse
from dpsql.sqltree.nodes import exact, position


def where(text: str) -> exp.Expr:
    found = clause(parse(f"SELECT 1 AS c1 FROM public.t WHERE {text}"), "where")
    assert found is not None
    return found


def test_strings_keep_quotes_and_backslashes() -> None:
    kinds = [(t.kind, t.text) for t in tokenize("'a''b\\' \"x\"\"y\" 1.5e3 $2 ::")]
    expected = [("string", "a'b\\"), ("quoted", 'x"y'), ("number", "1.5e3"), ("parameter", "$2")]
    assert kinds[:4] == expected


@pytest.mark.parametrize("text", ["E'a'", "U&'a'", "B'1'", "SELECT {", "'open", "$$a$$"])
def test_lexical_forms_that_the_server_does_not_write_are_refused(text: str) -> None:
    with pytest.raises(SyntaxInvalid):
        tokenize(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("((t.a + 1) = 2)", "(((t.a + 1)) = 2)"),
        ("(t.a = ANY (ARRAY[1, 2]))", "(t.a = ANY ((ARRAY[1, 2])))"),
    ],
)
def test_superfluous_parentheses_do_not_matter(one: str, other: str) -> None:
    assert exact(where(one)) == exact(where(other))


@pytest.mark.parametrize(
    "text", ["t.a = 1", "(t.a = 1 + 2)", "((t.a = 1) AND (t.b = 2) OR (t.c = 3))", "NOT t.a"]
)
def test_what_would_need_a_precedence_table_is_refused(text: str) -> None:
    with pytest.raises(DpsqlError):
        where(text)


def test_types_are_read_as_format_type_writes_them() -> None:
    for name in (
        *("integer", "numeric(10,2)", "character varying(3)", "timestamp(3) with time zone"),
        *('"char"', 'public."My Type"', "integer[]", "double precision", "interval"),
    ):
        assert constant_of(where(f"('x'::{name})")) == ("x", name)


def test_a_type_modifier_cannot_smuggle_text() -> None:
    with pytest.raises(DpsqlError):
        where("('x'::numeric('1) OR (1=1'))")


def test_joins_and_aliases() -> None:
    query = parse("SELECT 1 AS c1 FROM ((public.a x(p, q) JOIN b ON ((x.p = b.r))) CROSS JOIN c)")
    (outer,) = sources(query)
    assert is_join(outer)
    inner, (cross,) = outer.this, outer.this.args["joins"]
    assert is_join(inner)
    assert (cross.this.name, cross.kind) == ("c", "CROSS")
    first, (join,) = inner.this, inner.this.args["joins"]
    assert (first.db, first.name, first.alias) == ("public", "a", "x")
    assert first.alias_column_names == ["p", "q"]
    assert join.this.name == "b"


def test_errors_point_at_the_construct() -> None:
    sql = "SELECT public.dp_count(*) AS c1\n   FROM (public.a\n     FULL JOIN b ON (true))"
    with pytest.raises(UnsupportedConstruct) as caught:
        parse(sql)
    assert sql[caught.value.position - 1 :].startswith("FULL JOIN")  # type: ignore[operator]


def test_outer_joins_and_sub_queries_are_read() -> None:
    sql = "SELECT 1 AS c1 FROM (a LEFT JOIN b USING (k)) WHERE ((a.x IN ( SELECT c.x FROM c)) AND (EXISTS ( SELECT FROM d)))"
    query = parse(sql)
    (item,) = sources(query)
    (join,) = item.this.args["joins"]
    assert (join.side, [name.name for name in join.args["using"]]) == ("LEFT", ["k"])
    assert sql[position(join) - 1 :].startswith("LEFT")
    condition = clause(query, "where")
    assert condition is not None
    member, exists = (part.unnest() for part in operands(condition.unnest()))
    assert isinstance(member, exp.In)
    assert isinstance(member.args["query"].this, exp.Select)
    assert isinstance(exists, exp.Exists)
    assert isinstance(exists.this, exp.Select)


def test_every_token_is_consumed() -> None:
    with pytest.raises(DpsqlError):
        parse("SELECT 1 AS c1 FROM public.t) UNION (SELECT 2")
