"""A dump carries policies, domains, budgets and every spend; restoring it is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.client.layout import run
from tests.conftest import Database
from tests.contract.ledger_backend import install
from tests.server.in_service import in_service

KEPT = {
    "policies": "select relation::text, kind, root from dp.policy order by 1",
    "domains": "select relation::text, column_name, members from dp.column_domain order by 1, 2",
    "budgets": "select role, relation, composition, epsilon_limit, epsilon_spent, delta_remaining, rho_limit, rho_spent"
    " from dp.budgets order by role, relation",
    "ledger": "select id, role, epsilon, state, question, relations from dp.ledger order by id",
    "totals": "select principal, epsilon, spends from dp.role_total order by 1",
    "windows": "select role, budget_window, window_start, window_end, window_epsilon_spent, window_spends"
    " from dp.budgets where role is not null order by role",
    "roots": "select root, epsilon, spends from dp.root_total order by 1",
    "failures": "select * from dp.failures order by role, relation",
    "resumed": "select * from dp.resumption order by spend",
    "failure limits": "select id, failure_limit, failure_limit_in_all from dp.root order by id",
}


@pytest.mark.parametrize("form", ["custom", "plain"])
def test_dump_and_restore_keep_everything_and_are_noticed(
    server: Any, database: Any, tmp_path: Path, form: str
) -> None:
    root = install(database)
    database.sql('create table public."Üni" (id integer); ')
    database.sql("""select dp.protect('"Üni"')""")
    database.sql("create table public.gone (id integer)")
    database.sql("select dp.declare_public('gone')")
    database.sql("drop table public.gone")
    database.sql("select dp.set_domain('secret', 'id', array[3, 1, 2])")
    database.sql("select dp.grant_budget('alice', 50, 1e-6, budget_window => '1 month')")
    database.sql("select dp.record_loss('bob', 'secret', 2, 0, 'on paper')")
    alice = database.connect("alice")
    for question in ("q1", "q2", "q1"):
        alice.execute("select probe.ask(%s, %s)", (question, root))
    failed = (
        "insert into dp.failure select id, principal, roots, 0, at, at from dp.spend where id = %s"
    )
    database.sql(failed, 1)
    assert database.sql("select dp.resume('alice', 'secret')") == [(1,)]
    database.sql(failed, 2)
    database.sql("select dp.set_failure_limit('secret', 7, 20)")
    kept = {name: database.sql(sql) for name, sql in KEPT.items()}
    assert ("alice", "public.secret", 1, 7) in [row[:4] for row in kept["failures"]]
    kept["policies"] = [row for row in kept["policies"] if not row[0].isdigit()]

    dump = tmp_path / "dump"
    run([server.cluster.bin / "pg_dump", "-F", form[0], "-f", dump, "-d", database.conninfo()])
    target = Database(server.cluster, f"restored_{form}")
    database.sql(f"create database {target.name} template template0")
    if form == "custom":
        run([server.cluster.bin / "pg_restore", "-e", "-d", target.conninfo(), dump])
    else:
        run([server.cluster.bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", dump,
             "-d", target.conninfo()])  # fmt: skip
    try:
        restored = {name: target.sql(sql) for name, sql in KEPT.items()}
        assert restored == kept
        target.connect().execute(in_service("pass"))
        again = target.connect("alice")
        with pytest.raises(psycopg.Error) as caught:
            again.execute("select probe.ask('q1', %s)", (root,))
        assert caught.value.sqlstate == "PD051"
        target.sql("select dp.acknowledge_restore('moved')")
        again.execute("select probe.ask('q1', %s)", (root,))
        assert target.sql("select max(id) from dp.spend")[0][0] == 3
        target.sql("create table public.more (id integer)")
        target.sql("select dp.protect('more')")
        assert target.sql("select max(id) from dp.root")[0][0] == 3
    finally:
        server.drop_database(target)
