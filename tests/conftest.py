"""Shared fixtures: a throw-away PostgreSQL cluster with the extension, a fresh database a test."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

if TYPE_CHECKING:
    import psycopg

    from dpsql.client.cluster import Cluster

TEMPLATE = "dpsql_template"
SERVER: pytest.StashKey[Server] = pytest.StashKey()
ROLES = ("owner1", "alice", "bob", "mallory")

pytest.register_assert_rewrite("tests.server.refusals")
# a machine that is busy for some seconds is no fault of an example
UNHURRIED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}
hypothesis_settings.register_profile("dpsql", **UNHURRIED)
hypothesis_settings.register_profile("hunt", **UNHURRIED, max_examples=500)
hypothesis_settings.load_profile("dpsql")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server-floor",
        type=int,
        default=0,
        help="fail unless at least so many server tests passed and none was skipped",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    server = Path(__file__).parent / "server"
    for item in items:
        if server in item.path.parents:
            item.add_marker(pytest.mark.server)


def pytest_report_header(config: pytest.Config) -> str:
    return f"hypothesis seed: {config.getoption('hypothesis_seed')}"


@dataclass(slots=True, eq=False)
class ServerTests:
    """Outcomes of the tests that need a server; a silent skip must not look like success."""

    floor: int
    passed: int = 0
    skipped: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "server" in report.keywords:
            if report.skipped:
                self.skipped.append(report.nodeid)
            elif report.passed and report.when == "call":
                self.passed += 1

    def complaint(self) -> str | None:
        if self.floor and self.skipped:
            return f"{len(self.skipped)} server tests were skipped, first {self.skipped[0]}"
        if self.passed < self.floor:
            return f"{self.passed} server tests passed, at least {self.floor} must"
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.complaint() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if complaint := self.complaint():
            terminalreporter.write_line(f"ERROR: {complaint}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(
        config, "workerinput"
    ):  # the reports of all workers come together in one process
        floor = config.getoption("--server-floor")
        config.pluginmanager.register(ServerTests(floor), "server-tests")


@dataclass(slots=True)
class Database:
    """One database of the throw-away cluster; connections are closed when the test ends."""

    cluster: Cluster
    name: str
    _open: list[psycopg.Connection[Any]] = field(default_factory=list)

    def conninfo(self, user: str = "postgres", **parameters: str) -> str:
        return self.cluster.conninfo(dbname=self.name, user=user, **parameters)

    def connect(self, user: str = "postgres", **arguments: Any) -> psycopg.Connection[Any]:
        """Open a connection, in autocommit mode unless told otherwise."""
        import psycopg

        arguments.setdefault("autocommit", True)
        connection = psycopg.connect(self.conninfo(user), **arguments)
        self._open.append(connection)
        return connection

    def sql(self, text: str, *parameters: object, user: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements on a new connection, return the last one's rows (none: an empty list).

        ``%s`` stands for a parameter; without parameters ``%`` is an ordinary character, and
        several statements may be separated by semicolons.
        """
        connection = self.connect(user)
        try:
            cursor = connection.execute(text, parameters or None)  # type: ignore[arg-type]
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()


