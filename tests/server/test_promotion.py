"""A promoted standby and a recovered backup give budget back: refused, told, and acknowledged.

Charges that the lost server made after the copy are missing from the new one.  Each test makes
such a charge, and ends with the owner having entered it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dpsql.client.layout import own
from tests.conftest import Database
from tests.server.refusals import Refusal, books, check
from tests.server.replicating import PAID, Primary, begin, spent
from tests.server.waiting import wait_until

LOST = "select dp_count(*) from client where c_id > 100"
NEW = "select dp_count(*) from client where c_id > 150"
RESTORED = Refusal(
    "PD051",
    "the privacy ledger was restored or promoted and nobody acknowledged it",
    "Spends that were made since the backup may be missing from it.",
    "The owner of the data must run SELECT dp.acknowledge_restore('<what happened>').",
    NEW,
)


@pytest.fixture(scope="module")
def primary(installation: None) -> Iterator[Primary]:
    primary = begin()
    yield primary
    primary.remove()


def lose_a_charge(primary: Primary) -> None:
    """Let alice spend 1 that the copy does not know."""
    before = spent(primary.shop)
    with primary.shop.connect(user="alice") as alice:
        alice.execute("set dp.fresh = on")
        alice.execute(LOST)
    assert spent(primary.shop) == before + 1


def check_that_the_owner_decides(found: Any, known: float) -> None:
    """Refused and told; after the owner entered what was lost, budgets are as they must be."""
    admin, alice, owner = found.connect(), found.connect("alice"), found.connect("owner1")
    assert spent(found) == known, "what was spent since the copy is not known here"
    check(alice, admin, RESTORED)
    check(alice, admin, replace(RESTORED, sql=PAID))
    status = "select status, advice from dp.ledger_status"
    assert owner.execute(status).fetchone() == (
        "restored",
        "Spends since the backup are missing. SELECT dp.acknowledge_restore('<what happened>');"
        " then dp.record_loss(...) for those that are known.",
    )
    charged = books(admin)
    owner.execute("select dp.acknowledge_restore('the server burned')")
    owner.execute("select dp.record_loss('alice', 'client', 1, 0, 'a question of that day')")
    assert owner.execute(status).fetchone() == ("ok", None)
    assert books(admin) == charged
    assert spent(found) == known + 1
    assert alice.execute(PAID).fetchone()
    assert spent(found) == known + 1, "what was paid for stays paid"
    assert alice.execute(NEW).fetchone()
    assert spent(found) == known + 2
    lost = "select epsilon_spent from dp.budgets where relation = 'public.client'"
    assert owner.execute(lost).fetchone() == (known + 2,)


def test_a_promoted_asynchronous_standby(primary: Primary) -> None:
    cluster = primary.back_up("standby", "-R")
    cluster.start()
    standby = Database(cluster, primary.shop.name)
    try:
        admin, alice, owner = standby.connect(), standby.connect("alice"), standby.connect("owner1")
        wait_until(lambda: admin.execute("select from pg_stat_wal_receiver where status = 'streaming'").rowcount == 1)  # fmt: skip
        check(
            alice,
            admin,
            Refusal(
                "PD050",
                "the privacy ledger is not available",
                "This server is a standby, where nothing can be charged.",
                "Ask the primary server. What you were answered there before, and releases, can be read here.",
                NEW,
            ),
        )
        assert owner.execute("select status from dp.ledger_status").fetchone() == ("standby",)
        admin.execute("alter system set primary_conninfo = ''")
        admin.execute("select pg_reload_conf()")
        wait_until(lambda: admin.execute("select from pg_stat_wal_receiver").rowcount == 0)
        known = spent(primary.shop)
        lose_a_charge(primary)
        assert admin.execute("select pg_promote(true, 300)").fetchone() == (True,)
        check_that_the_owner_decides(standby, known)
    finally:
        standby.close()
        cluster.stop("immediate")


def test_a_backup_that_was_recovered_to_a_point_in_time(primary: Primary) -> None:
    cluster = primary.back_up("backup")
    known = spent(primary.shop)
    primary.shop.sql("select pg_create_restore_point('before')")
    lose_a_charge(primary)
    (segment,) = primary.shop.sql("select pg_walfile_name(pg_switch_wal())")[0]
    wait_until(lambda: (primary.archive / segment).exists())
    cluster.settings.update(
        restore_command=f"'cp {primary.archive}/%f %p'",
        recovery_target_name="'before'",
        recovery_target_action="'promote'",
    )
    own(cluster.data)
    (cluster.data / "recovery.signal").touch()
    cluster.start()
    recovered = Database(cluster, primary.shop.name)
    try:
        wait_until(lambda: recovered.sql("select pg_is_in_recovery()") == [(False,)])
        check_that_the_owner_decides(recovered, known)
    finally:
        recovered.close()
        cluster.stop("immediate")


def test_a_crash_is_no_restore(primary: Primary) -> None:
    primary.shop.close()
    primary.server.cluster.stop("immediate")
    primary.server.cluster.start()
    before = spent(primary.shop)
    with primary.shop.connect(user="alice") as alice:
        assert alice.execute(PAID).fetchone()
    with primary.shop.connect(user="owner1") as owner:
        assert owner.execute("select status from dp.ledger_status").fetchone() == ("ok",)
    assert spent(primary.shop) == before
