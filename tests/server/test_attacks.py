"""What a hostile analyst tries; every attempt must be refused or teach nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server.conftest import declare

pytestmark = pytest.mark.server

SECRET = "s3cr3t-value"


def plant(shop: Any) -> Any:
    """Give the shop a secret row whose value must never be seen."""
    shop.sql(f"insert into client values (777, 1, '2000-01-01', '{SECRET}')")
    shop.sql("create schema hidden")
    shop.sql("create table hidden.raw as select * from client")
    return shop


@pytest.fixture
def planted(shop: Any) -> Any:
    """The shop with the secret."""
    return plant(shop)


@pytest.fixture(scope="module")
def all_planted(server: Any) -> Iterator[Any]:
    """The same, for attempts that change nothing."""
    database = declare(server.create_database())
    yield plant(database)
    server.drop_database(database)


def refuse(shop: Any, sql: str, state: str, user: str = "alice") -> psycopg.Error:
    """Run as the analyst, demand an error of that state, and that it tells no secret."""
    notices: list[str] = []
    with shop.connect(user=user) as connection:
        connection.add_notice_handler(lambda d: notices.append(str(d.message_primary)))
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(sql)
    error = caught.value
    shown = " ".join(
        str(x)
        for x in (
            error.diag.message_primary,
            error.diag.message_detail,
            error.diag.message_hint,
            error.diag.context,
            *notices,
        )
    )
    assert SECRET not in shown
    assert error.sqlstate == state, shown
    return error


def spent(shop: Any) -> float:
    return float(shop.sql("select coalesce(sum(epsilon), 0) from dp.ledger")[0][0])


REFUSED = [
    ("42501", "select dp_count(*) from hidden.raw"),
    ("PD012", "select dp_count(*) from pg_catalog.pg_class"),
    ("PD013", "select dp_count(*) from client where c_kind::int > 0"),
    ("PD013", "select dp_count(*) from client where pg_sleep(1) is null"),
    ("PD013", "select dp_count(*) from client where random() < 0.5"),
    ("PD011", "select dp_count(*) from client where c_kind like 'a\\'"),
    ("PD013", "select dp_count(*) from client where c_kind ~ '('"),
    ("PD011", "select dp_count(*) from client c left join purchase on p_client = c_id"),
    (
        "PD011",
        "select dp_count(*) from client where exists (select from purchase where p_client = c_id)",
    ),
    ("PD011", "select dp_count(*) from client where c_id in (select p_client from purchase)"),
    ("PD011", "select dp_count(*) from (select distinct c_id from client) s"),
    (
        "PD011",
        "select dp_count(*) from (select c_id from client union all select p_client from purchase) s",
    ),
    ("PD011", "select dp_count(*), max(c_born) from client"),
    ("PD011", "select dp_count(*), sum(c_id) from client"),
    ("PD011", "select dp_sum(distinct c_id) from client"),
    ("PD011", "select dp_count(*) over () from client"),
    ("PD011", "select c_region, dp_count(*) from client group by grouping sets ((c_region), ())"),
    ("0A000", "select dp_count(*) from client for update"),
    ("PD011", "select dp_count(*) from client tablesample system (10)"),
    ("PD011", "select dp_count(*) from client where ctid = '(0,1)'"),
    ("PD011", "select dp_count(*) from client where xmin::text = '1'"),
    ("PD011", "select dp_count(*) from client, lateral (select c_id) s"),
    ("PD011", "select dp_count(*) from client, generate_series(1, 10)"),
    ("PD011", "select dp_count(*) from only client"),
    ("PD011", "select dp_count(client.*) from client"),
    ("PD013", "select dp_count(*) from client where current_setting('is_superuser') = 'on'"),
    (
        "PD013",
        "select dp_count(*) from client where query_to_xml('select 1', true, true, '') is not null",
    ),
    (
        "PD013",
        "select dp_count(*), query_to_xml('select * from client', true, true, '') from client",
    ),
    ("PD013", "select dp_count(*), pg_read_file('/etc/passwd') from client"),
    ("PD011", "select dp_count(*), (select max(c_kind) from client) from client"),
    ("PD014", "select * from dp.run('select c_kind from client', null) as t(a text)"),
    ("PD014", "select * from dp.run('select 1; drop table client', null) as t(a int)"),
    ("PD014", "select * from dp.run('delete from client', null) as t(a int)"),
    ("PD014", "select * from dp.run('select dp_count($1) from client', null) as t(a int)"),
    ("PD040", "select * from dp.run(null, null) as t(a int)"),
    ("PD040", "select * from dp.run('select 1', array[array['1']]) as t(a int)"),
    ("PD040", "select dp.release('r', 'select dp_count(*) from client', weights => '{{1}, {2}}')"),
    ("PD040", "select dp.integers('\\x00'), dp.bigints('\\x00'), dp.floats('\\x00')"),
    ("PD070", "select dp.read_as_owner('client'::regclass)"),
    ("42P01", "select dp.query('select dp_count(*) from nowhere')"),
    ("42883", "select dp.ledger_open()"),
    ("42501", "select * from dp.spend"),
    ("42501", "select * from dp.answer"),
    ("42501", "select dp.pack(1, 100)"),
    ("42501", "select dp.protect('client')"),
    ("42501", "select dp.unprotect('client')"),
    ("42501", "select dp.grant_budget('alice', 1e6, 1)"),
    ("42501", "set role dp_executor"),
    ("42501", "set session authorization dp_ledger"),
]


@pytest.mark.parametrize(("state", "sql"), REFUSED, ids=[sql[:60] for _, sql in REFUSED])
def test_refused_without_spending_or_telling(all_planted: Any, state: str, sql: str) -> None:
    error = refuse(all_planted, sql, state)
    if error.sqlstate.startswith("PD01"):
        assert error.diag.message_hint, "a refusal shows an allowed form"
    assert spent(all_planted) == 0.0


def test_division_by_zero_is_no_error_on_any_row(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 50")
        value = alice.execute(
            "select dp_count(*) from client where 1000 / (c_id - 777) < 0"
        ).fetchone()[0]
    assert abs(value - 200) <= 10


def test_an_operator_of_the_analyst_is_not_used(planted: Any) -> None:
    planted.sql("create schema evil authorization mallory")
    planted.sql("grant create on database " + planted.name + " to mallory")
    with planted.connect(user="mallory") as mallory:
        mallory.execute(
            "create function evil.leak(int, int) returns boolean language plpgsql as"
            " $$ begin raise notice 'LEAK %', $1; return true; end $$"
        )
        mallory.execute(
            "create operator evil.= (function = evil.leak, leftarg = int, rightarg = int)"
        )
    planted.sql("grant usage on schema evil to alice")
    connection = planted.connect(user="alice")
    heard: list[str] = []
    connection.add_notice_handler(lambda d: heard.append(str(d.message_primary)))
    connection.execute("set search_path = evil, pg_catalog, public")
    with pytest.raises(psycopg.Error) as caught:
        connection.execute("select dp_count(*) from client where c_id = 777")
    assert caught.value.sqlstate == "PD011"
    assert not any("LEAK" in h for h in heard)


def test_a_temp_table_does_not_shadow_a_protected_one(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        alice.execute("create temp table client (c_id int)")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select dp_count(*) from client")
        assert caught.value.sqlstate == "PD012"
        alice.execute("select dp_count(*) from public.client")


def test_a_temp_function_does_not_shadow_the_aggregate_or_the_runner(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        alice.execute(
            "create function pg_temp.run(text, text[]) returns setof record language sql as"
            " $$ select 1::bigint $$"
        )
        alice.execute("set dp.epsilon = 0.01")
        alice.execute("select dp_count(*) from client")
    assert spent(planted) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "setting",
    [
        "client_min_messages = debug5",
        "debug_print_plan = on",
        "standard_conforming_strings = off",
        "row_security = off",
        "log_statement_stats = off",
        "dp.python_lib_dir = '/tmp'",
    ],
)
def test_settings_do_not_open_the_answer(planted: Any, setting: str) -> None:
    connection = planted.connect(user="alice")
    heard: list[str] = []
    connection.add_notice_handler(
        lambda d: heard.append(f"{d.message_primary} {d.message_detail} {d.context}")
    )
    if setting.startswith(("log_", "dp.")):
        with pytest.raises(psycopg.Error):
            connection.execute("set " + setting)
        return
    connection.execute("set " + setting)
    connection.execute(f"select dp_count(*) from client where c_kind = '{SECRET[:3]}'")
    assert not any(SECRET in h for h in heard)


def test_an_index_is_not_searched_in_part(shop: Any) -> None:
    """One row that splits a page of the index would change the answer by thousands."""
    shop.sql("create extension btree_gin")
    shop.sql("create table many (id int primary key, k int)")
    shop.sql("insert into many select i, 1 from generate_series(1, 20000) i")
    shop.sql("create index on many using gin (k)")
    shop.sql("select dp.protect('many')")
    shop.sql("grant select on many to owner1")
    less = (
        "set enable_seqscan = off; set enable_indexscan = off; set enable_indexonlyscan = off;"
        "set max_parallel_workers_per_gather = 0; set gin_fuzzy_search_limit = 1000"
    )
    with shop.connect(user="owner1") as owner, shop.connect(user="alice") as alice:
        owner.execute(less)
        assert owner.execute("select count(*) from many where k = 1").fetchone()[0] < 2000
        alice.execute(less)
        alice.execute("set dp.epsilon = 50")
        value = alice.execute("select dp_count(*) from many where k = 1").fetchone()[0]
    assert abs(value - 20000) <= 10


def test_a_literal_with_backslashes_means_the_same_for_everybody(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        alice.execute("set standard_conforming_strings = off")
        alice.execute("set escape_string_warning = off")
        alice.execute("set dp.epsilon = 50")
        # under this setting '\\'' is one quote: the literal ends later than a naive reader thinks
        value = alice.execute(
            r"select dp_count(*) from client where c_kind = '\' or 1 = 1 --'"
        ).fetchone()[0]
    assert abs(value) <= 10


def test_explain_analyze_shows_no_plan_of_protected_relations(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        plan = str(
            alice.execute("explain (analyze, verbose) select dp_count(*) from client").fetchall()
        )
    assert "Seq Scan" not in plan
    assert "Index" not in plan


def test_undeclared_relations_and_dangling_policies_are_refused(planted: Any) -> None:
    with planted.connect(user="owner1") as owner:
        owner.execute("select dp.unprotect('client')")
    refuse(planted, "select dp_count(*) from client", "PD012")


def test_row_security_refuses_the_relation(planted: Any) -> None:
    planted.sql("alter table client enable row level security")
    refuse(planted, "select dp_count(*) from client", "PD012")


def test_dropping_and_recreating_a_relation_keeps_its_losses(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        alice.execute("select dp_count(*) from purchase")
    before = planted.sql("select max(epsilon_spent) from dp.budgets where role is null")[0][0]
    planted.sql("drop table purchase")
    planted.sql("create table purchase (p_client int)")
    planted.sql("alter table purchase owner to owner1")
    with planted.connect(user="owner1") as owner:
        owner.execute("select dp.protect('purchase')")
    with planted.connect(user="alice") as alice:
        alice.execute("select dp_count(*) from purchase")
    after = planted.sql("select max(epsilon_spent) from dp.budgets where role is null")[0][0]
    assert before > 0
    assert after == 2 * before


def test_an_analyst_sees_only_the_own_part_of_the_ledger(planted: Any) -> None:
    with planted.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('bob', epsilon => 10, delta => 1e-5)")
    with planted.connect(user="alice") as alice, planted.connect(user="bob") as bob:
        alice.execute("select dp_count(*) from client")
        bob.execute("select dp_count(*) from purchase")
        assert len(alice.execute("select * from dp.ledger").fetchall()) == 1
        assert len(bob.execute("select * from dp.ledger").fetchall()) == 1
        assert len(bob.execute("select * from dp.budgets").fetchall()) == 1
    with planted.connect(user="owner1") as owner:
        assert len(owner.execute("select * from dp.ledger").fetchall()) == 2


STEAL = """
create function {schema}.steal(int) returns boolean language plpgsql as $f$
declare found text;
begin
    begin
        perform set_config('search_path', '{schema}, public', false);
        perform set_config('standard_conforming_strings', 'off', false);
        select string_agg(c_kind, ',') into found from public.client where c_id = 777;
    exception when insufficient_privilege then
        return true;
    end;
    raise exception 'stolen as %: %', current_user, found;
