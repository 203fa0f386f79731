"""Which numbers output columns show, and around which of them an interval is right."""

from __future__ import annotations

import re

import pytest

from dpsql.query.shown import shown_columns, with_columns


@pytest.mark.parametrize(
    ("expression", "type_", "low"),
    [
        ("a0", "bigint", "l0"),
        ("(a0 + '1'::integer)", "bigint", "(l0 + '1'::integer)"),
        ("('10'::integer - a0)", "bigint", "('10'::integer - h0)"),
        ("(a12 * '-2'::integer)", "bigint", "(h12 * '-2'::integer)"),
        ("(- (- a0))", "bigint", "(- (- l0))"),
        ("((a0)::numeric / '-3.5'::numeric)", "numeric(9,2)", "((h0)::numeric / '-3.5'::numeric)"),
        ("GREATEST(a0, '0'::bigint)", "bigint", "GREATEST(l0, '0'::bigint)"),
        ('pg_catalog."round"((a0)::numeric, \'-2\'::integer)', "numeric",
         'pg_catalog."round"((l0)::numeric, \'-2\'::integer)'),
        ("(a0 + a0)", "bigint", "(l0 + l0)"),
    ],
)  # fmt: skip
def test_monotone_columns_have_the_ends_of_their_numbers(
    expression: str, type_: str, low: str
) -> None:
    (column,) = shown_columns(f"SELECT CAST({expression} AS {type_}) AS c1 FROM noisy")
    assert column.low == f"CAST({low} AS {type_})"
    high = re.sub(r"\b[lh](?=\d)", lambda end: "h" if end[0] == "l" else "l", low)
    assert column.high == f"CAST({high} AS {type_})"


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
        ("(a0 > '3'::integer)", "boolean"),
        ("CASE  WHEN (a0 > '3'::integer) THEN a0 ELSE '0'::bigint END", "bigint"),
        ("NULLIF(a0, '0'::bigint)", "bigint"),
        ("(a0 * 'NaN'::numeric)", "numeric"),
        ("GREATEST(a0, (- a0))", "bigint"),
    ],
)
def test_other_columns_have_none(expression: str, type_: str) -> None:
    (column,) = shown_columns(f"SELECT CAST({expression} AS {type_}) AS c1 FROM noisy")
    assert column.numbers in ((0,), (0, 1))
    assert (column.low, column.high) == (None, None)


def test_texts_keys_and_ends_are_no_numbers() -> None:
    sql = (
        "SELECT DISTINCT CAST(g0 AS text) AS c1, CAST('a1, FROM noisy'::text AS text) AS c2,"
        " CAST(l0 AS bigint) AS c3, CAST((a0 - l0) AS bigint) AS c4 FROM noisy"
        " WHERE (a2 > '3'::integer) ORDER BY a0, g0"
    )
    keys, text, end, both = shown_columns(sql)
    assert keys.numbers == text.numbers == ()
    assert end.numbers == (0,)
    assert end.bare_ends
    assert not both.bare_ends
    assert both.low is None
    assert with_columns(sql, ["l0", "h0"]) == sql.replace(
        "AS c4 FROM noisy", "AS c4, l0 AS c5, h0 AS c6 FROM noisy"
    )


MEAN = "('-1.5'::numeric + a3::numeric / greatest(a1, 1))"


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        (f"(least({MEAN}, '9'::numeric))::numeric", True),
        (f"('10'::integer - {MEAN})", True),
        (f"({MEAN} + a1)", False),
        (f"({MEAN} - {MEAN})", False),
        (MEAN.replace("a1, 1", "a1, 2"), False),
        (MEAN.replace("a3", "l3"), False),
    ],
)
def test_a_mean_has_the_ends_of_its_quotient(expression: str, shown: bool) -> None:
    (column,) = shown_columns(f"SELECT CAST({expression} AS numeric) AS c1 FROM noisy")
    assert column.numbers == (1, 3)
    assert column.is_mean == shown
    if shown:
        assert column.low is not None
        assert {"p1", "q1", "p3" if "10" not in expression else "q3"} <= set(
            re.findall(r"[pqa]\d", column.low)
        )
        assert "a1" not in column.low
