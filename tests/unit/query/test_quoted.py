"""What is text, what is a name and what is a type in expressions and in what is written of them."""

from __future__ import annotations

import pytest

from dpsql.query.canonical import _neutral
from dpsql.query.ir import Expr, column, constant, render
from dpsql.query.late import _read, held
from dpsql.sqltree import literal
from dpsql.statistics.running import _without_strings


def op(left: Expr, operator: str, right: Expr) -> Expr:
    return Expr("op", "boolean", (left, right), operator)


def col(occurrence: int, name: str, type_: str = "text") -> Expr:
    return column(occurrence, name, type_, type_, not_null=False)


def attribute(number: int) -> Expr:
    return Expr("attribute", "text", data=number)


def cast(e: Expr, type_: str) -> Expr:
    return Expr("cast", type_, (e,), type_)


@pytest.mark.parametrize("text", ["", "it's", "\\", "\\'", "a\nb", '"public"."t"', "''"])
def test_strings_are_emptied_whatever_they_hold(text: str) -> None:
    sql = f'(r0."o\'clock" = {literal(text)}) AND (r0."x" = {literal("y")})'
    written = "E" if "\\" in text else ""
    assert _without_strings(sql) == f"""(r0."o'clock" = {written}'') AND (r0."x" = '')"""


def test_a_name_with_an_apostrophe_hides_nothing() -> None:
    late = op(
        col(0, "o'clock"), ">", Expr("coalesce", "text", (col(0, "x"), constant("text", "1")))
    )
    sent = op(col(0, "o'clock"), ">", constant("text", "1"))
    for text in ("z", "COALESCE("):
        equal = op(col(0, "y"), "=", constant("text", text))
        assert held(Expr("and", "boolean", (late, equal)))
        assert not held(Expr("and", "boolean", (sent, equal)))


def test_a_name_like_what_is_not_sent_is_sent() -> None:
    assert not held(op(col(0, "COALESCE("), "=", col(0, "dp.x")))


def test_types_are_no_aliases_and_no_attributes() -> None:
    compared = op(col(1, "c", "r1.hue"), "=", constant("r1.hue", "x"))
    assert render(compared) == "(r1.\"c\" = CAST(CAST('x' AS pg_catalog.text) AS r1.hue))"
    assert _neutral(compared) == "(r.\"c\" = ('x'::pg_catalog.text)::r1.hue)"
    assert _neutral(cast(col(1, "c"), "r2.hue")) == 'CAST(r."c" AS r2.hue)'
    total = op(op(attribute(1), "+", attribute(2)), "*", cast(attribute(3), "a4"))
    length = Expr("fn", "integer", (constant("a6", "a5"),), "length")
    assert op(op(total, "+", length), "+", col(0, "a7")).attributes() == {1, 2, 3}
    compared = op(cast(col(3, "c"), "r4.hue"), "=", cast(col(5, "c"), "r6.hue"))
    assert [render(e) for e in _read(compared)] == ['r3."c"', 'r5."c"']
