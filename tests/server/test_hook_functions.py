"""dp.analyze, dp.deparse, dp.parameters, dp.pack and dp.server_log."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg
import pytest

from dpsql.statistics.reading import unpack
from tests.server.hook_fixture.asking import TABLES


@pytest.fixture
def owner(database: Any) -> Any:
    connection = database.connect()
    connection.execute(TABLES)
    return connection


def analyze(connection: Any, text: str, parameters: list[str | None] | None = None) -> Any:
    row = connection.execute("select dp.analyze(%s, %s::text[])", (text, parameters)).fetchone()
    return json.loads(row[0])


def oids(connection: Any, kind: str, *names: str) -> set[int]:
    return {connection.execute(f"select %s::{kind}::oid", (name,)).fetchone()[0] for name in names}


def test_inventory_of_a_join(owner: Any) -> None:
    found = analyze(
        owner,
        "select b, dp_count(*) as n from t join u using (a) where d > '2020-01-01'"
        " and b in ('x', 'y') group by b order by b desc",
    )
    assert found["command"] == "SELECT"
    assert "FROM (public.t\n     JOIN public.u USING (a))" in found["sql"]
    assert [(r["schema"], r["name"], r["relkind"]) for r in found["relations"]] == [
        ("public", "t", "r"),
        ("public", "u", "r"),
    ]
    assert found["columns"] == [
        {"name": "b", "type": 25, "typmod": -1, "type_name": "text", "collation": 100},
        {"name": "n", "type": 20, "typmod": -1, "type_name": "bigint", "collation": 0},
    ]
    functions = oids(owner, "regprocedure", "int4eq(integer,integer)", "date_gt(date,date)",
                     "texteq(text,text)", "text_gt(text,text)", 'dp_count()')  # fmt: skip
    assert functions == set(found["functions"])
    assert {23, 25, 1082} <= set(found["types"])
    assert {o["oid"] for o in found["operators"]} >= oids(owner, "regoperator", "=(text,text)")
    assert not found["viaio"]
    assert found["constructs"] == []


FUNCTIONS = [
    ("select upper(b) from t", "upper(text)"),
    ("select 1 from t where exists (select 1 from u where abs(u.a) = 1)", "abs(integer)"),
    ("with w as (select sqrt(a) s from t) select 1 from w", "sqrt(double precision)"),
    ("select a from t union select length(b) from t", "length(text)"),
    ("select a from t union select 1", "int4eq(integer,integer)"),
    ("select distinct a from t", "int4eq(integer,integer)"),
    ("select 1 from t order by a", "int4lt(integer,integer)"),
    ("select 1 from t group by d", "date_eq(date,date)"),
    ("select 1 from t limit length('x')", "length(text)"),
    ("select 1 from generate_series(1, abs(3))", "abs(integer)"),
    ("select * from (values (ln(2.0))) v", "ln(numeric)"),
    ("select 1 from t tablesample system (abs(3))", "abs(integer)"),
    ("select 1 from t tablesample system (3)", "system(internal)"),
    ("select max(a order by b desc) filter (where cosd(a) > 1) from t",
     "cosd(double precision)"),
    ("select max(a order by b desc) from t", "text_gt(text,text)"),
    ("select count(distinct a) from t", "int4eq(integer,integer)"),
    ("select rank() over (partition by d) from t", "rank()"),
    ("select sum(a) over (order by d range interval '1 day' preceding) from t",
     "in_range(date,date,interval,boolean,boolean)"),
    ("select greatest(a, 2) from t", "btint4cmp(integer,integer)"),
    ("select nullif(d, 'today') from t", "date_eq(date,date)"),
    ("select a is distinct from 3 from t", "int4eq(integer,integer)"),
    ("select (a, b) < (1, 'x') from t", "text_lt(text,text)"),
    ("select a::text from t", "int4out(integer)"),
    ("select b::xml from t", "xml(text)"),
    ("select d::text::date from t", "date_in(cstring)"),
    ("select array[a]::numeric[] from t", "numeric(integer)"),
    ("select case when isfinite(d) then 1 end from t", "isfinite(date)"),
    ("select a from t group by grouping sets ((a), ()) having bool_or(a > 3)",
     "bool_or(boolean)"),
    ("select 1 from t join u on t.a = u.a and ascii(b) = 3", "ascii(text)"),
    ("select 1 from t, lateral (select radians(t.a)) s", "radians(double precision)"),
    ("select a[1] from (select array[1] a) s where 3 = any(array[cardinality(a)])",
     "cardinality(anyarray)"),
    ("with recursive w as (select 1 a union select a + 1 from w) search depth first by a set o"
     " select a from w", "int4pl(integer,integer)"),
]  # fmt: skip


def test_no_function_escapes(owner: Any) -> None:
    for query, function in FUNCTIONS:
        found = set(analyze(owner, query)["functions"])
        assert oids(owner, "regprocedure", function) <= found, query


CONSTRUCTS = [
    ("select t from t", "whole-row reference"),
    ("select ctid from t", "system column"),
    ("select row(a) from t", "RowExpr"),
    ("select (a, b) < (1, 'x') from t", "RowCompareExpr"),
    ("select xmlelement(name x, b) from t", "XmlExpr"),
    ("select 1 from xmltable('/a' passing '<a/>' columns b text) x", "TableFunc"),
    ("select least(a, 1) from t", "MinMaxExpr"),
    ("select array_agg(a) over () from t", "WindowFunc"),
    ("select grouping(a) from t group by a", "GroupingFunc"),
    ("select 1 from generate_series(1, 2)", "function in FROM"),
    ("select generate_series(1, 2)", "set-returning function"),
    ("values (1)", "VALUES"),
    ("select (array[1])[1]", "SubscriptingRef"),
    ("select (t).a from t", None),
    ("select (select 1)", "SubLink"),
    ("select 1 from t, lateral (select t.a) s", "LATERAL"),
    ("select 1 from t tablesample bernoulli (1)", "TableSampleClause"),
    ("select array_agg(a)::bigint[] from t", "ArrayCoerceExpr"),
    ("select 3::mine.small", "CoerceToDomain"),
]


def test_constructs_are_named(owner: Any) -> None:
    owner.execute("create domain mine.small as integer check (value < 9)")
    for query, construct in CONSTRUCTS:
        found = analyze(owner, query)["constructs"]
        assert found == [] if construct is None else construct in found, query
    found = analyze(owner, "select 3::mine.small")
    assert set(found["domains"]) == oids(owner, "regtype", "mine.small")


def test_flags_of_a_query(owner: Any) -> None:
    found = analyze(owner, "select current_user, localtime(3), a::text::date from t for update")
    assert found["sqlvalue"] == ["current_user", "localtime"]
    assert found["viaio"]
    assert found["for_update"]
    assert analyze(owner, "select 1 from t group by cube(a)")["grouping_sets"]
    assert analyze(owner, "select 1 union select 2")["set_operations"]
    assert analyze(owner, "select generate_series(1, 2)")["target_srfs"]
    owner.execute("alter table t enable row level security")
    (relation,) = analyze(owner, "select 1 from t")["relations"]
    assert relation["rowsecurity"]
    assert not relation["rules"]
    assert not relation["temporary"]


def test_collations_and_operators(owner: Any) -> None:
    found = analyze(owner, """select 1 from u where "Ünï ""q" = 'a'""")
    (operator,) = found["operators"]
    assert operator["oid"] in oids(owner, "regoperator", "=(text,text)")
    assert (operator["left"], operator["right"]) == (25, 25)
    assert {operator["collation"]} == oids(owner, "regcollation", '"C"')
    assert operator["collation"] in found["collations"]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("", "PD014"),
        ("select 1; select 2", "PD014"),
        ("insert into t values (1)", "PD014"),
        ("select 1 as a into x", "PD014"),
        ("explain select 1", "PD014"),
        ("with w as (delete from t returning a) select a from w", "PD011"),
        ("selec 1", "42601"),
        ("select nothing from t", "42703"),
        ("select $1", "42P02"),
    ],
)
def test_texts_that_are_not_one_select(owner: Any, text: str, sqlstate: str) -> None:
    for function in ("analyze", "deparse"):
        with pytest.raises(psycopg.Error) as raised:
            owner.execute(f"select dp.{function}(%s)", (text,))
        assert raised.value.sqlstate == sqlstate
        assert raised.value.diag.statement_position is None
        if sqlstate.startswith("42"):
            assert raised.value.diag.internal_query == text


def test_parameters_are_bound_as_values(owner: Any) -> None:
    found = analyze(
        owner, "select a from t where b = $2 and a = $1", ["'3'::integer", r"E'\\'' $1'::text"]
    )
    assert r"""WHERE ((b = '\'' $1'::text) AND (a = 3))""" in found["sql"]


@pytest.mark.parametrize(
    "hostile", ["(select 1)", "1", "a", "1; drop table t", "'1'::integer + 1", "", "a::integer"]
)
def test_only_literals_are_bound(owner: Any, hostile: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        analyze(owner, "select a from t where a = $1", [hostile])
    assert raised.value.sqlstate in ("PD040", "42601")
    with pytest.raises(psycopg.errors.UndefinedParameter):
        analyze(owner, "select a from t where a = $1", [None])


def test_analysis_is_not_intercepted(owner: Any) -> None:
    assert "dp_count" in analyze(owner, "select dp_count(*) from t")["sql"]
    row = owner.execute("select dp.deparse('select dp_count(*) from t')").fetchone()
    assert " ".join(row[0].split()) == "SELECT public.dp_count(*) AS dp_count FROM public.t"


def test_deparse_follows_the_callers_path_and_is_stable(owner: Any) -> None:
    owner.execute("create table mine.t (z timestamptz)")
    owner.execute("set search_path = mine; set timezone = 'Asia/Tokyo'; set datestyle = 'SQL'")
    query = r"select * from t where z < '2020-01-01' and 'a\b''c' = ''"
    once = owner.execute("select dp.deparse(%s)", (query,)).fetchone()[0]
    assert "'2019-12-31 15:00:00+00'::timestamp with time zone" in once
    assert r"'a\b''c'::text" in once
    assert "FROM mine.t" in once
    owner.execute("set search_path = pg_catalog, pg_temp; set timezone = 'UTC'")
    assert analyze(owner, once)["sql"] == once
    assert owner.execute("show search_path").fetchone() == ("pg_catalog, pg_temp",)


def test_parameters_called_by_hand(owner: Any) -> None:
    row = owner.execute(
        "select dp.parameters(1, 'x', null, null::date, 1.50, array['a,b'], timestamp 'infinity')"
    ).fetchone()
    assert row[0] == [
        "'1'::integer",
        "'x'::pg_catalog.text",
        "NULL::pg_catalog.text",
        "NULL::pg_catalog.date",
        "'1.50'::numeric",
        "'{\"a,b\"}'::pg_catalog.text[]",
        "'infinity'::timestamp without time zone",
    ]


@pytest.mark.parametrize("types", [("bigint",), ("integer", "bigint"), ("smallint", "bigint",
                                   "integer", "integer", "bigint", "bigint", "smallint",
                                   "integer")])  # fmt: skip
@pytest.mark.parametrize("parallel", [False, True])
def test_pack_keeps_rows_together(owner: Any, types: tuple[str, ...], parallel: bool) -> None:
    owner.execute("create table many as select g::integer a from generate_series(-9000, 20000) g")
    owner.execute("insert into many values (null); analyze many")
    factors = [1 if kind != "bigint" else 10**i for i, kind in enumerate(types)]
    expressions = [f"(a::bigint * {f})::{kind}" for f, kind in zip(factors, types, strict=True)]
    if parallel:
        owner.execute("set parallel_setup_cost = 0; set parallel_tuple_cost = 0;"
                      " set min_parallel_table_scan_size = 0")  # fmt: skip
    query = f"select dp.pack(2000000, {', '.join(expressions)}) from many"
    plan = owner.execute(f"explain {query}").fetchall()
    assert any("Partial Aggregate" in row[0] for row in plan) == parallel
    columns = unpack(owner.execute(query).fetchone()[0])
    order = columns[0].argsort()
    for column, factor in zip(columns, factors, strict=True):
        assert (column[order] == np.arange(-9000, 20001) * factor).all()
        assert column.itemsize == (4 if 20000 * factor < 2**31 else 8)


def test_pack_widens_a_column_when_it_must(owner: Any) -> None:
    """Narrow rows, wide ones and narrow ones again, around the ends of 32 bits."""
    values = [*range(100), 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, *range(200, 300)]
    row = owner.execute(
        "select dp.pack(100000, a, n) from unnest(%s::bigint[]) with ordinality u(a, n)",
        (values,),
    ).fetchone()
    assert unpack(row[0])[0].tolist() == values
    assert unpack(row[0])[1].tolist() == list(range(1, len(values) + 1))
    assert [column.itemsize for column in unpack(row[0])] == [8, 4]


def test_pack_of_nothing_and_of_extremes(owner: Any) -> None:
    assert owner.execute("select dp.pack(9, 1::bigint) where false").fetchone() == (None,)
    assert owner.execute("select dp.pack(9, 1, null::bigint)").fetchone() == (None,)
    row = owner.execute(
        "select dp.pack(64, a, b) from (values (1, null), (-9223372036854775808,"
        " 9223372036854775807)) v(a, b)"
    ).fetchone()
    assert [column.tolist() for column in unpack(row[0])] == [[-(2**63)], [2**63 - 1]]


@pytest.mark.parametrize(
    "call",
    ["dp.pack(9, 'a'::text)", "dp.pack(9, 1.5)", "dp.pack(9)", "dp.pack(null, 1)",
     "dp.pack(-1, 1)", "dp.pack(9, variadic array[1])", f"dp.pack(1000{', 1' * 17})"],
)  # fmt: skip
def test_pack_takes_a_few_integers_only(owner: Any, call: str) -> None:
    with pytest.raises((psycopg.errors.InternalError_, psycopg.errors.UndefinedFunction)):
        owner.execute(f"select {call}")


def test_pack_by_group(owner: Any) -> None:
    rows = owner.execute(
        "select g % 3, dp.pack(1000, g) from generate_series(1, 9::bigint) g group by 1 order by 1"
    ).fetchall()
    assert [sorted(unpack(r[1])[0].tolist()) for r in rows] == [[3, 6, 9], [1, 4, 7], [2, 5, 8]]


@pytest.mark.parametrize("limit", [0, 4, 4 * 999])
def test_pack_stops_at_its_limit(owner: Any, limit: int) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded) as raised:
        owner.execute("select dp.pack(%s, g) from generate_series(1, 1000::bigint) g", (limit,))
    assert raised.value.diag.message_primary == f"packed rows exceed the limit of {limit} bytes"
    owner.execute("select dp.pack(4000, g) from generate_series(1, 1000::bigint) g")


def test_server_log_reaches_no_client(owner: Any) -> None:
    notices: list[str] = []
    owner.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    owner.execute("set client_min_messages = debug5")
    notices.clear()
    owner.execute("select dp.server_log('a secret')")
    owner.execute("select dp.server_log(repeat('é', 5000))")
    assert not any("secret" in notice or "é" in notice for notice in notices)
    logged = owner.execute("select pg_read_file(pg_current_logfile())") if _has_log(owner) else None
    if logged is not None:
        text = logged.fetchone()[0]
        assert "dpsql: a secret" in text
        assert "é" * 1000 in text
        assert "é" * 1001 not in text


def _has_log(connection: Any) -> bool:
    return connection.execute("select pg_current_logfile() is not null").fetchone()[0]
