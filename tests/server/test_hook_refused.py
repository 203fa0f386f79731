"""What the interception refuses: SQLSTATE, message, hint and position."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import PARALLEL
from tests.server.hook_fixture.asking import Asking, ask, echoing


@pytest.fixture
def alice(database: Any) -> Asking:
    echoing(database)
    return ask(database)


def refusal(asking: Asking, text: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as raised:
        asking.run(text)
    assert not asking.asked
    return raised.value


@pytest.mark.parametrize(
    ("text", "position", "message", "hint"),
    [
        (
            "select (select dp_count(*) from t where t.a = ^g) from generate_series(1, 2) g",
            "^",
            "a query with a private aggregate cannot refer to an outer query",
            "Join the relations inside",
        ),
        (
            "select * from u, lateral (select dp_count(*) from t where t.a = ^u.a) s",
            "^",
            "a query with a private aggregate cannot refer to an outer query",
            "Join the relations inside",
        ),
        (
            "select (select dp_count(*) from t where exists (select 1 from u where u.a = ^g))"
            " from generate_series(1, 2) g",
            "^",
            "a query with a private aggregate cannot refer to an outer query",
            "Join the relations inside",
        ),
        (
            "with w as (select * from t) select * from (select ^dp_count(*) from w) s",
            "^",
            'a query with a private aggregate cannot read the outer WITH query "w"',
            "Write the WITH clause inside the query",
        ),
        (
            "with recursive w(a) as (select 1::bigint union all select ^dp_count(*) over () from w)"
            " select a from w",
            "^",
            'a query with a private aggregate cannot read the outer WITH query "w"',
            "Write the WITH clause inside the query",
        ),
        (
            "select ^dp_count(*) from (select * from t for update) s",
            "^",
            "a query with a private aggregate cannot lock rows",
            "Remove the FOR UPDATE",
        ),
        (
            "with w as (delete from mine.x returning a) select ^dp_count(*) from w",
            "^",
            "a query with a private aggregate cannot modify data in WITH",
            "Run the INSERT, UPDATE or DELETE as a statement of its own.",
        ),
        (
            "select dp_count(*), ^row(1, 2) as r from t",
            "^",
            'column "r" beside a private aggregate has pseudo-type record',
            "Select columns of ordinary types.",
        ),
        *(
            (
                text,
                "^",
                "a query with a private aggregate must select something",
                "Name a column or the aggregate: SELECT dp_count(*) FROM",
            )
            for text in (
                "select from t having ^dp_count(*) > 1",
                "select from t order by ^dp_count(*)",
                "select order by ^dp_count(*)",
                "select exists (select from t having ^dp_count(*) > 1)",
                "select count(*) from (select from t having ^dp_count(*) > 1) s",
            )
        ),
    ],
)
def test_refused_with_position(
    alice: Asking, text: str, position: str, message: str, hint: str
) -> None:
    alice.run("create table mine.x (a integer)")
    error = refusal(alice, text.replace(position, ""))
    assert error.sqlstate == "PD011"
    assert error.diag.message_primary == message
    assert error.diag.message_hint.startswith(hint)
    assert int(error.diag.statement_position) == text.index(position) + 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("create rule r as on insert to mine.x do also select dp_count(*) from t", "a rule"),
        (
            "create rule r as on insert to mine.x do also"
            " insert into mine.x select dp_count(*) over () from t",
            "a rule",
        ),
        (
            "create function mine.f() returns bigint begin atomic select dp_count(*) from t; end",
            "a BEGIN ATOMIC or RETURN function body",
        ),
        (
            "create function mine.f() returns bigint return (select dp_count(*) from t)",
            "a BEGIN ATOMIC or RETURN function body",
        ),
        (
            "create procedure mine.p() begin atomic"
            " insert into mine.x select dp_count(*) from t; end",
            "a BEGIN ATOMIC or RETURN function body",
        ),
        (
            "create policy p on mine.x using (a > (select dp_count(*) from t))",
            "a row-security policy",
        ),
        ("alter policy q on mine.x using (a > (select dp_count(*) from t))",
         "a row-security policy"),
    ],
)  # fmt: skip
def test_nothing_is_stored_as_it_is(alice: Asking, text: str, kind: str) -> None:
    alice.run("create table mine.x (a integer)")
    alice.run("create policy q on mine.x using (true)")
    error = refusal(alice, text)
    assert error.sqlstate == "PD011"
    assert error.diag.message_primary == f"{kind} cannot hold the private aggregate dp_count"
    assert error.diag.message_hint.startswith("Use a view, or a function whose body is a string")


def test_replacing_a_function_by_one_that_would_store(alice: Asking) -> None:
    alice.run("create function mine.f() returns bigint return 1")
    error = refusal(
        alice, "create or replace function mine.f() returns bigint"
        " return (select dp_count(*) from t)"
    )  # fmt: skip
    assert error.sqlstate == "PD011"
    assert alice.run("select mine.f()") == [(1,)]


def test_transition_tables(alice: Asking) -> None:
    alice.run("create table mine.x (a integer)")
    alice.run("create function mine.f() returns trigger language plpgsql as"
              " $$ begin perform dp_count(*) from added; return null; end $$")  # fmt: skip
    alice.run("create trigger g after insert on mine.x referencing new table as added"
              " for each statement execute function mine.f()")  # fmt: skip
    error = refusal(alice, "insert into mine.x values (1)")
    assert error.sqlstate == "PD011"
    assert '"added"' in error.diag.message_primary


def test_record_variables_as_parameters(alice: Asking) -> None:
    error = refusal(
        alice,
        "do $$ declare r record; begin select 1 into r;"
        " perform dp_count(*) from t where r is null; end $$",
    )
    assert error.sqlstate == "PD011"
    assert "pseudo-type" in error.diag.message_primary


@pytest.mark.parametrize(
    ("setting", "bad", "range_"),
    [
        ("epsilon", "0", "at least 0.000001 and at most 100"),
        ("epsilon", "1e-300", "at least 0.000001 and at most 100"),
        ("epsilon", "0.0000009", "at least 0.000001 and at most 100"),
        ("epsilon", "-1", "at least 0.000001 and at most 100"),
        ("epsilon", "100.5", "at least 0.000001 and at most 100"),
        ("delta", "-0.1", "at least 0 and at most 0.001"),
        ("delta", "0.002", "at least 0 and at most 0.001"),
        ("max_epsilon_per_query", "0", "-1 (no limit), or greater than 0 and at most 100"),
        ("max_epsilon_per_query", "-0.5", "-1 (no limit), or greater than 0 and at most 100"),
        ("confidence", "0", "at least 0.000001 and at most 0.999999"),
        ("confidence", "1", "at least 0.000001 and at most 0.999999"),
        ("confidence", "0.9999999999999999", "at least 0.000001 and at most 0.999999"),
        ("confidence", "0.9999996", "at least 0.000001 and at most 0.999999"),
    ],
)
def test_settings_out_of_range(alice: Asking, setting: str, bad: str, range_: str) -> None:
    error = refusal(alice, f"set dp.{setting} = {bad}")
    assert error.sqlstate == "PD040"
    assert error.diag.message_detail == f"It must be {range_}."
    assert error.diag.message_hint


@pytest.mark.parametrize(
    "text",
    [
        "set dp.epsilon = 'NaN'",
        "set dp.delta = 'x'",
        "set dp.method = 'guess'",
        "set dp.mechanism = 'none'",
        "set dp.fresh = 'perhaps'",
    ],
)
def test_settings_that_are_no_value_at_all(alice: Asking, text: str) -> None:
    assert refusal(alice, text).sqlstate == "22023"


def test_settings_nobody_knows(alice: Asking) -> None:
    assert refusal(alice, "set dp.seed = 1").sqlstate == "42602"


def test_defaults(alice: Asking) -> None:
    expected = {
        "dp.epsilon": "1",
        "dp.delta": "1e-08",
        "dp.method": "auto",
        "dp.mechanism": "auto",
        "dp.max_epsilon_per_query": "-1",
        "dp.fresh": "off",
        "dp.confidence": "0.95",
        "dp.preload_python": "on",
        "dp.explain_buffers": "off",
        "dp.refused_rows": "error",
        "dp.sampling_filter": "off",
        "dp.shards_timeout": "5000",
        "dp.sampling_rate": "0.001",
        "dp.max_contribution": "1000000000",
        "dp.max_groups_contributed": "0",
        "dp.max_rows_contributed": "0",
        "dp.min_frequency": "0",
        "dp.statistics": "live",
    }
    rows = alice.run("select name, setting from pg_settings where name like 'dp.%'")
    assert dict(rows) == expected
    alice.run("set dp.epsilon = 0.001")
    alice.run("set dp.method = 'elastic'")
    alice.run("set dp.mechanism = 'calibrated'")


def test_parallel_operations(alice: Asking) -> None:
    alice.run("create function mine.f() returns bigint language sql stable parallel safe as"
              " 'select dp_count(*) from t'")  # fmt: skip
    alice.run(PARALLEL)
    error = refusal(alice, "select mine.f() + max(oid::bigint) from pg_class")
    assert error.sqlstate == "PD011"
    assert error.diag.message_hint == "Mark the function that holds the query PARALLEL UNSAFE."
