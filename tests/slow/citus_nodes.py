"""A coordinator with dpsql and two workers without, of Citus, where it is installed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.client.cluster import Cluster
from dpsql.client.layout import Layout
from tests.conftest import Database, Server, start_server

SETTINGS = {
    "max_prepared_transactions": "50",
    "citus.node_conninfo": "'sslmode=prefer'",
    "citus.shard_count": "6",
    "shared_buffers": "64MB",
}
#: What must be on a worker: two roles, of which one reads; and whoever owns the tables.
ROLES = "create role dp_owner nologin; create role dp_executor login; create role owner1 login"
#: Citus gives it the attributes of the coordinator's role when a table is distributed that it may read.
LOGIN = "set citus.enable_ddl_propagation = off; alter role dp_executor login"
#: Citus would make the extension on all nodes, and roles of analysts.
MAKE = """
create extension citus;
set citus.enable_ddl_propagation = off;
create extension dpsql cascade;
set citus.enable_ddl_propagation = on;
select dp.acknowledge_restore('new');
select citus_set_coordinator_host('{host}', 5432);
grant dp_owner to owner1;
"""
SHOP = """
create table client (c_id int primary key, c_place int, c_kind text);
create table purchase (p_client int not null references client, p_amount int not null, p_place int);
create table place (p_id int primary key);
insert into place select i from generate_series(1, 5) i;
insert into client select i, 1 + i % 5, chr(97 + i % 3) from generate_series(1, 40) i;
insert into purchase select 1 + i % 40, i, i % 6 from generate_series(1, 200) i;
alter table place owner to owner1; alter table client owner to owner1;
alter table purchase owner to owner1;
"""
PROTECT = """
select dp.protect('client', privacy_unit => 'c_id'), dp.declare_public('place');
select dp.set_domain('purchase', 'p_amount', 0, 1000);
select dp.set_domain('client', 'c_kind', array['a', 'b', 'c']);
select dp.grant_budget('alice', 1e6, 1e-1), dp.grant_budget('postgres', 1e7, 1);
"""
ANYWHERE = "select dp.declare_shards('{}', written => 'anywhere')"
DISTRIBUTE = {
    "client": "select create_distributed_table('client', 'c_id')",
    "purchase": "select create_distributed_table('purchase', 'p_client')",
    "place": "select create_reference_table('place')",
}


@dataclass(slots=True)
class Nodes:
    """``near`` has dpsql; ``far`` are the workers' databases of the same name."""

    server: Server
    workers: list[Cluster]
    near: Database
    far: list[Database] = field(default_factory=list)

    def distribute(self, *tables: str) -> None:
        """Give tables to Citus in a session of a superuser, one after the other."""
        with self.near.connect() as session:
            for table in tables:
                session.execute(DISTRIBUTE[table])

    def allow(self, *tables: str) -> None:
        """Let questions over units be asked about tables that Citus keeps."""
        for table in tables:
            self.near.sql(ANYWHERE.format(table), user="owner1")
        for worker in self.far:
            worker.sql(LOGIN)

    def shards(self, table: str) -> list[tuple[Database, str]]:
        """Return where the shards of a table are, and their names."""
        rows = self.near.sql(
            "select nodename, shard_name::text from citus_shards where table_name = %s::regclass"
            " and nodename <> %s order by shardid",
            table,
            str(self.server.cluster.socket),
        )
        by_node = {str(d.cluster.socket): d for d in self.far}
        return [(by_node[node], name) for node, name in rows]


def start_worker() -> Cluster:
    """Start a server that has Citus and knows nothing of dpsql."""
    folder = Path(tempfile.mkdtemp(prefix="dpsql-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = Cluster(
        bin=Layout.discover().bin,
        data=folder / "data",
        socket=folder / "run",
        log=folder / "log" / "postgresql.log",
        settings={"fsync": "off", "shared_preload_libraries": "'citus'", **SETTINGS},
    )
    cluster.create(sync=False)
    cluster.start()
    Database(cluster, "postgres").sql(ROLES)
    return cluster


@contextmanager
def started(server: Server) -> Iterator[tuple[Server, list[Cluster]]]:
    """Start all servers, or skip where there is no Citus."""
    available = Database(server.cluster, "postgres").sql(
        "select 1 from pg_available_extensions where name = 'citus'"
    )
    if not available:
        pytest.skip("pg_available_extensions has no citus")
    own = start_server(shared_preload_libraries="'citus,dpsql'", **SETTINGS)
    workers: list[Cluster] = []
    try:
        for _ in range(2):
            workers.append(start_worker())
        yield own, workers
    finally:
        own.remove()
        for worker in workers:
            worker.stop("immediate")
            shutil.rmtree(worker.data.parent, ignore_errors=True)


@contextmanager
def shop(own: Server, workers: list[Cluster], more: str = PROTECT) -> Iterator[Nodes]:
    """Make the database on all nodes, with tables that Citus does not keep yet."""
    near = own.create_database("template0", acknowledge=False)
    nodes = Nodes(own, workers, near, [Database(w, near.name) for w in workers])
    try:
        for database in nodes.far:
            Database(database.cluster, "postgres").sql(f"create database {near.name}")
            database.sql("create extension citus")
        near.sql(MAKE.format(host=own.cluster.socket))
        near.sql("create schema if not exists public; grant usage on schema public to public")
        for worker in workers:
            near.sql("select citus_add_node(%s, 5432)", str(worker.socket))
        near.sql(SHOP)
        if more:
            near.sql(more, user="owner1")
        yield nodes
    finally:
        own.drop_database(near)
        for database in nodes.far:
            database.close()
            Database(database.cluster, "postgres").sql(
                f"drop database if exists {near.name} with (force)"
            )


def spent(nodes: Nodes) -> Any:
    """Return what was charged to all roles."""
    return nodes.near.sql("select sum(epsilon_spent) from dp.budgets")


def told(session: psycopg.Connection[Any]) -> list[str]:
    """Listen to what a session hears beside answers."""
    heard: list[str] = []
    session.add_notice_handler(lambda said: heard.append(str(said.message_primary)))
    return heard
