"""What a person sees of a refusal: message, detail, hint, a cursor in his own text, no frames."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import refused, unreadable


def refusal(shop: Any, text: str, parameters: Any = None, **options: Any) -> psycopg.Error:
    with shop.connect(user="alice", **options) as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute(text, parameters)
    return caught.value


# ^ marks where the cursor must be
MARKED = [
    ("select dp_count(*) from client c ^left join purchase on p_client = c_id", "PD011"),
    ("SELECT dp_count(*) FROM client c ^LEFT OUTER JOIN purchase ON p_client = c_id", "PD011"),
    ("select dp_count(*), /* left ( */ -- sum(1)\n  ^sum(c_id)\nfrom client", "PD011"),
    ("select c_kind, ^dp_sum(distinct c_id) from client group by c_kind", "PD011"),
    ("select dp_count(*) as left from client where c_kind <> 'left join' and"
     " c_id ^in (select p_client from purchase)", "PD011"),
    ("select 'left', 1; select 2 as \"left\"; select dp_count(*) from client c"
     " ^left join purchase on true", "PD011"),
    ("select x.n from (select dp_count(*) as n from client c ^left join purchase on true) x"
     " left join generate_series(1, 2) on true", "PD011"),
    ("select dp_count(*) from region, ^lateral (select r_id) s", "PD011"),
    ("select dp_count(*) from client where ^random() < 0.5", "PD013"),
    ("select dp_count(*), ^version() from client", "PD013"),
    ("select pg_catalog.upper('x'), ^pg_catalog.version(), dp_count(*) from client", "PD013"),
    ("select dp_count(*) from ^hidden where a = 1", "PD012"),
    ("select dp_count(*) from region join ^public.hidden h on h.a = r_id", "PD012"),
    ('select dp_count(*) from ^public."Größe", client', "PD012"),
    ("select 'ÄÖÜ €', dp_count(*) from ^hidden", "PD012"),
    ("select U&'\\00e4', E'\\'', $q$ hidden $q$, dp_count(*) from ^hidden", "PD012"),
    ("insert into mine select dp_count(*) from ^hidden", "PD012"),
    ("create temp table made as select dp_count(*) from ^hidden", "PD012"),
    ("select dp_count(*) from client union all select dp_count(*) from ^hidden", "PD012"),
    ("prepare q as select dp_count(*) from ^hidden; execute q", "PD012"),
]  # fmt: skip


@pytest.fixture
def strange(shop: Any) -> Any:
    """The shop with relations that nobody declared."""
    shop.sql("create table hidden (a int)")
    shop.sql('create table "Größe" (a int)')
    shop.sql("create table mine (a bigint)")
    shop.sql('grant select, insert on hidden, "Größe", mine to alice')
    return shop


@pytest.mark.parametrize(("marked", "state"), MARKED, ids=[m[:50] for m, _ in MARKED])
def test_the_cursor_is_in_the_text_that_the_person_wrote(
    strange: Any, marked: str, state: str
) -> None:
    text = marked.replace("^", "")
    strange.sql("alter role alice set dp.epsilon = 0.001")
    try:
        error = refusal(strange, text)
    finally:
        strange.sql("alter role alice reset all")
    assert error.sqlstate == state
    assert error.diag.statement_position is not None, error.diag.message_detail
    assert int(error.diag.statement_position) == marked.index("^") + 1
    assert error.diag.context is None
    assert error.diag.internal_query is None
    assert not error.diag.message_primary.startswith("dpsql")
    assert error.diag.message_hint


@pytest.mark.parametrize(("marked", "state"), MARKED[:12], ids=[m[:50] for m, _ in MARKED[:12]])
@pytest.mark.parametrize(
    "function",
    ["select * from dp.explain(%s)", "select * from dp.query(%s)", "select * from dp.estimate(%s)"],
)
def test_the_cursor_is_in_the_argument(
    strange: Any, marked: str, state: str, function: str
) -> None:
    marked = marked.rsplit("; ", 1)[-1]
    if marked.startswith("select x.n"):
        marked = marked[marked.index("(") + 1 : marked.index(")", marked.index("true"))]
    error = refusal(strange, function, (marked.replace("^", ""),))
    assert error.sqlstate == state
    assert error.diag.statement_position is None
    assert error.diag.internal_query == marked.replace("^", "")
    assert int(error.diag.internal_position) == marked.index("^") + 1
    assert error.diag.context is None


@pytest.mark.parametrize(
    "text",
    [
        # the statement of the client is not the one that was analysed
        "do $$ begin perform dp_count(*) from client c left join purchase on true; end $$",
        # one of two equal words is printed only in the other query
        "select dp_count(*) from client c left join purchase on true union all"
        " select dp_count(*) from client c left join region on true",
    ],
)
def test_a_place_that_is_not_certain_is_told_in_words(shop: Any, text: str) -> None:
    error = refusal(shop, text)
    assert error.sqlstate == "PD011"
    assert error.diag.statement_position is None
    assert error.diag.message_detail.startswith("The analysed statement reads there: LEFT JOIN ")
    assert "PL/Python" not in (error.diag.context or "")


def test_a_statement_of_other_text_gets_no_cursor(strange: Any) -> None:
    with strange.connect(user="alice") as alice:
        alice.execute("prepare q as select dp_count(*) from hidden")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("execute q")
    assert caught.value.diag.statement_position is None
    assert "hidden" in caught.value.diag.message_detail


def test_a_view_gets_no_cursor(strange: Any) -> None:
    strange.sql("create schema own authorization alice")
    with strange.connect(user="alice") as alice:
        alice.execute("create view own.v as select dp_count(*) from hidden")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select dp_count from own.v")
    assert caught.value.diag.statement_position is None
    assert caught.value.diag.context is None


def test_the_cursor_of_a_statement_with_parameters(shop: Any) -> None:
    text = "select dp_count(*) from client where c_id > %s and random() < %s"
    for options in ({}, {"prepare_threshold": 0}):
        error = refusal(shop, text, (1, 0.5), **options)
        sent = "select dp_count(*) from client where c_id > $1 and random() < $2"
        assert int(error.diag.statement_position) == sent.index("random") + 1


def test_other_settings_for_literals_do_not_move_the_cursor(strange: Any) -> None:
    with strange.connect(user="alice") as alice:
        alice.execute("set standard_conforming_strings = off")
        alice.execute("set escape_string_warning = off")
        text = r"select dp_count(*), 'a\' hidden' from hidden where '\\' = '\\'"
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(text)
        assert int(caught.value.diag.statement_position) == text.rindex("hidden") + 1
        # the text is read once more at the end, under the settings of the call
        alice.execute("set standard_conforming_strings = on")
        alice.execute(r"prepare p as select dp_count(*) from hidden where '\' = $1")
        alice.execute("set standard_conforming_strings = off")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("execute p('a')")
        assert caught.value.sqlstate == "PD012"


def test_the_context_of_the_callers_own_function_stays(shop: Any) -> None:
    shop.sql("create schema own authorization alice")
    with shop.connect(user="alice") as alice:
        alice.execute(
            "create function own.f() returns bigint language plpgsql as"
            " $$ begin return (select dp_count(*) from client c left join purchase on true); end $$"
        )
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select own.f()")
    assert "own.f()" in caught.value.diag.context or "function f()" in caught.value.diag.context
    assert "Python" not in caught.value.diag.context
    assert "run" not in caught.value.diag.context


def test_every_kind_of_refusal_comes_without_frames(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        for setting, state in (
            ("dp.max_epsilon_per_query = 0.1", "PD040"),
            ("dp.epsilon = 100", "PD001"),
        ):
            shop.sql("select dp.grant_budget('alice', epsilon => 1)")
            alice.execute("set " + setting)
            with pytest.raises(psycopg.Error) as caught:
                alice.execute("select dp_count(*) from client")
            alice.execute("reset all")
            assert caught.value.sqlstate == state
            assert caught.value.diag.context is None
            assert caught.value.diag.message_hint
        alice.execute("set statement_timeout = 1")
        with pytest.raises(psycopg.errors.QueryCanceled) as stopped:
            alice.execute(
                "select dp_count(*) from client a, client b, client c where a.c_id < b.c_id"
            )
    assert stopped.value.diag.message_primary == "canceling statement due to statement timeout"
    assert stopped.value.diag.context is None


def test_an_error_is_catchable_and_the_session_goes_on(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set client_min_messages = notice")
        for _ in range(3):
            alice.execute(
                "do $$ begin perform dp_count(*) from client c left join purchase on true;"
                " exception when sqlstate 'PD011' then null; end $$"
            )
            assert alice.execute("show client_min_messages").fetchone() == ("notice",)
            assert alice.execute("select current_user").fetchone() == ("alice",)
        rows = alice.execute(
            "select c_kind, dp_count(*) from client group by c_kind limit 2"
        ).fetchall()
        assert len(rows) == 2


SERVED = "null, 'run', 'select 1', null, null, 10, pg_backend_pid(), false, 0, '', 'UTC'"


def test_the_bodies_behind_the_doors_are_closed(shop: Any) -> None:
    for call in (
        f"call dp.serve({SERVED})",
        f"call dp.python_serve({SERVED})",
        "select dp.serve_phase(true)",
        "select dp.end_service()",
        "select dp.python_sensitivity_of('select 1', 'elastic', 1, true, '')",
        "select dp.python_measure_statistics('client'::regclass, '[]')",
        "select dp.python_question_relations('select 1', '')",
        "select dp.require_flat('select 1')",
        "select dp.python_require_flat('select 1')",
        "select dp.warn('a', 'b', 'c')",
    ):
        assert refusal(shop, call).sqlstate == "42501"


def test_a_failure_after_the_charge_tells_nothing(shop: Any) -> None:
    with unreadable(shop, "alice") as alice:
        error = refused(alice, "select dp_count(*) from client where c_kind = 'a'")
    assert error.sqlstate == "PD900"
    assert error.diag.message_primary == "the answer could not be computed"
    assert error.diag.message_detail is None
    assert error.diag.message_hint.startswith("The cost was charged.")
    assert error.diag.context is None
    assert error.diag.statement_position is None
    assert error.diag.internal_query is None
    assert shop.sql("select sum(epsilon) from dp.ledger") == [(1,)]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("select dp.protect('client', privacy_unit => 'nothing')", "PD040"),
        ("select dp.grant_budget('alice', epsilon => -1)", "PD040"),
        ("select dp.set_domain('client', 'nothing', array['a'])", "PD040"),
        ("select dp.set_domain('client', 'c_id', 7, 1)", "PD040"),
    ],
)
def test_declarations_are_refused_without_frames_of_ours(shop: Any, text: str, state: str) -> None:
    with shop.connect(user="owner1") as owner:
        with pytest.raises(psycopg.Error) as caught:
            owner.execute(text)
        assert caught.value.sqlstate == state
        assert caught.value.diag.context is None
        quoted = text.replace("'", "''")
        with pytest.raises(psycopg.Error) as caught:
            owner.execute(f"do $$ begin execute '{quoted}'; end $$")
    assert caught.value.sqlstate == state
    lines = caught.value.diag.context.splitlines()
    assert lines[-1].startswith("PL/pgSQL function inline_code_block line 1")
    assert not any("dp." in line for line in lines if line.startswith("PL/pgSQL"))


@pytest.mark.parametrize(
    ("state", "kept"), [("PD901", True), ("PD900", True), ("22023", True), ("PD040", False)]
)
def test_only_refusals_lose_their_frames(shop: Any, state: str, kept: bool) -> None:
    shop.sql(
        "create or replace function dp.fails(state text) returns void language plpgsql as"
        " $$ begin raise exception using errcode = state, message = 'broken'; end $$"
    )
    try:
        with pytest.raises(psycopg.Error) as caught:
            shop.sql("select dp.fails(%s)", state)
    finally:
        shop.sql("drop function dp.fails")
    assert caught.value.sqlstate == state
    assert ("dp.fails(text)" in (caught.value.diag.context or "")) is kept
