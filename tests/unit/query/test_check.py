"""What CHECK constraints let an integer column be; whatever is not read bounds nothing."""

from __future__ import annotations

import pytest

from dpsql.query.check import allowed


@pytest.mark.parametrize(
    ("expression", "ends"),
    [
        ("((n >= 1) AND (n <= 100))", (1, 100)),
        ("((n <= 100) AND (n >= 1))", (1, 100)),
        ("((1 <= n) AND (100 >= n))", (1, 100)),
        ("((n > 0) AND (n < 101))", (1, 100)),
        ("((0 < n) AND (101 > n))", (1, 100)),
        ("((n >= '-3'::integer) AND (n <= 3))", (-3, 3)),
        ("((n >= '5'::bigint) AND (n <= '6'::smallint))", (5, 6)),
        ("((n >= 1) AND (n >= 4) AND (n <= 9) AND (n <= 7))", (4, 7)),
        ("((n >= 9) AND (n <= 1))", (9, 1)),
        ("(n > 999)", (1000, None)),
        ("(n >= '0'::bigint)", (0, None)),
        ("(7 >= n)", (None, 7)),
    ],
)
def test_ranges_are_read(expression: str, ends: tuple[int | None, int | None]) -> None:
    assert allowed("n", expression) == ends


@pytest.mark.parametrize("name", ["n", "a b", 'say "n"', "Größe", "r0"])
def test_columns_are_found_by_their_names(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    assert allowed(name, f"(({quoted} >= 1) AND ({quoted} <= 2))") == (1, 2)
    assert allowed("other", f"(({quoted} >= 1) AND ({quoted} <= 2))") == (None, None)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "true",
        "n",
        "(n >= 1) AND (n <= 3)",
        "((n OPERATOR(public.>=) 1) AND (n OPERATOR(public.<=) 1))",
        "((n OPERATOR(pg_catalog.>=) 1) AND (n <= 1))",
        "((n >= 1) OR (n <= 3))",
        "((n >= 1) AND (m <= 3))",
        "((n >= 1) AND (n <> 2) AND (n <= 3))",
        "((n >= 1) AND ((n <= 3) IS NOT FALSE))",
        "(NOT (n < 1))",
        "((n = 1) AND (n <= 3))",
        "((n >>= 1) AND (n <= 3))",
        "(n >= NULL::integer)",
        "(n >= NULL)",
        "(n >= '1'::numeric)",
        "((n)::numeric >= 1.5)",
        "((n)::bigint >= 1)",
        "(n >= 99999999999999999999)",
        f"(n <= {'9' * 5000})",
        "(n >= '1'::public.integer)",
        "(n >= (1)::bigint)",
        "(n >= m)",
        "(1 <= 3)",
        "(t.n >= 1)",
        "(public.n(1) >= 1)",
        "(n >= (- 1))",
        "(n >= ( SELECT 1))",
        "(n IN ( SELECT 1))",
        "((n).a >= 1)",
        "(n[1] >= 1)",
        "(ROW(n, 1) >= ROW(1, 1))",
        "(n >= 1) NOT VALID",
        "(n >= U&'1')",
        f"{'(' * 100_000}n >= 1{')' * 100_000}",
    ],
)  # fmt: skip
def test_anything_else_bounds_nothing(expression: str) -> None:
    assert allowed("n", expression) == (None, None)
