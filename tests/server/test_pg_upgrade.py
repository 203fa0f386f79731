"""pg_upgrade: the ledger moves with the files, and says so (15 to 15, the only major that was run)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from dpsql.client.cluster import Cluster
from dpsql.client.layout import own
from tests.conftest import TEMPLATE, Database, Server
from tests.server.conftest import declare
from tests.server.inventory import differences, inventory
from tests.server.test_dump_restore import KEPT

PAID = "select dp_count(*) from client"
NEW = "select dp_count(*) from client where c_id > 3"
RELEASED = "select c_kind, dp_count(*) from client group by c_kind order by 1"
VIEWS = "select oid::regclass::text from pg_class where relkind = 'v' and relnamespace = 'dp'::regnamespace"
MORE = {
    source: f"select to_jsonb(t) from {source} as t order by to_jsonb(t)::text"
    for source in ("dp.answer", "dp.stored_release", "dp.statistic", "dpv.kinds")
}


def upgrade(old: Cluster, server: Server) -> Cluster:
    """Stop a cluster and move it into a new one, files copied."""
    new = Cluster(
        bin=old.bin,
        data=server.folder / "upgraded",
        socket=server.folder / "run2",
        log=server.folder / "log" / "upgraded.log",
        settings=old.settings,
    )
    new.create(sync=False)
    new.configure()
    old.stop()
    work = server.folder / "work"
    own(work)
    new._as_server(
        *("sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", work),
        *(old.bin / "pg_upgrade", "-b", old.bin, "-B", old.bin, "-d", old.data, "-D", new.data),
        *("-U", "postgres", "-s", work, "-p", "5433", "-P", "5434"),
    )
    new.start()
    return new


def compared(database: Database) -> dict[str, str | None]:
    """Leave out what pg_upgrade writes otherwise: texts of views, privileges that are the default ones."""
    views = {f"relation {name}" for (name,) in database.sql(VIEWS)}
    return {
        name: value
        for name, value in inventory(database).items()
        if name not in views and not name.startswith("first privileges")
    }


def test_the_ledger_moves_and_charges_after_it_was_acknowledged(make_server: Any) -> None:
    server = make_server()
    shop = declare(server.create_database())
    # one database with the extension is enough to move
    Database(server.cluster, "postgres").sql(f"drop database {TEMPLATE}")
    owner = shop.connect("owner1")
    owner.execute("select dp.grant_budget('alice', 10, 1e-5)")
    owner.execute("select dp.collect_statistics('purchase'), dp.refresh_statistics('purchase')")
    shop.sql(PAID, user="alice")
    shop.sql(
        f"select dp.release('kinds', $$ {RELEASED.replace(' order by 1', '')} $$, epsilon => 1, delta => 1e-9)",
        user="alice",
    )
    known = {name: shop.sql(query) for name, query in (KEPT | MORE).items()}
    objects = compared(shop)
    shop.close()
    cluster = upgrade(server.cluster, server)
    moved = Database(cluster, shop.name)
    try:
        assert {name: moved.sql(query) for name, query in (KEPT | MORE).items()} == known
        assert differences(compared(moved), objects) == []
        for question in (PAID, NEW):
            with pytest.raises(psycopg.Error) as caught:
                moved.sql(question, user="alice")
            assert caught.value.sqlstate == "PD051"
        moved.sql("select dp.acknowledge_restore('pg_upgrade; nothing is lost')", user="owner1")
        spent = "select epsilon_spent from dp.budgets where role = 'alice'"
        assert moved.sql(spent) == [(2,)]
        # stored answers hang on where relations live, and are charged again, like after a restore
        moved.sql(PAID, user="alice")
        assert moved.sql(spent) == [(3,)]
        moved.sql(NEW, user="alice")
        assert moved.sql(spent) == [(4,)]
        # triggers of the catalogue see what happens here
        moved.sql("drop table purchase cascade", user="owner1")
        assert moved.sql("select relation_name from dp.root order by 1") == [
            ("client",),
            ("purchase",),
        ]
    finally:
        moved.close()
        cluster.stop("immediate")
