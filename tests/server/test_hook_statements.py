"""Every statement form that can hold a private aggregate asks dp.run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.server.hook_fixture.asking import Asking, ask, echoing

COUNT = " SELECT public.dp_count(*) AS dp_count\n   FROM public.t"


@pytest.fixture
def alice(database: Any) -> Iterator[Asking]:
    echoing(database)
    return ask(database)


def queries(asking: Asking) -> list[str]:
    return [" ".join(asked["query"].split()) for asked in asking.asked]


def test_simple_query_needs_no_privilege_on_the_table(alice: Asking) -> None:
    assert alice.run("select dp_count(*) from t") == [(1,)]
    assert alice.asked == [{"query": COUNT, "parameters": None, "bound": COUNT}]


def test_plan_is_one_function_scan(alice: Asking) -> None:
    plan = alice.plan("select b, dp_count(*) from t join u using (a) group by b order by 2")
    assert plan.startswith(
        "Function Scan on dp.run t\n  Output: t.c1, t.c2\n  Function Call: dp.run("
    )
    assert plan.count("Scan") == 1
    assert not alice.asked


def test_names_types_and_duplicates_of_columns_are_kept(alice: Asking) -> None:
    cursor = alice.connection.execute(
        'select dp_count(a), dp_count(b), b::varchar(3) as "odd "" näme", 1.5::numeric(5,2),'
        " 'lit' from t group by b, a order by a"
    )
    assert [c.name for c in cursor.description] == [
        "dp_count",
        "dp_count",
        'odd " näme',
        "numeric",
        "?column?",
    ]
    assert [(c.type_code, c.precision, c.scale) for c in cursor.description][3] == (1700, 5, 2)
    assert cursor.description[2].display_size == 3


def test_collations_of_columns_are_kept(alice: Asking) -> None:
    alice.run(
        'create table mine.kept as select "Ünï ""q", b collate "POSIX" as p, dp_count(*)'
        " from u join t using (a) group by 1, 2"
    )
    rows = alice.run(
        "select attname, collname, format_type(atttypid, atttypmod) from pg_attribute"
        " left join pg_collation c on c.oid = attcollation"
        " where attrelid = 'mine.kept'::regclass and attnum > 0 order by attnum"
    )
    assert rows == [
        ('Ünï "q', "C", "character varying(7)"),
        ("p", "POSIX", "text"),
        ("dp_count", None, "bigint"),
    ]


def test_hidden_sort_columns_are_not_returned(alice: Asking) -> None:
    assert alice.names("select dp_count(*) from t group by b, d order by b, d desc") == ["dp_count"]
    assert "ORDER BY b, d DESC" in queries(alice)[0]


def test_aggregate_in_having_or_order_by_only(alice: Asking) -> None:
    alice.run("select b from t group by b having dp_count(*) > 3")
    alice.run("select b from t group by b order by dp_count(*)")
    assert len(alice.asked) == 1


def test_extended_protocol_with_parameters(alice: Asking) -> None:
    when = datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    alice.run(
        "select dp_count(*) from t where a = %s and b = %s and d < %s and %s = b and a < %s"
        " and d < %s",
        (3, "it's \\ é", date(2020, 2, 3), None, Decimal("1.50"), when),
    )
    (asked,) = alice.asked
    assert asked["parameters"] == [
        "'3'::smallint",
        r"E'it''s \\ é'::pg_catalog.text",
        "'2020-02-03'::pg_catalog.date",
        "NULL::pg_catalog.text",
        "'1.50'::numeric",
        "'2020-01-02 03:04:05+00'::timestamp with time zone",
    ]
    assert "$6" in asked["query"]
    assert r"'it''s \ é'::text" in asked["bound"]
    assert "$" not in asked["bound"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("integer", "-7", "'-7'::integer"),
        ("bigint", "9223372036854775807", "'9223372036854775807'::bigint"),
        ("boolean", "true", "'t'::boolean"),
        ("float8", "0.1", "'0.1'::double precision"),
        ("float8", "'NaN'", "'NaN'::double precision"),
        ("char(5)", "'ab'", "'ab'::pg_catalog.bpchar"),
        ("varchar(2)", "'ab'", "'ab'::character varying"),
        ('"char"', "'a'", "'a'::pg_catalog.\"char\""),
        ("name", "'a'", "'a'::pg_catalog.name"),
        ("bytea", r"'\x00ff'", r"E'\\x00ff'::pg_catalog.bytea"),
        ("interval", "'1 day 2 hours'", "'1 day 02:00:00'::interval"),
        ("time", "'10:11'", "'10:11:00'::time without time zone"),
        ("uuid", "'00000000-0000-0000-0000-000000000001'",
         "'00000000-0000-0000-0000-000000000001'::pg_catalog.uuid"),
        ("integer[]", "'{1,NULL}'", "'{1,NULL}'::integer[]"),
        ("text[]", "array['a\"b', 'c d']", """E'{"a\\\\"b","c d"}'::pg_catalog.text[]"""),
        ("mine.mood", "'it''s'", "'it''s'::mine.mood"),
        ("mine.small", "3", "'3'::integer"),
        ("regclass", "'t'", "'public.t'::pg_catalog.regclass"),
    ],
)  # fmt: skip
def test_parameter_types(alice: Asking, kind: str, value: str, expected: str) -> None:
    alice.run("create type mine.mood as enum ('it''s')")
    alice.run("create domain mine.small as integer check (value < 9)")
    alice.run("set intervalstyle = sql_standard")
    alice.run("set datestyle = 'German'")
    alice.run("set extra_float_digits = 0")
    alice.run("set standard_conforming_strings = on")
    alice.run(f"prepare p({kind}) as select dp_count(*) from t where $1 is not null")
    alice.run(f"execute p({value})")
    assert [expected] == alice.asked[0]["parameters"]


def test_parameters_of_unknown_type_and_unused_ones(alice: Asking) -> None:
    alice.run("prepare p(unknown, integer, unknown) as"
              " select dp_count(*) from t where b = $3 and d > $1")  # fmt: skip
    alice.run("execute p('2020-01-01', 2, 'z')")
    (asked,) = alice.asked
    assert "b = $1" in asked["query"]
    assert "d > $2" in asked["query"]
    assert asked["parameters"] == ["'z'::pg_catalog.text", "'2020-01-01'::pg_catalog.date"]


def test_more_parameters_than_a_function_takes(alice: Asking) -> None:
    marks = ", ".join(["%s"] * 250)
    alice.run(f"select dp_count(*) from t where a in ({marks})", list(range(250)))
    assert len(alice.asked[0]["parameters"]) == 250
    assert alice.asked[0]["parameters"][249] == "'249'::smallint"


def test_prepared_statement_follows_its_tables(alice: Asking, database: Any) -> None:
    alice.run("prepare p as select dp_count(a) from t")
    alice.run("execute p")
    database.sql("alter table t rename column a to renamed")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        alice.run("execute p")
    database.sql("alter table t rename column renamed to a")
    database.sql("alter table t rename to moved")
    database.sql("create view t as select * from moved")
    assert alice.run("execute p") == [(1,)]
    assert "public.t" in alice.asked[0]["query"]


def test_describe_without_executing(alice: Asking) -> None:
    connection = alice.connection.pgconn
    connection.prepare(b"s", b"select b, dp_count(*) from t where a = $1 group by b")
    described = connection.describe_prepared(b"s")
    assert [described.fname(i) for i in range(2)] == [b"b", b"dp_count"]
    assert [described.ftype(i) for i in range(2)] == [25, 20]
    assert [described.param_type(i) for i in range(described.nparams)] == [23]
    assert not alice.asked


@pytest.mark.parametrize("options", ["", "scroll", "insensitive no scroll"])
def test_cursor_asks_at_first_fetch(alice: Asking, options: str) -> None:
    alice.run("begin")
    alice.run(f"declare c {options} cursor for select dp_count(*) from t")
    assert not alice.asked
    assert alice.run("fetch c") == [(1,)]
    assert len(alice.asked) == 1
    assert alice.run("fetch c") == []
    assert not alice.asked
    alice.run("rollback")


def test_holdable_cursor(alice: Asking) -> None:
    alice.run("declare c cursor with hold for select dp_count(*) from t")
    assert alice.run("fetch c") == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        "create table mine.x as select dp_count(*) from t",
        "declare c cursor for select dp_count(*) from t",
        "create materialized view mine.x as select dp_count(*) from t",
    ],
)
def test_explain_of_a_utility_statement(alice: Asking, statement: str) -> None:
    assert "Function Scan on dp.run" in alice.plan(statement)


def test_explain_execute_and_analyze(alice: Asking) -> None:
    alice.run("prepare p as select dp_count(*) from t")
    assert "Function Scan on dp.run" in alice.plan("execute p")
    alice.run("explain analyze select dp_count(*) from t")
    assert len(alice.asked) == 1


def test_create_table_as_and_select_into(alice: Asking) -> None:
    alice.run("create table mine.x as select b, dp_count(*) as n from t group by b")
    assert alice.run("select * from mine.x") == [("x", 1)]
    alice.run("select dp_count(*) as n into mine.y from t")
    assert alice.run("select * from mine.y") == [(1,)]
    alice.run("prepare p as select dp_count(*) as n from t")
    alice.run("create temp table z as execute p")
    assert alice.run("select n from z") == [(1,)]


def test_views_are_stored_in_the_form_that_asks(alice: Asking, database: Any) -> None:
    alice.run("create view mine.v as select b, dp_count(*) from t group by b")
    assert "FROM dp.run(' SELECT b," in alice.run("select pg_get_viewdef('mine.v'::regclass)")[0][0]
    assert alice.run("select dp_count from mine.v where b = 'x'") == [(1,)]
    assert len(alice.asked) == 1
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        database.sql("drop table t")


def test_materialized_view_asks_at_creation_and_at_refresh(alice: Asking) -> None:
    alice.run("create materialized view mine.m as select dp_count(*) from t")
    assert len(alice.asked) == 1
    assert alice.run("select * from mine.m") == [(1,)]
    assert not alice.asked
    alice.run("refresh materialized view mine.m")
    assert len(alice.asked) == 1
    alice.run("create materialized view mine.n as select dp_count(*) from t with no data")
    assert not alice.asked


def test_copy_of_a_query(alice: Asking) -> None:
    with alice.connection.cursor().copy("copy (select dp_count(*) from t) to stdout") as copy:
        assert b"".join(copy) == b"1\n"


@pytest.mark.parametrize(
    "statement",
    [
        "insert into mine.x select dp_count(*) + 1, b from t group by b",
        "insert into mine.x select dp_count(*) + 1, 'literal' from t",
        "insert into mine.x (n) values ((select dp_count(*) + 1 from t))",
        "insert into mine.x values (7) on conflict (n)"
        " do update set n = (select dp_count(*) from t)",
        "update mine.x set n = (select dp_count(*) from t)",
        "update mine.x set (n, b) = (select dp_count(*), 'q' from t)",
        "delete from mine.x where n > (select dp_count(*) from t) returning b",
        "merge into mine.x using (select dp_count(*) as m from t) s on n = m"
        " when not matched then insert values (m)",
        "with w as (insert into mine.x select dp_count(*) from t returning n) select n from w",
    ],
)
def test_changes_of_the_analysts_own_table(alice: Asking, statement: str) -> None:
    alice.run("create table mine.x (n bigint unique, b text)")
    alice.run("insert into mine.x values (7)")
    alice.run(statement)
    assert len(alice.asked) == 1
    assert alice.run("select * from mine.x") != [(7, None)]


@pytest.mark.parametrize(
    ("query", "rows", "times"),
    [
        ("with w as (select dp_count(*) n from t) select n + 1 from w", [(2,)], 1),
        ("with w as (select dp_count(*) n from t) select a.n + b.n from w a, w b", [(2,)], 1),
        ("with w as (select a from t) select dp_count(*) from w", [(1,)], 1),
        ("select (select dp_count(*) from t) + 1 from generate_series(1, 2)", [(2,), (2,)], 1),
        ("select n from (select dp_count(*) n from t) s where n > 0", [(1,)], 1),
        ("select dp_count(*) from t union all select dp_count(*) from u", [(1,), (1,)], 2),
        ("select dp_count(*) from t union select dp_count(*) from u", [(1,)], 2),
        ("select 'a', dp_count(*) from t except select 'b', 1", [("x", 1)], 1),
        ("select 1 where exists (select dp_count(*) from t)", [(1,)], 1),
        ("select 1 where 1 in (select dp_count(*) from t)", [(1,)], 1),
        ("select array(select dp_count(*) from t group by b)", [([1],)], 1),
        ("select dp_count(*) over () from t", [(1,)], 1),
        ("select dp_count(distinct a) filter (where a > 1) from t", [(1,)], 1),
        ("select dp_count(*)", [(1,)], 1),
        ("values ((select dp_count(*) from t))", [(1,)], 1),
    ],
)
def test_places_of_a_query(alice: Asking, query: str, rows: Any, times: int) -> None:
    assert alice.run(query) == rows
    assert len(alice.asked) == times


def test_aggregate_of_an_outer_query_belongs_to_it(alice: Asking) -> None:
    alice.run("select (select dp_count(t.a)) from t")
    assert queries(alice) == [
        "SELECT ( SELECT public.dp_count(t.a) AS dp_count) AS dp_count FROM public.t"
    ]


def test_names_are_those_that_postgresql_resolved(alice: Asking) -> None:
    alice.run("create table mine.t (a integer)")
    alice.run("create function mine.lower(text) returns text language sql as 'select $1'")
    alice.run("set search_path = mine, public, pg_catalog")
    alice.run('select dp_count(*) from t, u where lower("Ünï ""q") = \'a\'')
    (query,) = queries(alice)
    assert 'FROM mine.t, public.u WHERE (mine.lower((u."Ünï ""q")::text)' in query


def test_plpgsql(alice: Asking) -> None:
    alice.run("""
        create function mine.f(k integer) returns setof bigint language plpgsql as $$
        declare
            n bigint;
            r record;
            c refcursor;
            l text := 'l';
        begin
            select dp_count(*) into n from t where a = k;
            return next n;
            for r in select b, dp_count(*) as q from t where a > f.k and b <> l group by b loop
                return next r.q;
            end loop;
            n := (select dp_count(*) from t where b = l || k);
            return next n;
            open c for select dp_count(*) from t where a = k + r.q;
            fetch c into n;
            return next n;
            execute 'select dp_count(*) from t where a = $1' into n using k;
            return next n;
            return query select dp_count(*) from t where a = k;
        end $$""")
    assert alice.run("select * from mine.f(5)") == [(1,)] * 6
    assert [asked["parameters"] for asked in alice.asked] == [
        ["'5'::integer"],
        ["'5'::integer", "'l'::pg_catalog.text"],
        ["'l'::pg_catalog.text", "'5'::integer"],
        ["'5'::integer", "'1'::bigint"],
        ["'5'::integer"],
        ["'5'::integer"],
    ]
    for _ in range(7):
        alice.run("select * from mine.f(6)")
        assert alice.asked[0]["parameters"] == ["'6'::integer"]


def test_sql_functions_with_a_string_body(alice: Asking) -> None:
    alice.run("create function mine.f(k integer) returns bigint language sql stable as"
              " 'select dp_count(*) from t where a = k'")  # fmt: skip
    alice.run("create function mine.g(integer) returns table (b text, n bigint) language sql stable"
              " as 'select b, dp_count(*) from t where a = $1 group by b'")  # fmt: skip
    assert alice.run("select mine.f(4)") == [(1,)]
    assert alice.asked[0]["parameters"] == ["'4'::integer"]
    assert alice.run("select n from mine.g(5)") == [(1,)]
    assert alice.asked[0]["parameters"] == ["'5'::integer"]


def test_settings_are_as_before_after_an_error_in_the_middle(alice: Asking) -> None:
    settings = (
        "select name, setting from pg_settings where context = 'user' and name !~ '[.]' order by 1"
    )
    before = alice.run(settings)
    alice.run("set search_path = mine, public")
    for text in (
        "select dp_count(*) from t where d < '2020-13-99'",
        "select (select dp_count(*) from t where t.a = g) from generate_series(1,2) g",
        "select row(1), dp_count(*) from t",
        "select dp_count(*) from t where a = 1/0",
    ):
        try:
            alice.run(text)
        except psycopg.Error:
            alice.connection.rollback()
        assert alice.run("show search_path") == [("mine, public",)]
    alice.run("reset search_path")
    assert alice.run(settings) == before


def test_error_inside_an_exception_block(alice: Asking) -> None:
    alice.run("""
        do $$ begin
            for i in 1..3 loop
                begin
                    perform row(1), dp_count(*) from t;
                exception when sqlstate 'PD011' then null;
                end;
            end loop;
            perform dp_count(*) from t;
        end $$""")
    assert len(alice.asked) == 1
    assert alice.run("show search_path") == [('"$user", public',)]


def test_other_statements_pass(alice: Asking) -> None:
    assert alice.run("select count(*) from generate_series(1, 3)") == [(3,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        alice.run("select count(*) from t")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        alice.run("select n from (select dp_count(*) n from t) s, t")


def test_row_security_is_left_to_dp_run(alice: Asking, database: Any) -> None:
    owner = database.connect()
    owner.execute("alter table t enable row level security")
    owner.execute("create policy p on t using (a in (select a from t))")
    for setting in ("on", "off"):
        alice.run(f"set row_security = {setting}")
        alice.run("select dp_count(*) from t")
        assert len(alice.asked) == 1
