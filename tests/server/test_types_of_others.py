"""A type in a schema that the extension may not use is refused like any other."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

SET_UP = """
create schema alice authorization alice;
create table public.p (a int, m text);
select dp.protect('public.p');
select dp.grant_budget('alice', 1);
grant select on public.p to alice;
"""
TYPES = """
create domain alice.d as int;
create type alice.en as enum ('1', 'x');
create type alice."Odd.name" as enum ('1');
"""
REFUSED = [
    ("select dp_count(*)::alice.d from p", "the type alice.d is not allowed here"),
    ("select null::alice.d[], dp_count(*) from p", "the type alice.d[] is not allowed here"),
    ("select dp_count(*)::text::alice.en from p", "the type alice.en is not allowed here"),
    ("select dp_count(*) from p where a::alice.d = 1", "the type alice.d is not allowed in"),
    ("select dp_count(*) from p where m = 'x'::alice.en::text", "the type alice.en is not allow"),
    ("select dp_count(*) from p where m = '1'::alice.\"Odd.name\"::text", 'alice."Odd.name" is'),
    ("select 1::alice.d as z, dp_count(*) from p group by 1", "the type alice.d is not allowed in"),
]


@pytest.mark.parametrize("usage", [False, True])
def test_a_type_without_or_with_usage_on_its_schema(database: Any, usage: bool) -> None:
    admin = database.connect()
    admin.execute(SET_UP)
    alice = database.connect(user="alice")
    alice.execute(TYPES)
    if usage:
        alice.execute("grant usage on schema alice to dp_executor")
    for text, message in REFUSED:
        if usage and "alice.d" not in text:
            continue  # enum types may then be used
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(text)
        assert caught.value.sqlstate == "PD013", text
        assert message in str(caught.value), text
    if usage:
        alice.execute("select dp_count(*) from p where m = 'x'::alice.en::text")
    spent = admin.execute("select count(*) from dp.spend").fetchone()
    assert spent == (int(usage),)