end $f$
"""


@pytest.mark.parametrize("schema", ["pg_temp", "mal"])
@pytest.mark.parametrize(
    "literal",
    [
        "'{{1}}'::{0}.d[]",
        "'1'::{0}.d",
        "array['1'::{0}.d]",
        "('(1)'::{0}.c).a",
        "lower('[1,2)'::{0}.r)",
    ],
)
def test_code_behind_a_type_never_runs_with_our_rights(
    planted: Any, schema: str, literal: str
) -> None:
    planted.sql("create schema mal authorization alice")
    planted.sql("grant usage on schema mal to dp_executor")
    with planted.connect(user="alice") as alice:
        alice.execute(STEAL.format(schema=schema))
        alice.execute(f"create domain {schema}.d as int check ({schema}.steal(value))")
        alice.execute(f"create type {schema}.c as (a {schema}.d)")
        alice.execute(f"create type {schema}.r as range (subtype = {schema}.d)")
        value = literal.format(schema)
        test = f"c_id = any({value})" if "[" in value and "[1" not in value else f"c_id = {value}"
        text = f"select dp_count(*) from public.client where {test}"
        for statement, parameters in (
            (text, None),
            ("select * from dp.run(%s, null) as t(a bigint)", (text,)),
            (
                "select * from dp.run('select public.dp_count(*) from public.client"
                f" where c_id = any($1)', array[{sql_literal(value)}]) as t(a bigint)",
                None,
            ),
            ("select dp.query(%s)", (text,)),
        ):
            told = outcome(alice, statement, parameters)
            assert "stolen" not in told
            assert SECRET not in told


def outcome(connection: psycopg.Connection[Any], statement: str, parameters: Any) -> str:
    try:
        return str(connection.execute(statement, parameters).fetchall())
    except psycopg.Error as error:
        return str(error)


def sql_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_a_view_of_somebody_else_does_not_run_its_code_with_our_rights(planted: Any) -> None:
    planted.sql("create schema mal authorization mallory")
    planted.sql("grant dp_owner to mallory")
    try:
        with planted.connect(user="mallory") as mallory:
            mallory.execute(STEAL.format(schema="mal"))
            mallory.execute("create domain mal.d as int check (mal.steal(value))")
            mallory.execute("create table mal.t (a int)")
            mallory.execute("select dp.protect('mal.t')")
            told = []
            for body in ("a from mal.t", "a from mal.t where a = any('{1}'::mal.d[])"):
                mallory.execute(f"create or replace view mal.v as select {body}")
                told.append(outcome(mallory, "select dp.declare_view('mal.v')", None))
            assert "is not supported" in told[1], told
            assert "stolen" not in str(told)
        planted.sql("grant usage on schema mal to alice")
        with planted.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
            alice.execute("select dp_count(*) from mal.v")
        assert "stolen" not in str(caught.value)
    finally:
        planted.sql("revoke dp_owner from mallory")


def test_time_zone_and_date_belong_to_the_question(planted: Any) -> None:
    planted.sql("alter table purchase add p_at timestamptz")
    planted.sql("update purchase set p_at = '2024-06-01 00:30+00'")
    sql = "select dp_count(*) from purchase where p_at < timestamp '2024-06-01 00:00'"
    with planted.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 50")
        alice.execute("set timezone = 'UTC'")
        early = alice.execute(sql).fetchone()[0]
        alice.execute("set timezone = 'America/New_York'")
        late = alice.execute(sql).fetchone()[0]
    assert abs(early) <= 10
    assert abs(late - 2000) <= 10


def test_the_exact_text_is_answered_from_its_own_key(planted: Any) -> None:
    with planted.connect(user="alice") as alice:
        first = alice.execute("select dp_count(*) from client").fetchone()
        assert planted.sql("select count(*) from dp.answer_text") == [(1,)]
        assert alice.execute("select dp_count(*) from client").fetchone() == first
        alice.execute("set dp.epsilon = 0.5")
        alice.execute("select dp_count(*) from client")
    assert spent(planted) == 1.5
