"""Every way to dump and restore keeps the ledger, and none gives budget back unnoticed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.client.layout import Layout
from tests.conftest import Database
from tests.server.test_dump_restore import KEPT

QUESTION = "select dp_count(*) from client"
ANOTHER = "select dp_count(*) from client where c_id > 3"


def tool(name: str, *arguments: object, stdin: str | None = None) -> str:
    """Run one of PostgreSQL's programs; whatever it complains about fails the test."""
    done = subprocess.run(
        [str(Layout.discover().bin / name), *map(str, arguments)],
        input=stdin,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def asked(database: Database) -> dict[str, Any]:
    """Spend, and return what a restored ledger must have."""
    database.sql("select dp.grant_budget('alice', 3, 1e-6)", user="owner1")
    database.sql(QUESTION, user="alice")
    return {name: database.sql(query) for name, query in KEPT.items()}


def refuses_until_acknowledged(restored: Database, known: dict[str, Any]) -> None:
    assert {name: restored.sql(query) for name, query in KEPT.items()} == known
    for question in (QUESTION, ANOTHER):
        with pytest.raises(psycopg.Error) as caught:
            restored.sql(question, user="alice")
        assert caught.value.sqlstate == "PD051"
    restored.sql("select dp.acknowledge_restore('a test')", user="owner1")
    restored.sql(QUESTION, user="alice")
    spent = "select epsilon_spent from dp.budgets where role = 'alice'"
    assert restored.sql(spent) == [(2,)], (
        "what the dump knows is spent, stored answers are not in it"
    )


def test_a_directory_restored_by_several_jobs(server: Any, shop: Any, tmp_path: Path) -> None:
    known = asked(shop)
    tool("pg_dump", "-Fd", "-j2", "-f", tmp_path / "dump", "-d", shop.conninfo())
    copy = server.create_database("template0", acknowledge=False)
    try:
        tool("pg_restore", "-e", "-j2", "-d", copy.conninfo(), tmp_path / "dump")
        refuses_until_acknowledged(copy, known)
    finally:
        server.drop_database(copy)


def test_an_old_dump_over_the_database_that_made_it(shop: Any, tmp_path: Path) -> None:
    known = asked(shop)
    tool("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", shop.conninfo())
    # spends of which the dump knows nothing
    shop.sql(ANOTHER, user="alice")
    shop.sql("drop extension dpsql cascade; drop table purchase, client, region")
    tool("pg_restore", "-e", "-d", shop.conninfo(), tmp_path / "dump")
    refuses_until_acknowledged(shop, known)


def test_schema_and_data_apart(server: Any, shop: Any, tmp_path: Path) -> None:
    known = asked(shop)
    parts = [(part, tmp_path / part) for part in ("--schema-only", "--data-only")]
    for part, path in parts:
        tool("pg_dump", "-Fc", part, "-f", path, "-d", shop.conninfo())
    copy = server.create_database("template0", acknowledge=False)
    try:
        tool("pg_restore", "-e", "-d", copy.conninfo(), parts[0][1])
        # without the ledger nothing is declared and nobody has a budget
        assert copy.sql("select count(*) from dp.relations") == [(0,)]
        assert copy.sql("select count(*) from dp.budgets") == [(0,)]
        with pytest.raises(psycopg.Error) as caught:
            copy.sql(QUESTION, user="alice")
        assert caught.value.sqlstate in ("PD002", "PD012")
        tool("pg_restore", "-e", "--disable-triggers", "-d", copy.conninfo(), parts[1][1])
        refuses_until_acknowledged(copy, known)
    finally:
        server.drop_database(copy)


def test_a_whole_cluster_with_its_roles_and_settings(
    server: Any, shop: Any, make_server: Any, tmp_path: Path
) -> None:
    known = asked(shop)
    shop.sql("create role reader_of_dumps login in role dp_analyst")
    shop.sql("alter role reader_of_dumps set dp.epsilon = 0.25")
    shop.sql(f"alter role reader_of_dumps in database {shop.name} set dp.delta = 1e-9")
    try:
        roles = tool("pg_dumpall", "--globals-only", "-d", server.cluster.conninfo())
        database = tool("pg_dump", "--create", "-d", shop.conninfo())
        other = make_server()
        psql = ("-X", "-q", "-d", other.cluster.conninfo())
        # the roles that every cluster with dpsql has are there already
        tool("psql", *psql, stdin=roles)
        tool("psql", *psql, "-v", "ON_ERROR_STOP=1", stdin=database)
        restored = Database(other.cluster, shop.name)
        shown = (
            "select current_setting('dp.epsilon')::numeric, current_setting('dp.delta')::numeric"
        )
        assert [float(x) for x in restored.sql(shown, user="reader_of_dumps")[0]] == [0.25, 1e-9]
        member = "select pg_has_role('reader_of_dumps', 'dp_analyst', 'member')"
        assert restored.sql(member) == [(True,)]
        refuses_until_acknowledged(restored, known)
        restored.close()
    finally:
        shop.sql(f"alter role reader_of_dumps in database {shop.name} reset all")
        shop.sql("drop role reader_of_dumps")
