"""dp.refusals counts what was refused, keeps no text of it, and survives a restart."""

from __future__ import annotations

import ast
import os
import re
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import start_server
from tests.server.waiting import wait_until

SETUP = """
create table person (id integer primary key, name text);
insert into person values (1, 'x');
select dp.protect('person'), dp.grant_budget('alice', 3), dp.grant_budget('bob', 3);
"""
SECRET = "constant_from_outside"
COUNTED = (
    "select role, sqlstate, sum(refused)::integer from dp.refusals group by 1, 2 order by 1, 2"
)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def other_server(installation: None) -> Iterator[Any]:
    """Start a server that tests stop, crash and start."""
    server = start_server()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def server(installation: None) -> Iterator[Any]:
    """Start another one: where many tests were refused before, places of counts may be taken."""
    server = start_server()
    yield server
    server.remove()


@pytest.fixture
def own(other_server: Any) -> Iterator[Any]:
    """Make a database of it."""
    database = other_server.create_database()
    yield other_server, database
    database.close()


def refuse(database: Any, text: str, user: str) -> str:
    with pytest.raises(psycopg.Error) as caught:
        database.sql(text, user=user)
    return caught.value.sqlstate or ""


def since(database: Any) -> Any:
    try:
        return database.sql("select dp.refusals_since()")[0][0]
    except psycopg.OperationalError:
        return None


def test_refusals_are_counted_by_role_and_reason(database: Any) -> None:
    database.sql(SETUP)
    unknown = f"select dp_count(*) from person where my_function('{SECRET}')"
    banned = f"select dp_count(*) from person where name = quote_ident('{SECRET}')"
    for _ in range(3):
        assert refuse(database, banned, "alice") == "PD013"
    assert refuse(database, f"set dp.epsilon = 10000; {banned}", "alice").startswith("PD")
    assert refuse(database, "select dp_count(*) from pg_class", "bob") == "PD012"
    # not ours
    assert refuse(database, unknown, "bob") == "42883"
    database.sql("select dp_count(*) from person", user="bob")

    mine = {s: n for _, s, n in database.sql(COUNTED, user="alice")}
    assert mine["PD013"] >= 3
    assert sum(mine.values()) == 4
    assert database.sql(COUNTED, user="bob") == [("bob", "PD012", 1)]
    admin = database.connect()
    admin.execute("grant dp_owner to owner1")
    try:
        assert {r for r, _, _ in database.sql(COUNTED, user="owner1")} == {"alice", "bob"}
    finally:
        admin.execute("revoke dp_owner from owner1")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.sql(COUNTED, user="mallory")
    for hidden in ("dp.refusal_counts()",):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.sql(f"select * from {hidden}", user="alice")


def test_hints_are_kept_word_for_word_or_not_at_all(database: Any) -> None:
    """What names something of the statement is none of the hints that may be kept."""
    database.sql(SETUP)
    kept, named = (
        "select dp_count(*) from person where id = random()",
        "set dp.epsilon = 4711; select dp_count(*) from person",
    )
    hints = {}
    for text in (kept, named):
        with pytest.raises(psycopg.Error) as caught:
            database.sql(text, user="alice" if text == kept else "bob")
        hints[text] = caught.value.diag.message_hint
    told = database.sql("select role, hint from dp.refusals order by role")
    assert told == [("alice", hints[kept]), ("bob", None)]
    assert hints[named]


def test_another_role_asks_another_is_counted(database: Any) -> None:
    """Whoever asks is counted: the SET ROLE target, also where the transaction is lost with it."""
    database.sql(SETUP)
    with pytest.raises(psycopg.Error):
        database.sql("begin; set local role bob; select dp_count(*) from pg_class")
    assert database.sql(COUNTED, user="bob") == [("bob", "PD012", 1)]
    # what a block caught reached no client
    database.sql(
        "do $$ begin perform dp_count(*) from pg_class; exception when others then null; end $$",
        user="bob",
    )
    assert database.sql(COUNTED, user="bob") == [("bob", "PD012", 1)]
    # the ledger refuses on its own connection; the asker is counted, once
    database.sql("select dp.grant_budget('bob', 0.001)")
    assert refuse(database, "select dp_count(*) from person where id > 7", "bob") == "PD001"
    assert database.sql(COUNTED) == [("bob", "PD001", 1), ("bob", "PD012", 1)]


def test_other_databases_are_not_shown(server: Any, database: Any) -> None:
    database.sql(SETUP)
    other = server.create_database()
    try:
        refuse(database, "select dp_count(*) from pg_class", "alice")
        assert other.sql(COUNTED) == []
    finally:
        server.drop_database(other)


