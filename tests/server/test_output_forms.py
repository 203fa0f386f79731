"""Arithmetic on released values means what it means in PostgreSQL, in every form of syntax."""

from __future__ import annotations

from typing import Any

import pytest

# {n} stands for the count: dp_count(*) in the question, the released number in the check.
FORMS = [
    "{n} * 2 - 1, - {n}, @ {n}, {n} % 7, |/ abs({n} + 0.5)",
    "{n} / nullif({n}, 0), {n}::numeric(20, 2) / 3, round({n} / 7.0, 2), {n}::float8 / 3",
    "{n} between 1 and 2, {n} not in (1, 2), {n} = any ('{{1,2}}'::bigint[]), {n} <> all (array[3, 4])",
    "{n} is null, {n} is distinct from 5, ({n} > 5) is not true, not ({n} > 1 or {n} < -1) and {n} = {n}",
    "case {n} when 1 then 'one' else 'many' end, case when {n} > 0 then 'plus' end",
    "coalesce(null, {n}), greatest({n}, 3, null), least(1, {n})",
    "row(1, {n}) is distinct from row(1, 3), ({n}, 2) in ((1, 2), (3, 4))",
    "{n}::text || 'x', 'a' || {n}::text, concat('n = ', {n}), to_char({n}, 'S999,999')",
    "'abc' like 'a%', 'abc' ~ '^a', 'abc' ilike 'B%', 'abc' similar to 'a(b|c)+'",
    "trim(both 'x' from 'xax'), trim(leading 'x' from 'xax'), position('b' in 'ab'), substring('abc' from 2 for 1)",
    "interval '1 day' * {n}, date '2000-01-01' + ({n} % 100)::int, extract(year from date '2000-05-06')",
    "timestamp '2000-01-01 10:00' at time zone 'UTC', date_trunc('month', date '2000-05-06'::timestamp)",
    "array[{n}, 1], array_length(array[{n}], 1), num_nonnulls({n}, null::text), int8range(least({n}, 5), 6)",
    "'a' collate \"C\" < 'B' collate \"C\", e'\\n''', '\\x00ff'::bytea, 1.50, 'infinity'::float8, null",
    "{n} + null, ({n} > 3)::int, '2000-01-01'::date, true, 12345678901234567890",
]


@pytest.mark.parametrize("form", FORMS)
def test_output_is_what_postgresql_computes_from_the_released_count(
    asker: Any, admin: Any, form: str
) -> None:
    shown = asker.execute(
        "select dp_count(*), " + form.format(n="dp_count(*)") + " from client"
    ).fetchone()
    released = f"('{shown[0]}'::bigint)"
    assert shown[1:] == admin.execute("select " + form.format(n=released)).fetchone()


@pytest.mark.parametrize("limit", ["limit all", "limit all offset 0", "limit null", "limit 1.4"])
def test_limits_that_limit_nothing(asker: Any, limit: str) -> None:
    assert len(asker.execute("select dp_count(*) from client " + limit).fetchall()) == 1
