"""What reading protected rows could leave behind, and whose code could run meanwhile."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import major

SEVEN = "select dp_count(*) from public.client where c_id = 7"
NOBODY = "select dp_count(*) from public.client where c_id = 777777"


@pytest.fixture
def mine(shop: Any) -> Any:
    """The shop, and a schema in which alice may do what she likes."""
    shop.sql("create schema mal authorization alice")
    shop.sql("grant usage on schema mal to public")
    return shop


DUMP = """
create table mal.log (who text, found text);
grant insert on mal.log to public;
create function mal.dump(anyelement) returns boolean language plpgsql as $f$
declare found text;
begin
    begin
        select c_kind into found from public.client limit 1;
    exception when insufficient_privilege then
        found := 'denied';
    end;
    insert into mal.log values (current_user, found);
    return true;
end $f$;
create domain mal.leak as text check (mal.dump(value));
create domain mal.number as bigint check (mal.dump(value));
create type mal.pair as (a mal.leak);
"""


@pytest.mark.parametrize("kind", ["mal.leak", "mal.leak[]", "mal.number", "mal.pair", "regclass"])
@pytest.mark.parametrize("prefix", ["", "'{' || ", "'(' || "])
def test_a_column_type_of_the_caller_runs_with_the_callers_rights(
    mine: Any, kind: str, prefix: str
) -> None:
    """The text of an array or a composite is not a count's: those types end with an error."""
    end = {"": "", "'{' || ": " || '}'", "'(' || ": " || ')'"}[prefix]
    with mine.connect(user="alice") as alice:
        for statement in DUMP.strip().split(";\ncreate"):
            alice.execute(statement if statement.startswith("create") else "create" + statement)
        inner = f"select {prefix}public.dp_count(*){end} from public.client"
        statement = f"select * from dp.run($q${inner}$q$, null) as t(a {kind})"
        assert outcome(alice, statement) not in ("PD900", "PD901")
        seen = alice.execute("select distinct who, found from mal.log").fetchall()
    assert seen in ([], [("alice", "denied")])


def test_the_callers_domain_is_made_with_released_values_only(mine: Any) -> None:
    with mine.connect(user="alice") as alice:
        for statement in DUMP.strip().split(";\ncreate"):
            alice.execute(statement if statement.startswith("create") else "create" + statement)
        text = "select public.dp_count(*) from public.client"
        row = alice.execute(f"select * from dp.run('{text}', null) as t(a mal.number)").fetchone()
        assert isinstance(row[0], int)
        assert alice.execute("select who, found from mal.log").fetchall() == [("alice", "denied")]


@pytest.mark.parametrize(
    ("definition", "state", "message"),
    [
        ("t(a bigint, b int)", "PD040", "the column definition list has 2 columns, the answer 1"),
        ("t(a bytea)", None, None),
        ("t(a date)", "22008", None),
    ],
)
def test_odd_column_definitions_get_plain_errors(
    mine: Any, definition: str, state: str | None, message: str | None
) -> None:
    text = "select public.dp_count(*) from public.client"
    with mine.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 100")
        statement = f"select * from dp.run('{text}', null) as {definition}"
        if state is None:
            assert alice.execute(statement).fetchall()
            return
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(statement)
    assert caught.value.sqlstate in (state, "22007")
    assert message is None or caught.value.diag.message_primary == message
    assert "PL/Python" not in (caught.value.diag.context or "")


def test_dp_run_in_a_select_list_says_where_it_belongs(mine: Any) -> None:
    with mine.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute("select dp.run('select public.dp_count(*) from public.client', null)")
    assert caught.value.sqlstate == "PD011"
    assert caught.value.diag.message_primary == (
        "dp.run must stand in FROM with a column definition list"
    )


def outcome(connection: psycopg.Connection[Any], statement: str) -> str:
    try:
        return str(connection.execute(statement).fetchall())
    except psycopg.Error as error:
        return str(error.sqlstate)


