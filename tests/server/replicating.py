"""A primary server, copies of it, and what becomes of its ledger there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.client.cluster import Cluster
from dpsql.client.layout import own
from tests.conftest import Database, Server, start_server
from tests.server.conftest import declare
from tests.server.waiting import wait_until

PAID = "select dp_count(*) from client"


@dataclass
class Primary:
    """A cluster that archives its WAL, with a shop in which alice has asked."""

    server: Server
    shop: Any
    archive: Path

    def back_up(self, name: str, *options: str) -> Cluster:
        """Copy the cluster as an administrator does; the copy can be started beside it."""
        folder = self.server.folder / name
        mine = self.server.cluster
        own(folder / "data")
        mine._as_server(
            *(mine.bin / "pg_basebackup", "-d", mine.conninfo(application_name=name)),
            *("-D", folder / "data", "-c", "fast", "-X", "stream", "--no-sync", *options),
        )
        copied = Cluster(
            bin=mine.bin,
            data=folder / "data",
            socket=folder / "run",
            log=folder / "log" / "postgresql.log",
            settings=mine.settings | {"archive_mode": "off"},
        )
        own(copied.socket)
        own(copied.log.parent)
        return copied

    def wait_for(self, standby: Database) -> None:
        """Wait until a standby has replayed all that is written by now."""
        (written,) = self.shop.sql("select pg_current_wal_flush_lsn()::text")[0]
        replayed = f"select pg_last_wal_replay_lsn() >= '{written}'"
        wait_until(lambda: standby.sql(replayed) == [(True,)], 60)

    def remove(self) -> None:
        self.shop.close()
        self.server.remove()


def begin(**settings: str) -> Primary:
    """Start a server that archives its WAL, in which alice has asked ``PAID``."""
    server = start_server()
    archive = server.folder / "archive"
    own(archive)
    server.cluster.settings.update(
        {"archive_mode": "on", "archive_command": f"'cp %p {archive}/%f'"} | settings
    )
    server.cluster.restart()
    shop = declare(server.create_database())
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.grant_budget('alice', 10)")
    with shop.connect(user="alice") as alice:
        alice.execute(PAID)
    return Primary(server, shop, archive)


def spent(database: Any) -> float:
    """Return what alice has spent."""
    found = database.sql("select epsilon_spent from dp.budgets where role = 'alice'")
    return float(found[0][0])