@dataclass(slots=True)
class Server:
    """A throw-away cluster whose template database holds the extension."""

    cluster: Cluster
    folder: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def prepare(self) -> None:
        """Make the roles and the template database."""
        postgres = Database(self.cluster, "postgres")
        for role in ROLES:
            postgres.sql(f"create role {role} login")
        postgres.sql(f"create database {TEMPLATE}")
        Database(self.cluster, TEMPLATE).sql("create extension dpsql cascade")

    def create_database(self, template: str = TEMPLATE, acknowledge: bool = True) -> Database:
        """Clone a database (about 0.1 s) and tell its ledger, if it has one, that this is meant."""
        name = f"test{next(self._numbers)}"
        self._once_unused(f"create database {name} template {template}")
        database = Database(self.cluster, name)
        if acknowledge:
            database.sql("select dp.acknowledge_restore('a clone for one test')")
        return database

    def drop_database(self, database: Database) -> None:
        database.close()
        self._once_unused(f"drop database if exists {database.name} with (force)")

    def _once_unused(self, statement: str, seconds: float = 120) -> None:
        """Run what needs a database without sessions: PostgreSQL waits for their ends for 5 s only."""
        from psycopg.errors import ObjectInUse

        end = time.monotonic() + seconds
        while True:
            try:
                Database(self.cluster, "postgres").sql(statement)
                return
            except ObjectInUse:
                if time.monotonic() > end:
                    raise

    def revoke_memberships(self) -> None:
        """Roles belong to the cluster, so that the next test would find them."""
        Database(self.cluster, "postgres").sql(
            "do $$ declare found record; begin"
            " for found in select roleid::regrole as role, member::regrole as member"
            " from pg_auth_members join pg_roles as r on r.oid = member where r.rolname = any ("
            f"array{list(ROLES)}) loop"
            " execute format('revoke %s from %s cascade', found.role, found.member); end loop;"
            " end $$"
        )

    def remove(self) -> None:
        self.cluster.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


def start_server(durable: bool = False, **settings: str) -> Server:
    """Start a cluster of its own; ``durable`` keeps fsync and synchronous commits on."""
    from dpsql.client.cluster import Cluster
    from dpsql.client.layout import Layout

    folder = Path(tempfile.mkdtemp(prefix="dpsql-", dir="/tmp"))
    folder.chmod(0o755)
    layout = Layout.discover()
    defaults = {"shared_buffers": "128MB", "work_mem": "16MB", "max_wal_size": "1GB"}
    # who asks has two, and some tests leave theirs open to the end of their module
    defaults["max_connections"] = "300"
    defaults["timezone"] = "'UTC'"  # days have 24 hours, wherever the tests run
    if not durable:
        defaults |= {"fsync": "off", "full_page_writes": "off"}
    cluster = Cluster(
        bin=layout.bin,
        data=folder / "data",
        socket=folder / "run",
        log=folder / "log" / "postgresql.log",
        settings=defaults | settings,
    )
    server = Server(cluster, folder)
    try:
        cluster.create(sync=durable)
        cluster.start()
        server.prepare()
    except BaseException:
        server.remove()
        raise
    return server


@pytest.fixture(scope="session")
def installation() -> None:
    """Build the extension from the working tree and install it into the private tree."""
    from dpsql.client.build import prepare
    from dpsql.client.layout import Layout

    layout = Layout.discover()
    # one worker builds, the others wait and find it done
    with (layout.home / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepare(layout)


@pytest.fixture(scope="session")
def server(installation: None, pytestconfig: pytest.Config) -> Iterator[Server]:
    """The session's cluster with roles and template database (fsync off)."""
    server = start_server()
    pytestconfig.stash[SERVER] = server
    yield server
    if os.environ.get("DPSQL_KEEP_SERVER"):
        server.cluster.stop()
    else:
        server.remove()


@pytest.fixture(scope="module", autouse=True)
def memberships(pytestconfig: pytest.Config) -> Iterator[None]:
    """Take back, after each file, what its tests made the roles of all databases members of."""
    yield
    if server := pytestconfig.stash.get(SERVER, None):
        server.revoke_memberships()


@pytest.fixture(scope="session")
def cluster(server: Server) -> Cluster:
    """The session's running cluster."""
    return server.cluster


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A fresh database with the extension, dropped after the test."""
    database = server.create_database()
    yield database
    server.drop_database(database)


@pytest.fixture
def make_server(installation: None) -> Iterator[Callable[..., Server]]:
    """Start clusters of one's own, to crash them: ``make_server(durable=True, **settings)``."""
    servers: list[Server] = []

    def make(durable: bool = False, **settings: str) -> Server:
        server = start_server(durable, **settings)
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.remove()