TRACES = [
    "select sum(seq_tup_read), sum(idx_tup_fetch), sum(seq_scan), sum(idx_scan)"
    " from pg_stat_xact_all_tables where relname = 'client'",
    "select sum(pg_stat_get_xact_blocks_fetched(oid)), sum(pg_stat_get_xact_numscans(oid)),"
    " sum(pg_stat_get_xact_tuples_returned(oid)) from pg_class"
    " where relname in ('client', 'client_pkey')",
    "select count(*) from pg_locks where mode = 'SIReadLock' and (page is not null or tuple is not null)"
    " and relation in (select oid from pg_class where relname in ('client', 'client_pkey'))",
]


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
@pytest.mark.parametrize("parallel", [False, True])
def test_reading_leaves_no_trace_of_rows(mine: Any, level: str, parallel: bool) -> None:
    if parallel:
        name = "force_parallel_mode" if major(mine) < 16 else "debug_parallel_query"
        mine.sql(f"alter role alice set {name} = on")
        mine.sql("alter role alice set parallel_setup_cost = 0")
        mine.sql("alter role alice set min_parallel_table_scan_size = 0")
    try:
        found = []
        for question in (SEVEN, NOBODY):
            with mine.connect(user="alice", autocommit=False) as alice:
                alice.execute(f"set transaction isolation level {level}")
                for setting in ("seqscan", "bitmapscan", "indexonlyscan"):
                    alice.execute(f"set local enable_{setting} = off")
                alice.execute(question)
                found.append([alice.execute(trace).fetchall() for trace in TRACES])
                alice.rollback()
        assert found[0] == found[1]
        assert not any(value for rows in found[0] for row in rows for value in row)
    finally:
        mine.sql("alter role alice reset all")


def test_counting_goes_on_for_everybody_else(mine: Any) -> None:
    """The statistics of the session's other statements are not touched."""
    with mine.connect(user="alice", autocommit=False) as alice:
        alice.execute("create table mal.own as select 1 as a")
        alice.execute(SEVEN)
        alice.execute("select * from mal.own")
        rows = alice.execute(
            "select seq_scan from pg_stat_xact_all_tables where relname = 'own'"
        ).fetchall()
        assert rows == [(1,)]
        assert alice.execute("show track_counts").fetchone() == ("on",)
        assert alice.execute("show exit_on_error").fetchone() == ("off",)


def test_explain_shows_no_buffers_of_ours(mine: Any) -> None:
    """EXPLAIN (ANALYZE, BUFFERS) would tell rows apart by the pages that they need."""
    with mine.connect() as alice:
        alice.execute("set dp.explain_buffers = on; set session authorization alice")
        shown: dict[str, list[dict[str, int]]] = {SEVEN: [], NOBODY: []}
        # the first pair fills the session's caches; what others change in the catalogue empties them
        for question in (SEVEN, NOBODY) * 12:
            plans = alice.execute(f"explain (analyze, buffers, format json) {question}").fetchone()[
                0
            ]
            scan = plans[0]["Plan"]
            shown[question].append({k: v for k, v in scan.items() if "Blocks" in k})
        seven, nobody = (
            {k: min(once[k] for once in found[1:]) for k in found[0]} for found in shown.values()
        )
        assert seven == nobody
        assert seven["Shared Hit Blocks"] < 20  # the catalogue's


def test_exit_on_error_does_not_tell_the_text_of_an_error(mine: Any) -> None:
    """A count past 2^63 is counted again in numeric; the first error must not get out."""
    many = ", ".join(f"public.client c{i}" for i in range(9))
    with mine.connect(user="alice") as alice:
        alice.execute("set exit_on_error = on")
        alice.execute("set dp.epsilon = 100")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(f"select dp_count(*) from {many}")
        assert "WITH" not in str(caught.value)
        assert caught.value.sqlstate.startswith("PD")
