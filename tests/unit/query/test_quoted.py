"""What is text, what is a name and what is a type in SQL that was rendered."""

from __future__ import annotations

import pytest

from dpsql.query.canonical import _neutral
from dpsql.query.ir import literal, without_strings
from dpsql.query.late import _attributes, _found, held


@pytest.mark.parametrize("text", ["", "it's", "\\", "\\'", "a\nb", '"public"."t"', "''"])
def test_strings_are_emptied_whatever_they_hold(text: str) -> None:
    sql = f'(r0."o\'clock" = {literal(text)}) AND (r0."x" = {literal("y")})'
    written = "E" if "\\" in text else ""
    assert without_strings(sql) == f"""(r0."o'clock" = {written}'') AND (r0."x" = '')"""


def test_a_name_with_an_apostrophe_hides_nothing() -> None:
    assert held("""(r0."o'clock" > COALESCE(r0."x", 1)) AND (r0."y" = 'z')""")
    assert not held("""(r0."o'clock" > 1) AND (r0."y" = 'COALESCE(')""")


def test_types_are_no_aliases_and_no_attributes() -> None:
    assert _neutral("(r1.\"c\" = ('x'::pg_catalog.text)::r1.hue)") == (
        "(r.\"c\" = ('x'::pg_catalog.text)::r1.hue)"
    )
    assert _neutral('CAST(r1."c" AS r2.hue)') == 'CAST(r."c" AS r2.hue)'
    assert _attributes("((a1 + a2) * CAST(a3 AS a4)) + length('a5'::a6) + r0.a7") == {1, 2, 3}
    columns = [(i, name) for _, _, i, name in _found('CAST(r3."c" AS r4.hue) = r5.c::r6.hue')]
    assert columns == [(3, "c"), (5, "c")]
