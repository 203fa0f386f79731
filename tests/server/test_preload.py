"""The package is imported once, in the postmaster, and sessions go on from there."""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.server.in_service import in_service, value_in_service

IMPORTED = """
do language plpython3u $$
import sys
wanted = ("numpy", "dpsql.engine.answer", "dpsql.statistics.kernel")
plpy.notice(",".join(name for name in wanted if name in sys.modules))
$$"""
RANDOM = "do language plpython3u $$import random; plpy.notice(random.getrandbits(128))$$"
THREADS = "do language plpython3u $$import os; plpy.notice(len(os.listdir('/proc/self/task')))$$"


def notice(database, statement: str) -> str:
    """Return what a new session says."""
    heard: list[str] = []
    with psycopg.connect(database.cluster.conninfo(dbname=database.name)) as connection:
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        connection.execute(statement)
    return heard[0]


def ask(database) -> int:
    database.sql("create table t (a int); insert into t select generate_series(1, 1000)")
    database.sql("select dp.protect('t'), dp.grant_budget('alice', epsilon => 10)")
    return database.sql("select dp_count(*) from t", user="alice")[0][0]


def test_a_new_session_inherits_all_that_an_answer_needs(database):
    assert notice(database, IMPORTED).split(",") == [
        "numpy",
        "dpsql.engine.answer",
        "dpsql.statistics.kernel",
    ]
    assert notice(database, THREADS) == "1"


def test_sessions_do_not_share_random_numbers(database):
    """Chance of a false alarm: 10 numbers of 128 bits, below 1e-36."""
    assert len({notice(database, RANDOM) for _ in range(10)}) == 10


def test_an_answer_imports_nothing_more(database):
    database.sql(
        "create table t (a int, b int); insert into t select i, i from generate_series(1, 9) i"
    )
    database.sql("select dp.protect('t'), dp.grant_budget('alice', epsilon => 10)")
    with psycopg.connect(
        database.cluster.conninfo(dbname=database.name), autocommit=True
    ) as connection:
        connection.execute(in_service("import sys\nGD['before'] = set(sys.modules)"))
        connection.execute("set role alice")
        connection.execute("select dp_count(*) from t x, t y where x.a = y.b")
        connection.execute("reset role")
        more = value_in_service("import sys\nreturn sorted(set(sys.modules) - GD['before'])")
        assert connection.execute(f"select {more}").fetchone() == ("[]",)


def test_without_preloading_sessions_import_for_themselves(make_server):
    server = make_server(**{"dp.preload_python": "off"})
    database = server.create_database()
    assert notice(database, IMPORTED) == ""
    assert abs(ask(database) - 1000) < 100  # false alarm: exp(-100)


def test_a_failed_import_is_a_line_in_the_log(make_server, monkeypatch):
    """A server starts whatever is wrong with the package, and says what is."""
    from dpsql.client import cluster as module

    server = make_server(**{"dp.preload_python": "off"})
    server.cluster.stop()
    assert server.cluster.log.exists()
    poisoned = server.folder / "poison"
    poisoned.mkdir(mode=0o755)
    (poisoned / "sitecustomize.py").write_text("import sys; sys.modules['numpy'] = None\n")
    monkeypatch.setitem(module.SERVER_ENVIRONMENT, "PYTHONPATH", str(poisoned))
    server.cluster.settings["dp.preload_python"] = "on"
    server.cluster.start()
    log = server.cluster.log.read_text()
    assert re.search("dpsql imports Python in each session: the import at server start failed", log)
    assert "numpy" in log
    assert server.create_database(acknowledge=False).sql("select 1") == [(1,)]


@pytest.mark.parametrize("value", ["on", "off"])
def test_only_the_server_start_decides(database, value):
    with pytest.raises(psycopg.errors.CantChangeRuntimeParam):
        database.sql(f"set dp.preload_python = {value}")
