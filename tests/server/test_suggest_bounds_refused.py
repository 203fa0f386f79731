"""What dp.suggest_bounds says where the question that it asks is refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.test_suggest_bounds import suggest


@pytest.mark.parametrize("form", ["select * from {}", "select {}", "select ({}).lower"])
@pytest.mark.parametrize(
    ("before", "arguments", "state", "message"),
    [
        ("", "'secret', 'i'", "PD012", 'relation "public.secret" is neither protected nor public'),
        ("", "'v', 'i', 100", "PD001", "privacy budget of role"),
        ("set dp.max_epsilon_per_query = 1", "'v', 'i', 2", "PD040", "the query would spend more"),
        ("", "'v', 't'", "PD040", "no bounds can be suggested for column t of public.v"),
        ("", "'v', null", "PD040", 'parameter "column_name" must not be null'),
    ],
)
def test_refusals_tell_nothing_of_what_is_asked_inside(
    database: Any, form: str, before: str, arguments: str, state: str, message: str
) -> None:
    database.sql(
        "create table secret (i int); create table v (i int, t text); select dp.protect('v');"
        "select dp.grant_budget('alice', 10)"
    )
    with database.connect(user="alice") as alice:
        alice.execute(before or "select 1")
        call = f"dp.suggest_bounds({arguments})"
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(form.format(call))
        told = caught.value.diag
        assert (told.sqlstate, told.context, told.internal_query) == (state, None, None)
        assert told.message_primary.startswith(message), told.message_primary
        assert "CASE" not in f"{told.message_detail} {told.message_hint}"
        assert "analysed statement" not in str(told.message_detail)
        # where it stands in a function of the caller's, that is what is told
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(f"do $do$ begin perform {call}; end $do$")
        context = caught.value.diag.context.splitlines()
        assert [line for line in context if "suggest" in line] == [f'SQL statement "SELECT {call}"']
        # and it works as before, afterwards too
        assert suggest(alice, "'v', 'i', 1")[2] == 1