def test_no_text_is_kept(own: Any) -> None:
    """Neither in the counters nor in the file that outlives a restart; a crash says that it lost them."""
    server, database = own
    database.sql(SETUP)
    refuse(
        database, f"select dp_count(*) from person where name = quote_ident('{SECRET}')", "alice"
    )
    first = since(database)
    assert database.sql(COUNTED) == [("alice", "PD013", 1)]
    server.cluster.stop()
    kept = server.cluster.data / "pg_stat/dpsql_refusals.stat"
    assert SECRET.encode() not in kept.read_bytes()
    server.cluster.launch()
    assert not kept.exists()
    assert database.sql(COUNTED) == [("alice", "PD013", 1)]
    assert since(database) == first
    server.cluster.stop("immediate")
    server.cluster.launch()
    assert database.sql(COUNTED) == [("alice", "PD013", 1)]
    # a crash: all backends end, and shared memory is made anew
    os.kill(database.connect().info.backend_pid, signal.SIGKILL)
    wait_until(lambda: since(database) not in (None, first))
    assert database.sql(COUNTED) == []
    assert since(database) > first
    # a file that is not whole counts from now on
    server.cluster.stop()
    kept.write_bytes(b"nonsense")
    server.cluster.launch()
    assert database.sql(COUNTED) == []
    refuse(database, "select dp_count(*) from pg_class", "alice")
    assert database.sql(COUNTED) == [("alice", "PD012", 1)]
    # where the log hides errors nothing is counted, and it says so
    assert database.sql("set log_min_messages = fatal; select dp.refusals_since()") == [(None,)]


def test_full_places_forget_the_oldest_and_say_so(own: Any) -> None:
    """All places are taken, by years of refusals: the oldest in reach goes, and "since" moves."""
    server, database = own
    kept = server.cluster.data / "pg_stat/dpsql_refusals.stat"
    ((oid, alice),) = database.sql(
        "select d.oid::bigint, r.oid::bigint from pg_database d, pg_roles r"
        " where d.datname = current_database() and r.rolname = 'alice'"
    )
    server.cluster.stop()
    written = kept.read_bytes()
    head, rows = written[:4] + bytes(8), len(written[12:]) // 32
    assert rows == 16384
    state = sum(((ord(c) - ord("0")) & 0x3F) << (6 * i) for i, c in enumerate("PD010"))
    full = b"".join(
        struct.pack("=IIiiIIq", oid, alice, state, hour, 0, 0, 2) for hour in range(rows)
    )
    kept.write_bytes(head + full)
    server.cluster.launch()
    assert database.sql("select count(*), sum(refused) from dp.refusals") == [(rows, 2 * rows)]
    refuse(database, "select dp_count(*) from pg_class", "mallory")
    assert ("mallory", "PD002", 1) in database.sql(COUNTED)
    assert database.sql("select count(*), sum(refused) from dp.refusals") == [
        (rows, 2 * (rows - 1) + 1)
    ]
    hours = "select generate_series(0, 16383)"
    left = (
        "select extract(epoch from hour - '2000-01-01 00:00+00')::integer / 3600 from dp.refusals"
    )
    ((gone,),) = database.sql(f"{hours} except {left}")
    assert database.sql(
        "select extract(epoch from dp.refusals_since() - '2000-01-01 00:00+00')::integer / 3600"
    ) == [(gone + 1,)]


def test_forged_refusals_cost_nobody_else_his_counts(own: Any) -> None:
    """Any role can raise errors of any SQLSTATE; of ours they are counted, in the role's own places."""
    server, database = own
    kept = server.cluster.data / "pg_stat/dpsql_refusals.stat"
    (oids,) = database.sql(
        "select d.oid::bigint, a.oid::bigint, b.oid::bigint from pg_database d, pg_roles a, pg_roles b"
        " where d.datname = current_database() and a.rolname = 'alice' and b.rolname = 'bob'"
    )
    server.cluster.stop()
    written = kept.read_bytes()
    state = sum(((ord(c) - ord("0")) & 0x3F) << (6 * i) for i, c in enumerate("PD010"))
    full = b"".join(
        struct.pack("=IIiiIIq", oids[0], oids[1 + hour % 2], state, hour, 0, 0, 1)
        for hour in range(16384)
    )
    kept.write_bytes(written[:4] + bytes(8) + full)
    server.cluster.launch()
    states = [f"PD{n:03}" for n in range(0, 1000, 1)] + ["PDABC", "PD0ZZ"]
    with database.connect(user="alice") as alice:
        for forged in states:
            with pytest.raises(psycopg.Error):
                alice.execute(f"do $$ begin raise sqlstate '{forged}'; end $$")
    found = dict(database.sql("select role, sum(refused)::integer from dp.refusals group by 1"))
    assert found == {"alice": 8192, "bob": 8192}
    shown = "select count(*) from dp.refusals where reason = 'another refusal'"
    assert database.sql(shown) == [(0,)]


def test_every_sqlstate_has_a_reason() -> None:
    told = set(re.findall(r"\('(PD\d{3})'", (ROOT / "sql/functions/refusals.sql").read_text()))
    raised = set(re.findall(r'sqlstate = "(PD\d{3})"', (ROOT / "dpsql/errors.py").read_text()))
    raised |= {
        "".join(ast.literal_eval(f"[{letters}]"))
        for letters in re.findall(
            r"ERRCODE_DPSQL_\w+ MAKE_SQLSTATE\(([^)]*)\)", (ROOT / "sql/hook/dpsql.h").read_text()
        )
    }
    assert raised - {"PD000"} == told


def test_refusals_stay_fast(database: Any) -> None:
    """The count costs no time that could be seen.

    Other processes of the machine decide the tail, and for some seconds the median too: measured
    until they let it be, for at most two minutes.
    """
    database.sql(SETUP)
    connection = database.connect("alice")

    def median() -> float:
        times = []
        for _ in range(100):
            begin = time.perf_counter()
            with pytest.raises(psycopg.Error):
                connection.execute("select dp_count(*) from pg_class")
            times.append(time.perf_counter() - begin)
        return sorted(times)[50]

    wait_until(lambda: median() < 0.02)
